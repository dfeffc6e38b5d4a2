// Signals that a call of the thread's own causes, or may stop, come before that call returns.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static volatile int came;

static void on_signal(int signal) {
    (void)signal;
    came++;
}

static void spin(long microseconds) {
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000 < microseconds);
}

// Nothing comes after a timer has been stopped.
static void stopped(const char *how) {
    int before = came;
    spin(150);
    if (came != before) printf("late: %s\n", how);
}

static void timers(int notify) {
    struct sigevent event = {.sigev_notify = notify, .sigev_signo = SIGUSR1};
    if (notify == SIGEV_THREAD_ID) event.sigev_notify_thread_id = gettid();
    struct itimerspec soon = {.it_value.tv_nsec = 50000, .it_interval.tv_nsec = 50000}, never = {0};
    timer_t timer;
    assert(!timer_create(CLOCK_MONOTONIC, &event, &timer));
    for (int i = 0; i < 200; i++) {
        timer_settime(timer, 0, &soon, NULL);
        spin(40 + i);
        timer_settime(timer, 0, &never, NULL);
        stopped(notify == SIGEV_SIGNAL ? "timer_settime, for the process" : "timer_settime, for the thread");
    }
    assert(!timer_delete(timer));
    for (int i = 0; i < 200; i++) {
        assert(!timer_create(CLOCK_MONOTONIC, &event, &timer));
        timer_settime(timer, 0, &soon, NULL);
        spin(40 + i);
        timer_delete(timer);
        stopped(notify == SIGEV_SIGNAL ? "timer_delete, for the process" : "timer_delete, for the thread");
    }
    int id;
    assert(!syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id));
    for (int i = 0; i < 200; i++) {
        syscall(SYS_timer_settime, id, 0, &soon, NULL);
        spin(40 + i);
        syscall(SYS_timer_settime, id, 0, &never, NULL);
        stopped(notify == SIGEV_SIGNAL ? "by number, for the process" : "by number, for the thread");
    }
    syscall(SYS_timer_delete, id);
}

static void alarms(void) {
    struct itimerval soon = {.it_value.tv_usec = 50, .it_interval.tv_usec = 50}, never = {0};
    for (int i = 0; i < 200; i++) {
        setitimer(ITIMER_REAL, &soon, NULL);
        spin(40 + i);
        setitimer(ITIMER_REAL, &never, NULL);
        stopped("setitimer");
        soon.it_interval.tv_usec = 0;
        setitimer(ITIMER_REAL, &soon, NULL);
        spin(40 + i / 10);
        alarm(0);
        stopped("alarm");
        ualarm(50, 50);
        spin(40 + i);
        ualarm(0, 0);
        stopped("ualarm");
        soon.it_interval.tv_usec = 50;
        syscall(SYS_setitimer, ITIMER_REAL, &soon, NULL);
        spin(40 + i);
        syscall(SYS_setitimer, ITIMER_REAL, &never, NULL);
        stopped("setitimer, by number");
    }
}

static void is(int wanted, const char *how) {

    if (came != wanted) printf("too late: %s\n", how);
    while (came < wanted) spin(10);
    came = 0;
}

static void sent(void) {
    assert(!setpgid(0, 0));
    came = 0;
    for (int i = 0; i < 200; i++) {
        kill(getpid(), SIGUSR1);
        is(1, "kill");
        kill(0, SIGUSR1);
        is(1, "kill, the group");
        killpg(0, SIGUSR1);
        is(1, "killpg");
        kill(-getpid(), SIGUSR1);
        is(1, "kill, the group's number");
        sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 1});
        is(1, "sigqueue");
        raise(SIGUSR1);
        is(1, "raise");
        pthread_kill(pthread_self(), SIGUSR1);
        is(1, "pthread_kill");
        syscall(SYS_kill, getpid(), SIGUSR1);
        is(1, "kill, by number");
        syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
        is(1, "tgkill, by number");
        siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE, .si_pid = getpid()};
        syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info);
        is(1, "rt_sigqueueinfo");
        syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGUSR1, &info);
        is(1, "rt_tgsigqueueinfo");
    }
}

static void children(void) {
    came = 0;
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        assert(waitpid(child, NULL, 0) == child);
        is(1, "waitpid");
        child = fork();
        if (child == 0) _exit(0);
        siginfo_t info;
        assert(!waitid(P_PID, child, &info, WEXITED));
        is(1, "waitid");
        child = fork();
        if (child == 0) _exit(0);
        while (waitpid(child, NULL, WNOHANG) == 0) spin(10);
        is(1, "waitpid, not blocking");
    }
}

static void *nothing(void *unused) { return unused; }

// What is wrong, and what sends nothing.
static void refused(void) {
    struct itimerval none = {0}, *bad = (void *)8;
    assert(setitimer(ITIMER_REAL, &none, bad) == -1 && errno == EFAULT);
    assert(setitimer(ITIMER_REAL, bad, NULL) == -1 && errno == EFAULT);
    assert(setitimer(99, &none, NULL) == -1 && errno == EINVAL);
    assert(syscall(SYS_setitimer, ITIMER_REAL, &none, bad) == -1 && errno == EFAULT);
    assert(kill(getpid(), 0) == 0 && kill(0, 0) == 0 && killpg(0, 0) == 0);
    assert(kill(0, 999) == -1 && errno == EINVAL);
    assert(sigqueue(getpid(), 999, (union sigval){0}) == -1 && errno == EINVAL);
    assert(syscall(SYS_kill, getpid(), 999) == -1 && errno == EINVAL);
    assert(killpg(0x7ffffff0, SIGUSR1) == -1 && errno == ESRCH);
    assert(kill(-0x7ffffff0, SIGUSR1) == -1 && errno == ESRCH);
    assert(timer_settime((timer_t)(long)0x7ffffff, 0, &(struct itimerspec){0}, NULL) == -1 && errno == EINVAL);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGCHLD, &action, NULL);
    timers(SIGEV_SIGNAL);
    timers(SIGEV_THREAD_ID);
    alarms();
    sent();
    refused();
    children();
    puts("done");
    return 0;
}
