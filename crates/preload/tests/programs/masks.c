// Waits for files with a mask of signals of their own.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TURNS 60

enum { PPOLL, PSELECT, EPOLL, EPOLL2, NUMBER, WAYS };
static const char *names[WAYS] = {"ppoll", "pselect", "epoll_pwait", "epoll_pwait2", "syscall"};

static sem_t ready, sent;
static int ends[2], epoll;
static volatile int handled;
static volatile int elsewhere;
static volatile int blocked_within;
static pthread_t waiter;

static void handle(int signal) {
    (void)signal;
    sigset_t set;
    handled++;
    if (!pthread_equal(pthread_self(), waiter)) elsewhere++;
    // The mask of the wait is in force, and the signal itself is blocked.
    if (!pthread_sigmask(SIG_BLOCK, NULL, &set)) {
        blocked_within = sigismember(&set, SIGUSR1) + 2 * sigismember(&set, SIGUSR2) + 4 * sigismember(&set, SIGHUP);
    }
}

// Waits for the pipe in one of the ways.
static int wait_for_it(int way, long milliseconds, const sigset_t *mask) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    struct pollfd file = {ends[0], POLLIN, 0};
    struct epoll_event event;
    fd_set set;
    switch (way) {
    case PPOLL: return ppoll(&file, 1, &time, mask);
    case PSELECT:
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        return pselect(ends[0] + 1, &set, NULL, NULL, &time, mask);
    case EPOLL: return epoll_pwait(epoll, &event, 1, milliseconds, mask);
    case EPOLL2: {
        // (Older kernels do not have it.)
        int waited = epoll_pwait2(epoll, &event, 1, &time, mask);
        return waited == -1 && errno == ENOSYS ? epoll_pwait(epoll, &event, 1, milliseconds, mask) : waited;
    }
    default: return syscall(SYS_ppoll, &file, 1, &time, mask, 8);
    }
}

static int blocks(int signal) {
    sigset_t set;
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &set));
    return sigismember(&set, signal);
}

static int pends(int signal) {
    sigset_t set;
    assert(!sigpending(&set));
    return sigismember(&set, signal);
}

static void *waits(void *argument) {
    int way = (int)(long)argument;
    sigset_t open, closed;
    // SIGUSR1 comes while it waits, and at no other time.
    sigemptyset(&open);
    sigaddset(&open, SIGHUP);
    for (int i = 0; i < TURNS; i++) {
        sem_post(&ready);
        if (i % 3 == 0) assert(!sem_wait(&sent) && (i % 2 || pends(SIGUSR1)));
        assert(handled == i && blocks(SIGUSR1));
        assert(wait_for_it(way, 100000, &open) == -1 && errno == EINTR);
        assert(handled == i + 1 && blocks(SIGUSR1) && !blocks(SIGUSR2) && !blocks(SIGHUP));
        assert(blocked_within == 5 && !pends(SIGUSR1));
        if (i % 3 != 0) assert(!sem_wait(&sent));
    }
    // What is ready comes before a signal that has come earlier, and that stays.
    assert(write(ends[1], "x", 1) == 1 && !raise(SIGUSR1));
    assert(wait_for_it(way, 100000, &open) == 1 && handled == TURNS && pends(SIGUSR1));
    char got;
    assert(read(ends[0], &got, 1) == 1);
    assert(wait_for_it(way, 100000, &open) == -1 && errno == EINTR && handled == TURNS + 1);
    // What the mask blocks does not end the wait.
    sigemptyset(&closed);
    sigaddset(&closed, SIGUSR2);
    handled = 0;
    sem_post(&ready);
    assert(wait_for_it(way, 20, &closed) == 0);
    assert(!sem_wait(&sent) && !blocks(SIGUSR2));
    while (handled == 0) usleep(100);
    // Nor does anything, without one.
    assert(wait_for_it(way, 1, NULL) == 0 && blocks(SIGUSR1));
    assert(wait_for_it(way, 100000, (sigset_t *)8) == -1 && errno == EFAULT);
    return NULL;
}

static void *is_cancelled(void *argument) {
    sigset_t open;
    sigemptyset(&open);
    sem_post(&ready);
    // (syscall(2) is no point of cancellation.)
    wait_for_it(argument == (void *)NUMBER ? PPOLL : (int)(long)argument, 100000, &open);
    assert(0);
    return NULL;
}

// A signal that the thread blocks does not end its wait.
static void *sleeps_on(void *argument) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    (void)argument;
    struct timespec until;
    pthread_mutex_lock(&mutex);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    sem_post(&ready);
    assert(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int main(void) {
    assert(!sem_init(&ready, 0, 0) && !sem_init(&sent, 0, 0) && !pipe(ends));
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    assert(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    // No such wait is begun again.
    action.sa_flags = SA_RESTART;
    assert(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR2, &action, NULL));
    for (long way = 0; way < WAYS; way++) {
        handled = 0;
        assert(!pthread_create(&waiter, NULL, waits, (void *)way));
        for (int i = 0; i < TURNS; i++) {
            assert(!sem_wait(&ready));
            // For the thread, or for the process, of which it is the one that lets it through.
            if (i % 2) assert(!kill(getpid(), SIGUSR1));
            else assert(!pthread_kill(waiter, SIGUSR1));
            sem_post(&sent);
        }
        assert(!sem_wait(&ready) && !pthread_kill(waiter, SIGUSR2));
        sem_post(&sent);
        assert(!pthread_join(waiter, NULL));
        pthread_t thread;
        void *value;
        assert(!pthread_create(&thread, NULL, is_cancelled, (void *)way));
        assert(!sem_wait(&ready) && !pthread_cancel(thread));
        assert(!pthread_join(thread, &value));
        printf("%s: %s, %d elsewhere\n", names[way], value == PTHREAD_CANCELED ? "cancelled" : "not", elsewhere);
    }
    assert(!pthread_create(&waiter, NULL, sleeps_on, NULL) && !sem_wait(&ready));
    usleep(20000);
    assert(!pthread_kill(waiter, SIGUSR1) && !pthread_join(waiter, NULL));
    return 0;
}
