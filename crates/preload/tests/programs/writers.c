// Writers wait for a lock that readers hold, of the kind that prefers writers and of the usual one.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_rwlock_t lock;
static int done, prefers;

static void *writes(void *milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)milliseconds % 1000 * 1000000;
    until.tv_sec += (long)milliseconds / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int result = pthread_rwlock_timedwrlock(&lock, &until);
    if (!result) pthread_rwlock_unlock(&lock);
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
    return (void *)(long)result;
}

// Each holds it while the next one takes it: it is never free for a writer, unless readers are turned away.
static void *reads(void *unused) {
    while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST)) {
        pthread_rwlock_rdlock(&lock);
        struct timespec span = {0, 3000000};
        nanosleep(&span, NULL);
        pthread_rwlock_unlock(&lock);
    }
    return NULL;
}

static void *writes_other(void *other) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    return (void *)(long)pthread_rwlock_timedwrlock(other, &until);
}

// A writer waits for one lock; another lock, a page or more away, is free for readers all the while.
static void another_lock(void) {
    static _Alignas(64) char memory[64 * 1024];
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlock_t *waited_for = (void *)memory;
    for (int kind = 0; kind < 2; kind++) {
        pthread_rwlockattr_setkind_np(&attributes, kind ? PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP : PTHREAD_RWLOCK_PREFER_READER_NP);
        pthread_rwlock_init(waited_for, &attributes);
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        assert(!pthread_rwlock_rdlock(waited_for));
        pthread_t writer;
        void *result;
        pthread_create(&writer, NULL, writes_other, waited_for);
        struct timespec span = {0, 300000000};
        nanosleep(&span, NULL);
        int busy = 0;
        for (int page = 1; page < 16; page++) {
            pthread_rwlock_t *free = (void *)(memory + 4096 * page);
            pthread_rwlock_init(free, &attributes);
            if (pthread_rwlock_tryrdlock(free)) busy++;
        }
        pthread_join(writer, &result);
        printf("other locks busy: %d, the writer: %d\n", busy, (int)(long)result);
        pthread_rwlock_unlock(waited_for);
    }
}

int main(void) {
    another_lock();
    for (prefers = 0; prefers < 2; prefers++) {
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
        if (prefers) pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        pthread_rwlock_init(&lock, &attributes);
        pthread_t writer, readers[8];
        void *result;
        // A writer that gives up.
        assert(!pthread_rwlock_rdlock(&lock));
        int turned = 0, tried;
        // (On a busy machine this thread may not run while the writer waits: then once more.)
        for (int time = 0; time < (prefers ? 20 : 1) && !turned; time++) {
            done = 0;
            pthread_create(&writer, NULL, writes, (void *)200);
            while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST)) {
                tried = pthread_rwlock_tryrdlock(&lock);
                assert(tried == 0 || tried == EBUSY);
                if (tried) turned = 1; else pthread_rwlock_unlock(&lock);
                sched_yield();
            }
            pthread_join(writer, &result);
        }
        tried = pthread_rwlock_tryrdlock(&lock);
        printf("%d: gave up %d, readers turned away %d, then %d\n", prefers, (int)(long)result, turned, tried);
        pthread_rwlock_unlock(&lock);
        pthread_rwlock_unlock(&lock);
        if (!prefers) continue;
        // One that readers would keep out for ever.
        done = 0;
        for (int i = 0; i < 8; i++) {
            pthread_create(&readers[i], NULL, reads, NULL);
            struct timespec span = {0, 400000};
            nanosleep(&span, NULL);
        }
        pthread_create(&writer, NULL, writes, (void *)30000);
        pthread_join(writer, &result);
        for (int i = 0; i < 8; i++) pthread_join(readers[i], NULL);
        printf("%d: wrote %d\n", prefers, (int)(long)result);
    }
    return 0;
}
