// Threads that create threads until there is room for them: those that have it end meanwhile.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

#define WANTED 2000

static unsigned created;
static pthread_attr_t detached;

static void *ends(void *value) { return value; }

static void *creates(void *value) {
    while (1) {
        pthread_t thread;
        int error = pthread_create(&thread, &detached, ends, NULL);
        assert(error == 0 || error == EAGAIN);
        if (error == 0 && __atomic_add_fetch(&created, 1, __ATOMIC_SEQ_CST) >= WANTED) return value;
    }
}

int main(void) {
    struct rlimit limit = {800 << 20, 800 << 20};
    assert(!setrlimit(RLIMIT_AS, &limit));
    assert(!pthread_attr_init(&detached) && !pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    assert(!pthread_attr_setstacksize(&detached, 16 << 20));
    pthread_t creators[2];
    for (int i = 0; i < 2; i++) assert(!pthread_create(&creators[i], NULL, creates, NULL));
    for (int i = 0; i < 2; i++) assert(!pthread_join(creators[i], NULL));
    puts("all are created");
    return 0;
}
