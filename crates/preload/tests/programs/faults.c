// Handlers of faults wait, on the alternate stacks of their threads or on their usual ones, and leave in all ways.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define THREADS 8
#define PAGES 24
#define PAGE sysconf(_SC_PAGESIZE)
#define ALTERNATE 65536

static char *pages;
static int wrong;
static __thread char *alternate;
static __thread sigjmp_buf jump;
static __thread volatile int handled;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void check(int right) {
    if (!right) __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
}

static int is_on_alternate(void) {
    volatile char here;
    return alternate && (char *)&here >= alternate && (char *)&here < alternate + ALTERNATE;
}

static void set_alternate(int flags) {
    alternate = malloc(ALTERNATE);
    stack_t stack = {.ss_sp = alternate, .ss_size = ALTERNATE, .ss_flags = flags};
    assert(!sigaltstack(&stack, NULL));
}

static void set(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigfillset(&action.sa_mask);
    assert(!sigaction(signal, &action, NULL));
}

static int blocks(int signal) {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&mask, signal);
}

// Waits, for time and for a lock, amid which others do.
static void repairs(int signal, siginfo_t *info, void *context) {
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    volatile intptr_t fill[128];
    for (int i = 0; i < 128; i++) fill[i] = (intptr_t)page + i;
    int was_on_alternate = is_on_alternate();
    check(blocks(SIGSEGV) && blocks(SIGUSR1));
    usleep(500);
    pthread_mutex_lock(&mutex);
    usleep(100);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 128; i++) check(fill[i] == (intptr_t)page + i);
    check(was_on_alternate == (alternate != NULL) && was_on_alternate == is_on_alternate());
    check(!mprotect(page, PAGE, PROT_READ | PROT_WRITE));
    handled++;
    (void)signal, (void)context;
}

static void *faults(void *number) {
    char *mine = pages + PAGE * PAGES * (long)number;
    // Some have an alternate stack, others not, or one that none are to be on meanwhile.
    if ((long)number % 4 != 3) set_alternate((long)number % 4 == 2 ? (int)(1u << 31) : 0);
    double sum = 0;
    for (int i = 0; i < PAGES; i++) {
        double before = i * 1.5 + (long)number;
        mine[PAGE * i] = 1;
        sum += before + mine[PAGE * i];
        if (i % 5 == 0) usleep(200);
    }
    check(sum == PAGES * (PAGES - 1) / 2 * 1.5 + PAGES * ((long)number + 1) && handled == PAGES);
    check(!blocks(SIGSEGV) && !blocks(SIGUSR1));
    if (alternate) {
        stack_t stack;
        check(!sigaltstack(NULL, &stack) && stack.ss_sp == alternate && !(stack.ss_flags & SS_DISABLE));
    }
    return NULL;
}

static void jumps(int signal, siginfo_t *info, void *context) {
    usleep(300);
    handled++;
    siglongjmp(jump, 1);
    (void)signal, (void)info, (void)context;
}

static void *leaves_by_jumps(void *unused) {
    set_alternate(0);
    for (volatile int i = 0; i < 10; i++) {
        if (sigsetjmp(jump, 1) == 0) *(volatile char *)pages = 1;
        check(!is_on_alternate() && !blocks(SIGSEGV) && handled == i + 1);
        usleep(100);
    }
    return unused;
}

static void cleans_up(void *cleaned) {
    *(int *)cleaned = 1;
}

static void exits(int signal, siginfo_t *info, void *context) {
    usleep(300);
    pthread_exit((void *)7);
    (void)signal, (void)info, (void)context;
}

static void *leaves_by_its_end(void *cleaned) {
    set_alternate(0);
    pthread_cleanup_push(cleans_up, cleaned);
    *(volatile char *)pages = 1;
    pthread_cleanup_pop(0);
    return NULL;
}

// Has the thread go on elsewhere, with another value of a register.
static void changes(int signal, siginfo_t *info, void *context) {
    ucontext_t *interrupted = context;
    usleep(300);
#ifdef __x86_64__
    interrupted->uc_mcontext.gregs[REG_RAX] = (intptr_t)info->si_addr == 8 ? 41 : 0;
    interrupted->uc_mcontext.gregs[REG_RIP] += 3;
#endif
    sigaddset(&interrupted->uc_sigmask, SIGUSR2);
    (void)signal;
}

static void *is_changed(void *unused) {
    set_alternate(0);
#ifdef __x86_64__
    long value;
    double left = 1.25, right = 2.5, sum;
    // (Of three bytes.)
    __asm__ volatile("addsd %3, %1\n\tmov (%%rcx), %%rax" : "=a"(value), "+x"(left) : "c"(8L), "x"(right));
    sum = left;
    check(value == 41 && sum == 3.75 && blocks(SIGUSR2));
#endif
    return unused;
}

static void faults_again(int signal, siginfo_t *info, void *context) {
    *(volatile char *)pages = 1;
    (void)signal, (void)info, (void)context;
}

static void *dies(void *unused) {
    set_alternate(0);
    *(volatile char *)pages = 1;
    return unused;
}

