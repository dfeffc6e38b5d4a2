// A thread that stays one, because its attributes ask for certain processors, creates fibers, names them and waits for them.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <threads.h>
#include <unistd.h>

static int ends[2];

static int returns(void *code) { return *(int *)code; }

static void *waits(void *unused) {
    char byte;
    assert(read(ends[0], &byte, 1) == 1);
    return unused;
}

static void *creates(void *unused) {
    int code = 7, got = 0;
    thrd_t other;
    assert(thrd_create(&other, returns, &code) == thrd_success);
    assert(thrd_join(other, &got) == thrd_success);
    printf("joined: %d\n", got);
    pthread_t thread;
    char name[16] = "";
    assert(!pthread_create(&thread, NULL, waits, NULL));
    printf("set: %d\n", pthread_setname_np(thread, "other"));
    printf("got: %d, %s\n", pthread_getname_np(thread, name, sizeof name), name);
    assert(write(ends[1], "", 1) == 1);
    assert(!pthread_join(thread, NULL));
    printf("set its own: %d\n", pthread_setname_np(pthread_self(), "own"));
    printf("got: %d, %s\n", pthread_getname_np(pthread_self(), name, sizeof name), name);
    return unused;
}

int main(void) {
    assert(!pipe(ends));
    pthread_t thread;
    pthread_attr_t attributes;
    cpu_set_t processors;
    creates(NULL);
    assert(!sched_getaffinity(0, sizeof processors, &processors));
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof processors, &processors);
    assert(!pthread_create(&thread, &attributes, creates, NULL));
    assert(!pthread_join(thread, NULL));
    return 0;
}
