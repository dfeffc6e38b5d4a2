// Threads wait for one of several words by number. Signals end that, and take no wake-up with them.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WAITV = 449, MOST = 128 };

struct waiter {
    uint64_t value, address;
    uint32_t flags, reserved;
};

static _Atomic uint32_t words[MOST];
static _Atomic int handled, woken, stops;
static sigjmp_buf place;

static long wait_for(int count, uint32_t value, struct timespec *until) {
    struct waiter waiters[MOST];
    for (int i = 0; i < count && i < MOST; i++)
        waiters[i] = (struct waiter){value, (uint64_t)(words + i), 2 | FUTEX_PRIVATE_FLAG, 0};
    return syscall(WAITV, waiters, count, 0, until, CLOCK_MONOTONIC);
}

static long wake(int index) {
    return syscall(SYS_futex, words + index, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

static void say(const char *what, long result) {
    printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}

static void handle(int signal) { handled++; }

static void leave(int signal) { siglongjmp(place, 1); }

static void handle_by(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    assert(!sigaction(SIGUSR1, &action, NULL));
}

static void *waits(void *count) {
    say("waited", wait_for((int)(intptr_t)count, 0, NULL));
    return NULL;
}

static void *leaves(void *count) {
    if (!sigsetjmp(place, 1)) waits(count);
    printf("left\n");
    // Nothing waits any more.
    printf("woken: %ld %ld\n", wake(0), wake(1));
    return NULL;
}

static void *waits_often(void *unused) {
    while (!stops) woken += wait_for(2, 0, NULL) >= 0;
    return NULL;
}

static void *sends(void *thread) {
    while (!stops) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        usleep(100);
    }
    return NULL;
}

static pthread_t start(void *(*function)(void *), void *argument) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, function, argument));
    return thread;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct timespec past = {0, 1};
    say("none", wait_for(0, 0, NULL));
    say("another value", wait_for(2, 1, NULL));
    say("late", wait_for(2, 0, &past));
    say("too many", syscall(WAITV, words, MOST + 1, 0, NULL, 0));
    say("nowhere", syscall(WAITV, NULL, 2, 0, NULL, 0));

    handle_by(handle, 0);
    pthread_t thread = start(waits, (void *)2);
    usleep(100000);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    printf("handled %d\n", handled);

    handle_by(handle, SA_RESTART);
    thread = start(waits, (void *)3);
    usleep(100000);
    pthread_kill(thread, SIGUSR1);
    while (handled < 2) usleep(1000);
    usleep(100000);
    long answered = wake(2);
    pthread_join(thread, NULL);
    printf("woken: %ld\n", answered);

    handle_by(leave, 0);
    thread = start(leaves, (void *)2);
    usleep(100000);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);

    // No thread is cancelled at a system call by its number.
    thread = start(waits, (void *)2);
    usleep(100000);
    pthread_cancel(thread);
    usleep(100000);
    answered = wake(1);
    pthread_join(thread, NULL);
    printf("woken: %ld\n", answered);

    handle_by(handle, 0);
    thread = start(waits_often, NULL);
    pthread_t sender = start(sends, &thread);
    int told = 0;
    for (int i = 0; i < 3000; i++) {
        told += wake(1);
        usleep(20);
    }
    stops = 1;
    pthread_join(sender, NULL);
    while (pthread_tryjoin_np(thread, NULL)) {
        told += wake(1);
        usleep(1000);
    }
    printf("as many: %d, some: %d\n", told == woken, told > 0);
}
