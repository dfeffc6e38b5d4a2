// Ends as programs of FreePascal do: by a jump to where main returns to, from a function that main has called or
// from another thread, with registers and a stack that are not those of main's return.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *place;

static void last(void) {
    puts("at exit");
    fflush(stdout);
}

static void leave(long status) {
    // What lies on the stack is of no use to what comes.
    char room[2048];
    memset(room, 0, sizeof room);
#if defined(__x86_64__)
    __asm__ volatile("mov %1, %%rcx\n\t"
                     "xor %%ebx, %%ebx\n\t"
                     "xor %%r12d, %%r12d\n\t"
                     "xor %%r13d, %%r13d\n\t"
                     "xor %%r14d, %%r14d\n\t"
                     "xor %%r15d, %%r15d\n\t"
                     "lea 1024(%2), %%rsp\n\t"
                     "and $-16, %%rsp\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "jmp *%%rcx"
                     :
                     : "a"(status), "d"(place), "S"(room)
                     : "rcx", "memory");
#else
    register long result __asm__("x0") = status;
    register void *to __asm__("x1") = place;
    register void *stack __asm__("x2") = (void *)((unsigned long)(room + 1024) & -16ul);
    __asm__ volatile("mov sp, x2\n\t"
                     "mov x19, xzr\n\t"
                     "mov x20, xzr\n\t"
                     "mov x29, xzr\n\t"
                     "br x1"
                     :
                     : "r"(result), "r"(to), "r"(stack)
                     : "memory");
#endif
    __builtin_unreachable();
}

static void *works(void *leaves) {
    if (leaves) leave(5);
    return NULL;
}

int main(int count, char **arguments) {
    place = __builtin_return_address(0);
    atexit(last);
    const char *how = count > 1 ? arguments[1] : "";
    pthread_t thread;
    if (*how) {
        int leaves = !strcmp(how, "in a thread");
        if (pthread_create(&thread, NULL, works, leaves ? &thread : NULL)) return 1;
        pthread_join(thread, NULL);
    }
    puts("leaves");
    leave(4);
}
