// Alternate stacks for handlers: each thread has its own, and none is used when its thread has ended.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 64 << 10 };

static stack_t now(void) {
    stack_t stack;
    assert(!sigaltstack(NULL, &stack));
    return stack;
}

// Sets a stack, and leaves it set, as many programs do.
static void *sets(void *memory) {
    assert(now().ss_flags == SS_DISABLE);
    stack_t small = {.ss_sp = memory, .ss_size = 16}, stack = {.ss_sp = memory, .ss_size = SIZE};
    assert(sigaltstack(&small, NULL) == -1 && errno == ENOMEM);
    assert(!sigaltstack(&stack, NULL));
    usleep(1000);
    assert(now().ss_sp == memory && now().ss_size == SIZE && now().ss_flags == 0);
    return NULL;
}

int main(void) {
    static char own[SIZE];
    stack_t stack = {.ss_sp = own, .ss_size = SIZE};
    assert(!sigaltstack(&stack, NULL));
    char *memory = malloc(SIZE), *expected = malloc(SIZE);
    memset(expected, 'x', SIZE);
    for (int round = 0; round < 5; round++) {
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, sets, memory) && !pthread_join(thread, NULL));
        memset(memory, 'x', SIZE);
        memset(own, 'x', SIZE);
        assert(now().ss_sp == own);
        // libc has all kernel threads do this, in a handler on their alternate stacks.
        assert(!setuid(getuid()) && !setgid(getgid()));
        usleep(1000);
        assert(!memcmp(memory, expected, SIZE));
    }
    stack.ss_flags = SS_DISABLE;
    assert(!sigaltstack(&stack, NULL) && now().ss_flags == SS_DISABLE);
    puts("each its own");
    return 0;
}
