// Threads are cancelled, and exit, within the function of a pthread_once.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t begun;
static int called, left;

static void waits(void) {
    sem_post(&begun);
    for (;;) pause();
}

static void exits(void) { pthread_exit(NULL); }

static void returns(void) { called++; }

static void leave(void *unused) { left++; }

static void *thread(void *function) {
    pthread_cleanup_push(leave, NULL);
    pthread_once(&once, (void (*)(void))function);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    pthread_t first, second;
    sem_init(&begun, 0, 0);
    assert(!pthread_create(&first, NULL, thread, waits));
    while (sem_wait(&begun)) {}
    // It waits for the first one.
    assert(!pthread_create(&second, NULL, thread, exits));
    for (int i = 0; i < 20; i++) sched_yield();
    assert(!pthread_cancel(first));
    assert(!pthread_join(first, NULL) && !pthread_join(second, NULL));
    pthread_once(&once, returns);
    pthread_once(&once, returns);
    printf("called %d, left %d\n", called, left);
    return 0;
}
