// What is created by `clone` and its kin begins with what its creator has, and does not run the creator's other
// threads.
#define _GNU_SOURCE
#include <assert.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// A system call without libc, for what shares its creator's thread-local storage.
static long raw(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
#else
    register long eighth __asm__("x8") = number;
    register long result __asm__("x0") = a;
    register long second __asm__("x1") = b, third __asm__("x2") = c, fourth __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(eighth), "r"(second), "r"(third), "r"(fourth) : "memory");
    return result;
#endif
}

// What the kernel knows of what was created; shared with it.
static struct shared {
    unsigned long blocked;
    char name[16];
    volatile int done, strangers;
} *shared;
static pid_t process;
static int ends[2];

static void note(void) {
    raw(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&shared->blocked, 8);
    raw(SYS_prctl, PR_GET_NAME, (long)shared->name, 0, 0);
}

static void tell(const char *how) {
    printf("%s: %s blocks", how, shared->name);
    for (int signal = 1; signal < 32; signal++) {
        if (shared->blocked >> (signal - 1) & 1) printf(" %d", signal);
    }
    printf("; others ran there: %s\n", shared->strangers ? "yes" : "no");
    fflush(stdout);
    memset(shared, 0, sizeof *shared);
}

static void await(const char *how, pid_t child) {
    int status;
    usleep(4000);
    assert(write(ends[1], "x", 1) == 1);
    assert(child > 0 && waitpid(child, &status, 0) == child);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    tell(how);
}

// A copy of the process waits, and changes its mask.
static int is_copy(void *argument) {
    char byte;
    note();
    usleep(2000);
    assert(read(ends[0], &byte, 1) == 1);
    sched_yield();
    // Its mask is the kernel's.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    unsigned long blocked;
    assert(!sigprocmask(SIG_BLOCK, &set, NULL));
    raw(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&blocked, 8);
    assert(blocked >> (SIGWINCH - 1) & 1);
    assert(argument == shared);
    return 7;
}

static int is_beside(void *argument) {
    note();
    usleep(2000);
    return argument == shared ? 7 : 8;
}

static int is_thread(void *argument) {
    note();
    ((struct shared *)argument)->done = 1;
    raw(SYS_exit, 7, 0, 0, 0);
    return 0;
}

static char *stack(void) {
    size_t size = 1 << 18;
    char *low = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(low != MAP_FAILED);
    // (Aligned as `clone` wants it, or not.)
    return low + size - 8;
}

static void *creates(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR2);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL) && !pthread_setname_np(pthread_self(), "creator"));
    await("clone", clone(is_copy, stack(), SIGCHLD, shared));
    await("clone beside", clone(is_beside, stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, shared));
    char byte;
    assert(read(ends[0], &byte, 1) == 1);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    assert(clone(is_thread, stack(), flags, shared) > 0);
    while (!shared->done) usleep(100);
    usleep(1000);
    tell("clone of a thread");
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(is_copy(shared));
    await("clone by number", child);
    struct clone_args arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.exit_signal = SIGCHLD;
    child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) _exit(is_copy(shared));
    await("clone3 by number", child);
    assert(syscall(SYS_clone3, NULL, sizeof arguments) == -1);
#ifdef SYS_fork
    child = syscall(SYS_fork);
    if (child == 0) _exit(is_copy(shared));
    await("fork by number", child);
#endif
#if __GLIBC_PREREQ(2, 34)
    child = _Fork();
    if (child == 0) _exit(is_copy(shared));
    await("_Fork", child);
#endif
    // The thread itself is as before.
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &set) && sigismember(&set, SIGHUP) && !sigismember(&set, SIGTERM));
    assert(clone(NULL, NULL, SIGCHLD, NULL) == -1);
    return unused;
}

static volatile int over;

static void *is_other(void *unused) {
    while (!over) {
        if (getpid() != process) shared->strangers = 1;
        sched_yield();
    }
    return unused;
}

int main(void) {
    pthread_t creator, others[2];
    process = getpid();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(shared != MAP_FAILED && pipe(ends) == 0);
    for (int i = 0; i < 2; i++) assert(!pthread_create(&others[i], NULL, is_other, NULL));
    assert(!pthread_create(&creator, NULL, creates, NULL) && !pthread_join(creator, NULL));
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
    return 0;
}
