// Threads are detached while others join them, and yet others are created: each is joined, and returns its own value.
// (On threads of libc's 2.36 this may end by a fault.)
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_int stop, wrong;

struct pair {
    pthread_t joined;
    sem_t detached;
};

static void *returns(void *value) {
    sched_yield();
    return value;
}

static void *creates(void *unused) {
    while (!stop) {
        pthread_t threads[4];
        for (long i = 0; i < 4; i++) wrong += !!pthread_create(&threads[i], NULL, returns, (void *)(i + 1));
        for (long i = 0; i < 4; i++) {
            void *value;
            wrong += pthread_join(threads[i], &value) || value != (void *)(i + 1);
        }
    }
    return unused;
}

static void *waits(void *pair) {
    sem_wait(&((struct pair *)pair)->detached);
    return pair;
}

static void *detaches(void *argument) {
    struct pair *pair = argument;
    // Until it is joined.
    usleep(20000);
    wrong += !!pthread_detach(pair->joined);
    sem_post(&pair->detached);
    return NULL;
}

static void *joins(void *unused) {
    for (int i = 0; i < 25; i++) {
        struct pair pair;
        pthread_t other;
        void *value = NULL;
        sem_init(&pair.detached, 0, 0);
        wrong += !!pthread_create(&pair.joined, NULL, waits, &pair);
        wrong += !!pthread_create(&other, NULL, detaches, &pair);
        wrong += pthread_join(pair.joined, &value) || value != &pair;
        pthread_join(other, NULL);
    }
    return unused;
}

int main(void) {
    pthread_t creators[3], joiners[3];
    for (int i = 0; i < 3; i++) pthread_create(&creators[i], NULL, creates, NULL);
    for (int i = 0; i < 3; i++) pthread_create(&joiners[i], NULL, joins, NULL);
    for (int i = 0; i < 3; i++) pthread_join(joiners[i], NULL);
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(creators[i], NULL);
    printf("wrong: %d\n", wrong);
    return 0;
}
