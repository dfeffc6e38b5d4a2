// Libraries are loaded by several threads, one of which waits in a constructor; and a library loads another one,
// which only its own RUNPATH leads to.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#if defined WAITS

void in_constructor(void);

__attribute__((constructor)) static void waits(void) { in_constructor(); }

#elif defined LOADS

// Values that are kept in registers over the calls.
int load(int a, int b, int c, int d, double e) {
    void *one = dlopen("libinner.so", RTLD_NOW);
    int f = a * b, g = b * c, h = c * d;
    double i = e * e;
    void *two = dlmopen(LM_ID_BASE, "libinner.so", RTLD_NOW);
    if (!one || one != two) return -1;
    int (*inner)(void) = (int (*)(void))dlsym(one, "inner");
    int result = inner() + a + b + c + d + f + g + h + (int)(e + i);
    return dlclose(one) || dlclose(two) ? -2 : result;
}

#elif defined INNER

int inner(void) { return 1000; }

#else

static sem_t begun, tries, go;

void in_constructor(void) {
    sem_post(&begun);
    while (sem_wait(&go)) {}
}

static void *waits(void *path) {
    return (void *)(long)(dlopen(path, RTLD_NOW) != NULL);
}

static int loads(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
    int (*load)(int, int, int, int, double) = (int (*)(int, int, int, int, double))dlsym(library, "load");
    return load(1, 2, 3, 4, 5.5);
}

static void *other(void *path) {
    sem_post(&tries);
    return (void *)(long)loads(path);
}

int main(int argc, char **argv) {
    printf("before: %d, %d\n", loads(argv[2]), dlopen("libinner.so", RTLD_NOW) != NULL);
    sem_init(&begun, 0, 0);
    sem_init(&tries, 0, 0);
    sem_init(&go, 0, 0);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, waits, argv[1]);
    while (sem_wait(&begun)) {}
    pthread_create(&threads[1], NULL, other, argv[2]);
    while (sem_wait(&tries)) {}
    for (int i = 0; i < 20; i++) sched_yield();
    sem_post(&go);
    for (int i = 0; i < 2; i++) {
        void *value;
        pthread_join(threads[i], &value);
        printf("library %d: %ld\n", i, (long)value);
    }
    return 0;
}

#endif
