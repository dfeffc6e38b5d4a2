// Thread-local variables that are large, as OpenBLAS has them: each thread's own, with their initial values, also of
// threads that come after others, and beside as much of the stack as was asked for.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 20, ROUNDS = 5, STACK = 1 << 20 };

static __thread unsigned char zeros[400000];
static __thread int numbers[20000] = {[0] = 1, [9999] = 2, [19999] = 3};

static void *work(void *argument) {
    int own = (int)(intptr_t)argument, wrong = 0;
    for (size_t n = 0; n < sizeof zeros; n++) wrong += zeros[n] != 0;
    wrong += numbers[0] != 1 || numbers[9999] != 2 || numbers[19999] != 3;
    memset(zeros, own, sizeof zeros);
    for (int n = 0; n < 20000; n++) numbers[n] = own;
    // Most of the stack that natively is left beside them.
    volatile char deep[STACK - 700000];
    for (size_t n = 0; n < sizeof deep; n += 512) deep[n] = own;
    usleep(1000);
    for (size_t n = 0; n < sizeof zeros; n++) wrong += zeros[n] != own;
    for (int n = 0; n < 20000; n++) wrong += numbers[n] != own;
    for (size_t n = 0; n < sizeof deep; n += 512) wrong += deep[n] != own;
    return (void *)(intptr_t)wrong;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (int n = 0; n < THREADS; n++)
            if (pthread_create(&threads[n], n % 2 ? &attributes : NULL, work, (void *)(intptr_t)(n + 1))) return 1;
        for (int n = 0; n < THREADS; n++) {
            void *result;
            pthread_join(threads[n], &result);
            wrong += (int)(intptr_t)result;
        }
    }
    printf("%d wrong, here %d %d %d\n", wrong, zeros[0], numbers[9999], numbers[5]);
    return 0;
}
