// A thread makes calls of one kind, none of which waits. Prints the nanoseconds of a call.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *kind;
static long calls;
static double took;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void *makes_calls(void *unused) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct timespec time;
    char bytes[8] = {0};
    int ends[2];
    if (pipe(ends)) exit(1);
    double begun = now();
    for (long n = 0; n < calls; n++) {
        if (!strcmp(kind, "clock")) {
            clock_gettime(CLOCK_MONOTONIC, &time);
        } else if (!strcmp(kind, "mutex")) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
        } else if (write(ends[1], bytes, 8) != 8 || read(ends[0], bytes, 8) != 8) {
            exit(1);
        }
    }
    took = now() - begun;
    return unused;
}

int main(int count, char **arguments) {
    if (count < 3) return 1;
    kind = arguments[1];
    calls = atol(arguments[2]);
    pthread_t thread;
    if (pthread_create(&thread, NULL, makes_calls, NULL) || pthread_join(thread, NULL)) return 1;
    printf("%.1f\n", took / calls);
    return 0;
}
