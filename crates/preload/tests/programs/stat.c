// What /proc/self/stat says of the number of threads, to a program that opens it by fopen: as Python does at a fork.
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int number(void) {
    char line[1024] = "";
    FILE *file = fopen("/proc/self/stat", "re");
    assert(file);
    assert(fcntl(fileno(file), F_GETFD) == FD_CLOEXEC);
    assert(fgets(line, sizeof line, file) && line[strlen(line) - 1] == '\n');
    assert(fgetc(file) == EOF && !fseek(file, 0, SEEK_SET) && fgetc(file) == line[0]);
    fclose(file);
    assert(atoi(line) == getpid());
    int number = 0;
    assert(sscanf(strrchr(line, ')'), ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &number) == 1);
    return number;
}

// The kernel counts a thread for a moment after its end.
static void say(const char *when, int expected) {
    int found = number();
    for (int i = 0; i < 1000 && found != expected; i++) {
        usleep(1000);
        found = number();
    }
    printf("%s: %d\n", when, found);
}

static pthread_barrier_t begun, end;

static void *live(void *unused) {
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&end);
    return unused;
}

static void *nothing(void *unused) {
    return unused;
}

static void in_child(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        say("in a child", 1);
        assert(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
        say("in a child, after a thread", 1);
        exit(0);
    }
    int status;
    assert(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    pthread_t threads[3];
    say("at first", 1);
    in_child();
    pthread_barrier_init(&begun, NULL, 4);
    pthread_barrier_init(&end, NULL, 4);
    for (int i = 0; i < 3; i++) assert(!pthread_create(&threads[i], NULL, live, NULL));
    pthread_barrier_wait(&begun);
    assert(!prctl(PR_SET_NAME, "a) S 1 (b"));
    say("with three", 4);
    in_child();
    pthread_barrier_wait(&end);
    for (int i = 0; i < 3; i++) assert(!pthread_join(threads[i], NULL));
    say("after them", 1);
    in_child();
    return 0;
}
