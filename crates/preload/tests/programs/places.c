// What calls that a thread makes answer to places and numbers that are none: `EFAULT` and `EINVAL`, as the kernel and libc
// do. Crash handlers ask so whether an address can be read.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOWHERE 8L
#define SAY(call) (errno = 0, said = (call), printf("%s: %ld, %d\n", #call, said, said == -1 ? errno : 0))

static long said;

static void signals(void) {
    sigset_t set;
    sigemptyset(&set);
    SAY(syscall(SYS_rt_sigprocmask, ~0, NOWHERE, NULL, 8));
    SAY(syscall(SYS_rt_sigprocmask, ~0, &set, NULL, 8));
    SAY(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NOWHERE, 8));
    SAY(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &set, 8));
    SAY(syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGUSR1, NOWHERE));
    int timer;
    SAY(syscall(SYS_timer_create, CLOCK_MONOTONIC, NOWHERE, &timer));
    SAY(syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, NOWHERE, &timer));
    SAY(sigaltstack((void *)NOWHERE, NULL));
    SAY(sigaltstack(NULL, (void *)NOWHERE));
    for (int signal = 31; signal < 34; signal++) {
        SAY(sighold(signal));
        SAY(sigrelse(signal));
        SAY((long)sigset(signal, SIG_HOLD));
        SAY(sigrelse(signal));
        if (signal != 31) SAY(raise(signal));
    }
}

static void scheduling(void) {
    long attributes[8] = {5000};
    SAY(sched_setparam(0, (void *)NOWHERE));
    SAY(sched_getparam(0, (void *)NOWHERE));
    SAY(sched_setscheduler(0, SCHED_OTHER, (void *)NOWHERE));
    SAY(pthread_setschedparam(pthread_self(), SCHED_OTHER, NULL));
    SAY(pthread_setschedparam(pthread_self(), SCHED_OTHER, (void *)NOWHERE));
    SAY(syscall(SYS_sched_setattr, 0, NOWHERE, 0));
    SAY(syscall(SYS_sched_setattr, 0, attributes, 0));
    SAY(clock_gettime(CLOCK_THREAD_CPUTIME_ID, (void *)NOWHERE));
}

static void *nothing(void *unused) { return unused; }

static void threads(void) {
    char name[16];
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_barrier_t barrier;
    cpu_set_t none;
    CPU_ZERO(&none);
    SAY(pthread_getname_np(pthread_self(), NULL, sizeof name));
    SAY(pthread_getname_np(pthread_self(), (void *)NOWHERE, sizeof name));
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof none, &none);
    SAY(pthread_create(&thread, &attributes, nothing, NULL));
    pthread_create(&thread, NULL, nothing, NULL);
    usleep(20000); // it has ended by now
    struct timespec past = {0, 0};
    SAY(pthread_clockjoin_np(thread, NULL, CLOCK_BOOTTIME, &past));
    SAY(pthread_join(thread, NULL));
    SAY(pthread_barrier_init(&barrier, NULL, INT_MAX));
    SAY(pthread_barrier_init(&barrier, NULL, INT_MAX - 1));
}

static void *all(void *unused) {
    signals();
    scheduling();
    threads();
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, all, NULL);
    pthread_join(thread, NULL);
    all(NULL);
    return 0;
}
