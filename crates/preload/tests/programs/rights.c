// What the kernel keeps for each thread is refused to a thread that is a fiber, and stays as it is.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *tries(void *unused) {
    uid_t own = geteuid();
    assert(setfsuid(own + 1) == (int)own && setfsuid(-1) == (int)own);
    assert(setfsgid(getegid() + 1) == (int)getegid() && setfsgid(-1) == (int)getegid());
    errno = 0;
    assert(syscall(SYS_setresuid, -1, own + 1, -1) == -1 && errno == EPERM && geteuid() == own);
    errno = 0;
    assert(unshare(CLONE_FS) == -1 && errno == EPERM && !unshare(0));
    // A process of its own may.
    pid_t child = fork();
    if (child == 0) _exit(unshare(CLONE_FS) == 0 && !setuid(own) ? 7 : 1);
    int status;
    assert(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    // And one that has its parent's memory.
    child = vfork();
    if (child == 0) {
        uid_t now = own ? own : own + 1;
        _exit(setfsuid(own + 1) == (int)own && setfsuid(-1) == (int)now && !unshare(CLONE_FS) ? 8 : 1);
    }
    assert(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 8);
    assert(setfsuid(-1) == (int)own);
    // So may all threads together.
    assert(!setuid(own) && !setresuid(-1, own, -1));
    return unused;
}

int main(void) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, tries, NULL) && !pthread_join(thread, NULL));
    tries(NULL);
    puts("refused");
    return 0;
}
