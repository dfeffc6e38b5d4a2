// A thread that can be cancelled anywhere is cancelled, and interrupted, in a wait within libc.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_int begun, handled, cleaned;
static FILE *empty;

static void clean(void *unused) {
    (void)unused;
    cleaned++;
}

static void handle(int signal) {
    (void)signal;
    handled++;
}

// Leaves addresses of whatever waits, and writes, on the stack.
static void use_the_stack(void) {
    usleep(100);
    printf("%s", "");
    fflush(stdout);
}

static void *reads_a_line(void *kind) {
    char line[80];
    pthread_cleanup_push(clean, NULL);
    assert(!pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    use_the_stack();
    begun = 1;
    if (kind) {
        fgets(line, sizeof line, empty);
    } else {
        fgetc(empty);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    int ends[2];
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    assert(!sigaction(SIGUSR1, &action, NULL));
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < 4; i++) {
            pthread_t thread;
            void *result;
            // Its lock is the ended thread's, natively too: a stream of its own each time.
            assert(!pipe(ends));
            assert((empty = fdopen(ends[0], "r")));
            begun = handled = cleaned = 0;
            assert(!pthread_create(&thread, NULL, reads_a_line, kind ? &begun : NULL));
            while (!begun) usleep(200);
            usleep(i * 500);
            assert(!pthread_kill(thread, SIGUSR1));
            for (int look = 0; look < 200000 && !handled; look++) usleep(200);
            assert(!pthread_cancel(thread) && !pthread_join(thread, &result));
            printf("%d: handled %d, cleaned %d, cancelled %d\n", i, handled, cleaned,
                   result == PTHREAD_CANCELED);
        }
    }
    puts("done");
    return 0;
}
