// Handlers that ask for an alternate stack run on that of their thread.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

enum { SIZE = 64 << 10 };

static __thread char *memory;
static __thread volatile int calls, depth, is_on, inner_is_on;
static __thread sigjmp_buf buffer;

static int lies_on(void *place) {
    return (char *)place > memory && (char *)place <= memory + SIZE;
}

static int is_here(void) {
    char here;
    return lies_on(&here);
}

static stack_t now(void) {
    stack_t stack;
    assert(!sigaltstack(NULL, &stack));
    return stack;
}

static void set(int flags) {
    stack_t stack = {.ss_sp = memory, .ss_size = SIZE, .ss_flags = flags};
    assert(!sigaltstack(&stack, NULL));
}

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    assert(!sigaction(signal, &action, NULL));
}

// Looks, waits and looks again.
static void looks(int signal) {
    assert(signal == SIGUSR1);
    is_on = is_here();
    assert(!!(now().ss_flags & SS_ONSTACK) == is_on);
    stack_t other = {.ss_sp = memory, .ss_size = SIZE / 2}, none = {.ss_flags = SS_DISABLE};
    if (is_on) {
        assert(sigaltstack(&other, NULL) == -1 && errno == EPERM);
        assert(sigaltstack(&none, NULL) == -1 && errno == EPERM);
        assert(syscall(SYS_sigaltstack, &none, NULL) == -1 && errno == EPERM);
    }
    usleep(2000);
    assert(is_here() == is_on && now().ss_sp == memory && now().ss_size == SIZE);
    calls++;
}

// Another handler within, on the same stack.
static void inner(int signal) {
    assert(signal == SIGUSR2);
    inner_is_on = is_here();
    usleep(500);
}

static void outer(int signal) {
    char here[512];
    memset(here, signal, sizeof here);
    is_on = is_here();
    raise(SIGUSR2);
    for (size_t i = 0; i < sizeof here; i++) assert(here[i] == signal);
    calls++;
}

static void jumps(int signal) {
    assert(is_here());
    (void)signal;
    siglongjmp(buffer, 1);
}

// While it runs the thread has none, and may set another one.
static void disarmed(int signal) {
    is_on = is_here();
    assert(now().ss_flags == SS_DISABLE && now().ss_sp == NULL && now().ss_size == 0);
    if (depth++ == 0) {
        static __thread char other[SIZE];
        stack_t stack = {.ss_sp = other, .ss_size = SIZE};
        assert(!sigaltstack(&stack, NULL) && now().ss_sp == other && now().ss_flags == 0);
        assert(!sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    }
    (void)signal;
    calls++;
}

// What a handler finds in its context, and leaves there.
static void changes(int signal, siginfo_t *info, void *context) {
    ucontext_t *here = context;
    assert(info->si_signo == signal && here->uc_stack.ss_sp == memory && here->uc_stack.ss_size == SIZE);
    assert(!sigismember(&here->uc_sigmask, SIGUSR1));
    sigset_t mask;
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &mask) && sigismember(&mask, SIGUSR1));
    sigaddset(&here->uc_sigmask, SIGUSR2);
    is_on = is_here();
    calls++;
}

static pthread_barrier_t barrier;

// Each step by all threads, for actions are the process's.
static void step(void) {
    pthread_barrier_wait(&barrier);
}

static void cleanup(void *done) {
    *(int *)done = 1;
}

static void exits(int signal) {
    assert(is_here());
    usleep(signal);
    pthread_exit((void *)7);
}

static void waits_for_end(int signal) {
    assert(is_here());
    for (;;) usleep(1000 + signal);
}

static void *all(void *number) {
    int first = (long)number == 0;
    memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(memory != MAP_FAILED);
    set(0);
    if (first) handle(SIGUSR1, looks, 0);
    step();
    raise(SIGUSR1);
    assert(calls == 1 && !is_on);
    step();

    if (first) handle(SIGUSR1, looks, SA_ONSTACK);
    step();
    for (int i = 0; i < 5; i++) raise(SIGUSR1);
    assert(calls == 6 && is_on && now().ss_flags == 0);
    step();

    if (first) handle(SIGUSR1, outer, SA_ONSTACK), handle(SIGUSR2, inner, SA_ONSTACK);
    step();
    raise(SIGUSR1);
    assert(calls == 7 && is_on && inner_is_on);
    step();

    // Within a handler that runs there, one that does not ask for it runs there as well.
    if (first) handle(SIGUSR2, inner, 0);
    step();
    raise(SIGUSR1);
    assert(calls == 8 && is_on && inner_is_on);
    step();

    if (first) handle(SIGUSR1, jumps, SA_ONSTACK);
    step();
    for (volatile int i = 0; i < 5; i++) {
        if (!sigsetjmp(buffer, 1)) raise(SIGUSR1), assert(0);
        assert(now().ss_flags == 0 && !is_here());
    }
    set(0);
    step();

    if (first) handle(SIGUSR1, disarmed, SA_ONSTACK | SA_NODEFER);
    step();
    set(SS_AUTODISARM);
    assert(now().ss_flags == (int)SS_AUTODISARM);
    raise(SIGUSR1);
    assert(calls == 9 && is_on && now().ss_flags == (int)SS_AUTODISARM && now().ss_sp == memory);
    raise(SIGUSR1);
    assert(calls == 10 && is_on && now().ss_sp == memory);
    set(0);
    step();

    if (first) {
        struct sigaction action = {.sa_sigaction = changes, .sa_flags = SA_ONSTACK | SA_SIGINFO};
        assert(!sigaction(SIGUSR1, &action, NULL));
    }
    step();
    sigset_t mask;
    raise(SIGUSR1);
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &mask) && sigismember(&mask, SIGUSR2) && !sigismember(&mask, SIGUSR1));
    assert(calls == 11 && is_on);
    sigdelset(&mask, SIGUSR2);
    assert(!pthread_sigmask(SIG_SETMASK, &mask, NULL));
    step();
    return NULL;
}

