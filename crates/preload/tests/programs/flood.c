// Signals that come faster than they are handled, for a thread that sends itself some as well.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_int ends, handled[2];
static sem_t sent[2];

static void handle(int signal) {
    int which = signal == SIGUSR2;
    handled[which]++;
    sem_post(&sent[which]);
}

static void *sends(void *argument) {
    int which = (int)(long)argument;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    while (!ends) {
        assert(!sem_wait(&sent[which]));
        assert(!kill(getpid(), which ? SIGUSR2 : SIGUSR1));
    }
    return NULL;
}

static void *takes(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    assert(!pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    while (!ends) {
        assert(!pthread_kill(pthread_self(), 0));
        assert(!pthread_kill(pthread_self(), SIGUSR1));
    }
    return argument;
}

int main(void) {
    pthread_t threads[3];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    assert(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR2, &action, NULL));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < 2; i++) assert(!sem_init(&sent[i], 0, 0));
    assert(!pthread_create(&threads[0], NULL, takes, NULL));
    for (long i = 0; i < 2; i++) assert(!pthread_create(&threads[1 + i], NULL, sends, (void *)i));
    sem_post(&sent[1]);
    for (int i = 0; i < 6000 && !(handled[0] > 100 && handled[1] > 100 && i > 100); i++) usleep(10000);
    ends = 1;
    for (int i = 0; i < 2; i++) sem_post(&sent[i]);
    for (int i = 0; i < 3; i++) assert(!pthread_join(threads[i], NULL));
    printf("some were handled: %d %d\n", handled[0] > 100, handled[1] > 100);
    return 0;
}
