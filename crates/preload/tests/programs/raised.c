// Signals that a call raises in the thread that makes it, and signals that are ignored by default but blocked.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static _Thread_local volatile int pipes, sizes;
static _Thread_local volatile int is_writer;
static volatile int strayed;

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)context;
    assert(info->si_signo == number);
    if (!is_writer) strayed++;
    if (number == SIGPIPE) pipes++;
    else sizes++;
}

// When the pipe is full, so that the writer waits.
static void *closes_later(void *argument) {
    int *ends = argument;
    struct pollfd room = {ends[1], POLLOUT, 0};
    while (poll(&room, 1, 0)) usleep(1000);
    usleep(20000);
    assert(!close(ends[0]));
    return NULL;
}

static char much[1 << 17];

// The handler has run on the calling thread when the call returns.
static void *writes(void *file) {
    is_writer = 1;
    int ends[2];
    assert(!pipe(ends) && !close(ends[0]));
    for (int i = 1; i <= 10; i++) assert(write(ends[1], "x", 1) == -1 && errno == EPIPE && pipes == i);
    // By libc itself.
    FILE *stream = fdopen(ends[1], "w");
    assert(fputs("some\n", stream) >= 0 && fflush(stream) == EOF && errno == EPIPE);
    while (pipes < 11) usleep(100);
    fclose(stream);
    pipes = 0;
    // While it waits.
    pthread_t thread;
    assert(!pipe(ends) && !pthread_create(&thread, NULL, closes_later, ends));
    ssize_t written = write(ends[1], much, sizeof much);
    assert(written > 0 && written < (ssize_t)sizeof much);
    while (pipes == 0) usleep(100);
    assert(pipes == 1 && !pthread_join(thread, NULL) && !close(ends[1]));
    assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends) && !close(ends[0]));
    for (int i = 2; i <= 10; i++) assert(send(ends[1], "x", 1, 0) == -1 && errno == EPIPE && pipes == i);
    assert(send(ends[1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && pipes == 10 && !close(ends[1]));
    for (int i = 1; i <= 10; i++) {
        assert(pwrite(*(int *)file, "x", 1, 1 << 20) == -1 && errno == EFBIG && sizes == i);
    }
    // By a call that never waits.
    for (int i = 11; i <= 30; i += 4) {
        assert(ftruncate(*(int *)file, 2 << 20) == -1 && errno == EFBIG && sizes == i);
        assert(fallocate(*(int *)file, 0, 0, 2 << 20) == -1 && errno == EFBIG && sizes == i + 1);
        assert(posix_fallocate(*(int *)file, 0, 2 << 20) == EFBIG && sizes == i + 2);
        assert(syscall(SYS_ftruncate, *(int *)file, 2L << 20) == -1 && errno == EFBIG && sizes == i + 3);
    }
    // Blocked, it stays with the thread, which takes it.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL) && !pipe(ends) && !close(ends[0]));
    struct timespec never = {0, 0};
    for (int i = 0; i < 10; i++) {
        assert(write(ends[1], "x", 1) == -1 && errno == EPIPE && sigtimedwait(&set, NULL, &never) == SIGPIPE);
        assert(sigtimedwait(&set, NULL, &never) == -1 && errno == EAGAIN);
    }
    assert(write(ends[1], "x", 1) == -1 && pipes == 10 && !pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    assert(pipes == 11 && !close(ends[1]));
    return NULL;
}

static void *writes_on(void *ends) {
    while (1) {
        if (write(((int *)ends)[1], much, sizeof much) < 0) _exit(7);
    }
}

static void *prints_on(void *ends) {
    FILE *stream = fdopen(((int *)ends)[1], "w");
    for (int i = 0; i < 1000; i++) fwrite(much, 1, sizeof much, stream);
    _exit(7);
}

static int count(void) { return pipes; }

// What is not handled ends the process.
static void ends_by_it(void *(*function)(void *), int late) {
    int ends[2], status;
    assert(!pipe(ends));
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        assert(!close(ends[0]) && signal(SIGPIPE, SIG_DFL) != SIG_ERR);
        assert(!pthread_create(&thread, NULL, function, ends));
        pthread_join(thread, NULL);
        _exit(8);
    }
    assert(!close(ends[1]));
    if (late) usleep(30000);
    assert(!close(ends[0]) && waitpid(child, &status, 0) == child);
    printf("ends by signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
}

// By default they are ignored, but not while all threads block them.
static void *waits(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGWINCH);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (i % 2) usleep(5000);
        siginfo_t info;
        struct timespec late = {60, 0};
        assert(sigtimedwait(&set, &info, &late) == SIGCHLD && info.si_pid == child);
        assert(waitpid(child, NULL, 0) == child);
    }
    int file = signalfd(-1, &set, SFD_CLOEXEC);
    struct signalfd_siginfo told;
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) _exit(3);
        assert(read(file, &told, sizeof told) == sizeof told);
        assert(told.ssi_signo == SIGCHLD && told.ssi_pid == (unsigned)child && waitpid(child, NULL, 0) == child);
        assert(!kill(getpid(), SIGWINCH) && read(file, &told, sizeof told) == sizeof told);
        assert(told.ssi_signo == SIGWINCH);
    }
    assert(!close(file));
    return argument;
}

int main(void) {
    pthread_t threads[4];
    struct sigaction handled = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO}, found;
    assert(!sigaction(SIGPIPE, NULL, &found) && found.sa_handler == SIG_DFL);
    assert(!sigaction(SIGPIPE, &handled, NULL) && !sigaction(SIGXFSZ, &handled, NULL));
    char name[] = "/tmp/raised-XXXXXX";
    int file = mkstemp(name);
    struct rlimit most = {1 << 20, 1 << 20};
    assert(file >= 0 && !unlink(name) && !setrlimit(RLIMIT_FSIZE, &most));
    for (int i = 0; i < 4; i++) assert(!pthread_create(&threads[i], NULL, writes, &file));
    for (int i = 0; i < 4; i++) assert(!pthread_join(threads[i], NULL));
    assert(!sigaction(SIGPIPE, NULL, &found) && found.sa_sigaction == on_signal && (found.sa_flags & SA_SIGINFO));
    // What a child that has its parent's memory does about it is the child's.
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        _exit(0);
    }
    assert(child > 0 && waitpid(child, NULL, 0) == child);
    assert(!sigaction(SIGPIPE, NULL, &found) && found.sa_sigaction == on_signal);
    // Sent, it comes as any other.
    is_writer = 1;
    for (int i = 1; i <= 50; i++) {
        assert(!kill(getpid(), SIGPIPE));
        while (count() < i) usleep(10);
    }
    assert(!raise(SIGPIPE) && count() == 51);
    printf("strayed %d\n", strayed);
    fflush(stdout);
    for (int late = 0; late < 2; late++) {
        ends_by_it(writes_on, late);
        ends_by_it(prints_on, late);
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGWINCH);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL) && !pthread_create(&threads[0], NULL, waits, NULL));
    assert(!pthread_join(threads[0], NULL) && !waits(NULL));
    puts("done");
    return 0;
}
