// A thread traces a child, and is told of its stop and its end.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void *trace(void *none) {
    pid_t child = fork();
    if (child == 0) {
        // The parent is to wait already.
        usleep(20000);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGUSR1);
        _exit(3);
    }
    int status = 0;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status)) {
        // (The machine does not let it be traced.)
        printf("not traced\n");
        return none;
    }
    printf("stopped: %d by %d\n", WIFSTOPPED(status), WSTOPSIG(status) == SIGUSR1);
    printf("continued: %ld\n", ptrace(PTRACE_CONT, child, 0, 0));
    printf("ended: %d\n", waitpid(child, &status, 0) == child);
    printf("exited: %d with %d\n", WIFEXITED(status), WEXITSTATUS(status));
    return none;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, trace, NULL);
    pthread_join(thread, NULL);
    return 0;
}
