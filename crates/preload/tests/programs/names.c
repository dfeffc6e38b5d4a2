// Signals for a thread that looks up names: it gets its answers.
#define _GNU_SOURCE
#include <assert.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// So many at least.
#define NAMES 200
#define SIGNALS 20

static atomic_int done, handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void *looks_up(void *argument) {
    struct addrinfo *found;
    int *failures = argument;
    for (int i = 0; i < NAMES || handled < SIGNALS; i++) {
        if (getaddrinfo("localhost", "80", NULL, &found)) {
            ++*failures;
        } else {
            freeaddrinfo(found);
        }
    }
    done = 1;
    return NULL;
}

int main(void) {
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = handle;
        action.sa_flags = restarts ? SA_RESTART : 0;
        assert(!sigaction(SIGUSR1, &action, NULL));
        int failures = 0;
        pthread_t thread;
        done = handled = 0;
        assert(!pthread_create(&thread, NULL, looks_up, &failures));
        while (!done) {
            assert(!pthread_kill(thread, SIGUSR1));
            usleep(50);
        }
        assert(!pthread_join(thread, NULL));
        printf("names that were not found: %d\n", failures);
    }
    return 0;
}
