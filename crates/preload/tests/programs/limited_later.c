// A limit of address space that is set when there are idle stacks, and no room: threads are refused, and had again when
// there is room.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <threads.h>
#include <unistd.h>

static void *waits(void *unused) {
    usleep(1000);
    return unused;
}

static int never(void *unused) {
    return unused == NULL;
}

// How many of up to 20 threads there are at once.
static int create(size_t bytes) {
    pthread_t threads[20];
    pthread_attr_t attributes;
    int created = 0, error = 0;
    assert(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, bytes));
    while (created < 20 && !(error = pthread_create(&threads[created], &attributes, waits, NULL))) created++;
    for (int i = 0; i < created; i++) assert(!pthread_join(threads[i], NULL));
    if (error) printf("%s\n", strerror(error));
    return created;
}

int main(void) {
    struct rlimit limit, before;
    unsigned long pages;
    assert(create(8 << 20) == 20 && create(64 << 10) == 20);
    assert(!getrlimit(RLIMIT_AS, &before));
    FILE *file = fopen("/proc/self/statm", "r");
    assert(file && fscanf(file, "%lu", &pages) == 1 && !fclose(file));
    limit = before;
    // Less than there is.
    limit.rlim_cur = pages / 2 * 4096;
    assert(!setrlimit(RLIMIT_AS, &limit));
    printf("all: %d\n", create(1L << 30) == 20);
    pthread_attr_t usual;
    assert(!pthread_attr_init(&usual) && !pthread_attr_setstacksize(&usual, 1L << 30));
    assert(!pthread_setattr_default_np(&usual));
    thrd_t thread;
    printf("by C11: %d\n", thrd_create(&thread, never, NULL));
    assert(!setrlimit(RLIMIT_AS, &before));
    printf("all: %d\n", create(16 << 20) == 20);
    return 0;
}
