// Scheduling policies and niceness: what is set is told and inherited, and what is refused, refused alike.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// The kernel's `struct sched_attr`.
struct attributes {
    unsigned size, policy;
    unsigned long long flags;
    int niceness;
    unsigned priority;
    unsigned long long times[3];
};

static void tell(const char *what, pthread_t thread) {
    int policy;
    struct sched_param parameters;
    assert(!pthread_getschedparam(thread, &policy, &parameters));
    printf("%s: %d %d\n", what, policy, parameters.sched_priority);
}

static void *is_told(void *argument) {
    tell(argument, pthread_self());
    struct sched_param parameters;
    assert(!sched_getparam(0, &parameters));
    printf("%d %d\n", sched_getscheduler(0), parameters.sched_priority);
    return NULL;
}

static void run(const char *what, pthread_attr_t *attributes) {
    pthread_t thread;
    assert(!pthread_create(&thread, attributes, is_told, (void *)what) && !pthread_join(thread, NULL));
}

static void is_nice(const char *what) {
    struct attributes told = {0};
    assert(!syscall(SYS_sched_getattr, 0, &told, sizeof told, 0));
    printf("%s: nice %d %d %ld\n", what, getpriority(PRIO_PROCESS, 0), getpriority(PRIO_PROCESS, gettid()),
           syscall(SYS_getpriority, PRIO_PROCESS, 0));
    printf("policy %u, priority %u, nice %d\n", told.policy, told.priority, told.niceness);
}

static void *gets_nicer(void *what) {
    is_nice(what);
    for (int value = 40; value > -40; value -= 15) {
        errno = 0;
        int set = setpriority(PRIO_PROCESS, gettid(), value);
        printf("to %d: %d %d\n", value, set, errno);
        is_nice("set");
    }
    struct attributes wanted = {.size = sizeof wanted, .policy = SCHED_BATCH, .niceness = 7};
    errno = 0;
    long set = syscall(SYS_sched_setattr, 0, &wanted, 0);
    printf("batch: %ld %d\n", set, errno);
    is_nice("batch");
    errno = 0;
    int less = nice(-2);
    printf("less: %d %d\n", less, errno);
    errno = 0;
    set = setpriority(77, 0, 1);
    printf("%ld %d\n", set, errno);
    set = setpriority(PRIO_PROCESS, 999999999, 1);
    printf("%ld %d\n", set, errno);
    return NULL;
}

int main(void) {
    run("usual", NULL);
    int policies[] = {SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_OTHER, 77};
    int priorities[] = {0, 1, 10, 100, -1};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            struct sched_param parameters = {priorities[j]};
            int set = pthread_setschedparam(pthread_self(), policies[i], &parameters);
            printf("%d %d: %d\n", policies[i], priorities[j], set);
            tell("self", pthread_self());
        }
    struct sched_param parameters = {7};
    if (!pthread_setschedparam(pthread_self(), SCHED_RR, &parameters)) {
        run("inherited", NULL);
        assert(!pthread_setschedprio(pthread_self(), 5));
        printf("%d\n", pthread_setschedprio(pthread_self(), 0));
        pthread_attr_t attributes;
        assert(!pthread_attr_init(&attributes));
        assert(!pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED));
        assert(!pthread_attr_setschedpolicy(&attributes, SCHED_OTHER));
        parameters.sched_priority = 0;
        assert(!pthread_attr_setschedparam(&attributes, &parameters));
        run("explicit", &attributes);
    }
    parameters.sched_priority = 0;
    int set = sched_setscheduler(0, SCHED_FIFO, &parameters);
    printf("%d %d\n", set, errno);
    // (glibc tells of a thread what was set by pthread_setschedparam, whatever is set by this.)
    parameters.sched_priority = 3;
    set = sched_setscheduler(0, SCHED_FIFO, &parameters);
    printf("%d %d\n", set, sched_getscheduler(0));
    parameters.sched_priority = 0;
    assert(!sched_setscheduler(0, SCHED_OTHER, &parameters));
    parameters.sched_priority = 9;
    assert(!sched_getparam(0, &parameters));
    printf("%d %d\n", sched_getscheduler(0), parameters.sched_priority);
    is_nice("usual");
    assert(nice(3) == 3);
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, gets_nicer, "inherited") && !pthread_join(thread, NULL));
    is_nice("self");
    // Without rights, it only grows.
    if (!seteuid(65534) || getuid() != 0) gets_nicer("without rights");
    return 0;
}
