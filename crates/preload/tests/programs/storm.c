// A storm of signals for the process, while the only threads that do not block them keep ending.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIGNALS 1500

static sem_t handled[2], ended;
static sigset_t both;
static atomic_int sending = 2;

static void handle_first(int signal) {
    (void)signal;
    sem_post(&handled[0]);
}

static void handle_second(int signal) {
    (void)signal;
    sem_post(&handled[1]);
}

// Sends one signal after the other: each is handled, by whichever thread.
static void *sends(void *argument) {
    int which = (int)(long)argument;
    for (int i = 0; i < SIGNALS; i++) {
        assert(!kill(getpid(), which ? SIGUSR2 : SIGUSR1));
        while (sem_wait(&handled[which])) {}
    }
    sending--;
    return NULL;
}

static void *ends(void *argument) {
    (void)argument;
    assert(!pthread_sigmask(SIG_UNBLOCK, &both, NULL));
    assert(!pthread_detach(pthread_self()));
    while (sem_post(&ended)) {}
    return NULL;
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle_first;
    assert(!sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = handle_second;
    assert(!sigaction(SIGUSR2, &action, NULL));
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    assert(!pthread_sigmask(SIG_BLOCK, &both, NULL));
    assert(!sem_init(&handled[0], 0, 0) && !sem_init(&handled[1], 0, 0) && !sem_init(&ended, 0, 0));

    pthread_t senders[2], thread;
    for (long i = 0; i < 2; i++) assert(!pthread_create(&senders[i], NULL, sends, (void *)i));
    long created = 0;
    while (sending) {
        assert(!pthread_create(&thread, NULL, ends, NULL));
        while (sem_wait(&ended)) {}
        created++;
    }
    for (int i = 0; i < 2; i++) assert(!pthread_join(senders[i], NULL));
    printf("all are handled: %d\n", created > 0);

    // Signals that all threads have blocked are handled before the call returns that lets them through.
    assert(!kill(getpid(), SIGUSR1) && !kill(getpid(), SIGUSR2));
    usleep(1000);
    assert(!pthread_sigmask(SIG_UNBLOCK, &both, NULL));
    int values[2];
    assert(!sem_getvalue(&handled[0], &values[0]) && !sem_getvalue(&handled[1], &values[1]));
    printf("handled when unblocked: %d %d\n", values[0], values[1]);
    return 0;
}
