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

static int deeper(volatile char *above) {
    volatile char frame[1000];
    frame[0] = above ? above[0] : 1;
    return deeper(frame) + frame[0];
}

// As Rust's std does where it finds no overflow.
static void restores(int signal) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    write(1, "restored\n", 9);
    sigaction(signal, &action, NULL);
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
    } else if (!strcmp(how, "deep")) {
        printf("%d\n", deeper(NULL));
    } else if (!strcmp(how, "restored")) {
        static char stack[64 << 10];
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        struct sigaction action = {.sa_handler = restores, .sa_flags = SA_ONSTACK};
        sigaltstack(&alternate, NULL);
        sigaction(SIGSEGV, &action, NULL);
        printf("%d\n", deeper(NULL));
    } else if (!strcmp(how, "reset")) {
        signal(SIGSEGV, told);
        signal(SIGSEGV, SIG_DFL);
        printf("default %d\n", signal(SIGSEGV, SIG_DFL) == SIG_DFL);
        fflush(stdout);
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
