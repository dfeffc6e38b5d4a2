// What concerns all signals, or any: that Carefree has one of its own must not show.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int handled, ends, strange;
static volatile pid_t ran_in;

static void on_signal(int number) {
    (void)number;
    ran_in = (pid_t)syscall(SYS_getpid);
    handled++;
}

static void *computes(void *value) {
    while (!ends) continue;
    return value;
}

// Is told only of what was sent.
static void *takes(void *value) {
    sigset_t all;
    sigfillset(&all);
    while (!ends) {
        int number = 0;
        assert(!sigwait(&all, &number));
        if (number != SIGUSR1 && number != SIGUSR2) strange++;
    }
    return value;
}

static long millis(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, computes, NULL));
    usleep(20000);
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
    assert(signal(SIGUSR1, on_signal) == SIG_DFL && !pthread_kill(thread, SIGUSR1));
    while (!handled) usleep(200);
    ends = 1;
    assert(!pthread_join(thread, NULL));
    // One that comes for a thread is not handled by its child of vfork.
    pid_t sender = fork();
    if (sender == 0) {
        usleep(50000);
        kill(getppid(), SIGUSR1);
        _exit(0);
    }
    assert(sender > 0);
    long begun = millis();
    pid_t child = vfork();
    if (child == 0) {
        while (millis() - begun < 150) {
            close(-1);
            dup2(1, 1);
        }
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    assert(waitpid(child, NULL, 0) == child && waitpid(sender, NULL, 0) == sender);
    while (handled < 2) usleep(200);
    assert(ran_in == getpid());
    sigset_t all, old;
    sigfillset(&all);
    assert(!pthread_sigmask(SIG_BLOCK, &all, &old));
    ends = 0;
    assert(!pthread_create(&thread, NULL, takes, NULL));
    begun = millis();
    for (unsigned i = 0; millis() - begun < 1000; i++) {
        pthread_kill(thread, SIGUSR1);
        for (volatile unsigned spin = 0; spin < i * 7919 % 3000; spin++) continue;
    }
    ends = 1;
    usleep(10000);
    pthread_kill(thread, SIGUSR2);
    assert(!pthread_join(thread, NULL));
    printf("strange: %d\n", strange);
    // To wait for one takes no file.
    struct rlimit none = {3, 3};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGALRM);
    int number = 0;
    assert(!setrlimit(RLIMIT_NOFILE, &none));
    ualarm(20000, 0);
    assert(!sigwait(&one, &number) && number == SIGALRM);
    puts("done");
    return 0;
}
