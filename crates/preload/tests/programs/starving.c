// Threads that wait for a lock that another thread gives back and takes again at once, and sleeps with it: they get it.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { WAITERS = 3, TIMES = 10 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static atomic_int ends;

static void take_mutex(void) {
    assert(!pthread_mutex_lock(&mutex));
}
static void give_mutex(void) {
    assert(!pthread_mutex_unlock(&mutex));
}
static void take_semaphore(void) {
    assert(!sem_wait(&semaphore));
}
static void give_semaphore(void) {
    assert(!sem_post(&semaphore));
}

static void take_rwlock(void) {
    assert(!pthread_rwlock_wrlock(&rwlock));
}
static void give_rwlock(void) {
    assert(!pthread_rwlock_unlock(&rwlock));
}

static void (*take)(void), (*give)(void);

static void *keeps(void *argument) {
    while (!ends) {
        take();
        usleep(5);
        give();
    }
    return argument;
}

static void *waits(void *argument) {
    for (int i = 0; i < TIMES; i++) {
        take();
        give();
        usleep(1);
    }
    return argument;
}

static void run(const char *what, void (*takes)(void), void (*gives)(void)) {
    pthread_t keeper, waiters[WAITERS];
    take = takes;
    give = gives;
    ends = 0;
    assert(!pthread_create(&keeper, NULL, keeps, NULL));
    for (int i = 0; i < WAITERS; i++) assert(!pthread_create(&waiters[i], NULL, waits, NULL));
    for (int i = 0; i < WAITERS; i++) assert(!pthread_join(waiters[i], NULL));
    ends = 1;
    assert(!pthread_join(keeper, NULL));
    printf("%s: done\n", what);
    fflush(stdout);
}

int main(void) {
    alarm(200);
    sem_init(&semaphore, 0, 1);
    run("mutex", take_mutex, give_mutex);
    run("semaphore", take_semaphore, give_semaphore);
    run("lock of readers and writers", take_rwlock, give_rwlock);
    return 0;
}
