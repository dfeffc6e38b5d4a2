// Mutexes with a priority ceiling, of threads that have set a realtime policy.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t mutex, higher;
static int count;

static void create(pthread_mutex_t *made, int ceiling) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_PROTECT);
    pthread_mutexattr_setprioceiling(&attributes, ceiling);
    assert(!pthread_mutex_init(made, &attributes));
}

static void *locks(void *unused) {
    for (int i = 0; i < 1000; i++) {
        assert(!pthread_mutex_lock(&mutex));
        int before = count;
        if (i % 100 == 0) sched_yield();
        assert(pthread_mutex_trylock(&mutex) == EBUSY);
        assert(!pthread_mutex_lock(&higher));
        count = before + 1;
        assert(!pthread_mutex_unlock(&higher));
        assert(!pthread_mutex_unlock(&mutex));
    }
    return unused;
}

static void *sets_and_locks(void *unused) {
    struct sched_param priority = {.sched_priority = 2};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority)) return unused;
    return locks(unused);
}

int main(void) {
    pthread_t threads[3];
    create(&mutex, 5);
    create(&higher, 7);
    for (int i = 0; i < 3; i++) assert(!pthread_create(&threads[i], NULL, sets_and_locks, NULL));
    for (int i = 0; i < 3; i++) assert(!pthread_join(threads[i], NULL));
    sets_and_locks(NULL);
    printf("%s\n", count == 4000 || count == 0 ? "each in turn" : "at once");
    return 0;
}
