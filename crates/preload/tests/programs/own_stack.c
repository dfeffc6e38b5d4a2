// A detached thread says that it ends, and its stack is given to another one while it still ends. Meanwhile, other
// threads run on another stack.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ROUNDS 30

static char stack[1 << 16] __attribute__((aligned(4096)));
static char other_stack[1 << 16] __attribute__((aligned(4096)));
static sem_t ends;
static pthread_key_t key;

static long microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// The destructor of a variable of the thread's, which stays on the stack for a moment.
static void lingers(void *value) {
    volatile char own[8192];
    char round = (char)(long)value;
    for (unsigned i = 0; i < sizeof own; i++) own[i] = round;
    pthread_t me = pthread_self();
    sem_post(&ends);
    for (long end = microseconds() + (round == 1 ? 200000 : 2000); microseconds() < end;) {}
    for (unsigned i = 0; i < sizeof own; i++) assert(own[i] == round);
    assert(pthread_equal(me, pthread_self()) && pthread_getspecific(key) == NULL);
}

static void *says(void *argument) {
    pthread_setspecific(key, argument);
    return NULL;
}

static void *nothing(void *argument) {
    return argument;
}

int main(void) {
    pthread_t thread;
    pthread_attr_t attributes, others;
    assert(!sem_init(&ends, 0, 0) && !pthread_key_create(&key, lingers));
    // From here on threads are fibers, if they can be.
    assert(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
    assert(!pthread_attr_init(&attributes));
    assert(!pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    assert(!pthread_attr_setstack(&attributes, stack, sizeof stack));
    assert(!pthread_attr_init(&others) && !pthread_attr_setstack(&others, other_stack, sizeof other_stack));
    for (long round = 1; round <= ROUNDS; round++) {
        assert(!pthread_create(&thread, &attributes, says, (void *)round));
        assert(!sem_wait(&ends));
        // While the first one ends, more of them than are remembered.
        for (int other = 0; other < (round == 1 ? 70 : 1); other++)
            assert(!pthread_create(&thread, &others, nothing, NULL) && !pthread_join(thread, NULL));
    }
    puts("done");
    return 0;
}
