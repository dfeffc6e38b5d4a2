// Storms of each signal that can be handled, from other processes: its handler waits, and runs on a thread of the
// program's, amid nothing else.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, SENDERS = 2, SIGNALS = 300 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int begun, ends, handled, elsewhere;
static __thread int is_ours;

static void handle(int signal) {
    (void)signal;
    if (!is_ours) elsewhere++;
    usleep(10);
    handled++;
}

static void *waits(void *argument) {
    is_ours = 1;
    begun++;
    while (!ends) {
        pthread_mutex_lock(&lock);
        usleep(20);
        pthread_mutex_unlock(&lock);
        free(malloc(100));
    }
    return argument;
}

static void send(int signal) {
    pid_t parent = getppid();
    for (int i = 0; i < SIGNALS; i++) {
        if (kill(parent, signal)) _exit(1);
        if (i % 10 == 0) usleep(50);
    }
    _exit(0);
}

static void storm(int signal) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    handled = elsewhere = 0;
    assert(!sigaction(signal, &action, NULL));
    pid_t senders[SENDERS];
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = fork();
        assert(senders[i] >= 0);
        if (!senders[i]) send(signal);
    }
    for (int i = 0; i < SENDERS; i++) {
        int status;
        assert(waitpid(senders[i], &status, 0) == senders[i]);
        assert(!status);
    }
    for (int i = 0; i < 20000 && !handled; i++) usleep(1000);
    // (The first real-time signal has another number on fibers.)
    printf("%d: %s, %d elsewhere\n", signal < SIGRTMIN ? signal : signal - SIGRTMIN, handled ? "handled" : "lost", elsewhere);
    fflush(stdout);
}

int main(void) {
    is_ours = 1;
    alarm(100);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) assert(!pthread_create(&threads[i], NULL, waits, NULL));
    while (begun < THREADS) usleep(100);
    for (int signal = 1; signal < 32; signal++)
        if (signal != SIGKILL && signal != SIGSTOP && signal != SIGALRM) storm(signal);
    storm(SIGRTMIN);
    storm(SIGRTMIN + 3);
    ends = 1;
    for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    return 0;
}
