// What a child of vfork sets for itself is its own: its name, niceness, policy and processors. Its parent keeps what it has.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *who) {
    char name[16];
    cpu_set_t set;
    assert(!prctl(PR_GET_NAME, name) && !sched_getaffinity(0, sizeof set, &set));
    dprintf(1, "%s: %s, niceness %d, policy %d, %s\n", who, name, getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
            CPU_COUNT(&set) == 1 ? "one processor" : "any");
}

static void *forks(void *who) {
    struct sched_param parameters = {0};
    cpu_set_t set, one;
    CPU_ZERO(&one);
    assert(!sched_getaffinity(0, sizeof set, &set));
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++) {
        if (CPU_ISSET(i, &set)) CPU_SET(i, &one);
    }
    tell(who);
    pid_t child = vfork();
    if (child == 0) {
        prctl(PR_SET_NAME, "child");
        setpriority(PRIO_PROCESS, 0, 5);
        nice(3);
        sched_setscheduler(0, SCHED_BATCH, &parameters);
        sched_setaffinity(0, sizeof one, &one);
        tell("child");
        pthread_setname_np(pthread_self(), "renamed");
        tell("child");
        _exit(0);
    }
    assert(child > 0 && waitpid(child, NULL, 0) == child);
    tell(who);
    return NULL;
}

int main(void) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, forks, "thread") && !pthread_join(thread, NULL));
    forks("first thread");
    return 0;
}
