// Threads that call a library in Go, which is loaded before there are any, or after the first (a second argument).
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static long (*work)(long);

static void *calls(void *n) {
    for (int i = 0; i < 5; i++) {
        assert(work((long)n) == 190 + (long)n);
        usleep(100);
    }
    return NULL;
}

static void *sleeps(void *n) {
    usleep(1000);
    return n;
}

int main(int count, char **arguments) {
    pthread_t threads[8];
    if (count > 2) {
        assert(!pthread_create(threads, NULL, sleeps, NULL) && !pthread_join(*threads, NULL));
    }
    void *library = dlopen(arguments[1], RTLD_NOW);
    assert(library);
    work = (long (*)(long))dlsym(library, "Work");
    for (long i = 0; i < 8; i++) assert(!pthread_create(&threads[i], NULL, calls, (void *)i));
    calls((void *)9);
    for (int i = 0; i < 8; i++) assert(!pthread_join(threads[i], NULL));
    puts("done");
    return 0;
}
