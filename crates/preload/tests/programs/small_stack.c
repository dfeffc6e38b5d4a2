// A fault is handled on an alternate stack that is just large enough for the kernel, and nothing below it is written to.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#define BELOW 16384

static char area[4 * BELOW];
static char *page;
static volatile int handled;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    handled += (char *)info->si_addr == page;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void *faults(void *room) {
    stack_t stack = {.ss_sp = area + BELOW, .ss_size = getauxval(AT_MINSIGSTKSZ) + *(size_t *)room};
    assert(!sigaltstack(&stack, NULL));
    for (int i = 0; i < 3; i++) {
        assert(!mprotect(page, 4096, PROT_NONE));
        *(volatile char *)page = 1;
    }
    stack_t none = {.ss_flags = SS_DISABLE};
    assert(!sigaltstack(&none, NULL));
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(page != MAP_FAILED && !sigaction(SIGSEGV, &action, NULL));
    memset(area, 0x5a, sizeof area);
    for (size_t room = 1024; room <= 16384; room *= 2) {
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, faults, &room) && !pthread_join(thread, NULL));
        int changed = 0;
        for (int i = 0; i < BELOW; i++) changed += area[i] != 0x5a;
        printf("%zu: %d handled, %d bytes below changed\n", room, handled, changed);
    }
    return 0;
}
