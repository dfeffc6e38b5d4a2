// Whether threads are threads of the kernel's, by where they start. As a library (LIBRARY), some of the functions
// that they start with.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

void *inside(void *);
void *beside(void *);

static const char *kind(void) {
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/task/%d", (int)gettid());
    return stat(path, &status) == 0 ? "thread" : "fiber";
}

#ifdef LIBRARY
void *inside(void *argument) { (void)argument; return (void *)kind(); }
void *beside(void *argument) { (void)argument; return (void *)kind(); }
#else
static void *hidden(void *argument) { (void)argument; return (void *)kind(); }
static void *other(void *argument) { (void)argument; return (void *)kind(); }

static void show(const char *name, void *(*function)(void *)) {
    pthread_t thread;
    void *kind = NULL;
    pthread_create(&thread, NULL, function, NULL);
    pthread_join(thread, &kind);
    printf("%s %s\n", name, (const char *)kind);
}

int main(void) {
    show("hidden", hidden);
    show("other", other);
    show("inside", inside);
    show("beside", beside);
    return 0;
}
#endif
