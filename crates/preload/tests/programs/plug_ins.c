// A program that has loaded a library before it has threads loads one with many thread-local variables in the
// static block, while a thread waits.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifdef LIBRARY

static __attribute__((tls_model("initial-exec"))) _Thread_local char text[1200] = "begin";

int add(int more) {
    int sum = strlen(text);
    for (int i = 0; i < more; i++) text[sum + i] = 'x';
    return strlen(text);
}

#else

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int (*add)(int);

static void *thread(void *name) {
    pthread_mutex_lock(&mutex);
    while (!add) pthread_cond_wait(&changed, &mutex);
    printf("%s: %d, then %d\n", (char *)name, add(0), add(1000));
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int main(int argc, char **argv) {
    // Not linked to this program.
    if (!dlopen("libm.so.6", RTLD_NOW)) return 1;
    pthread_t waiting, later;
    pthread_create(&waiting, NULL, thread, "waiting");
    void *loaded = dlopen(argv[1], RTLD_NOW);
    if (!loaded) {
        printf("%s\n", dlerror());
        return 1;
    }
    pthread_mutex_lock(&mutex);
    add = (int (*)(int))dlsym(loaded, "add");
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    pthread_join(waiting, NULL);
    pthread_create(&later, NULL, thread, "later");
    pthread_join(later, NULL);
    return 0;
}

#endif
