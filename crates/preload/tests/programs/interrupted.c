// Signals and cancellation reach threads in calls that wait in ways of their own.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void handle_with(int flags) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = flags};
    assert(!sigaction(SIGUSR1, &action, NULL));
    handled = 0;
}

// Waits up to five seconds.
static int is_handled(void) {
    for (int i = 0; i < 500 && !handled; i++) usleep(10000);
    return handled;
}

static pthread_t start(void *(*function)(void *), void *argument) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, function, argument));
    usleep(100000); // it waits by now
    return thread;
}

static const char *end_of(pthread_t thread) {
    void *result;
    assert(!pthread_join(thread, &result));
    return result == PTHREAD_CANCELED ? "cancelled" : result ? result : "done";
}

static const char *told(long result) {
    return result < 0 ? strerror(errno) : "done";
}

// Another process holds a lock until it is let go on.
static char path[] = "/tmp/interrupted.XXXXXX";
static int let_go[2];

static pid_t hold(void) {
    int taken[2];
    char byte;
    assert(!pipe(taken) && !pipe(let_go));
    pid_t child = fork();
    if (!child) {
        close(let_go[1]);
        assert(!flock(open(path, O_RDWR), LOCK_EX));
        assert(write(taken[1], "", 1) == 1);
        _exit(read(let_go[0], &byte, 1) != 0);
    }
    close(let_go[0]);
    assert(read(taken[0], &byte, 1) == 1);
    close(taken[0]);
    close(taken[1]);
    return child;
}

static void release(pid_t child) {
    close(let_go[1]);
    assert(waitpid(child, NULL, 0) == child);
}

static void *locks(void *argument) {
    (void)argument;
    int fd = open(path, O_RDWR);
    const char *end = told(flock(fd, LOCK_EX));
    close(fd);
    return (void *)end;
}

// Of two that wait for the same lock, the second is interrupted.
static void the_second_in_line(void) {
    pid_t child = hold();
    pthread_t first = start(locks, NULL), second = start(locks, NULL);
    handle_with(0);
    pthread_kill(second, SIGUSR1);
    printf("second in line: handled %d\n", is_handled());
    printf("second in line: %s\n", end_of(second));
    release(child);
    printf("first in line: %s\n", end_of(first));
}

int main(void) {
    close(mkstemp(path));
    the_second_in_line();
    unlink(path);
    return 0;
}
