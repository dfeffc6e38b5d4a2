// Jumps to another place, out of handlers of signals and not: which of them restore the mask.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static sigjmp_buf jump, early;
static jmp_buf plain;
static volatile int jumps_by_itself, handled;
static sem_t ready;
static int ends[2];

static void handle(int signal) {
    (void)signal;
    handled++;
    if (jumps_by_itself == 1) siglongjmp(jump, 1);
    if (jumps_by_itself == 2) longjmp(plain, 1);
}

static int blocks(int signal) {
    sigset_t set;
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &set));
    return sigismember(&set, signal);
}

static void change(int how, int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    assert(!pthread_sigmask(how, &set, NULL));
}

static const char *ways[] = {"raise", "computing", "nanosleep", "read", "sem_wait", "select", "sigsuspend"};

// What the thread does when the signal comes.
static void wait_by(int way) {
    volatile long turns = 0;
    struct timespec time = {100, 0};
    struct timeval interval = {100, 0};
    sem_t never;
    sigset_t none;
    char byte;
    if (way) sem_post(&ready);
    switch (way) {
    case 0: raise(SIGUSR1); break;
    case 1: for (;;) turns++;
    case 2: nanosleep(&time, NULL); break;
    case 3: read(ends[0], &byte, 1); break;
    case 4: sem_init(&never, 0, 0); sem_wait(&never); break;
    case 5: select(0, NULL, NULL, NULL, &interval); break;
    case 6: sigemptyset(&none); sigsuspend(&none); break;
    }
    assert(0);
}

static void *jumps(void *argument) {
    volatile int way = (int)(long)argument, times = 0;
    jumps_by_itself = 1;
    handled = 0;
    sigsetjmp(jump, 1);
    assert(!blocks(SIGUSR1) && !blocks(SIGUSR2));
    if (times++ < 5) wait_by(way);
    jumps_by_itself = 0;
    return NULL;
}

// Without a signal, and one that the jump lets through.
static void *restores(void *argument) {
    volatile int times = 0;
    change(SIG_BLOCK, SIGUSR2);
    if (!sigsetjmp(jump, 1)) {
        change(SIG_UNBLOCK, SIGUSR2);
        change(SIG_BLOCK, SIGUSR1);
        siglongjmp(jump, 7);
    }
    printf("blocks: 1 %d, 2 %d\n", blocks(SIGUSR1), blocks(SIGUSR2));
    handled = 0;
    if (!sigsetjmp(jump, 1)) {
        change(SIG_BLOCK, SIGUSR1);
        raise(SIGUSR1);
        assert(!handled);
        longjmp(jump, 1);
    }
    printf("handled: %d\n", handled);
    // The mask stays, though the buffer had one before.
    if (!sigsetjmp(jump, 0)) {
        change(SIG_BLOCK, SIGUSR1);
        siglongjmp(jump, 1);
    }
    printf("blocks: 1 %d, 2 %d\n", blocks(SIGUSR1), blocks(SIGUSR2));
    change(SIG_UNBLOCK, SIGUSR1);
    jumps_by_itself = 2;
    if (!setjmp(plain)) raise(SIGUSR1);
    printf("blocks: 1 %d, 2 %d\n", blocks(SIGUSR1), blocks(SIGUSR2));
    jumps_by_itself = 0;
    change(SIG_UNBLOCK, SIGUSR1);
    // Results.
    int value = sigsetjmp(jump, 1);
    if (times++ == 0) siglongjmp(jump, 0);
    if (times == 2) printf("value %d\n", value);
    if (times == 2) siglongjmp(jump, -3);
    printf("value %d, argument %d\n", value, argument != NULL);
    return NULL;
}

static void *ends_by_cleanup(void *argument) {
    pthread_cleanup_push((void (*)(void *))puts, "cleaned up");
    sigsetjmp(jump, 1);
    pthread_exit(argument);
    pthread_cleanup_pop(0);
    return NULL;
}

static void run(void *(*function)(void *), void *argument) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, function, argument) && !pthread_join(thread, NULL));
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    assert(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR2, &action, NULL));
    assert(!sem_init(&ready, 0, 0) && !pipe(ends));
    volatile int times = 0;
    // Before there is another thread.
    change(SIG_BLOCK, SIGHUP);
    sigsetjmp(early, 1);
    printf("the first thread blocks: 1 %d, HUP %d\n", blocks(SIGUSR1), blocks(SIGHUP));
    if (times++) return 0;
    change(SIG_UNBLOCK, SIGHUP);
    for (long way = 0; way < 7; way++) {
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, jumps, (void *)way));
        for (int i = 0; way && i < 5; i++) {
            sem_wait(&ready);
            usleep(i * 3000);
            assert(!pthread_kill(thread, SIGUSR1));
        }
        assert(!pthread_join(thread, NULL));
        printf("%s: handled %d\n", ways[way], handled);
    }
    run(restores, "argument");
    run(ends_by_cleanup, NULL);
    change(SIG_BLOCK, SIGUSR1);
    fflush(stdout);
    siglongjmp(early, 1);
}
