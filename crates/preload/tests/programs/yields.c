// Threads that yield, compute and sleep are sent signals whose handler sleeps.
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 40, SIGNALS = 6000 };

static volatile int stop;

static void handle(int signal) {
    (void)signal;
    usleep(50);
}

static void *thread(void *number) {
    while (!stop) switch ((long)number % 3) {
        case 0: usleep(300); break;
        case 1: for (volatile int i = 0; i < 20000; i++) {} break;
        default: sched_yield();
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = handle};
    assert(!sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) assert(!pthread_create(&threads[i], NULL, thread, (void *)i));
    unsigned seed = 5;
    for (int i = 0; i < SIGNALS; i++) {
        assert(!pthread_kill(threads[rand_r(&seed) % THREADS], SIGUSR1));
        if (i % 20 == 0) usleep(500);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    puts("fine");
    return 0;
}
