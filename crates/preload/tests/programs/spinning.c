// Signals for threads that spin for a lock, and handlers that do not return.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_spinlock_t lock;
static atomic_int handled;
static sem_t ready;
static sigjmp_buf jump;

static void counts(int signal) {
    (void)signal;
    handled++;
}

static void ends(int signal) {
    (void)signal;
    pthread_exit("ended by the handler");
}

static void jumps(int signal) {
    (void)signal;
    siglongjmp(jump, 1);
}

static void *spins(void *argument) {
    (void)argument;
    sem_post(&ready);
    pthread_spin_lock(&lock);
    pthread_spin_unlock(&lock);
    return "has the lock";
}

static void *computes(void *argument) {
    volatile long turns = 0;
    int before = handled;
    (void)argument;
    sem_post(&ready);
    while (handled == before) ++turns;
    return "handled";
}

static void *computes_until_it_jumps(void *argument) {
    volatile long turns = 0;
    (void)argument;
    if (sigsetjmp(jump, 1)) return "has jumped";
    sem_post(&ready);
    for (;;) ++turns;
}

// Starts a thread and sends it a signal while it computes.
static pthread_t start(void *(*function)(void *), int signal) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, function, NULL));
    sem_wait(&ready);
    usleep(20000);
    assert(!pthread_kill(thread, signal));
    return thread;
}

static void *joined(pthread_t thread) {
    void *value;
    assert(!pthread_join(thread, &value));
    return value;
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = counts;
    assert(!sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = ends;
    assert(!sigaction(SIGUSR2, &action, NULL));
    action.sa_handler = jumps;
    assert(!sigaction(SIGHUP, &action, NULL));
    assert(!sem_init(&ready, 0, 0) && !pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    assert(!pthread_spin_lock(&lock));

    // The handler is called while the thread spins, which goes on spinning.
    pthread_t thread = start(spins, SIGUSR1);
    while (!handled) usleep(1000);
    assert(!pthread_spin_unlock(&lock));
    printf("%s\n", (char *)joined(thread));
    assert(!pthread_spin_lock(&lock));
    for (int round = 0; round < 3; round++) {
        printf("%s\n", (char *)joined(start(spins, SIGUSR2)));
        // The kernel thread that the handler was called on can be interrupted again.
        printf("%s\n", (char *)joined(start(computes, SIGUSR1)));
        printf("%s\n", (char *)joined(start(computes_until_it_jumps, SIGHUP)));
        printf("%s\n", (char *)joined(start(computes, SIGUSR1)));
    }
    return 0;
}
