// A mutex that inherits priorities, shared with other processes or not.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>

static void *begin(void *mutex) {
    assert(!pthread_mutex_lock(mutex) && !pthread_mutex_unlock(mutex));
    return NULL;
}

int main(int count, char **arguments) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_t thread;
    (void)arguments;
    assert(!pthread_mutexattr_init(&attributes) && !pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    // Before there are threads, and once more when there are.
    if (count > 1) assert(!pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    for (int i = 0; i < 2; i++) {
        assert(!pthread_mutex_init(&mutex, &attributes));
        assert(!pthread_create(&thread, NULL, begin, &mutex) && !pthread_join(thread, NULL));
    }
    puts("locked");
    return 0;
}
