// A library with thread-local variables in the static block is loaded, closed and loaded again, while
// threads live.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef LIBRARY

static __attribute__((tls_model("initial-exec"))) _Thread_local int number = 7;
static __attribute__((tls_model("initial-exec"))) _Thread_local int nothing;

int add(int more) {
    nothing += more;
    return number += more;
}

int zero(void) { return nothing; }

#else

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn, arrived;
static int (*add)(int);
static int (*zero)(void);

// Waits for each turn, and uses the library in it.
static void *thread(void *turns) {
    for (int mine = 1; mine <= *(int *)turns; mine++) {
        pthread_mutex_lock(&mutex);
        arrived++;
        pthread_cond_broadcast(&changed);
        while (turn < mine) pthread_cond_wait(&changed, &mutex);
        printf("turn %d: %d, %d\n", mine, zero(), add(1));
        printf("turn %d: %d, %d\n", mine, zero(), add(10));
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void await(int number) {
    pthread_mutex_lock(&mutex);
    while (arrived < number) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void *load(const char *library) {
    void *loaded = dlopen(library, RTLD_NOW);
    if (!loaded) {
        printf("%s\n", dlerror());
        exit(1);
    }
    add = (int (*)(int))dlsym(loaded, "add");
    zero = (int (*)(void))dlsym(loaded, "zero");
    return loaded;
}

int main(int argc, char **argv) {
    pthread_t threads[3];
    int turns = 2;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, thread, &turns);
    await(3);
    void *loaded = load(argv[1]);
    printf("main: %d, %d\n", zero(), add(100));
    pthread_mutex_lock(&mutex);
    turn = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    await(6);
    dlclose(loaded);
    load(argv[1]);
    printf("main: %d, %d\n", zero(), add(100));
    pthread_mutex_lock(&mutex);
    turn = 2;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    pthread_t late;
    turns = 1;
    pthread_create(&late, NULL, thread, &turns);
    pthread_join(late, NULL);
    return 0;
}

#endif
