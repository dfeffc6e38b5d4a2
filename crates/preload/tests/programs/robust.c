// Threads end while they hold robust mutexes, with and without priority inheritance.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t mutex;
static pthread_barrier_t held;

static int lock(int how) {
    struct timespec later;
    switch (how) {
        case 0: return pthread_mutex_lock(&mutex);
        case 1: return pthread_mutex_trylock(&mutex);
        default:
            clock_gettime(CLOCK_REALTIME, &later);
            later.tv_sec += 60;
            return pthread_mutex_timedlock(&mutex, &later);
    }
}

static void *ends(void *how) {
    assert(!lock((int)(long)how));
    return NULL;
}

// Ends when another one waits for the mutex.
static void *ends_later(void *unused) {
    assert(!lock(0));
    pthread_barrier_wait(&held);
    for (int i = 0; i < 20; i++) sched_yield();
    return NULL;
}

static void *takes(void *how) {
    int result = lock((int)(long)how);
    if (!result) pthread_mutex_unlock(&mutex);
    return (void *)(long)result;
}

static int run(void *(*function)(void *), int how) {
    pthread_t thread;
    void *value;
    assert(!pthread_create(&thread, NULL, function, (void *)(long)how));
    pthread_join(thread, &value);
    return (int)(long)value;
}

int main(void) {
    static const int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT};
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_RECURSIVE};
    pthread_barrier_init(&held, NULL, 2);
    for (int each = 0; each < 18; each++) {
        int protocol = each / 9, type = each / 3 % 3, how = each % 3;
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutexattr_setprotocol(&attributes, protocols[protocol]);
        pthread_mutexattr_settype(&attributes, types[type]);
        assert(!pthread_mutex_init(&mutex, &attributes));
        printf("inherits %d, type %d, by %d:", protocol, type, how);
        run(ends, how);
        int result = lock(how);
        printf(" %s", strerror(result));
        printf(" %d", pthread_mutex_consistent(&mutex));
        printf(" %d", pthread_mutex_unlock(&mutex));
        printf(" %d", run(takes, how));
        // It waits until the owner ends.
        pthread_t owner;
        pthread_create(&owner, NULL, ends_later, NULL);
        pthread_barrier_wait(&held);
        printf(" %s", strerror(lock(how ? 2 : 0)));
        pthread_join(owner, NULL);
        // Not made consistent, so nobody has it again.
        printf(" %d", pthread_mutex_unlock(&mutex));
        // (glibc's trylock forgets to unlock it then.)
        for (int i = 0; i < 4; i++) printf(" %d", i % 2 ? run(takes, i / 2 * 2) : lock(i));
        printf(" %d\n", pthread_mutex_destroy(&mutex));
    }
    return 0;
}
