// Creating, joining, detaching, naming.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

static __thread int own = 7;
static atomic_long sum;
static atomic_int left;

static void *add(void *argument) {
    own += (int)(long)argument;
    errno = own;
    sched_yield();
    assert(errno == own);
    sum += own;
    return (void *)(long)own;
}

static void *leave(void *argument) {
    (void)argument;
    left++;
    return NULL;
}

static void *join_self(void *argument) {
    (void)argument;
    return (void *)(long)pthread_join(pthread_self(), NULL);
}

static void *number(void *argument) {
    (void)argument;
    assert(syscall(SYS_gettid) == gettid());
    void *address;
    if (prctl(PR_GET_TID_ADDRESS, &address) == 0)
        assert(syscall(SYS_set_tid_address, address) == gettid());
    void *head, *same;
    size_t length;
    assert(!syscall(SYS_get_robust_list, 0, &head, &length));
    assert(!syscall(SYS_get_robust_list, gettid(), &same, &length) && same == head);
    assert(!syscall(SYS_set_robust_list, head, length));
    assert(syscall(SYS_set_robust_list, head, 0) == -1 && errno == EINVAL);
    return (void *)(long)gettid();
}

static void *deep(void *argument) {
    // Four megabytes: a thread has eight by default.
    volatile char frame[4 << 20];
    memset((char *)frame, (int)(long)argument, sizeof frame);
    return (void *)(long)frame[sizeof frame - 1];
}

static int answer(void *argument) {
    return *(int *)argument + 1;
}

int main(void) {
    pthread_t threads[1000];
    void *value;
    for (long i = 0; i < 1000; i++) assert(!pthread_create(&threads[i], NULL, add, (void *)i));
    for (long i = 0; i < 1000; i++) {
        assert(!pthread_join(threads[i], &value));
        assert(value == (void *)(i + 7));
    }
    printf("sum %ld\n", sum);

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (int i = 0; i < 100; i++) assert(!pthread_create(&threads[i], &attributes, leave, NULL));
    for (int i = 0; i < 100; i++) {
        assert(!pthread_create(&threads[i], NULL, leave, NULL));
        assert(!pthread_detach(threads[i]));
    }
    while (left < 200) usleep(1000);
    puts("detached");

    assert(!pthread_create(&threads[0], NULL, join_self, NULL));
    assert(!pthread_join(threads[0], &value));
    assert(value == (void *)(long)EDEADLK);

    pthread_t first, second;
    void *numbers[2];
    assert(!pthread_create(&first, NULL, number, NULL));
    assert(!pthread_create(&second, NULL, number, NULL));
    pthread_join(first, &numbers[0]);
    pthread_join(second, &numbers[1]);
    assert(numbers[0] != numbers[1] && numbers[0] != (void *)(long)getpid());
    assert(gettid() == getpid());

    assert(!pthread_create(&first, NULL, deep, (void *)5L));
    assert(!pthread_join(first, &value) && value == (void *)5L);

    char name[16];
    assert(!pthread_create(&first, NULL, (void *(*)(void *))pause, NULL));
    assert(!pthread_setname_np(first, "worker"));
    assert(!pthread_getname_np(first, name, sizeof name));
    assert(pthread_setname_np(first, "much longer than fifteen") == ERANGE);
    printf("name %s\n", name);
    assert(pthread_tryjoin_np(first, NULL) == EBUSY);
    assert(!pthread_cancel(first));
    assert(!pthread_join(first, &value) && value == PTHREAD_CANCELED);

    thrd_t thread;
    int given = 41, told;
    assert(thrd_create(&thread, answer, &given) == thrd_success);
    assert(thrd_join(thread, &told) == thrd_success);
    printf("C11 %d\n", told);
    return 3;
}
