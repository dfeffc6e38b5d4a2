// What the first thread has sent itself, and blocks, is still pending when it has created the first other thread: also in
// a program that takes the place of this one.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void *nothing(void *unused) { return unused; }

int main(int count, char **arguments) {
    int left = count > 1 ? atoi(arguments[1]) : 30;
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    if (count == 1) {
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        raise(SIGUSR1);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL)) return 1;
    sigpending(&pending);
    if (!sigismember(&pending, SIGUSR1)) printf("not pending, with %d left\n", left);
    pthread_join(thread, NULL);
    // (At once, so that the next program has it from its start on, as the first one.)
    if (left > 0) {
        char number[12];
        sprintf(number, "%d", left - 1);
        execl("/proc/self/exe", arguments[0], number, NULL);
        return 1;
    }
    struct timespec none = {0, 0};
    printf("taken: %d\n", sigtimedwait(&set, NULL, &none) == SIGUSR1);
    return 0;
}
