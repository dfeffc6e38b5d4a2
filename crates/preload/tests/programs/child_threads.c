// A thread forks. In the child it is the first thread: it may create others, end before them, and be joined by them.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *how;

static int is(const char *what) {
    return strstr(how, what) != NULL;
}

static void at_exit(void) {
    puts("at exit");
}

static void *outlasts(void *forker) {
    if (is("joins")) {
        void *value;
        if (is("cancels")) assert(!pthread_cancel(*(pthread_t *)forker));
        assert(!pthread_join(*(pthread_t *)forker, &value));
        printf("joined: %ld\n", (long)value);
        exit(5);
    }
    usleep(50000);
    puts("the child's thread ends");
    return NULL;
}

static void *forks(void *unused) {
    static pthread_t self;
    self = pthread_self();
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, outlasts, &self));
        if (is("cancels")) {
            for (;;) pause();
        }
        if (is("exits")) pthread_exit((void *)8);
        return (void *)9;
    }
    int status;
    assert(waitpid(child, &status, 0) == child);
    printf("status %x\n", status);
    return unused;
}

int main(int count, char **arguments) {
    assert(count == 2);
    how = arguments[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    assert(!atexit(at_exit));
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, forks, NULL) && !pthread_join(thread, NULL));
    return 0;
}
