// Crashes in a thread, as its argument says.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *how;

static void told(int signal) {
    write(1, "handled\n", 8);
    _exit(3);
}

static void *crash(void *argument) {
    struct sigaction before;
    sigaction(SIGSEGV, NULL, &before);
    printf("default %d %d\n", before.sa_handler == SIG_DFL, signal(SIGFPE, SIG_DFL) == SIG_DFL);
    fflush(stdout);
    if (!strcmp(how, "handler")) {
        printf("before %d\n", signal(SIGBUS, told) == SIG_DFL);
        fflush(stdout);
        raise(SIGBUS);
    } else if (!strcmp(how, "sent")) {
        raise(SIGBUS);
    } else if (!strcmp(how, "trap")) {
        __builtin_trap();
    } else if (!strcmp(how, "break")) {
#ifdef __x86_64__
        __asm__ volatile("int3");
#else
        __asm__ volatile("brk 0");
#endif
    }
    *(volatile int *)NULL = 1;
    return NULL;
}

static void *nothing(void *argument) { return argument; }

int main(int count, char **arguments) {
    how = arguments[1];
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, crash, NULL);
    pthread_join(thread, NULL);
    return 0;
}
