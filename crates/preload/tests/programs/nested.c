// Signals that can be handled at the same moment: the kernel prepares the handlers' calls in order, and the last prepared runs.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// (A number, for SIGRTMIN is one more on fibers.)
enum { REALTIME = 50 };

static volatile int depth;
static volatile int leaves;
static sigjmp_buf out;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)info;
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    ucontext_t *saved = context;
    int before = 0, blocked = 0;
    for (int each = 1; each < 64; each++) {
        before += sigismember(&saved->uc_sigmask, each) == 1;
        blocked += sigismember(&now, each) == 1;
    }
    printf("  %d: depth %d, %d blocked, %d before\n", signal, depth, blocked, before);
    depth++;
    if (leaves == signal) siglongjmp(out, 1);
    depth--;
}

static void handle(int signal, int flags, int blocks) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | flags};
    action.sa_sigaction = on_signal;
    sigemptyset(&action.sa_mask);
    if (blocks) sigaddset(&action.sa_mask, blocks);
    sigaction(signal, &action, NULL);
}

// The caller opens several signals at once, which it has sent itself, or the process.
static void open_all(const char *what, int of_process) {
    int signals[] = {SIGUSR2, REALTIME, SIGUSR1, REALTIME, SIGWINCH};
    sigset_t all, old;
    sigemptyset(&all);
    for (int each = 0; each < 5; each++) sigaddset(&all, signals[each]);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    for (int each = 0; each < 5; each++) {
        if (of_process && each % 2) kill(getpid(), signals[each]);
        else pthread_kill(pthread_self(), signals[each]);
    }
    printf("%s%s\n", what, of_process ? ", some of the process" : "");
    if (sigsetjmp(out, 1) == 0) {
        sigsuspend(&old);
        printf("  suspended\n");
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    depth = 0;
    sigset_t pending;
    sigpending(&pending);
    for (int each = 0; each < 5; each++) printf(" %d", sigismember(&pending, signals[each]));
    printf("\n");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void *run(void *mask) {
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    for (int of_process = 0; of_process < 2; of_process++) {
        for (int flags = 0; flags < 2; flags++) {
            int flag = flags ? SA_NODEFER : 0;
            handle(SIGUSR1, flag, 0);
            handle(SIGUSR2, flag, 0);
            handle(SIGWINCH, flag, 0);
            handle(REALTIME, flag, 0);
            open_all(flags ? "not deferred" : "with empty masks", of_process);
        }
        handle(REALTIME, 0, 0);
        handle(SIGUSR1, 0, SIGUSR2);
        open_all("the first blocks the second", of_process);
        handle(SIGUSR1, 0, 0);
        handle(SIGUSR2, SA_RESETHAND, 0);
        open_all("one is reset", of_process);
        handle(SIGUSR2, 0, 0);
        leaves = SIGUSR2;
        open_all("one is left by a jump", of_process);
        leaves = 0;
    }
    return NULL;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    // The first thread blocks them, so those of the process have one thread that they may go to.
    pthread_sigmask(SIG_BLOCK, &all, &old);
    pthread_create(&thread, NULL, run, &old);
    pthread_join(thread, NULL);
    run(&old);
}
