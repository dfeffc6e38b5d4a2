// Threads are told which part of their processor time the kernel has used for them.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MS 1000L

static void usage(long *user, long *system) {
    struct rusage usage;
    assert(!getrusage(RUSAGE_THREAD, &usage));
    *user = usage.ru_utime.tv_sec * 1000 * MS + usage.ru_utime.tv_usec;
    *system = usage.ru_stime.tv_sec * 1000 * MS + usage.ru_stime.tv_usec;
}

static volatile unsigned long sum;

// Whether it has used 400 ms since.
static int is_over(long user, long system) {
    long now_user, now_system;
    usage(&now_user, &now_system);
    assert(now_user >= user && now_system >= system);
    return now_user + now_system >= user + system + 400 * MS;
}

static void *computes(void *unused) {
    long user, system, after_user, after_system;
    usage(&user, &system);
    while (!is_over(user, system)) {
        for (int i = 0; i < 2000000; i++) sum += i;
        sched_yield();
    }
    usage(&after_user, &after_system);
    printf("computes: %s\n", after_user - user > 3 * (after_system - system) ? "mostly user" : "mostly system");
    return unused;
}

static void *calls(void *unused) {
    long user, system, after_user, after_system;
    usage(&user, &system);
    while (!is_over(user, system)) {
        for (int i = 0; i < 10; i++) {
            void *pages = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            assert(pages != MAP_FAILED && !munmap(pages, 4 << 20));
        }
        sched_yield();
    }
    usage(&after_user, &after_system);
    printf("calls: %s\n", after_system - system > 3 * (after_user - user) ? "mostly system" : "mostly user");
    return unused;
}

int main(void) {
    pthread_t first, second;
    setvbuf(stdout, NULL, _IONBF, 0);
    // One after the other, so that they print in order.
    assert(!pthread_create(&first, NULL, computes, NULL));
    assert(!pthread_join(first, NULL));
    assert(!pthread_create(&second, NULL, calls, NULL));
    assert(!pthread_join(second, NULL));
    return 0;
}
