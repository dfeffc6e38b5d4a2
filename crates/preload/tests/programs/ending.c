// Ends of threads: exits, cleanup handlers, keys, cancellation.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static pthread_key_t key;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t ready;
static int ends[2], full_pipe[2];
static sem_t full;

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

// Waits within libc, where nothing else than an interruption can end it.
static void *waits_within_libc(void *argument) {
    (void)argument;
    char line[10];
    FILE *file = fdopen(dup(ends[0]), "r");
    pthread_cleanup_push(clean, "a read by libc");
    pthread_barrier_wait(&ready);
    fgets(line, sizeof line, file);
    pthread_cleanup_pop(0);
    return NULL;
}

// The calls need not wait: they are not made.
static void *takes(void *argument) {
    (void)argument;
    pthread_cleanup_push(clean, "a semaphore");
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&ready);
    sem_wait(&full);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *reads(void *argument) {
    (void)argument;
    char byte;
    pthread_cleanup_push(clean, "a read of what is there");
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&ready);
    read(full_pipe[0], &byte, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

// At the exit there is a thread yet that signals are for.
static void at_exit(void) {
    puts("ends by a signal");
    kill(getpid(), SIGUSR1);
    puts("not reached");
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
    assert(!pthread_create(&thread, NULL, waits_within_libc, NULL));
    pthread_barrier_wait(&ready);
    usleep(20000);
    assert(!pthread_cancel(thread));
    assert(!pthread_join(thread, &value) && value == PTHREAD_CANCELED);
    int left;
    assert(!pipe(full_pipe) && write(full_pipe[1], "data", 4) == 4 && !sem_init(&full, 0, 1));
    functions[0] = takes, functions[1] = reads;
    for (int i = 0; i < 2; i++) {
        assert(!pthread_create(&thread, NULL, functions[i], NULL));
        pthread_barrier_wait(&ready);
        assert(!pthread_cancel(thread));
        pthread_barrier_wait(&ready);
        assert(!pthread_join(thread, &value) && value == PTHREAD_CANCELED);
    }
    assert(!sem_getvalue(&full, &left));
    printf("left: %d in the semaphore, ", left);
    assert(!ioctl(full_pipe[0], FIONREAD, &left));
    printf("%d bytes in the pipe\n", left);
    assert(!atexit(at_exit));
    assert(!pthread_create(&thread, NULL, outlives, NULL));
    pthread_cleanup_push(clean, "the first thread");
    pthread_exit(NULL);
    pthread_cleanup_pop(0);
}
