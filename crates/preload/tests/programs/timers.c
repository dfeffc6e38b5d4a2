// Timers whose signals are for a thread, or on a thread's clock.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define MS 1000000L

static long shown(clockid_t clock) {
    struct timespec time;
    assert(!clock_gettime(clock, &time));
    return time.tv_sec * 1000 * MS + time.tv_nsec;
}

static struct timespec span(long nanos) {
    return (struct timespec){.tv_sec = nanos / (1000 * MS), .tv_nsec = nanos % (1000 * MS)};
}

static long nanos(struct timespec time) {
    return time.tv_sec * 1000 * MS + time.tv_nsec;
}

static void set(timer_t timer, int flags, long value, long interval) {
    struct itimerspec wanted = {.it_value = span(value), .it_interval = span(interval)};
    assert(!timer_settime(timer, flags, &wanted, NULL));
}

static volatile unsigned long sum;

static void compute(long nanoseconds) {
    long begun = shown(CLOCK_THREAD_CPUTIME_ID);
    while (shown(CLOCK_THREAD_CPUTIME_ID) - begun < nanoseconds) {
        for (int i = 0; i < 1000; i++) sum += i;
    }
}

static timer_t create_for(clockid_t clock, int signal, int notify, int value) {
    struct sigevent event = {.sigev_notify = notify, .sigev_signo = signal, .sigev_value.sival_int = value};
    if (notify == SIGEV_THREAD_ID) event.sigev_notify_thread_id = gettid();
    timer_t timer;
    assert(!timer_create(clock, &event, &timer));
    return timer;
}

// Each waits for the signals of its own timer, which have the same number.
static void *waits(void *number) {
    int own = (long)number;
    sigset_t set_of;
    sigemptyset(&set_of);
    sigaddset(&set_of, SIGRTMIN + 3);
    for (int round = 0; round < 3; round++) {
        clockid_t clock = round == 0 ? CLOCK_MONOTONIC : round == 1 ? CLOCK_REALTIME : CLOCK_BOOTTIME;
        timer_t timer = create_for(clock, SIGRTMIN + 3, SIGEV_THREAD_ID, own);
        set(timer, 0, MS, MS);
        for (int i = 0; i < 10; i++) {
            siginfo_t info;
            assert(sigwaitinfo(&set_of, &info) == SIGRTMIN + 3);
            assert(info.si_code == SI_TIMER && info.si_value.sival_int == own);
        }
        struct itimerspec left;
        assert(!timer_gettime(timer, &left) && nanos(left.it_interval) == MS && nanos(left.it_value) <= MS);
        assert(timer_getoverrun(timer) >= 0);
        assert(!timer_delete(timer));
        assert(timer_delete(timer) == -1 && errno == EINVAL);
        // What came before it was deleted.
        while (sigtimedwait(&set_of, &(siginfo_t){0}, &(struct timespec){0}) > 0) {}
    }
    return NULL;
}

static __thread volatile int calls, late, first_late, asked_late;
static __thread timer_t asked;
static __thread volatile long first_call;

static void on_timer(int signal, siginfo_t *info, void *context) {
    (void)context;
    assert(signal == SIGRTMIN + 4 && info->si_code == SI_TIMER && info->si_value.sival_int == gettid());
    late += info->si_overrun;
    if (calls == 0) first_late = info->si_overrun;
    if (calls == 0) asked_late = asked ? timer_getoverrun(asked) : 0;
    if (calls++ == 0) first_call = shown(CLOCK_THREAD_CPUTIME_ID);
}

