// A signal that is pending for the process is handled before the call returns by which a thread unblocks it.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 3000, FEW = ROUNDS / 2 };

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void *rounds(void *set) {
    int late = 0;
    for (int n = 0; n < ROUNDS; n++) {
        int before = handled;
        kill(getpid(), SIGUSR1);
        pthread_sigmask(SIG_UNBLOCK, set, NULL);
        late += handled == before;
        while (handled == before) usleep(100);
        pthread_sigmask(SIG_BLOCK, set, NULL);
    }
    // (On fibers another thread may just have taken the signal.)
    printf("%d were handled, %s late\n", handled, late > FEW ? "many" : "hardly any");
    return NULL;
}

int main(void) {
    pthread_t thread;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGUSR1, handle);
    pthread_create(&thread, NULL, rounds, &set);
    pthread_join(thread, NULL);
    return 0;
}