static void once(int signal) {
    mprotect(pages, PAGE, PROT_READ | PROT_WRITE);
    handled++;
    (void)signal;
}

static void *run(void *(*function)(void *), void *argument) {
    pthread_t thread;
    void *result;
    assert(!pthread_create(&thread, NULL, function, argument) && !pthread_join(thread, &result));
    return result;
}

static int in_child(void *(*function)(void *)) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        // (What Carefree says of the end is left out.)
        close(2);
        run(function, NULL);
        _exit(0);
    }
    assert(waitpid(child, &status, 0) == child);
    return status & 0x7f;
}

// Another process sends a fault to this one: a thread that does not block it handles it, and may wait in the handler.
static pthread_t open_to_it;
static volatile sig_atomic_t sent;

static void is_sent(int signal, siginfo_t *info, void *context) {
    check(pthread_equal(pthread_self(), open_to_it) && info->si_code == SI_USER && info->si_pid != getpid());
    check(blocks(signal) && is_on_alternate());
    usleep(1000);
    sent++;
    (void)context;
}

static void *is_open_to_it(void *unused) {
    sigset_t fault;
    sigemptyset(&fault);
    sigaddset(&fault, SIGSEGV);
    sigaddset(&fault, SIGTRAP);
    open_to_it = pthread_self();
    set_alternate(0);
    assert(!pthread_sigmask(SIG_UNBLOCK, &fault, NULL));
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (!child) _exit(kill(getppid(), i % 2 ? SIGSEGV : SIGTRAP) != 0);
        for (int look = 0; look < 60000 && sent <= i; look++) usleep(1000);
        assert(waitpid(child, NULL, 0) == child);
        check(sent == i + 1);
    }
    return unused;
}

static void faults_of_others(void) {
    sigset_t fault, before;
    sigemptyset(&fault);
    sigaddset(&fault, SIGSEGV);
    sigaddset(&fault, SIGTRAP);
    assert(!pthread_sigmask(SIG_BLOCK, &fault, &before));
    set(SIGSEGV, is_sent, SA_ONSTACK);
    set(SIGTRAP, is_sent, SA_ONSTACK);
    run(is_open_to_it, NULL);
    assert(!pthread_sigmask(SIG_SETMASK, &before, NULL));
    signal(SIGTRAP, SIG_DFL);
    printf("sent by another process: %d wrong\n", wrong);
}

int main(void) {
    pthread_t threads[THREADS];
    pages = mmap(NULL, THREADS * PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int flags = 0; flags < 2; flags++) {
        // (Those without an alternate stack are handled on their own.)
        set(SIGSEGV, repairs, SA_ONSTACK);
        assert(!mprotect(pages, THREADS * PAGES * PAGE, PROT_NONE));
        for (long i = 0; i < THREADS; i++) assert(!pthread_create(&threads[i], NULL, faults, (void *)i));
        for (int i = 0; i < THREADS; i++) assert(!pthread_join(threads[i], NULL));
    }
    printf("repaired: %d wrong\n", wrong);
    assert(!mprotect(pages, PAGE, PROT_NONE));
    set(SIGSEGV, jumps, SA_ONSTACK);
    for (int i = 0; i < 4; i++) assert(!pthread_create(&threads[i], NULL, leaves_by_jumps, NULL));
    for (int i = 0; i < 4; i++) assert(!pthread_join(threads[i], NULL));
    printf("jumped: %d wrong\n", wrong);
    set(SIGSEGV, exits, SA_ONSTACK);
    for (int i = 0; i < 4; i++) {
        int cleaned = 0;
        void *result = run(leaves_by_its_end, &cleaned);
        check(cleaned && result == (void *)7);
    }
    printf("exited: %d wrong\n", wrong);
    set(SIGSEGV, changes, SA_ONSTACK);
    for (int i = 0; i < 4; i++) run(is_changed, NULL);
    printf("changed: %d wrong\n", wrong);
    faults_of_others();
    set(SIGSEGV, faults_again, SA_ONSTACK);
    printf("a fault in its handler: %d\n", in_child(dies));
    set(SIGSEGV, faults_again, 0);
    printf("on the same stack: %d\n", in_child(dies));
    struct sigaction before, action = {.sa_handler = once, .sa_flags = SA_RESETHAND};
    assert(!sigaction(SIGSEGV, &action, &before));
    check(before.sa_sigaction == faults_again && (before.sa_flags & SA_SIGINFO) && !(before.sa_flags & SA_ONSTACK));
    *(volatile char *)pages = 1;
    assert(!sigaction(SIGSEGV, NULL, &before));
    check(before.sa_handler == SIG_DFL && handled == 1);
    check(signal(SIGSEGV, once) == SIG_DFL && signal(SIGSEGV, SIG_DFL) == once && signal(SIGSEGV, SIG_IGN) == SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    printf("told: %d wrong\n", wrong);
    assert(!mprotect(pages, PAGE, PROT_NONE));
    printf("without a handler: %d\n", in_child(dies));
    return 0;
}
