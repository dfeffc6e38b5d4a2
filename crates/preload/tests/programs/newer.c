// Functions of newer libcs, which make system calls of their own: sched_setattr, and pidfd_spawn with a thread's mask.
// Before glibc 2.41 there is nothing to compare.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#if __GLIBC_PREREQ(2, 41)
#include <sys/pidfd.h>
#include <spawn.h>

static void told(const char *what) {
    struct sched_attr attributes = {0};
    assert(!sched_getattr(0, &attributes, sizeof attributes, 0));
    printf("%s: policy %u, priority %u, nice %d; %d, %d\n", what, attributes.sched_policy, attributes.sched_priority,
           attributes.sched_nice, sched_getscheduler(0), getpriority(PRIO_PROCESS, 0));
}

static void spawned(int by_name) {
    char *arguments[] = {"grep", "SigBlk", "/proc/self/status", NULL};
    int file = -1;
    siginfo_t ended = {0};
    fflush(stdout);
    int failed = by_name ? pidfd_spawnp(&file, "grep", NULL, NULL, arguments, environ)
                         : pidfd_spawn(&file, "/bin/grep", NULL, NULL, arguments, environ);
    assert(!failed && pidfd_getpid(file) > 0);
    assert(!waitid(P_PIDFD, file, &ended, WEXITED) && ended.si_status == 0);
    close(file);
    failed = pidfd_spawnp(&file, "no-such-program", NULL, NULL, arguments, environ);
    printf("%s\n", strerror(failed));
}

static void *thread(void *unused) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigaddset(&blocked, SIGTERM);
    assert(!pthread_sigmask(SIG_BLOCK, &blocked, NULL));
    told("at first");
    struct sched_attr wanted = {.size = sizeof wanted, .sched_policy = SCHED_BATCH, .sched_nice = 7};
    assert(!sched_setattr(0, &wanted, 0));
    told("batch");
    wanted.sched_policy = 77;
    int set = sched_setattr(0, &wanted, 0);
    printf("77: %d %s\n", set, strerror(errno));
    set = sched_setattr(999999999, &wanted, 0);
    printf("no thread: %d %s\n", set, strerror(errno));
    set = sched_getattr(0, &wanted, 3, 0);
    printf("too small: %d %s\n", set, strerror(errno));
    spawned(0);
    spawned(1);
    return unused;
}

int main(void) {
    pthread_t created;
    told("before");
    assert(!pthread_create(&created, NULL, thread, NULL) && !pthread_join(created, NULL));
    told("the first thread");
    return 0;
}
#else
int main(void) {
    return 0;
}
#endif
