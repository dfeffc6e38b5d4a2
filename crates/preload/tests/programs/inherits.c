// Mutexes that inherit priorities, between threads and others that stay threads (`stays`).
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static volatile int inside, count, turn;

static void *increments(void *unused) {
    for (int i = 0; i < 200; i++) {
        assert(!pthread_mutex_lock(&mutex));
        assert(!inside);
        inside = 1;
        if (i % 10 == 0) usleep(50);
        inside = 0;
        count++;
        assert(!pthread_mutex_unlock(&mutex));
    }
    return unused;
}

static void *stays_incrementing(void *unused) {
    return increments(unused);
}

static struct timespec in(long milliseconds) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += milliseconds * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

// The mutex is held by another.
static void *stays_waiting_in_vain(void *unused) {
    struct timespec soon = in(20);
    assert(pthread_mutex_trylock(&mutex) == EBUSY);
    assert(pthread_mutex_timedlock(&mutex, &soon) == ETIMEDOUT);
    return unused;
}

static void *stays_locking_twice(void *result) {
    assert(!pthread_mutex_lock(&mutex));
    *(int *)result = pthread_mutex_lock(&mutex);
    assert(!pthread_mutex_unlock(&mutex));
    return NULL;
}

// Takes turns with others.
static void *turns(void *own) {
    assert(!pthread_mutex_lock(&mutex));
    for (int i = 0; i < 50; i++) {
        while (turn != (int)(long)own) {
            struct timespec late = in(60000);
            assert(!(i % 2 ? pthread_cond_wait(&condition, &mutex) : pthread_cond_timedwait(&condition, &mutex, &late)));
        }
        turn = !turn;
        assert(!pthread_cond_broadcast(&condition));
    }
    assert(!pthread_mutex_unlock(&mutex));
    return own;
}

static void *stays_in_turns(void *own) {
    return turns(own);
}

static void *ends_inside(void *unused) {
    assert(!pthread_mutex_lock(&mutex));
    turn = 1;
    usleep(20000);
    return unused;
}

static void *stays_taking(void *unused) {
    while (!turn) usleep(100);
    int result = pthread_mutex_lock(&mutex);
    assert(result == EOWNERDEAD && !pthread_mutex_consistent(&mutex) && !pthread_mutex_unlock(&mutex));
    return unused;
}

static void *stays_ending_inside(void *unused) {
    return ends_inside(unused);
}

static void *takes(void *unused) {
    return stays_taking(unused);
}

static void both(void *(*one)(void *), void *(*other)(void *), void *first, void *second) {
    pthread_t threads[2];
    assert(!pthread_create(&threads[0], NULL, one, first) && !pthread_create(&threads[1], NULL, other, second));
    for (int i = 0; i < 2; i++) assert(!pthread_join(threads[i], NULL));
}

int main(void) {
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_RECURSIVE};
    for (int robust = 0; robust < 2; robust++) {
        for (int type = 0; type < 3; type++) {
            pthread_mutexattr_t attributes;
            pthread_t thread;
            assert(!pthread_mutexattr_init(&attributes));
            assert(!pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
            assert(!pthread_mutexattr_settype(&attributes, types[type]));
            if (robust) assert(!pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
            assert(!pthread_mutex_init(&mutex, &attributes));
            count = turn = 0;
            both(increments, stays_incrementing, NULL, NULL);
            assert(!pthread_mutex_lock(&mutex));
            assert(!pthread_create(&thread, NULL, stays_waiting_in_vain, NULL));
            assert(!pthread_join(thread, NULL) && !pthread_mutex_unlock(&mutex));
            int twice = 0;
            if (type == 1) {
                assert(!pthread_create(&thread, NULL, stays_locking_twice, &twice));
                assert(!pthread_join(thread, NULL));
                assert(!pthread_mutex_lock(&mutex) && pthread_mutex_lock(&mutex) == twice);
                assert(!pthread_mutex_unlock(&mutex));
            }
            if (type < 2) both(turns, stays_in_turns, (void *)0L, (void *)1L);
            printf("%d %d: %d, twice: %s\n", robust, type, count, strerror(twice));
            fflush(stdout);
            if (robust) {
                turn = 0;
                both(ends_inside, stays_taking, NULL, NULL);
                turn = 0;
                both(stays_ending_inside, takes, NULL, NULL);
            }
            assert(!pthread_mutex_destroy(&mutex));
        }
    }
    return 0;
}
