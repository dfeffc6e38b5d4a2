// Handlers that wait, of signals that come in the midst of malloc: what it has given to one thread it must not give
// to another.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 10, SIGNALS = 300, KEPT = 8 };

static atomic_int ends, handled;

static void handle(int signal) {
    struct timespec moment = {0, 20000};
    (void)signal;
    nanosleep(&moment, NULL);
    handled++;
}

// The first one never lets others run, but where a handler waits.
static void *allocates(void *argument) {
    uintptr_t *kept[KEPT] = {0};
    for (uintptr_t n = 1; !ends; n++) {
        uintptr_t **place = &kept[n % KEPT];
        if (*place) assert((*place)[2] == (uintptr_t)argument && (*place)[3] == (uintptr_t)place);
        free(*place);
        *place = malloc(40);
        assert(*place);
        (*place)[2] = (uintptr_t)argument;
        (*place)[3] = (uintptr_t)place;
        if (argument != (void *)1) usleep(n % 8 ? 1 : 200);
    }
    for (int i = 0; i < KEPT; i++) free(kept[i]);
    return argument;
}

int main(void) {
    pthread_t threads[THREADS];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    assert(!sigaction(SIGUSR1, &action, NULL));
    for (uintptr_t i = 0; i < THREADS; i++) assert(!pthread_create(&threads[i], NULL, allocates, (void *)(i + 1)));
    for (int i = 0; i < SIGNALS; i++) {
        int before = handled;
        assert(!pthread_kill(threads[0], SIGUSR1));
        for (int looks = 0; handled == before && looks < 300000; looks++) usleep(50);
        if (handled == before) break;
    }
    ends = 1;
    for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    printf("handled: %d\n", handled == SIGNALS);
    return 0;
}
