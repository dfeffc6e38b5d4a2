// Boehm's collector: threads that allocate, while it stops all of them by signals and reads their stacks.
#define GC_THREADS
#include <gc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS 300
#define LENGTH 200

struct node {
    struct node *next;
    long value;
    char filling[112];
};

// A list that hangs on nothing but this stack.
static long list(long seed) {
    struct node *first = NULL;
    for (long n = 0; n < LENGTH; n++) {
        struct node *node = GC_MALLOC(sizeof *node);
        node->next = first;
        node->value = seed + n;
        first = node;
    }
    // The collector may come while it waits.
    if (seed % 50 == 0) usleep(1000);
    long sum = 0;
    for (struct node *node = first; node; node = node->next) sum += node->value;
    return sum;
}

static void *work(void *argument) {
    long seed = (long)(intptr_t)argument * 1000, sum = 0;
    for (long round = 0; round < ROUNDS; round++) sum += list(seed + round);
    return (void *)(intptr_t)sum;
}

int main(void) {
    GC_INIT();
    for (int again = 0; again < 3; again++) {
        pthread_t threads[THREADS];
        for (long n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, work, (void *)(intptr_t)n);
        long sum = 0;
        for (int n = 0; n < THREADS; n++) {
            void *one;
            pthread_join(threads[n], &one);
            sum += (long)(intptr_t)one;
        }
        printf("sum %ld\n", sum);
    }
    printf("collected %s\n", GC_get_gc_no() > 3 ? "often" : "seldom");
}
