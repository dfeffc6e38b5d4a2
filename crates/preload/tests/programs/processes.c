// Forks of threads, and the programs that threads start.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *print(void *text) {
    puts(text);
    fflush(stdout);
    return text;
}

static int await(pid_t child) {
    int status;
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void *forks(void *argument) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        void *value;
        assert(!pthread_create(&thread, NULL, print, "a thread of the child"));
        assert(!pthread_join(thread, &value) && value);
        exit(5);
    }
    printf("the child ended with %d\n", await(child));
    fflush(stdout);
    // In the child of this one, the thread's function returns: the last thread ends.
    child = fork();
    if (child == 0) return NULL;
    printf("the child ended with %d\n", await(child));
    child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 6", (char *)NULL);
        _exit(127);
    }
    printf("the child ended with %d\n", await(child));
    fflush(stdout);
    return argument;
}

static void *starts(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    const char *command = "grep SigBlk /proc/self/status";
    assert(system(command) == 0);
    FILE *file = popen(command, "r");
    char line[100];
    assert(file && fgets(line, sizeof line, file));
    fputs(line, stdout);
    assert(pclose(file) == 0);
    fflush(stdout);
    return argument;
}

static int ends[2];

static void *runs(void *argument) {
    char command[60];
    snprintf(command, sizeof command, "echo >&%d; exec sleep 100", ends[1]);
    system(command);
    return argument;
}

static void is_heard(int key) {
    struct sigaction action;
    assert(!sigaction(key, NULL, &action) && action.sa_handler == SIG_DFL);
}

// A command is ended with the thread that waits for it.
static void cancel_command(void) {
    pthread_t thread;
    void *value;
    char byte;
    assert(!pipe(ends) && !pthread_create(&thread, NULL, runs, NULL));
    assert(read(ends[0], &byte, 1) == 1 && !pthread_cancel(thread));
    assert(!pthread_join(thread, &value) && value == PTHREAD_CANCELED);
    close(ends[1]);
    assert(read(ends[0], &byte, 1) == 0);
    is_heard(SIGINT);
    is_heard(SIGQUIT);
    // It hears what keys send, and its caller does not.
    int status = system("kill -INT $$");
    printf("interrupted: %d, %d\n", WIFSIGNALED(status), WTERMSIG(status));
    status = system("kill -INT $PPID; exit 7");
    printf("its caller goes on: %d\n", WEXITSTATUS(status));
    printf("a shell: %d\n", system(NULL) != 0);
}

int main(void) {
    pthread_t thread;
    void *value;
    assert(!pthread_create(&thread, NULL, forks, "value"));
    assert(!pthread_join(thread, &value) && value);
    assert(!pthread_create(&thread, NULL, starts, "value"));
    assert(!pthread_join(thread, &value) && value);
    cancel_command();
    fflush(stdout);
    execlp("grep", "grep", "SigBlk", "/proc/self/status", (char *)NULL);
    return 1;
}
