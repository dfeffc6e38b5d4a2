// How many pages a thread holds while it waits for a condition: the median of a hundred, and the bytes left of the page
// that the last of them is on. Ends with 1 if it is more than one page, or hardly any bytes are left for the program's
// own frames: see .ci/run.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 100, PAGE = 4096, DEPTH = 8, SPARE = 80 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_wait = PTHREAD_COND_INITIALIZER, opened = PTHREAD_COND_INITIALIZER;
static int waiting, is_open;

static void *wait_for_it(void *unused) {
    pthread_mutex_lock(&mutex);
    if (++waiting == THREADS) pthread_cond_signal(&all_wait);
    while (!is_open) pthread_cond_wait(&opened, &mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static int by_size(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

int main(void) {
    pthread_t threads[THREADS];
    int bytes[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, wait_for_it, NULL)) return 2;
    pthread_mutex_lock(&mutex);
    while (waiting < THREADS) pthread_cond_wait(&all_wait, &mutex);
    pthread_mutex_unlock(&mutex);
    // The last ones may still be on their way to their wait.
    usleep(100000);
    for (int i = 0; i < THREADS; i++) {
        // A pthread_t is the address of the thread's control block, which is on the stack's first page.
        uintptr_t top = (threads[i] | (PAGE - 1)) + 1, low = top - DEPTH * PAGE;
        while (low < top && *(volatile uint64_t *)low == 0) low += 8;
        bytes[i] = top - low;
    }
    pthread_mutex_lock(&mutex);
    is_open = 1;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    qsort(bytes, THREADS, sizeof *bytes, by_size);
    int median = bytes[THREADS / 2], pages = (median + PAGE - 1) / PAGE;
    printf("a thread that waits for a condition: %d pages, %d bytes left\n", pages, pages * PAGE - median);
    return pages > 1 || PAGE - median < SPARE;
}
