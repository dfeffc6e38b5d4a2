// What threads are told of the processor time that they have used.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000L

static long shown(clockid_t clock) {
    struct timespec time;
    assert(!clock_gettime(clock, &time));
    return time.tv_sec * 1000 * MS + time.tv_nsec;
}

static long own(void) {
    return shown(CLOCK_THREAD_CPUTIME_ID);
}

static long usage(void) {
    struct rusage usage;
    assert(!getrusage(RUSAGE_THREAD, &usage));
    return ((usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

static volatile unsigned long sum;
static volatile int over;

static void compute(long nanoseconds) {
    long begun = own();
    while (own() - begun < nanoseconds) {
        for (int i = 0; i < 1000; i++) sum += i;
    }
}

// Uses 60 ms, in parts between which it waits or yields.
static void *computes(void *unused) {
    long begun = own(), last = begun, begun_usage = usage();
    for (int i = 0; i < 30; i++) {
        compute(2 * MS);
        long now = own();
        assert(now >= last + 2 * MS);
        last = now;
        if (i % 3 == 0) usleep(500);
        else sched_yield();
        now = own();
        assert(now >= last && now - last < 30 * MS);
        last = now;
    }
    long used = own() - begun, used_usage = usage() - begun_usage;
    assert(used >= 60 * MS && labs(used - used_usage) < 20 * MS);
    struct timespec time;
    // (Where the machine counts what others of it use, one look of several is not put off.)
    long apart = 5 * MS;
    for (int i = 0; i < 20 && apart >= 5 * MS; i++) {
        assert(!syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &time));
        apart = labs(time.tv_sec * 1000 * MS + time.tv_nsec - own());
    }
    assert(apart < 5 * MS);
    return unused;
}

// Others compute meanwhile.
static void *waits(void *unused) {
    long begun = own();
    for (int i = 0; i < 40; i++) usleep(2000);
    long used = own() - begun;
    assert(used < 20 * MS);
    return unused;
}

static clockid_t clock_of(pthread_t thread) {
    clockid_t clock;
    struct timespec resolution;
    assert(!pthread_getcpuclockid(thread, &clock) && !clock_getres(clock, &resolution));
    assert(resolution.tv_sec == 0 && resolution.tv_nsec < 20 * MS);
    return clock;
}

static void *computes_until_over(void *unused) {
    while (!over) {
        for (int i = 0; i < 1000; i++) sum += i;
        if (sum % 1024 == 0) sched_yield();
    }
    return unused;
}

static void *yields_until_over(void *unused) {
    while (!over) sched_yield();
    return unused;
}

static void *waits_until_over(void *unused) {
    while (!over) usleep(1000);
    return unused;
}

int main(void) {
    pthread_t threads[6], busy, idle;
    long before = own();
    compute(20 * MS);
    for (int i = 0; i < 6; i++) assert(!pthread_create(&threads[i], NULL, i < 4 ? computes : waits, NULL));
    // That of the first thread goes on from what it was before there were others.
    long now = own();
    assert(now >= before + 20 * MS);
    for (int i = 0; i < 6; i++) assert(!pthread_join(threads[i], NULL));
    long after = own();
    assert(after >= now && after - now < 100 * MS);
    // Of another thread.
    assert(!pthread_create(&busy, NULL, computes_until_over, NULL));
    assert(!pthread_create(&idle, NULL, waits_until_over, NULL));
    clockid_t busy_clock = clock_of(busy), idle_clock = clock_of(idle), main_clock = clock_of(pthread_self());
    usleep(1000);
    long busy_before = shown(busy_clock), idle_before = shown(idle_clock), last = busy_before;
    // (Beside other work on the machine it has not much at first.)
    for (int i = 0; i < 200 || last - busy_before <= 30 * MS; i++) {
        usleep(1000);
        long now = shown(busy_clock);
        assert(now >= last);
        last = now;
    }
    long busy_used = shown(busy_clock) - busy_before, idle_used = shown(idle_clock) - idle_before;
    assert(busy_used > 30 * MS && busy_used <= shown(CLOCK_PROCESS_CPUTIME_ID) - busy_before);
    assert(idle_used < busy_used / 2);
    long apart = 5 * MS;
    for (int i = 0; i < 20 && apart >= 5 * MS; i++) apart = labs(shown(main_clock) - own());
    assert(apart < 5 * MS);
    // Nor does it go back where threads go on in turn.
    pthread_t turns[3];
    for (int i = 0; i < 3; i++) assert(!pthread_create(&turns[i], NULL, yields_until_over, NULL));
    clockid_t turns_clock = clock_of(turns[0]);
    last = 0;
    for (int i = 0; i < 200000; i++) {
        long now = shown(turns_clock);
        assert(now >= last);
        last = now;
    }
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(turns[i], NULL);
    pthread_join(busy, NULL);
    pthread_join(idle, NULL);
    puts("told");
    return 0;
}
