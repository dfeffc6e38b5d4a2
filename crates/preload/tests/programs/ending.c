// Ends of threads: exits, cleanup handlers, keys, cancellation.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_key_t key;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t ready;
static int ends[2];

static void clean(void *what) { printf("cleans up %s\n", (char *)what); }
static void destroy(void *what) { printf("destroys %s\n", (char *)what); }

static void *exits(void *argument) {
    pthread_setspecific(key, "its value");
    pthread_cleanup_push(clean, "after an exit");
    pthread_exit(argument);
    pthread_cleanup_pop(0);
    return NULL;
}

static void unlock(void *what) {
    // The mutex is the thread's again when it is cancelled in the wait.
    assert(pthread_mutex_trylock(&mutex) != 0);
    assert(!pthread_mutex_unlock(&mutex));
    clean(what);
}

static void *waits_for_condition(void *argument) {
    (void)argument;
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(unlock, "a condition");
    pthread_barrier_wait(&ready);
    for (;;) pthread_cond_wait(&condition, &mutex);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *waits_for_data(void *argument) {
    (void)argument;
    char byte;
    pthread_cleanup_push(clean, "a read");
    pthread_barrier_wait(&ready);
    read(ends[0], &byte, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *sleeps(void *argument) {
    (void)argument;
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_barrier_wait(&ready);
    struct timespec time = {0, 30000000};
    assert(nanosleep(&time, NULL) == 0);
    puts("slept on");
    pthread_cleanup_push(clean, "a sleep");
    pthread_setcancelstate(old, NULL);
    sleep(1000);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *computes(void *argument) {
    volatile long *turns = argument;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_cleanup_push(clean, "a computation");
    pthread_barrier_wait(&ready);
    for (;;) ++*turns;
    pthread_cleanup_pop(0);
    return NULL;
}

static void *outlives(void *argument) {
    (void)argument;
    usleep(50000);
    puts("the last thread ends");
    return NULL;
}

int main(void) {
    pthread_t thread;
    void *value;
    long turns = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    assert(!pthread_key_create(&key, destroy));
    assert(!pthread_create(&thread, NULL, exits, "value"));
    assert(!pthread_join(thread, &value));
    printf("joined with %s\n", (char *)value);

    assert(!pipe(ends));
    pthread_barrier_init(&ready, NULL, 2);
    void *(*functions[])(void *) = {waits_for_condition, waits_for_data, sleeps, computes};
    for (int i = 0; i < 4; i++) {
        assert(!pthread_create(&thread, NULL, functions[i], &turns));
        pthread_barrier_wait(&ready);
        assert(!pthread_cancel(thread));
        assert(!pthread_join(thread, &value) && value == PTHREAD_CANCELED);
    }
    assert(!pthread_create(&thread, NULL, outlives, NULL));
    pthread_cleanup_push(clean, "the first thread");
    pthread_exit(NULL);
    pthread_cleanup_pop(0);
}
