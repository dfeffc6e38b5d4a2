// A sandbox, and other rights, of one thread alone are refused to a thread that is a fiber; all threads can have one.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LANDLOCK_CREATE_RULESET 444
#define LANDLOCK_RESTRICT_SELF 446

// `getpgid` fails with `ENOTTY`.
static struct sock_filter steps[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog filter = {4, steps};

static int is_sandboxed(void) {
    errno = 0;
    return syscall(SYS_getpgid, 0) == -1 && errno == ENOTTY;
}

#define REFUSED(call) (errno = 0, (call) == -1 && errno == EPERM)

static void *tries(void *unused) {
    assert(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    assert(REFUSED(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)));
    assert(REFUSED(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL)));
    assert(REFUSED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)));
    assert(REFUSED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)));
    assert(REFUSED(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0)));
    assert(!is_sandboxed());
    // By these a program finds out whether there are filters.
    assert(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1 && errno == EFAULT);
    assert(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT);
    struct {
        unsigned long long files;
    } rights = {4};
    int rules = syscall(LANDLOCK_CREATE_RULESET, &rights, sizeof rights, 0);
    if (rules >= 0) assert(REFUSED(syscall(LANDLOCK_RESTRICT_SELF, rules, 0)) && !close(rules));
    int had = prctl(PR_CAPBSET_READ, 25, 0, 0, 0);
    assert(REFUSED(prctl(PR_CAPBSET_DROP, 25, 0, 0, 0)) && prctl(PR_CAPBSET_READ, 25, 0, 0, 0) == had);
    assert(REFUSED(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)) && prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0) == 0);
    int bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
    assert(REFUSED(prctl(PR_SET_SECUREBITS, bits, 0, 0, 0)));
    assert(REFUSED(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, 25, 0, 0)));
    assert(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 25, 0, 0) == 0);
    // Processors without keys, and those that have none left, say so as well.
    errno = 0;
    assert(pkey_alloc(0, 0) == -1 && errno == ENOSPC);
    errno = 0;
    assert(syscall(SYS_pkey_alloc, 0, 0) == -1 && errno == ENOSPC);
    // A process of its own may.
    pid_t child = fork();
    if (child == 0) {
        int failed = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
        _exit(!failed && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) && is_sandboxed() ? 7 : 1);
    }
    int status;
    assert(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    assert(!is_sandboxed());
    return unused;
}

static void *is_free(void *unused) {
    (void)unused;
    return is_sandboxed() ? NULL : "free";
}

static void *sandbox_all(void *unused) {
    assert(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    assert(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter));
    return unused;
}

static void *on_thread(void *(*function)(void *)) {
    pthread_t thread;
    void *result;
    assert(!pthread_create(&thread, NULL, function, NULL) && !pthread_join(thread, &result));
    return result;
}

int main(void) {
    on_thread(tries);
    tries(NULL);
    assert(on_thread(is_free));
    on_thread(sandbox_all);
    assert(is_sandboxed() && !on_thread(is_free));
    puts("refused");
    return 0;
}
