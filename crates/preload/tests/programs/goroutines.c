// Threads that start in a library which exports what Go's do (LIBRARY, and GO for that), loaded amid others.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef LIBRARY
#ifdef GO
void _cgo_topofstack(void) {}
#else
// Of another object.
extern void _cgo_topofstack(void) __attribute__((weak));
void *uses(void) { return _cgo_topofstack; }
#endif
void *begins(void *argument) {
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/task/%d", (int)gettid());
    return (void *)(stat(path, &status) == 0 ? "thread" : "fiber");
}
#else
static void show(void *library) {
    assert(library);
    pthread_t thread;
    void *kind = NULL, *(*function)(void *) = (void *(*)(void *))dlsym(library, "begins");
    assert(!pthread_create(&thread, NULL, function, NULL) && !pthread_join(thread, &kind));
    puts(kind);
}

static void *loads(void *path) {
    void *library = dlopen(path, RTLD_NOW);
    show(library);
    show(library);
    // Another one may come to lie there.
    assert(!dlclose(library));
    return NULL;
}

int main(int count, char **paths) {
    for (int n = 1; n < count; n++) {
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, loads, paths[n]) && !pthread_join(thread, NULL));
    }
    return 0;
}
#endif
