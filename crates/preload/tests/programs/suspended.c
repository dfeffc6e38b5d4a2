// Signals of other processes, which are blocked but while a thread waits for them: none is lost, whenever it comes, and
// what a wait does not handle stays with the process.
#define _GNU_SOURCE
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURNS 300
#define SENDERS 3

static const int signals[SENDERS] = {SIGUSR1, SIGUSR2, SIGHUP};

static struct shared {
    atomic_int handled[SENDERS], lost;
} *shared;

static void on_signal(int number) {
    for (int i = 0; i < SENDERS; i++) {
        if (signals[i] == number) shared->handled[i]++;
    }
}

static void sends(pid_t process, int which) {
    for (int i = 0; i < TURNS; i++) {
        assert(!kill(process, signals[which]));
        time_t begun = time(NULL);
        while (shared->handled[which] == i) {
            sched_yield();
            // (One is enough to be told of.)
            if (time(NULL) > begun + 40) {
                shared->lost++;
                _exit(0);
            }
        }
        for (volatile int k = 0; k < i % 97 * 10; k++) {}
    }
    _exit(0);
}

static volatile int came;

static void note(int number) {
    (void)number;
    came++;
}

static int rounds = 50;

// A file that is ready is told of first: the signal is pending again when the call has returned.
static void *stays_pending(void *value) {
    int ends[2];
    sigset_t none, set, pending;
    assert(!pipe(ends) && write(ends[1], "x", 1) == 1 && !sigemptyset(&none) && !sigemptyset(&set));
    assert(!sigaddset(&set, SIGUSR1) && signal(SIGUSR1, note) != SIG_ERR);
    for (int i = 0; i < rounds; i++) {
        pid_t child = 0;
        if (i % 2) {
            child = fork();
            if (child == 0) _exit(kill(getppid(), SIGUSR1));
            assert(waitpid(child, NULL, 0) == child);
        } else {
            child = getpid();
            assert(!kill(child, SIGUSR1));
        }
        struct pollfd file = {ends[0], POLLIN, 0};
        came = 0;
        assert(ppoll(&file, 1, NULL, &none) == 1 && came == 0);
        assert(!sigpending(&pending) && sigismember(&pending, SIGUSR1));
        siginfo_t told;
        assert(sigwaitinfo(&set, &told) == SIGUSR1 && told.si_code == SI_USER && told.si_pid == child);
    }
    assert(!close(ends[0]) && !close(ends[1]));
    return value;
}

static int ends[2];

static void *waits(void *value) {
    char byte;
    assert(read(ends[0], &byte, 1) == 1);
    return value;
}

int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(shared != MAP_FAILED && !pipe(ends));
    sigset_t set, none;
    sigemptyset(&none);
    sigemptyset(&set);
    struct sigaction action = {.sa_handler = on_signal};
    for (int i = 0; i < SENDERS; i++) assert(!sigaddset(&set, signals[i]) && !sigaction(signals[i], &action, NULL));
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t thread;
    // As the first thing that a program's first thread does.
    for (int i = 0; i < 60; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            rounds = 1;
            assert(!pthread_create(&thread, NULL, stays_pending, NULL) && !pthread_join(thread, NULL));
            _exit(0);
        }
        assert(waitpid(child, &status, 0) == child && status == 0);
    }
    assert(!pthread_create(&thread, NULL, stays_pending, NULL) && !pthread_join(thread, NULL));
    assert(!stays_pending(NULL));
    for (int i = 0; i < SENDERS; i++) assert(!sigaction(signals[i], &action, NULL));
    assert(!pthread_create(&thread, NULL, waits, NULL));
    pid_t process = getpid();
    for (int i = 0; i < SENDERS; i++) {
        if (fork() == 0) sends(process, i);
    }
    for (int left = SENDERS; left > 0;) {
        struct timespec soon = {0, 20000000};
        if (waitpid(-1, NULL, WNOHANG) > 0) left--;
        else pselect(0, NULL, NULL, NULL, &soon, &none);
    }
    assert(write(ends[1], "x", 1) == 1 && !pthread_join(thread, NULL));
    printf("lost %d\n", shared->lost);
    return 0;
}
