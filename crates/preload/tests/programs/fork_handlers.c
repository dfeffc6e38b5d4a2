// Threads that fork at once, in a program whose handlers of forks lock what other threads wait for.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKING = 3, FORKS = 20, OTHERS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int ends, children;

static void before(void) {
    pthread_mutex_lock(&lock);
}

static void after(void) {
    pthread_mutex_unlock(&lock);
}

static void *forks(void *argument) {
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        assert(child >= 0);
        if (!child) {
            pthread_mutex_lock(&lock);
            free(malloc(1000));
            pthread_mutex_unlock(&lock);
            _exit(7);
        }
        int status;
        assert(waitpid(child, &status, 0) == child);
        assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        children++;
    }
    return argument;
}

static void *locks(void *argument) {
    while (!ends) {
        pthread_mutex_lock(&lock);
        usleep(5);
        pthread_mutex_unlock(&lock);
        free(malloc(80));
    }
    return argument;
}

int main(void) {
    alarm(60);
    // Before there are threads, as libraries do it.
    assert(!pthread_atfork(before, after, after));
    pthread_t forking[FORKING], others[OTHERS];
    for (int i = 0; i < OTHERS; i++) assert(!pthread_create(&others[i], NULL, locks, NULL));
    for (int i = 0; i < FORKING; i++) assert(!pthread_create(&forking[i], NULL, forks, NULL));
    for (int i = 0; i < FORKING; i++) assert(!pthread_join(forking[i], NULL));
    ends = 1;
    for (int i = 0; i < OTHERS; i++) assert(!pthread_join(others[i], NULL));
    printf("children: %d\n", children);
    return 0;
}
