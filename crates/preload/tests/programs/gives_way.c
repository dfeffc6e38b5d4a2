// A thread that gives its processor up lets another one run that is ready, by each name of the call.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <threads.h>

enum { ROUNDS = 20, YIELDS = 10 };

static volatile int has_run;

static void *run(void *unused) {
    has_run = 1;
    return unused;
}

static void by_sched(void) { assert(!sched_yield()); }
static void by_c11(void) { thrd_yield(); }

// Programs that were built with a glibc of before 2.34 call it. Later ones are not linked to it, unless by its version.
#ifdef __x86_64__
__asm__(".symver old_yield, pthread_yield@GLIBC_2.2.5");
#else
__asm__(".symver old_yield, pthread_yield@GLIBC_2.17");
#endif
int old_yield(void);
static void by_pthread(void) { assert(!old_yield()); }

// Whether the other thread runs before so few yields are over, as a rule.
static int gives_way(void (*yield)(void)) {
    int soon = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t other;
        has_run = 0;
        assert(!pthread_create(&other, NULL, run, NULL));
        for (int i = 0; i < YIELDS && !has_run; i++) yield();
        soon += has_run;
        assert(!pthread_join(other, NULL));
    }
    return soon > ROUNDS / 2;
}

// Named by the argument.
int main(int count, char **names) {
    assert(count == 2);
    void (*yield)(void) = by_sched;
    if (names[1][0] == 't') yield = by_c11;
    if (names[1][0] == 'p') yield = by_pthread;
    puts(gives_way(yield) ? "soon" : "late");
    return 0;
}
