// Signals that come while they are ignored are gone, whatever is done on them later.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int handled;

static void on_signal(int number) {
    (void)number;
    handled++;
}

static void *ends(void *value) { return value; }

static int ends_of[2];

static void *waits(void *value) {
    char byte;
    assert(read(ends_of[0], &byte, 1) == 1);
    return value;
}

// What is pending when it is ignored is gone, though the thread blocks it.
static void *blocks(void *value) {
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < 20; i++) {
        assert(signal(SIGUSR1, on_signal) != SIG_ERR && signal(SIGCHLD, on_signal) != SIG_ERR);
        assert(!pthread_kill(pthread_self(), SIGUSR1) && !pthread_kill(pthread_self(), SIGCHLD));
        assert(!sigpending(&pending) && sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGCHLD));
        if (i % 2) assert(!sigignore(SIGUSR1));
        else assert(signal(SIGUSR1, SIG_IGN) != SIG_ERR);
        assert(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
        assert(!sigpending(&pending) && !sigismember(&pending, SIGUSR1) && !sigismember(&pending, SIGCHLD));
    }
    assert(!pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    return value;
}

int main(void) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, ends, NULL) && !pthread_join(thread, NULL));
    for (int i = 0; i < 300; i++) {
        assert(signal(SIGINT, SIG_IGN) == SIG_DFL);
        assert(!kill(getpid(), SIGINT));
        // It would end the program.
        assert(signal(SIGINT, SIG_DFL) == SIG_IGN);
    }
    struct sigaction handle = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN}, usual = {.sa_handler = SIG_DFL};
    for (int i = 0; i < 300; i++) {
        assert(!sigaction(SIGUSR1, &ignore, NULL) && !kill(getpid(), SIGUSR1) && !sigaction(SIGUSR1, &handle, NULL));
        // What is done by default on this one is to ignore it.
        assert(!sigaction(SIGURG, &usual, NULL) && !kill(getpid(), SIGURG) && !sigaction(SIGURG, &handle, NULL));
    }
    // Sent to a thread, which waits.
    assert(!pipe(ends_of) && !pthread_create(&thread, NULL, waits, NULL));
    usleep(20000);
    for (int i = 0; i < 300; i++) {
        assert(signal(SIGUSR2, SIG_IGN) == SIG_DFL && !pthread_kill(thread, SIGUSR2));
        assert(signal(SIGUSR2, SIG_DFL) == SIG_IGN);
    }
    assert(write(ends_of[1], "x", 1) == 1 && !pthread_join(thread, NULL));
    assert(!pthread_create(&thread, NULL, blocks, NULL) && !pthread_join(thread, NULL) && !blocks(NULL));
    assert(handled == 0 && signal(SIGUSR1, on_signal) == SIG_IGN);
    // No signals.
    assert(signal(0, on_signal) == SIG_ERR && signal(65, on_signal) == SIG_ERR);
    usleep(20000);
    printf("handled: %d\n", handled);
    assert(!kill(getpid(), SIGUSR1) && !kill(getpid(), SIGURG));
    while (handled < 2) usleep(1000);
    for (int i = 0; i < 20; i++) assert(WEXITSTATUS(system("kill -INT $PPID; exit 7")) == 7);
    // In a child that has its parent's memory.
    int status;
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGPIPE, SIG_IGN);
        signal(SIGPIPE, SIG_DFL);
        execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL);
        _exit(127);
    }
    assert(waitpid(child, &status, 0) == child);
    printf("child: %d, handled: %d\n", WEXITSTATUS(status), handled);
    return 0;
}
