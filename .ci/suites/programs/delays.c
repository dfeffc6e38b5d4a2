// A library to preload: threads of the program sleep now and then before they lock a mutex and after they unlock one.
// It shows whether what a program does depends on when its threads go on: fibers go on at other times than threads.
//
//     cc -O2 -shared -fPIC -o delays.so delays.c
//     LD_PRELOAD=./delays.so PROGRAM
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

// One in so many times, and the most nanoseconds.
enum { ONE_IN = 200, MOST = 5000000 };

static int (*lock)(pthread_mutex_t *), (*unlock)(pthread_mutex_t *);
static __thread uint64_t random_bits;

__attribute__((constructor)) static void find(void) {
    lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
}

static void delay(void) {
    if (!random_bits) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        random_bits = (uint64_t)now.tv_nsec * 2654435761 + (uintptr_t)&random_bits;
    }
    // (Marsaglia's xorshift.)
    random_bits ^= random_bits << 13;
    random_bits ^= random_bits >> 7;
    random_bits ^= random_bits << 17;
    if ((random_bits >> 20) % ONE_IN == 0) {
        struct timespec time = {0, (long)((random_bits >> 32) % MOST)};
        nanosleep(&time, 0);
    }
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (!lock) find();
    delay();
    return lock(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (!unlock) find();
    int result = unlock(mutex);
    delay();
    return result;
}