// On real time a timer ends sleeps; on the thread's clock it does not count them.
static void *handles(void *unused) {
    timer_t timer = create_for(CLOCK_MONOTONIC, SIGRTMIN + 4, SIGEV_THREAD_ID, gettid());
    // Again and again, for the first ring may come before the sleep.
    set(timer, 0, 3 * MS, 20 * MS);
    struct timespec left;
    assert(nanosleep(&(struct timespec){.tv_sec = 20}, &left) == -1 && errno == EINTR && left.tv_sec >= 10 && left.tv_sec < 20);
    set(timer, 0, 0, 0);
    assert(calls >= 1);
    // One call for several, if the thread blocks it.
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN + 4);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    late = calls = 0;
    asked = timer;
    set(timer, 0, MS, MS);
    usleep(20000);
    pthread_sigmask(SIG_UNBLOCK, &mask, NULL);
    assert(calls >= 1 && first_late >= 5 && asked_late == first_late);
    set(timer, 0, 0, 0);
    assert(timer_getoverrun(timer) == 0);
    asked = NULL;
    assert(!timer_delete(timer));

    timer = create_for(CLOCK_THREAD_CPUTIME_ID, SIGRTMIN + 4, SIGEV_THREAD_ID, gettid());
    // (The machine may be busy: what is to come soon comes soon in one of several tries.)
    int soon = 0;
    for (int i = 0; i < 20 && !soon; i++) {
        calls = 0;
        long begun = shown(CLOCK_THREAD_CPUTIME_ID);
        set(timer, 0, 20 * MS, 0);
        usleep(40000);
        struct itimerspec now;
        assert(calls == 0 && !timer_gettime(timer, &now) && nanos(now.it_interval) == 0);
        assert(nanos(now.it_value) > 5 * MS && nanos(now.it_value) <= 20 * MS);
        while (!calls) compute(MS);
        assert(first_call - begun >= 20 * MS);
        soon = first_call - begun < 120 * MS;
        assert(!timer_gettime(timer, &now) && nanos(now.it_value) == 0);
        compute(10 * MS);
        assert(calls == 1);
    }
    assert(soon);
    // Again and again, from an absolute time.
    int times = 0;
    for (int i = 0; i < 20 && times < 4; i++) {
        calls = late = 0;
        long from = shown(CLOCK_THREAD_CPUTIME_ID) + 5 * MS;
        set(timer, TIMER_ABSTIME, from, 10 * MS);
        compute(100 * MS);
        set(timer, 0, 0, 0);
        times = calls + late;
        assert(times <= (shown(CLOCK_THREAD_CPUTIME_ID) - from) / (10 * MS) + 1);
    }
    assert(times >= 4);
    assert(!timer_delete(timer));
    return unused;
}

static volatile int over, ticks, wrong;
static pthread_t busy_thread;

static void *computes(void *unused) {
    while (!over) {
        for (int i = 0; i < 1000; i++) sum += i;
        if (sum % 64 == 0) sched_yield();
    }
    return unused;
}

static void on_alarm(int signal) {
    (void)signal;
}

static void on_process(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (signal != SIGUSR1 || info->si_code != SI_TIMER || info->si_value.sival_int != 77) wrong = 1;
    ticks++;
}

