// Scheduling policies: what is set is told and inherited, and what is refused, refused alike.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

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
    return 0;
}
