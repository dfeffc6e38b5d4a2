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

int main(void) {
    pthread_t thread;
    void *value;
    assert(!pthread_create(&thread, NULL, forks, "value"));
    assert(!pthread_join(thread, &value) && value);
    assert(!pthread_create(&thread, NULL, starts, "value"));
    assert(!pthread_join(thread, &value) && value);
    execlp("grep", "grep", "SigBlk", "/proc/self/status", (char *)NULL);
    return 1;
}
