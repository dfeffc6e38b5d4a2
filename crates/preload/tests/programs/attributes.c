// What threads have by their attributes and by the default ones, and what they are told of that.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t told;

// Whether at least so many bytes below the caller's stack cannot be accessed.
static const char *guarded(size_t bytes) {
    // Not to be accessed: the kernel is asked for each page.
    const char *page = (const char *)((size_t)&bytes & -4096);
    size_t none = 0;
    while (!none || none < bytes) {
        page -= 4096;
        if (access(page, F_OK) && errno == EFAULT) none += 4096;
        else if (none) return "no";
    }
    return "yes";
}

static void *tells(void *name) {
    pthread_attr_t attributes;
    size_t stack, guard;
    int detached;
    cpu_set_t own, processors;
    sigset_t mask;
    assert(!pthread_getattr_np(pthread_self(), &attributes));
    assert(!pthread_attr_getstacksize(&attributes, &stack));
    assert(!pthread_attr_getguardsize(&attributes, &guard));
    assert(!pthread_attr_getdetachstate(&attributes, &detached));
    assert(!pthread_attr_getaffinity_np(&attributes, sizeof processors, &processors));
    assert(!pthread_getaffinity_np(pthread_self(), sizeof own, &own));
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &mask));
    printf("%s: stack %zu, guard %zu (%s), %s, its processors: %s, blocks%s%s\n", (char *)name, stack, guard,
           guarded(guard), detached == PTHREAD_CREATE_DETACHED ? "detached" : "joinable",
           CPU_EQUAL(&own, &processors) ? "yes" : "no", sigismember(&mask, SIGUSR1) ? " 1" : "",
           sigismember(&mask, SIGUSR2) ? " 2" : "");
    assert(!pthread_attr_destroy(&attributes));
    pthread_barrier_wait(&told);
    return NULL;
}

static void create(const pthread_attr_t *attributes, char *name) {
    pthread_t thread;
    int detached = PTHREAD_CREATE_JOINABLE;
    if (attributes) assert(!pthread_attr_getdetachstate(attributes, &detached));
    assert(!pthread_create(&thread, attributes, tells, name));
    pthread_barrier_wait(&told);
    if (detached == PTHREAD_CREATE_JOINABLE) assert(!pthread_join(thread, NULL));
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t mask;
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_barrier_init(&told, NULL, 2);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    assert(!pthread_sigmask(SIG_BLOCK, &mask, NULL));
    create(NULL, "none");
    assert(!pthread_attr_init(&attributes));
    assert(!pthread_attr_setguardsize(&attributes, 65000));
    create(&attributes, "guard");
    assert(!pthread_attr_setguardsize(&attributes, 1 << 20));
    create(&attributes, "large guard");
    assert(!pthread_attr_setguardsize(&attributes, 65000));
    size_t usual;
    assert(!pthread_attr_getstacksize(&attributes, &usual) && !pthread_attr_setstacksize(&attributes, 1 << 16));
    create(&attributes, "small stack, guard");
    assert(!pthread_attr_setstacksize(&attributes, usual));
    assert(!pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    create(&attributes, "detached");
#ifdef PTHREAD_ATTR_NO_SIGMASK_NP
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    assert(!pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_JOINABLE));
    assert(!pthread_attr_setsigmask_np(&attributes, &mask));
    create(&attributes, "mask");
#endif
    assert(!pthread_attr_destroy(&attributes));

    // Guards and stacks for which there are no addresses.
    size_t huge[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2};
    for (int i = 0; i < 3; i++) {
        assert(!pthread_attr_init(&attributes) && !pthread_attr_setguardsize(&attributes, huge[i]));
        printf("huge guard: %s\n", strerror(pthread_create(&thread, &attributes, tells, "huge guard")));
        assert(!pthread_attr_setguardsize(&attributes, 4096) && !pthread_attr_setstacksize(&attributes, huge[i]));
        printf("huge stack: %s\n", strerror(pthread_create(&thread, &attributes, tells, "huge stack")));
        assert(!pthread_attr_destroy(&attributes));
    }

    // A priority that its policy does not have.
    struct sched_param parameters = {1};
    assert(!pthread_attr_init(&attributes));
    assert(!pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED));
    assert(!pthread_attr_setschedpolicy(&attributes, SCHED_FIFO));
    assert(!pthread_attr_setschedparam(&attributes, &parameters));
    assert(!pthread_attr_setschedpolicy(&attributes, SCHED_OTHER));
    assert(pthread_create(&thread, &attributes, tells, "refused") == EINVAL);
    assert(!pthread_attr_destroy(&attributes));

    // Those of threads that ask for none, while there are threads.
    assert(!pthread_attr_init(&attributes));
    assert(!pthread_attr_setstacksize(&attributes, 1 << 20));
    assert(!pthread_attr_setguardsize(&attributes, 8192));
    assert(!pthread_setattr_default_np(&attributes));
    create(NULL, "defaults");
    assert(!pthread_attr_destroy(&attributes));
    return 0;
}
