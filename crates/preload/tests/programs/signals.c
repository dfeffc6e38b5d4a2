// Signals: masks of threads, handlers on the thread that a signal is for, waits that they end.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int handled, woken;
static pthread_t handler_thread;
static sem_t ready, done;
static int ends[2];

static void handle(int signal) {
    (void)signal;
    handler_thread = pthread_self();
    handled++;
}

// A thread may be put off so long that the alarm comes before it waits for it: then there is another one.
static void handle_alarm(int signal) {
    handle(signal);
    alarm(1);
}

static void install(int signal, int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = signal == SIGALRM ? handle_alarm : handle;
    action.sa_flags = flags;
    assert(!sigaction(signal, &action, NULL));
}

static void *sleeps(void *argument) {
    (void)argument;
    struct timespec time = {100, 0}, left, begun, now;
    sem_post(&ready);
    assert(!clock_gettime(CLOCK_MONOTONIC, &begun));
    assert(nanosleep(&time, &left) == -1 && errno == EINTR);
    // What has not passed of it is left. (The kernel adds how late it may end.)
    assert(!clock_gettime(CLOCK_MONOTONIC, &now) && left.tv_sec <= 100);
    assert(left.tv_sec >= 98 - (now.tv_sec - begun.tv_sec));
    assert(pthread_equal(handler_thread, pthread_self()));
    woken = 1;
    return NULL;
}

static void *reads(void *argument) {
    (void)argument;
    char byte;
    sem_post(&ready);
    assert(read(ends[0], &byte, 1) == 1 && byte == 'x');
    assert(pthread_equal(handler_thread, pthread_self()));
    return NULL;
}

static void *computes(void *argument) {
    volatile long *turns = argument;
    int before = handled;
    sem_post(&ready);
    while (handled == before) ++*turns;
    assert(pthread_equal(handler_thread, pthread_self()));
    return NULL;
}

static void *waits(void *argument) {
    (void)argument;
    sigset_t set;
    int signal = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    sem_post(&ready);
    assert(!sigwait(&set, &signal) && signal == SIGUSR2);
    sem_post(&ready);
    // The next one is pending until it is waited for.
    sem_wait(&done);
    sigset_t pending;
    assert(!sigpending(&pending) && sigismember(&pending, SIGUSR2));
    int before = handled;
    sigemptyset(&set);
    assert(sigsuspend(&set) == -1 && errno == EINTR && handled == before + 1);
    return NULL;
}

static void *inherits(void *argument) {
    (void)argument;
    sigset_t set;
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &set));
    return (void *)(long)(sigismember(&set, SIGHUP) && !sigismember(&set, SIGINT));
}

int main(void) {
    pthread_t thread;
    void *value;
    long turns = 0;
    install(SIGUSR1, 0);
    install(SIGUSR2, SA_RESTART);
    install(SIGALRM, 0);
    assert(!sem_init(&ready, 0, 0) && !sem_init(&done, 0, 0) && !pipe(ends));

    assert(!pthread_create(&thread, NULL, sleeps, NULL));
    sem_wait(&ready);
    // The first may come before the thread sleeps.
    do {
        assert(!pthread_kill(thread, SIGUSR1));
        usleep(20000);
    } while (!woken);
    assert(!pthread_join(thread, NULL));
    printf("woken by a handler: %d\n", handled > 0);
    handled = 0;

    assert(!pthread_create(&thread, NULL, reads, NULL));
    sem_wait(&ready);
    usleep(20000);
    assert(!pthread_kill(thread, SIGUSR2));
    for (int look = 0; look < 60000 && !handled; look++) usleep(1000);
    assert(write(ends[1], "x", 1) == 1 && !pthread_join(thread, NULL));
    printf("handled %d\n", handled);

    assert(!pthread_create(&thread, NULL, computes, &turns));
    sem_wait(&ready);
    usleep(20000);
    assert(!pthread_kill(thread, SIGUSR1) && !pthread_join(thread, NULL));
    printf("handled %d\n", handled);

    assert(!pthread_create(&thread, NULL, waits, NULL));
    sem_wait(&ready);
    assert(!pthread_kill(thread, SIGUSR2));
    sem_wait(&ready);
    assert(!pthread_kill(thread, SIGUSR2));
    sem_post(&done);
    assert(!pthread_join(thread, NULL));
    printf("handled %d\n", handled);

    assert(!raise(SIGUSR1));
    printf("handled %d\n", handled);
    assert(!kill(getpid(), SIGUSR1));
    printf("handled %d\n", handled);
    int before = handled;
    alarm(1);
    assert(pause() == -1 && errno == EINTR && handled > before);
    alarm(0);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    assert(!pthread_create(&thread, NULL, inherits, NULL));
    assert(!pthread_join(thread, &value) && value);
    assert(!kill(getpid(), SIGHUP));
    struct timespec time = {10, 0};
    assert(sigtimedwait(&set, NULL, &time) == SIGHUP);
    assert(pthread_kill(pthread_self(), 0) == 0 && pthread_kill(pthread_self(), 1000) == EINVAL);
    puts("ends by a signal");
    fflush(stdout);
    raise(SIGTERM);
    return 0;
}
