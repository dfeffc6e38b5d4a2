// Forks while other threads load libraries and are created, with an allocator of the program's that is locked for each
// fork: none waits for another for ever.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static int word;

// A thread that waits keeps its carrier: `sched_yield`, but not libc's.
static void give_way(void) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(24) : "rcx", "r11", "memory");
#endif
}

static void lock(void) {
    while (__atomic_exchange_n(&word, 1, __ATOMIC_ACQUIRE)) give_way();
}
static void unlock(void) { __atomic_store_n(&word, 0, __ATOMIC_RELEASE); }

#define LOCKED(type, call) \
    lock();                \
    type result = call;    \
    unlock();              \
    return result

void *malloc(size_t size) { LOCKED(void *, __libc_malloc(size)); }
void *calloc(size_t count, size_t size) { LOCKED(void *, __libc_calloc(count, size)); }
void *realloc(void *old, size_t size) { LOCKED(void *, __libc_realloc(old, size)); }
void *memalign(size_t to, size_t size) { LOCKED(void *, __libc_memalign(to, size)); }
void *aligned_alloc(size_t to, size_t size) { LOCKED(void *, __libc_memalign(to, size)); }
int posix_memalign(void **place, size_t to, size_t size) { return (*place = memalign(to, size)) ? 0 : ENOMEM; }
void free(void *old) {
    lock();
    __libc_free(old);
    unlock();
}

__attribute__((constructor)) static void begin(void) { assert(!pthread_atfork(lock, unlock, unlock)); }

static volatile int over;

static void *loading(void *name) {
    while (!over) {
        void *library = dlopen(name, RTLD_NOW);
        assert(library && !dlclose(library));
    }
    return NULL;
}

static void *nothing(void *unused) { return unused; }

static void *creating(void *unused) {
    while (!over) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++) assert(!pthread_create(&threads[i], NULL, nothing, NULL));
        for (int i = 0; i < 8; i++) assert(!pthread_join(threads[i], NULL));
    }
    return unused;
}

int main(void) {
    pthread_t threads[3];
    assert(!pthread_create(&threads[0], NULL, loading, "libresolv.so.2"));
    assert(!pthread_create(&threads[1], NULL, creating, NULL));
    assert(!pthread_create(&threads[2], NULL, creating, NULL));
    for (int turn = 0; turn < 60; turn++) {
        pid_t child = fork();
        assert(child >= 0);
        if (!child) {
            free(malloc(100));
            _exit(3);
        }
        int status;
        assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    over = 1;
    for (int i = 0; i < 3; i++) assert(!pthread_join(threads[i], NULL));
    puts("done");
    return 0;
}
