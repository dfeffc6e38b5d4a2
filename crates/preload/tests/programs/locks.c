// What threads wait for each other by.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>

enum { THREADS = 50, TURNS = 200 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t both = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_barrier_t barrier;
static sem_t semaphore;
static long count, turn, times;

static void first(void) { times++; }

static void *work(void *argument) {
    long own = (long)argument;
    pthread_once(&once, first);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < TURNS; i++) {
        pthread_mutex_lock(&mutex);
        long before = count;
        if (i % 16 == 0) sched_yield();
        count = before + 1;
        pthread_mutex_unlock(&mutex);
        if (i % 8 == 0) {
            pthread_rwlock_wrlock(&both);
            times++;
        } else {
            pthread_rwlock_rdlock(&both);
        }
        pthread_rwlock_unlock(&both);
        sem_wait(&semaphore);
        sem_post(&semaphore);
    }
    pthread_mutex_lock(&mutex);
    while (turn != own) pthread_cond_wait(&condition, &mutex);
    turn++;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    sem_init(&semaphore, 0, 3);
    for (long i = 0; i < THREADS; i++)
        assert(!pthread_create(&threads[i], NULL, work, (void *)(THREADS - 1 - i)));
    for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    printf("%ld %ld %ld\n", count, times, turn);

    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec = (soon.tv_nsec + 20000000) % 1000000000;
    soon.tv_sec += soon.tv_nsec < 20000000;
    pthread_mutex_lock(&mutex);
    assert(pthread_cond_timedwait(&condition, &mutex, &soon) == ETIMEDOUT);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 3; i++) sem_wait(&semaphore);
    assert(sem_timedwait(&semaphore, &soon) == -1 && errno == ETIMEDOUT);
    puts("timed out");
    return 0;
}