static volatile int interrupted;

static void *computes(void *ready) {
    memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set(0);
    *(volatile int *)ready = 1;
    while (calls < 3) interrupted++;
    sigset_t mask;
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &mask) && sigismember(&mask, SIGUSR2));
    return NULL;
}

static void *ends(void *done) {
    memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set(0);
    pthread_cleanup_push(cleanup, done);
    raise(SIGUSR1);
    for (;;) pause();
    pthread_cleanup_pop(0);
    return NULL;
}

static void forks(int signal) {
    assert(is_here() && signal == SIGUSR1);
    pid_t child = fork();
    assert(child >= 0);
    if (!child) {
        // Of the child, the kernel is told by now.
        assert(is_here() && now().ss_flags == SS_ONSTACK && now().ss_sp == memory);
        handle(SIGUSR2, inner, SA_ONSTACK);
        inner_is_on = 0;
        raise(SIGUSR2);
        _exit(inner_is_on ? 5 : 6);
    }
    int status;
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    child = fork();
    if (!child) siglongjmp(buffer, 2);
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    calls++;
}

static void *forks_within(void *unused) {
    memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    set(0);
    if (sigsetjmp(buffer, 1) == 2) {
        assert(!is_here() && now().ss_flags == 0);
        handle(SIGUSR2, inner, SA_ONSTACK);
        raise(SIGUSR2);
        _exit(inner_is_on ? 5 : 6);
    }
    raise(SIGUSR1);
    assert(calls == 1);
    return unused;
}

enum { LARGE = 240 << 10 };

// Handlers of faults may use much of a stack that their thread has set.
static void deep(int signal) {
    volatile char here[LARGE - (40 << 10)];
    for (size_t i = 0; i < sizeof here; i += 512) here[i] = (char)signal;
    calls += here[sizeof here / 1024 * 512] == signal;
    siglongjmp(buffer, 1);
}

static sigjmp_buf plain;

// Leaves by a jump that restores no mask.
static void unblocks(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    assert(!pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    siglongjmp(plain, 1);
}

static void exits_too(int signal) {
    pthread_exit((void *)(long)signal);
}

static void fault(void) {
    *(volatile int *)8 = 1;
    assert(0);
}

static void *faults_and_ends(void *unused) {
    memory = malloc(SIZE);
    set(0);
    fault();
    return unused;
}

static void *faults(void *unused) {
    stack_t stack = {.ss_sp = malloc(LARGE), .ss_size = LARGE};
    assert(stack.ss_sp && !sigaltstack(&stack, NULL));
    for (volatile int i = 0; i < 3; i++) {
        if (!sigsetjmp(buffer, 1)) fault();
        usleep(100);
    }
    assert(calls == 3 && now().ss_flags == 0);
    assert(!sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL));
    free(stack.ss_sp);
    return unused;
}

int main(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long i = 0; i < THREADS; i++) assert(!pthread_create(&threads[i], NULL, all, (void *)i));
    for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    puts("handlers and their stacks");

    // Amid computing.
    volatile int ready = 0;
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, computes, (void *)&ready));
    while (!ready) usleep(100);
    do pthread_kill(thread, SIGUSR1), usleep(2000);
    while (pthread_tryjoin_np(thread, NULL) == EBUSY);
    puts("amid computing");

    void *value;
    int done = 0;
    handle(SIGUSR1, exits, SA_ONSTACK);
    assert(!pthread_create(&thread, NULL, ends, &done) && !pthread_join(thread, &value) && value == (void *)7 && done);
    done = 0;
    handle(SIGUSR1, waits_for_end, SA_ONSTACK);
    assert(!pthread_create(&thread, NULL, ends, &done));
    usleep(3000);
    assert(!pthread_cancel(thread) && !pthread_join(thread, &value) && value == PTHREAD_CANCELED && done);
    puts("ends within");

    handle(SIGUSR1, forks, SA_ONSTACK);
    assert(!pthread_create(&thread, NULL, forks_within, NULL) && !pthread_join(thread, NULL));
    puts("forks within");

    handle(SIGSEGV, deep, SA_ONSTACK);
    for (int i = 0; i < 4; i++) assert(!pthread_create(&threads[i], NULL, faults, NULL));
    for (int i = 0; i < 4; i++) assert(!pthread_join(threads[i], NULL));
    handle(SIGSEGV, unblocks, SA_ONSTACK);
    memory = malloc(SIZE);
    set(0);
    for (volatile int i = 0; i < 3; i++) {
        if (!sigsetjmp(plain, 0)) fault();
    }
    handle(SIGSEGV, exits_too, SA_ONSTACK);
    for (int i = 0; i < 5; i++) {
        assert(!pthread_create(&thread, NULL, faults_and_ends, NULL) && !pthread_join(thread, &value));
        assert(value == (void *)SIGSEGV);
    }
    puts("faults");
    return 0;
}
