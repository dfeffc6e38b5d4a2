// Waits before which, and in which, signals come: none ends with EINTR unless a handler has run in it.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, SIGNALS = 60000, WAYS = 8 };

static const char *ways[WAYS] = {"nanosleep", "usleep", "poll", "poll for nothing", "select", "epoll_wait",
                                 "clock_nanosleep", "sigtimedwait"};
static _Thread_local volatile int handled;
static sem_t ready[THREADS];
static int ends[2], interest, wrong[WAYS];
static volatile int over;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static int wait_by(int way) {
    struct timespec time = {0, 3000000};
    struct timeval interval = {0, 3000};
    struct pollfd file = {ends[0], POLLIN, 0};
    struct epoll_event event;
    sigset_t set;
    switch (way) {
    case 0: return nanosleep(&time, NULL);
    case 1: return usleep(3000);
    case 2: return poll(&file, 1, 3);
    case 3: return poll(NULL, 0, 3);
    case 4: return select(0, NULL, NULL, NULL, &interval);
    case 5: return epoll_wait(interest, &event, 1, 3);
    case 6:
        assert(!clock_gettime(CLOCK_REALTIME, &time));
        time.tv_nsec += 3000000;
        if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
        errno = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, NULL);
        return errno ? -1 : 0;
    default:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        return sigtimedwait(&set, NULL, &time);
    }
}

static void pause_for(unsigned *seed) {
    for (volatile int turns = rand_r(seed) % 3000; turns; turns--) {}
}

static void *waits(void *argument) {
    sem_t *own = argument;
    unsigned seed = own - ready;
    for (int turn = 0; !over; turn++) {
        int way = turn % WAYS, before = handled;
        sem_post(own);
        pause_for(&seed);
        if (wait_by(way) == -1 && errno == EINTR && handled == before) __sync_fetch_and_add(&wrong[way], 1);
    }
    return NULL;
}

int main(void) {
    // The sender is to be put off between a look at a thread and what it does then.
    cpu_set_t processors;
    assert(!sched_getaffinity(0, sizeof processors, &processors));
    int first = 0;
    while (!CPU_ISSET(first, &processors)) first++;
    CPU_ZERO(&processors);
    CPU_SET(first, &processors);
    assert(!sched_setaffinity(0, sizeof processors, &processors));

    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGUSR2);
    assert(!sigaction(SIGUSR1, &action, NULL) && !pthread_sigmask(SIG_BLOCK, &awaited, NULL));
    assert(!pipe(ends) && (interest = epoll_create1(0)) >= 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert(!sem_init(&ready[i], 0, 0));
        assert(!pthread_create(&threads[i], NULL, waits, &ready[i]));
    }
    unsigned seed = 7;
    for (int turn = 0; turn < SIGNALS; turn++) {
        int which = turn % THREADS;
        while (sem_wait(&ready[which])) {}
        pause_for(&seed);
        assert(!pthread_kill(threads[which], SIGUSR1));
    }
    over = 1;
    for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    for (int way = 0; way < WAYS; way++) {
        if (wrong[way]) printf("%s was interrupted %d times without a handler\n", ways[way], wrong[way]);
    }
    return 0;
}