static void *sleeps(void *unused) {
    clockid_t clock, own;
    assert(!pthread_getcpuclockid(busy_thread, &clock) && !pthread_getcpuclockid(pthread_self(), &own));
    struct timespec some = span(10 * MS), left = {0};
    // Its own would never end.
    assert(clock_nanosleep(own, 0, &some, NULL) == EINVAL);
    assert(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &some, NULL) == EINVAL);
    long before = shown(clock);
    assert(!clock_nanosleep(clock, 0, &some, NULL));
    long after = shown(clock);
    assert(after - before >= 10 * MS);
    some = span(after + 10 * MS);
    assert(!clock_nanosleep(clock, TIMER_ABSTIME, &some, NULL) && shown(clock) >= after + 10 * MS);
    some = span(after);
    assert(!clock_nanosleep(clock, TIMER_ABSTIME, &some, NULL));
    some = (struct timespec){.tv_nsec = 1000 * MS};
    assert(clock_nanosleep(clock, 0, &some, NULL) == EINVAL);
    // A handler ends it. The timer rings again and again, for the first ring may come before the sleep.
    struct sigaction action = {.sa_handler = on_alarm};
    assert(!sigaction(SIGRTMIN + 5, &action, NULL));
    timer_t alarm = create_for(CLOCK_MONOTONIC, SIGRTMIN + 5, SIGEV_THREAD_ID, 0);
    set(alarm, 0, 20 * MS, 20 * MS);
    some = left = span(50000 * MS);
    // (The other thread may not have run meanwhile.)
    for (int i = 0; i < 200 && nanos(left) >= 50000 * MS; i++) {
        assert(clock_nanosleep(clock, 0, &some, &left) == EINTR);
    }
    assert(nanos(left) > 40000 * MS && nanos(left) < 50000 * MS);
    assert(!timer_delete(alarm));
    // Threads' clocks cannot be set.
    assert(clock_settime(clock, &some) == -1 && errno == EPERM);

    // Timers on another's clock: for the process, and for none.
    struct sigaction process = {.sa_sigaction = on_process, .sa_flags = SA_SIGINFO};
    assert(!sigaction(SIGUSR1, &process, NULL));
    timer_t timer = create_for(clock, SIGUSR1, SIGEV_SIGNAL, 77), none = create_for(clock, 0, SIGEV_NONE, 0);
    set(none, 0, 5000 * MS, 3 * MS);
    struct itimerspec now, then;
    assert(!timer_gettime(none, &now) && nanos(now.it_interval) == 3 * MS && nanos(now.it_value) <= 5000 * MS);
    set(timer, 0, 10 * MS, 0);
    while (!ticks) usleep(1000);
    assert(ticks == 1 && !wrong && !timer_gettime(none, &then));
    assert(nanos(then.it_value) <= nanos(now.it_value) - 10 * MS);
    struct itimerspec wanted = {.it_value = {.tv_nsec = 1000 * MS}};
    assert(timer_settime(timer, 0, &wanted, NULL) == -1 && errno == EINVAL);
    assert(!timer_delete(timer) && !timer_delete(none));
    return unused;
}

static volatile int called;

static void on_thread(union sigval value) {
    if (value.sival_int == 5) called++;
}

static void *is_called_back(void *unused) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_thread, .sigev_value.sival_int = 5};
    timer_t timer;
    assert(!timer_create(CLOCK_MONOTONIC, &event, &timer));
    set(timer, 0, MS, 2 * MS);
    while (called < 3) usleep(1000);
    assert(!timer_delete(timer));
    // Wrong ones.
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event.sigev_notify_thread_id = 1;
    assert(timer_create(CLOCK_MONOTONIC, &event, &timer) == -1 && errno == EINVAL);
    event.sigev_notify_thread_id = gettid();
    event.sigev_signo = 99;
    assert(timer_create(CLOCK_MONOTONIC, &event, &timer) == -1 && errno == EINVAL);
    assert(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == -1 && errno == EINVAL);
    // By number.
    event.sigev_signo = SIGRTMIN + 4;
    event.sigev_value.sival_int = gettid();
    int id;
    calls = 0;
    assert(!syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &id));
    struct itimerspec soon = {.it_value = span(2 * MS)};
    assert(!syscall(SYS_timer_settime, id, 0, &soon, NULL));
    while (!calls) compute(MS);
    assert(!syscall(SYS_timer_delete, id));
    return unused;
}

int main(void) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    sigset_t mask, before;
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN + 3);
    pthread_sigmask(SIG_BLOCK, &mask, &before);
    for (long i = 0; i < THREADS; i++) assert(!pthread_create(&threads[i], NULL, waits, (void *)i));
    waits((void *)77);
    for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    puts("each its own");

    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO};
    assert(!sigaction(SIGRTMIN + 4, &action, NULL));
    for (int i = 0; i < 2; i++) assert(!pthread_create(&threads[i], NULL, handles, NULL));
    for (int i = 0; i < 2; i++) assert(!pthread_join(threads[i], NULL));
    puts("threads' clocks");

    assert(!pthread_create(&busy_thread, NULL, computes, NULL));
    assert(!pthread_create(&threads[0], NULL, sleeps, NULL) && !pthread_join(threads[0], NULL));
    over = 1;
    pthread_join(busy_thread, NULL);
    puts("another's clock");

    assert(!pthread_create(&threads[0], NULL, is_called_back, NULL) && !pthread_join(threads[0], NULL));
    puts("called back");
    return 0;
}
