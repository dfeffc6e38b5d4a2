// A profiler's signals come to the threads that use the processor, amid what they do.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>

enum { FIRST, SHORT, LONG, THREADS };

static pthread_t threads[THREADS];
static volatile sig_atomic_t samples[THREADS], inside;
static __thread volatile int burns;

static void handle(int signal) {
    (void)signal;
    int place = FIRST;
    for (int each = SHORT; each < THREADS; each++) {
        if (pthread_equal(pthread_self(), threads[each])) place = each;
    }
    samples[place]++;
    inside += burns;
}

static void *burn(void *seconds) {
    struct timespec time;
    volatile unsigned long work = 0;
    burns = 1;
    do {
        for (int i = 0; i < 100000; i++) work++;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    } while (time.tv_sec + time.tv_nsec * 1e-9 < *(double *)seconds);
    burns = 0;
    return NULL;
}

// On a busy machine few of the signals may come in the time that the threads use: until there are enough.
static void measure(const char *name) {
    double some = .15, more = .6;
    memset((void *)samples, 0, sizeof samples);
    inside = 0;
    int most = 0;
    for (int i = 0; i < 20 && !most; i++) {
        assert(!pthread_create(&threads[SHORT], NULL, burn, &some));
        assert(!pthread_create(&threads[LONG], NULL, burn, &more));
        assert(!pthread_join(threads[SHORT], NULL) && !pthread_join(threads[LONG], NULL));
        int all = samples[FIRST] + samples[SHORT] + samples[LONG];
        most = all > 20 && inside > all * 3 / 4 && samples[LONG] > samples[SHORT] && samples[SHORT] > 0;
    }
    printf("%s: %s\n", name, most ? "as the time was used" : "otherwise");
    if (!most) printf("%d %d %d, %d inside\n", samples[FIRST], samples[SHORT], samples[LONG], inside);
}

int main(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    assert(!sigaction(SIGPROF, &action, NULL));
    threads[FIRST] = pthread_self();
    struct itimerval every = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    assert(!setitimer(ITIMER_PROF, &every, NULL));
    measure("an interval timer");
    assert(!setitimer(ITIMER_PROF, &never, NULL));
    // (Linux before 6.4 gives all of these to the first thread.)
    struct utsname system;
    int version, part;
    assert(!uname(&system) && sscanf(system.release, "%d.%d", &version, &part) == 2);
    if (version * 100 + part < 604) return 0;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerspec each = {{0, 10000000}, {0, 10000000}};
    timer_t timer;
    assert(!timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) && !timer_settime(timer, 0, &each, NULL));
    measure("a timer on the process's clock");
    return 0;
}
