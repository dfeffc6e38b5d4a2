// The first thread is created when no memory is left, and again when there is some.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static void *begin(void *argument) {
    return argument;
}

int main(void) {
    struct rlimit before, limit;
    pthread_t thread;
    void *value;
    assert(!getrlimit(RLIMIT_AS, &before));
    limit = before;
    limit.rlim_cur = 1 << 20;
    assert(!setrlimit(RLIMIT_AS, &limit));
    int created[3];
    for (int i = 0; i < 3; i++) created[i] = pthread_create(&thread, NULL, begin, "value");
    assert(!setrlimit(RLIMIT_AS, &before));
    for (int i = 0; i < 3; i++) printf("without memory: %s\n", strerror(created[i]));
    int again = pthread_create(&thread, NULL, begin, "value");
    printf("with memory: %s\n", strerror(again));
    assert(!pthread_join(thread, &value));
    printf("%s\n", (char *)value);
    return 0;
}
