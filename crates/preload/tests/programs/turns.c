// Threads on one processor hand a turn on, for which they wait by yielding: it comes soon, wherever they run.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { THREADS = 4, TURNS = 200 };

static atomic_int begun, turn;

static double used(void) {
    struct timespec time;
    assert(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time));
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *take_turns(void *number) {
    // Without a yield: fibers are shared out among the carriers meanwhile.
    begun++;
    while (begun < THREADS) {}
    for (int i = 0; i < TURNS; i++) {
        while (turn % THREADS != (long)number) sched_yield();
        turn++;
    }
    return NULL;
}

int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert(!sched_setaffinity(0, sizeof one, &one));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) assert(!pthread_create(&threads[i], NULL, take_turns, (void *)i));
    while (begun < THREADS) sched_yield();
    double before = used();
    for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    // A slice of the processor for each turn is 0.8 s and more.
    double took = used() - before;
    printf("%d turns, %s\n", turn, took < 0.4 ? "soon" : "late");
    return 0;
}
