// A program that knows nothing of fibers loads libraries that have them inside: each argument is one, and what
// is said of one holds for all of them in one process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define check(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            printf("line %d: %s\n", __LINE__, #what);                          \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

struct library {
    void *handle;
    double (*sleepers)(uint32_t, uint32_t);
    uint32_t (*waiters)(uint32_t);
    uint32_t (*meetings)(uint32_t);
    uint32_t (*runtimes)(uint32_t);
    int (*call_back)(int (*)(int), uint32_t);
    volatile uint64_t *(*counter)(void);
    int (*has_fibers)(void);
};

static struct library load(const char *path, int flags) {
    struct library it = {dlopen(path, RTLD_NOW | flags)};
    if (!it.handle) {
        puts(dlerror());
        exit(1);
    }
    it.sleepers = dlsym(it.handle, "sleepers");
    it.waiters = dlsym(it.handle, "waiters");
    it.meetings = dlsym(it.handle, "meetings");
    it.runtimes = dlsym(it.handle, "runtimes");
    it.call_back = dlsym(it.handle, "call_back");
    it.counter = dlsym(it.handle, "counter");
    it.has_fibers = dlsym(it.handle, "has_fibers");
    return it;
}

// Whether the host's calls find libc's own functions.
static int is_libcs(const char *name) {
    Dl_info info, libc;
    return dladdr(dlsym(RTLD_DEFAULT, name), &info) && dladdr((void *)gnu_get_libc_version, &libc) &&
           info.dli_fbase == libc.dli_fbase;
}

static __thread int own = 5;

// Called on fibers: the host's variables and errno are each fiber's own.
static int called(int n) {
    check(own == 5);
    own = n;
    errno = n;
    struct timespec nap = {0, 1000000};
    check(nanosleep(&nap, NULL) == 0);
    check(errno == n && own == n);
    return 1;
}

static struct library *all;
static int count;

static void *on_thread(void *argument) {
    struct library *it = argument;
    check(it->meetings(50) == 50);
    it->sleepers(200, 10);
    return NULL;
}

int main(int arguments, char **argument) {
    int flags = 0;
    if (!strcmp(argument[1], "global")) {
        flags = RTLD_GLOBAL;
        argument++;
        arguments--;
    }
    count = arguments - 1;
    all = calloc(count, sizeof *all);
    for (int i = 0; i < count; i++) all[i] = load(argument[i + 1], flags);
    const char *names[] = {"read", "nanosleep", "pthread_create", "pthread_mutex_lock", "poll", "dlopen"};
    for (int i = 0; i < 6; i++) check(getenv("LD_PRELOAD") || is_libcs(names[i]));
    for (int i = 0; i < count; i++) {
        check(all[i].has_fibers());
        // Each of them parks, and keeps no thread.
        check(all[i].waiters(1000) < 200);
        all[i].sleepers(100, 5);
        check(all[i].meetings(200) == 200);
        check(all[i].runtimes(20) == 20);
        check(all[i].call_back(called, 20) == 20);
        check(own == 5);
    }
    // From threads of the host's, all libraries at once.
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) check(!pthread_create(&threads[i], NULL, on_thread, &all[i % count]));
    for (int i = 0; i < 8; i++) check(!pthread_join(threads[i], NULL));
    // A child has fibers of its own.
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < count; i++) check(all[i].meetings(20) == 20);
        _exit(7);
    }
    int status;
    check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    // Unloading: fibers go on, and the library can be loaded again.
    for (int i = 0; i < count; i++) {
        volatile uint64_t *counter = all[i].counter();
        check(dlclose(all[i].handle) == 0);
        for (uint64_t seen = *counter; *counter < seen + 20;) usleep(1000);
        all[i] = load(argument[i + 1], flags);
        check(all[i].meetings(20) == 20);
    }
    puts("done");
    return 0;
}
