// The process ends with its last thread, if the first one has left by pthread_exit: also if that last one is bound to a
// processor or has a stack of the program's, and so is none but a thread; and in a child that such a thread has forked.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *how;

static int is(const char *what) {
    return strstr(how, what) != NULL;
}

static void *nothing(void *unused) {
    return unused;
}

static sem_t done;

static void *ends_late(void *unused) {
    while (sem_wait(&done)) {}
    puts("a fiber ends");
    return unused;
}

static void last_words(void *unused) {
    (void)unused;
    usleep(20000);
    puts("its key's destructor");
    sem_post(&done);
}

static void *works(void *unused) {
    pthread_key_t key;
    assert(!pthread_key_create(&key, last_words) && !pthread_setspecific(key, "set"));
    usleep(50000);
    puts("the worker is done");
    if (is("exits")) pthread_exit(NULL);
    if (is("cancelled")) {
        pthread_cancel(pthread_self());
        pause();
    }
    return unused;
}

static void *forks(void *unused) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
        puts("the child's thread is joined");
        return unused;
    }
    int status;
    assert(waitpid(child, &status, 0) == child);
    printf("status %x\n", status);
    return unused;
}

static void at_exit(void) {
    puts("at exit");
}

int main(int count, char **arguments) {
    assert(count == 2);
    how = arguments[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    assert(!atexit(at_exit) && !sem_init(&done, 0, 0));
    pthread_t thread;
    pthread_attr_t attributes;
    assert(!pthread_attr_init(&attributes));
    if (is("stack")) {
        size_t size = 1 << 20;
        void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert(stack != MAP_FAILED && !pthread_attr_setstack(&attributes, stack, size));
    } else {
        cpu_set_t own;
        assert(!sched_getaffinity(0, sizeof own, &own));
        int first = 0;
        while (!CPU_ISSET(first, &own)) first++;
        CPU_ZERO(&own);
        CPU_SET(first, &own);
        assert(!pthread_attr_setaffinity_np(&attributes, sizeof own, &own));
    }
    assert(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
    if (is("late")) assert(!pthread_create(&thread, NULL, ends_late, NULL));
    assert(!pthread_create(&thread, &attributes, is("forks") ? forks : works, NULL));
    if (is("failing")) {
        // (What is not created is not waited for.)
        pthread_t none;
        pthread_attr_t wrong;
        assert(!pthread_attr_init(&wrong) && !pthread_attr_setinheritsched(&wrong, PTHREAD_EXPLICIT_SCHED));
        assert(!pthread_attr_setstacksize(&wrong, (size_t)1 << 46));
        cpu_set_t first;
        CPU_ZERO(&first);
        CPU_SET(0, &first);
        assert(!pthread_attr_setaffinity_np(&wrong, sizeof first, &first));
        assert(pthread_create(&none, &wrong, nothing, NULL));
    }
    pthread_exit(NULL);
}
