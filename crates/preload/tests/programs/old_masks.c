// Masks as BSD had them, in an `int`.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
// (`sigpause` of BSD; the header's is that of X/Open.)
extern int old_pause(int set) __asm__("sigpause");

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static int is_blocked(int signal) {
    sigset_t set;
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &set));
    return sigismember(&set, signal);
}

static void *masks(void *unused) {
    printf("first %x\n", siggetmask());
    printf("blocks %x", sigblock(sigmask(SIGUSR1)));
    printf(" %x %d\n", siggetmask(), is_blocked(SIGUSR1));
    pthread_kill(pthread_self(), SIGUSR1);
    usleep(1000);
    printf("handled %d", handled);
    printf(", blocked %x", sigsetmask(sigmask(SIGUSR2)));
    printf(", handled %d, blocks %x\n", handled, siggetmask());
    pthread_kill(pthread_self(), SIGUSR2);
    printf("pauses %d", old_pause(sigmask(SIGUSR1)));
    printf(" %d, handled %d, blocks %x\n", errno == EINTR, handled, siggetmask());
    printf("last %x", sigsetmask(0));
    printf(" %x\n", siggetmask());
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_handler = handle};
    assert(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR2, &action, NULL));
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, masks, NULL) && !pthread_join(thread, NULL));
    masks(NULL);
    return 0;
}
