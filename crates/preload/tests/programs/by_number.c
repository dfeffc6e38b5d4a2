// A system call that a thread makes by its number ends when it has its answer, though the thread is cancelled meanwhile; a
// call of the same name in a handler is one at which it is cancelled, and so is the next one.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int ends[2], other_ends[2];
static sem_t begins;
static sigjmp_buf place;

static long read_by_number(int file) {
    char byte = 0;
    return syscall(SYS_read, file, &byte, 1);
}

static void say(void *what) { printf("ends in %s\n", (char *)what); }

static void *reads(void *unused) {
    sem_post(&begins);
    printf("read %ld\n", read_by_number(ends[0]));
    struct timespec time = {0, 1000000};
    printf("slept %ld\n", syscall(SYS_nanosleep, &time, NULL));
    printf("number %d\n", syscall(SYS_getpid) == getpid());
    pthread_cleanup_push(say, "the function");
    read(ends[0], &time, 1);
    pthread_cleanup_pop(0);
    return unused;
}

static void *is_cancelled_before(void *unused) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    sem_post(&begins);
    assert(read_by_number(ends[0]) == 1);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    printf("read again %ld\n", read_by_number(ends[0]));
    pthread_cleanup_push(say, "a test");
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return unused;
}

static void *ends_anywhere(void *unused) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_cleanup_push(say, "a number");
    sem_post(&begins);
    read_by_number(ends[0]);
    pthread_cleanup_pop(0);
    return unused;
}

static void reads_too(int signal) {
    (void)signal;
    char byte;
    pthread_cleanup_push(say, "the handler");
    sem_post(&begins);
    read(other_ends[0], &byte, 1);
    pthread_cleanup_pop(0);
}

static void jumps(int signal) {
    (void)signal;
    siglongjmp(place, 1);
}

static void *is_interrupted(void *unused) {
    sem_post(&begins);
    read_by_number(ends[0]);
    return unused;
}

static void *jumps_out(void *unused) {
    pthread_cleanup_push(say, "what follows a jump");
    if (!sigsetjmp(place, 1)) {
        sem_post(&begins);
        read_by_number(ends[0]);
    }
    char byte;
    sem_post(&begins);
    read(other_ends[0], &byte, 1);
    pthread_cleanup_pop(0);
    return unused;
}

static void *goes_on(void *unused) {
    sem_post(&begins);
    // The handler of `SIGALRM` does nothing.
    printf("interrupted read %ld\n", read_by_number(ends[0]));
    pthread_testcancel();
    return unused;
}

static void nothing(int signal) {
    (void)signal;
    sem_post(&begins);
}

static void let_wait(void) {
    sem_wait(&begins);
    usleep(20000);
}

static pthread_t begin(void *(*function)(void *)) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, function, NULL));
    let_wait();
    return thread;
}

static void join(pthread_t thread) {
    void *result;
    assert(!pthread_join(thread, &result));
    puts(result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
}

int main(void) {
    assert(!pipe(ends) && !pipe(other_ends) && !sem_init(&begins, 0, 0));
    signal(SIGUSR1, reads_too);
    signal(SIGUSR2, jumps);
    signal(SIGALRM, nothing);

    pthread_t thread = begin(reads);
    assert(!pthread_cancel(thread));
    usleep(20000);
    assert(write(ends[1], "x", 1) == 1);
    join(thread);

    thread = begin(is_cancelled_before);
    assert(!pthread_cancel(thread));
    assert(write(ends[1], "xy", 2) == 2);
    join(thread);

    thread = begin(ends_anywhere);
    assert(!pthread_cancel(thread));
    join(thread);

    // Cancelled in the handler's call, whether that or the request comes first.
    for (int first = 0; first < 2; first++) {
        thread = begin(is_interrupted);
        if (first) assert(!pthread_cancel(thread));
        assert(!pthread_kill(thread, SIGUSR1));
        let_wait();
        if (!first) assert(!pthread_cancel(thread));
        join(thread);
    }

    thread = begin(jumps_out);
    assert(!pthread_kill(thread, SIGUSR2));
    let_wait();
    assert(!pthread_cancel(thread));
    join(thread);

    thread = begin(goes_on);
    assert(!pthread_cancel(thread));
    assert(!pthread_kill(thread, SIGALRM));
    let_wait();
    assert(write(ends[1], "x", 1) == 1);
    join(thread);
    return 0;
}
