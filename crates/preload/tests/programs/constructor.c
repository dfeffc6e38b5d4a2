// The first thread of a program is created by the constructor of a library that is loaded. As a library (LIBRARY),
// that.
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static void *begin(void *argument) {
    return argument;
}

static void create(const char *where) {
    pthread_t thread;
    void *value;
    assert(!pthread_create(&thread, NULL, begin, &thread) && !pthread_join(thread, &value) && value == &thread);
    puts(where);
    fflush(stdout);
}

#ifdef LIBRARY
__attribute__((constructor)) static void begins(void) {
    create("in a constructor");
}
#else
int main(int count, char **arguments) {
    assert(count == 2 && dlopen(arguments[1], RTLD_NOW));
    create("after it");
    return 0;
}
#endif
