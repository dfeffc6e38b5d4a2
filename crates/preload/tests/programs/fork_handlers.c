// Threads that fork at once, in a program whose handlers of forks lock what other threads wait for.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKING = 3, FORKS = 20, OTHERS = 2 };

// A library begins before the one that is preloaded, and may find the function that old programs call, as tcmalloc does.
#ifdef LIBRARY
pthread_mutex_t other_lock = PTHREAD_MUTEX_INITIALIZER;

#ifdef __x86_64__
extern int old_pthread_atfork(void (*)(void), void (*)(void), void (*)(void));
__asm__(".symver old_pthread_atfork, pthread_atfork@GLIBC_2.2.5");
#else
#define old_pthread_atfork pthread_atfork
#endif

static void before_others(void) {
    pthread_mutex_lock(&other_lock);
}

static void after_others(void) {
    pthread_mutex_unlock(&other_lock);
    sched_yield();
}

__attribute__((constructor)) static void begin(void) {
    assert(!old_pthread_atfork(before_others, after_others, after_others));
}
#else
extern pthread_mutex_t other_lock;

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

static void *nothing(void *argument) {
    return argument;
}

static void *locks(void *argument) {
    while (!ends) {
        // What comes of these takes locks of the runtime's.
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
        void *library = dlopen("libresolv.so.2", RTLD_NOW);
        assert(library && !dlclose(library));
        pthread_mutex_lock(&lock);
        usleep(5);
        pthread_mutex_unlock(&lock);
        pthread_mutex_lock(&other_lock);
        usleep(5);
        pthread_mutex_unlock(&other_lock);
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
#endif
