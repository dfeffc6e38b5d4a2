// Threads of a process in the background of a terminal: what reads is stopped or refused, and what a thread may change
// depends on what that blocks.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int master, terminal;

static void tell(const char *what, int result) {
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "done");
    fflush(stdout);
}

static void *reads(void *argument) {
    char byte;
    tell("read", read(terminal, &byte, 1));
    return argument;
}

static void *changes(void *argument) {
    struct termios settings;
    assert(!tcgetattr(terminal, &settings));
    tell("tcsetattr", tcsetattr(terminal, TCSANOW, &settings));
    tell("ioctl", ioctl(terminal, TCSETS, &settings));
    tell("tcflush", tcflush(terminal, TCIFLUSH));
    tell("tcflow", tcflow(terminal, TCOON));
    tell("tcsetpgrp", tcsetpgrp(terminal, getpgrp()));
    return argument;
}

static void *blocks_and_changes(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTTOU);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    return changes(argument);
}

static void *blocks_and_reads(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTTIN);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    return reads(argument);
}

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void *waits(void *argument) {
    pause();
    return argument;
}

// The first thread is interrupted where it uses the terminal. (The kernel chooses it if it can.)
static void handles_in_background(void) {
    printf("handles\n");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        pthread_t thread;
        struct sigaction action;
        alarm(30);
        setpgid(0, 0);
        memset(&action, 0, sizeof action);
        action.sa_handler = handle;
        assert(!sigaction(SIGTTIN, &action, NULL) && !sigaction(SIGTTOU, &action, NULL));
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTTOU);
        assert(!sigprocmask(SIG_UNBLOCK, &set, NULL));
        assert(!pthread_create(&thread, NULL, waits, NULL));
        usleep(50000);
        changes(NULL);
        printf("handled: %d\n", handled > 0);
        fflush(stdout);
        handled = 0;
        reads(NULL);
        printf("handled: %d\n", handled > 0);
        exit(0);
    }
    setpgid(child, child);
    int status;
    assert(waitpid(child, &status, 0) == child);
    printf("ended: %x\n", status);
    fflush(stdout);
}

// The third call brings the process to the foreground.
static void handle_and_go_on(int signal) {
    if (++handled == 3) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTTOU);
        sigprocmask(SIG_BLOCK, &set, NULL);
        tcsetpgrp(terminal, getpgrp());
    }
    (void)signal;
}

// A read is begun again until the process is in the foreground.
static void begins_again_in_background(void) {
    printf("begins again\n");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        pthread_t thread;
        struct sigaction action;
        alarm(30);
        setpgid(0, 0);
        memset(&action, 0, sizeof action);
        action.sa_handler = handle_and_go_on;
        action.sa_flags = SA_RESTART;
        assert(!sigaction(SIGTTIN, &action, NULL));
        assert(!pthread_create(&thread, NULL, waits, NULL));
        reads(NULL);
        printf("handled: %d\n", handled >= 3);
        exit(0);
    }
    setpgid(child, child);
    usleep(100000);
    assert(write(master, "x\n", 2) == 2);
    int status;
    assert(waitpid(child, &status, 0) == child);
    printf("ended: %x\n", status);
    fflush(stdout);
    assert(!tcsetpgrp(terminal, getpgrp()));
}

// A thread of a process in the background, which ignores a signal, or is let go on in the foreground if it stops.
static void in_background(const char *how, void *(*function)(void *), int ignored) {
    printf("%s\n", how);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        pthread_t thread;
        alarm(30);
        setpgid(0, 0);
        if (ignored) signal(ignored, SIG_IGN);
        assert(!pthread_create(&thread, NULL, function, NULL));
        pthread_join(thread, NULL);
        exit(0);
    }
    setpgid(child, child);
    int status;
    assert(waitpid(child, &status, WUNTRACED) == child);
    if (WIFSTOPPED(status)) {
        printf("stopped by %s\n", strsignal(WSTOPSIG(status)));
        fflush(stdout);
        assert(!tcsetpgrp(terminal, child));
        assert(!kill(child, SIGCONT));
        usleep(50000);
        assert(write(master, "x\n", 2) == 2);
        assert(waitpid(child, &status, 0) == child);
    }
    printf("ended: %x\n", status);
    fflush(stdout);
    assert(!tcsetpgrp(terminal, getpgrp()));
    tcflush(terminal, TCIFLUSH);
}

int main(void) {
    alarm(60);
    master = posix_openpt(O_RDWR | O_NOCTTY);
    assert(master >= 0 && !grantpt(master) && !unlockpt(master));
    pid_t leader = fork();
    if (!leader) {
        alarm(50);
        setsid();
        terminal = open(ptsname(master), O_RDWR);
        assert(!ioctl(terminal, TIOCSCTTY, 0));
        // The leader itself is in the background between two of its children.
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTTOU);
        assert(!sigprocmask(SIG_BLOCK, &set, NULL));
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, blocks_and_changes, NULL));
        pthread_join(thread, NULL);
        in_background("blocked", blocks_and_changes, 0);
        in_background("ignored", changes, SIGTTOU);
        in_background("reads", reads, 0);
        in_background("reads, blocked", blocks_and_reads, 0);
        in_background("reads, ignored", reads, SIGTTIN);
        handles_in_background();
        begins_again_in_background();
        exit(0);
    }
    int status;
    assert(waitpid(leader, &status, 0) == leader);
    printf("leader: %x\n", status);
    return 0;
}
