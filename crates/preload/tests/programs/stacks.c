// What threads are told of their stacks.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *looks(void *argument) {
    (void)argument;
    pthread_attr_t attributes;
    size_t size;
    void *base;
    char here;
    assert(!pthread_getattr_np(pthread_self(), &attributes));
    assert(!pthread_attr_getstack(&attributes, &base, &size));
    assert(&here > (char *)base && &here < (char *)base + size);
    // All of it can be used, but for the frames there are.
    size_t uses = size > 1 << 20 ? 1 << 20 : size / 2;
    char all[uses];
    memset(all, 1, uses);
    assert(all[0] + all[uses - 1] == 2);
    return (void *)size;
}

int main(void) {
    // glibc keeps stacks for later threads, and tells of others what they are.
    size_t sizes[] = {0, 16384, 1 << 20, 8 << 20, 16384};
    for (int i = 0; i < 5; i++) {
        pthread_attr_t attributes;
        pthread_t thread;
        void *size;
        assert(!pthread_attr_init(&attributes));
        if (sizes[i]) assert(!pthread_attr_setstacksize(&attributes, sizes[i]));
        assert(!pthread_create(&thread, &attributes, looks, NULL));
        assert(!pthread_join(thread, &size));
        printf("%zu: %zu\n", sizes[i], (size_t)size);
        assert(!pthread_attr_destroy(&attributes));
    }
    return 0;
}
