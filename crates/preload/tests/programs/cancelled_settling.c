// Threads that can be cancelled anywhere, and do nothing but set timers and send signals.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static timer_t timer;

static void *sets(void *unused) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    struct itimerspec soon = {.it_value.tv_nsec = 200000, .it_interval.tv_nsec = 200000}, never = {0};
    for (;;) {
        timer_settime(timer, 0, &soon, NULL);
        timer_settime(timer, 0, &never, NULL);
    }
    return unused;
}

static void *sends(void *unused) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) killpg(0, SIGUSR1);
    return unused;
}

static void on_signal(int signal) {
    (void)signal;
}

int main(void) {
    assert(!setpgid(0, 0));
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    assert(!sigaction(SIGUSR1, &action, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    assert(!timer_create(CLOCK_MONOTONIC, &event, &timer));
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, i % 2 ? sets : sends, NULL));
        usleep(1000);
        assert(!pthread_cancel(thread));
        void *result;
        assert(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
        assert(!timer_settime(timer, 0, &(struct itimerspec){0}, NULL));
    }
    puts("all cancelled");
    return 0;
}
