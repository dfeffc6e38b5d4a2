// How late a thread's waits may end, and its priority for files: remembered for each, inherited and told.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROCESS 1
#define PRIORITY(class, level) ((class) << 13 | (level))

static sem_t ready, done;
static pid_t other;

static long file_priority(pid_t thread) {
    return syscall(SYS_ioprio_get, PROCESS, thread);
}

static void *inherits(void *unused) {
    printf("inherited %d %ld\n", prctl(PR_GET_TIMERSLACK), file_priority(0));
    assert(!prctl(PR_SET_TIMERSLACK, 1234));
    printf("own %d", prctl(PR_GET_TIMERSLACK));
    assert(!prctl(PR_SET_TIMERSLACK, 0));
    printf(", back at %ld\n", syscall(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0));
    return unused;
}

static void *changes(void *unused) {
    printf("first %d %ld\n", prctl(PR_GET_TIMERSLACK), file_priority(0));
    assert(!prctl(PR_SET_TIMERSLACK, 777777));
    assert(!syscall(SYS_ioprio_set, PROCESS, 0, PRIORITY(3, 0)));
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, inherits, NULL) && !pthread_join(thread, NULL));
    errno = 0;
    printf("refused %ld", syscall(SYS_ioprio_set, PROCESS, 0, PRIORITY(5, 0)));
    printf(" %d\n", errno);
    other = gettid();
    sem_post(&ready);
    sem_wait(&done);
    for (int i = 0; i < 50; i++) {
        usleep(50);
        assert(prctl(PR_GET_TIMERSLACK) == 777777 && file_priority(0) == PRIORITY(2, 7));
    }
    return unused;
}

int main(void) {
    sem_init(&ready, 0, 0);
    sem_init(&done, 0, 0);
    printf("before %d %ld\n", prctl(PR_GET_TIMERSLACK), file_priority(0));
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, changes, NULL));
    sem_wait(&ready);
    printf("main %d %ld, other %ld\n", prctl(PR_GET_TIMERSLACK), file_priority(0), file_priority(other));
    assert(!syscall(SYS_ioprio_set, PROCESS, other, PRIORITY(2, 7)));
    sem_post(&done);
    assert(!pthread_join(thread, NULL));
    printf("main %d %ld\n", prctl(PR_GET_TIMERSLACK), file_priority(0));
    return 0;
}
