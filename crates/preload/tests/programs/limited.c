// Threads with the usual 8 MiB of stack, within a limit of address space that leaves each half as much again.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

#define THREADS 500

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *unused) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}

int main(void) {
    static pthread_t threads[THREADS];
    struct rlimit limit = {THREADS * (12L << 20), THREADS * (12L << 20)};
    pthread_attr_t attributes;
    int created = 0;
    assert(!setrlimit(RLIMIT_AS, &limit));
    assert(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, 8 << 20));
    pthread_mutex_lock(&mutex);
    while (created < THREADS && !pthread_create(&threads[created], &attributes, waits, NULL)) created++;
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < created; i++) assert(!pthread_join(threads[i], NULL));
    printf("%d threads\n", created);
    return 0;
}
