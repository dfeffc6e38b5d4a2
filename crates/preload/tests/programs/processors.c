// A thread's processors are its own: told as the kernel allows them, inherited by what it creates and starts, and refused
// with the kernel's errors. The first thread, tied to one processor before there are others, keeps none of these from another.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *program;
// (The compiler need not know that it is NULL.)
static cpu_set_t *volatile nowhere;
static cpu_set_t all;
static int first = -1, last;

static void tell(const char *what) {
    cpu_set_t by_process, by_thread;
    memset(&by_process, 0xff, sizeof by_process), memset(&by_thread, 0xff, sizeof by_thread);
    assert(!sched_getaffinity(0, sizeof by_process, &by_process));
    assert(!pthread_getaffinity_np(pthread_self(), sizeof by_thread, &by_thread));
    assert(CPU_EQUAL(&by_process, &by_thread));
    printf("%s: %d processors%s%s\n", what, CPU_COUNT(&by_thread), CPU_ISSET(first, &by_thread) ? ", the first" : "",
           CPU_ISSET(last, &by_thread) ? ", the last" : "");
}

static cpu_set_t only(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return set;
}

static void *tells(void *what) {
    tell(what);
    return NULL;
}

static void wait_for(pid_t child) {
    int status;
    assert(waitpid(child, &status, 0) == child && status == 0);
}

// Starts this program once more, which tells only how many processors it has.
static void start(const char *how) {
    printf("%s\n", how);
    char *arguments[] = { (char *)program, "count", NULL };
    pid_t child;
    assert(!posix_spawn(&child, program, NULL, NULL, arguments, environ));
    wait_for(child);
    child = fork();
    if (child == 0) {
        execv(program, arguments);
        _exit(9);
    }
    wait_for(child);
    char command[4200];
    snprintf(command, sizeof command, "%s count", program);
    assert(system(command) == 0);
}

static void *ties(void *unused) {
    tell("a thread");
    cpu_set_t set = only(last);
    printf("tied to the last: %d\n", pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    tell("tied");
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, tells, "created by the tied") && !pthread_join(thread, NULL));
    pid_t child = fork();
    if (child == 0) {
        tell("forked by the tied");
        assert(!pthread_create(&thread, NULL, tells, "a thread there") && !pthread_join(thread, NULL));
        exit(0);
    }
    wait_for(child);
    start("started by the tied");

    CPU_SET(1023, &set);
    printf("with one that there is not: %d\n", sched_setaffinity(gettid(), sizeof set, &set));
    tell("with one that there is not");
    CPU_ZERO(&set);
    printf("on none: %s\n", strerror(pthread_setaffinity_np(pthread_self(), sizeof set, &set)));
    printf("from nowhere: %s\n", strerror(pthread_setaffinity_np(pthread_self(), sizeof set, nowhere)));
    printf("to nowhere: %s\n", strerror(pthread_getaffinity_np(pthread_self(), sizeof set, nowhere)));
    printf("into too little: %s\n", strerror(pthread_getaffinity_np(pthread_self(), 4, &set)));
    printf("into little: %ld\n", syscall(SYS_sched_getaffinity, 0, 4, &set));
    memset(&set, 0xff, sizeof set);
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof set, &set);
    printf("by its number: %d, %d more\n", bytes > 0, CPU_COUNT(&set) > 8 * ((int)sizeof set - (int)bytes));
    tell("after these");
    return unused;
}

static void *waits(void *gate) {
    pthread_barrier_wait(gate), pthread_barrier_wait(gate);
    tell("tied by the first");
    return NULL;
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IONBF, 0);
    assert(!sched_getaffinity(0, sizeof all, &all));
    if (count > 1) return printf("%d processors\n", CPU_COUNT(&all)) < 0;
    program = arguments[0];
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) first = first < 0 ? i : first, last = i;
    }
    tell("at first");
    cpu_set_t set = only(first);
    assert(!sched_setaffinity(0, sizeof set, &set));
    tell("the first thread, tied to one");
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, ties, NULL) && !pthread_join(thread, NULL));
    tell("the first thread");
    assert(!sched_setaffinity(getpid(), sizeof all, &all));
    tell("the first thread, on all");
    start("started by it");

    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, 2);
    assert(!pthread_create(&thread, NULL, waits, &gate));
    pthread_barrier_wait(&gate);
    assert(!pthread_setaffinity_np(thread, sizeof set, &set));
    pthread_attr_t attributes;
    cpu_set_t told;
    assert(!pthread_getattr_np(thread, &attributes) && !pthread_attr_getaffinity_np(&attributes, sizeof told, &told));
    printf("its attributes: %d processors\n", CPU_COUNT(&told));
    pthread_barrier_wait(&gate);
    pthread_join(thread, NULL);
    tell("the first thread, at last");
    return 0;
}
