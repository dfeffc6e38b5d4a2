// What threads wait for each other by.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

// Which functions look at the time, or at the clock, though they need not wait.
static void *looks_at_times(void *argument) {
    struct timespec wrong = {1, -1}, past = {1, 0};
    printf("rwlock: %d %d", pthread_rwlock_timedrdlock(&both, &wrong), pthread_rwlock_timedwrlock(&both, &wrong));
    printf(" %d", pthread_rwlock_clockrdlock(&both, CLOCK_BOOTTIME, &past));
    printf(" %d\n", pthread_rwlock_clockwrlock(&both, CLOCK_BOOTTIME, &past));
    printf("past: %d", pthread_rwlock_timedrdlock(&both, &past));
    printf(" %d\n", pthread_rwlock_timedwrlock(&both, &past));
    pthread_rwlock_unlock(&both);
    printf("mutex: %d", pthread_mutex_timedlock(&mutex, &wrong));
    printf(" %d\n", pthread_mutex_unlock(&mutex));
    sem_post(&semaphore);
    printf("semaphore: %d", sem_timedwait(&semaphore, &wrong));
    printf(" %d", sem_clockwait(&semaphore, CLOCK_MONOTONIC, &wrong));
    printf(" %d\n", sem_timedwait(&semaphore, &past));
    printf("itself: %s\n", strerror(pthread_tryjoin_np(pthread_self(), NULL)));
    return argument;
}

static volatile pid_t ended;

static void *ends(void *argument) {
    ended = gettid();
    return argument;
}

// What is told of a thread that has ended, and that was not joined yet.
static void look_at_ended_thread(void) {
    pthread_t thread;
    clockid_t clock;
    int policy;
    struct sched_param parameters = {0};
    char name[16];
    assert(!pthread_create(&thread, NULL, ends, NULL));
    while (!ended) usleep(1000);
    for (int look = 0; look < 20000 && !syscall(SYS_tgkill, getpid(), ended, 0); look++) usleep(1000);
    printf("name: %s", strerror(pthread_getname_np(thread, name, sizeof name)));
    printf(", %s\n", strerror(pthread_setname_np(thread, "name")));
    printf("too long: %s", strerror(pthread_getname_np(thread, name, 15)));
    printf(", %s\n", strerror(pthread_setname_np(thread, "0123456789012345")));
    printf("clock: %s\n", strerror(pthread_getcpuclockid(thread, &clock)));
    printf("policy: %s", strerror(pthread_getschedparam(thread, &policy, &parameters)));
    printf(", %s", strerror(pthread_setschedparam(thread, SCHED_OTHER, &parameters)));
    printf(", %s\n", strerror(pthread_setschedprio(thread, 0)));
    assert(!pthread_join(thread, NULL));
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
    assert(!pthread_create(&threads[0], NULL, looks_at_times, NULL));
    assert(!pthread_join(threads[0], NULL));
    look_at_ended_thread();
    return 0;
}
