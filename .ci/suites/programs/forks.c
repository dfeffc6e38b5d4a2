// A process with a second thread, which waits, forks children that end. Prints the nanoseconds of a fork and the wait.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *waits(void *unused) {
    pause();
    return unused;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments) {
    const long forks = count > 1 ? atol(arguments[1]) : 100;
    pthread_t thread;
    if (pthread_create(&thread, NULL, waits, NULL)) return 1;
    double begun = now();
    for (long n = 0; n < forks; n++) {
        pid_t child = fork();
        if (child == 0) _exit(7);
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) return 1;
    }
    printf("%.1f\n", (now() - begun) / forks);
    return 0;
}
