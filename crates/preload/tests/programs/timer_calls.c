// Timers on the clock of a thread that call a function on threads of their own.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000L

static volatile int calls, wrong;
static volatile unsigned long sum;
static pthread_t computing;

static void called(union sigval value) {
    sigset_t mask;
    pthread_attr_t attributes;
    size_t bytes;
    int detached;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    if (!sigismember(&mask, SIGUSR1) || !sigismember(&mask, SIGUSR2) || pthread_equal(pthread_self(), computing)) wrong = 1;
    assert(!pthread_getattr_np(pthread_self(), &attributes));
    assert(!pthread_attr_getstacksize(&attributes, &bytes) && !pthread_attr_getdetachstate(&attributes, &detached));
    if (bytes != 256 << 10 || detached != PTHREAD_CREATE_DETACHED || value.sival_int != 42) wrong = 1;
    pthread_attr_destroy(&attributes);
    usleep(1000);
    __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
}

static void *computes(void *unused) {
    computing = pthread_self();
    pthread_attr_t attributes;
    assert(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, 256 << 10));
    struct sigevent event = {.sigev_notify = SIGEV_THREAD};
    event.sigev_value.sival_int = 42;
    event.sigev_notify_function = called;
    event.sigev_notify_attributes = &attributes;
    timer_t timer;
    assert(!timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
    assert(!pthread_attr_destroy(&attributes));
    struct itimerspec time = {.it_value = {0, 10 * MS}, .it_interval = {0, 10 * MS}}, left;
    // While it waits, nothing is called.
    assert(!timer_settime(timer, 0, &time, NULL));
    usleep(50000);
    printf("waited: %d calls\n", calls);
    while (calls < 3) {
        for (int i = 0; i < 1000; i++) sum += i;
    }
    assert(!timer_gettime(timer, &left) && left.it_interval.tv_nsec == 10 * MS);
    assert(!timer_delete(timer));
    // Those that have begun come to their end.
    int last = -1;
    for (int look = 0; look < 100 && last != calls; look++) {
        last = calls;
        usleep(100000);
    }
    struct timespec now, begun;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000 * MS + now.tv_nsec - begun.tv_nsec < 30 * MS);
    printf("deleted: %s\n", calls == last ? "no more" : "more");
    return unused;
}

int main(void) {
    pthread_t thread;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    assert(!pthread_create(&thread, NULL, computes, NULL));
    assert(!pthread_join(thread, NULL));
    puts(wrong ? "wrong" : "called");
    return 0;
}
