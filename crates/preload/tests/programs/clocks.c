// Calls with clocks, times and sizes that libc or the kernel refuses, and others that they take.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
#define SAY(x) do { errno = 0; long r = (x); printf("%s: %ld %d\n", #x, r, r == -1 ? errno : 0); } while (0)
static void *test(void *unused) {
    struct timespec past = {1, 0}, wrong = {1, -1}, wrong2 = {1, 1000000000}, soon = {0, 1000}, neg = {-1, 0};
    struct timespec *times[] = {&past, &wrong, &wrong2, &neg};
    int clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_PROCESS_CPUTIME_ID, 77};
    for (int c = 0; c < 5; c++) {
        for (int t = 0; t < 4; t++) {
            printf("clock %d time %d\n", clocks[c], t);
            int r = pthread_mutex_clocklock(&mutex, clocks[c], times[t]);
            printf(" mutex free %d\n", r);
            if (!r) pthread_mutex_unlock(&mutex);
            r = pthread_rwlock_clockrdlock(&rwlock, clocks[c], times[t]);
            printf(" rdlock %d\n", r);
            if (!r) pthread_rwlock_unlock(&rwlock);
            r = pthread_rwlock_clockwrlock(&rwlock, clocks[c], times[t]);
            printf(" wrlock %d\n", r);
            if (!r) pthread_rwlock_unlock(&rwlock);
            sem_init(&sem, 0, 1);
            errno = 0;
            r = sem_clockwait(&sem, clocks[c], times[t]);
            printf(" sem free %d %d\n", r, errno);
            sem_init(&sem, 0, 0);
            errno = 0;
            r = sem_clockwait(&sem, clocks[c], times[t]);
            printf(" sem %d %d\n", r, errno);
            pthread_mutex_lock(&mutex);
            r = pthread_cond_clockwait(&cond, &mutex, clocks[c], times[t]);
            printf(" cond %d\n", r);
            pthread_mutex_unlock(&mutex);
        }
    }
    for (int t = 0; t < 4; t++) {
        int r = pthread_mutex_timedlock(&mutex, times[t]);
        printf("timed %d: mutex free %d", t, r);
        if (!r) pthread_mutex_unlock(&mutex);
        r = pthread_rwlock_timedrdlock(&rwlock, times[t]);
        printf(" rd %d", r);
        if (!r) pthread_rwlock_unlock(&rwlock);
        r = pthread_rwlock_timedwrlock(&rwlock, times[t]);
        printf(" wr %d", r);
        if (!r) pthread_rwlock_unlock(&rwlock);
        sem_init(&sem, 0, 1);
        errno = 0;
        r = sem_timedwait(&sem, times[t]);
        printf(" sem %d %d", r, errno);
        pthread_mutex_lock(&mutex);
        r = pthread_cond_timedwait(&cond, &mutex, times[t]);
        pthread_mutex_unlock(&mutex);
        printf(" cond %d\n", r);
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    struct pollfd fd = {0, POLLIN, 0};
    struct epoll_event event;
    int ep = epoll_create1(0);
    for (int size = 0; size <= 16; size += 4) {
        SAY(syscall(SYS_ppoll, &fd, 0, &soon, &set, size));
        SAY(syscall(SYS_ppoll, &fd, 0, &soon, NULL, size));
        SAY(syscall(SYS_epoll_pwait, ep, &event, 1, 1, &set, size));
        SAY(syscall(SYS_epoll_pwait, ep, &event, 1, 1, NULL, size));
        SAY(syscall(SYS_epoll_pwait2, ep, &event, 1, &soon, &set, size));
        SAY(syscall(SYS_rt_sigtimedwait, &set, NULL, &soon, size));
        if (size != 8) SAY(syscall(SYS_rt_sigsuspend, &set, size));
        SAY(syscall(SYS_rt_sigpending, &set, size));
        SAY(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &set, size));
        struct { void *set; size_t size; } six = {&set, size};
        SAY(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &soon, &six));
        sigemptyset(&set);
    }
    return NULL;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, NULL, test, NULL);
    pthread_join(t, NULL);
    return 0;
}
