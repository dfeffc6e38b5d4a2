// A thread and a child hand over to each other by words that they share; and a thread is woken by the child, by another
// thread, by a signal, and not at all.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 2000 };
static _Atomic unsigned *words;
static atomic_int handled, begun;

static long await(_Atomic unsigned *word, unsigned value, const struct timespec *time) {
    return syscall(SYS_futex, word, FUTEX_WAIT, value, time, NULL, 0);
}

static long wake(_Atomic unsigned *word) { return syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0); }

static void handle(int signal) {
    (void)signal;
    handled++;
}

// Waits until the word has changed from a value. Where it comes back too early, one wait is made too many.
static int until_changed(_Atomic unsigned *word, unsigned value) {
    int waits = 0;
    while (*word == value) {
        await(word, value, NULL);
        waits++;
    }
    return waits;
}

static void *hands_over(void *unused) {
    for (unsigned turn = 0; turn < TURNS; turn++) {
        words[0] = turn + 1;
        wake(&words[0]);
        until_changed(&words[1], turn);
    }
    return unused;
}

static void *waits_long(void *unused) {
    // Of these, the first may come back early: nothing is known of the word then.
    until_changed(&words[2], 0);
    int waits = 0;
    for (unsigned turn = 1; turn < 4; turn++) waits += until_changed(&words[2], turn);
    printf("waits: %d\n", waits);
    return unused;
}

static void *waits_for_all(void *unused) {
    struct timespec soon = {0, 30000000};
    // Until this process knows that others wake waiters of the word.
    await(&words[3], 0, &soon);
    errno = 0;
    long result = await(&words[3], 0, &soon);
    printf("late: %ld %d\n", result, result ? errno : 0);
    begun = 1;
    errno = 0;
    result = await(&words[3], 0, NULL);
    printf("interrupted: %ld %d, handled %d\n", result, result ? errno : 0, handled > 0);
    begun = 2;
    // (Of the signals, the last may come now.)
    do result = await(&words[3], 0, NULL);
    while (result == -1 && errno == EINTR);
    printf("woken: %ld, word %u\n", result, words[3]);
    return unused;
}

// Whether a ring can wait for a word (since Linux 6.7). Without, each wait ends early, and the caller looks again.
static int is_in_ring(void) {
    enum { FUTEX_WAIT_OPERATION = 51, OPERATIONS = 64 };
    struct io_uring_params parameters = {0};
    const char *reactor = getenv("CAREFREE_REACTOR");
    int ring = syscall(SYS_io_uring_setup, 1, &parameters), is_there = 0;
    if (ring < 0) return 0;
    struct io_uring_probe *probe = calloc(1, sizeof *probe + OPERATIONS * sizeof probe->ops[0]);
    if (!syscall(SYS_io_uring_register, ring, IORING_REGISTER_PROBE, probe, OPERATIONS))
        is_there = probe->last_op >= FUTEX_WAIT_OPERATION;
    free(probe);
    close(ring);
    return is_there && !(reactor && !strcmp(reactor, "epoll"));
}

int main(void) {
    pthread_t thread;
    if (!is_in_ring()) return fputs("skipped: rings cannot wait for words here\n", stderr), 0;
    words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child) {
        for (unsigned turn = 0; turn < TURNS; turn++) {
            until_changed(&words[0], turn);
            words[1] = turn + 1;
            wake(&words[1]);
        }
        for (unsigned turn = 0; turn < 4; turn++) {
            usleep(30000);
            words[2] = turn + 1;
            wake(&words[2]);
        }
        _exit(0);
    }
    assert(!pthread_create(&thread, NULL, hands_over, NULL) && !pthread_join(thread, NULL));
    assert(!pthread_create(&thread, NULL, waits_long, NULL) && !pthread_join(thread, NULL));
    assert(waitpid(child, NULL, 0) == child);
    struct sigaction action = {.sa_handler = handle};
    assert(!sigaction(SIGUSR1, &action, NULL));
    assert(!pthread_create(&thread, NULL, waits_for_all, NULL));
    while (begun < 1) usleep(1000);
    // The first may come before it waits.
    do {
        usleep(20000);
        assert(!pthread_kill(thread, SIGUSR1));
    } while (begun < 2);
    usleep(20000);
    words[3] = 1;
    while (!wake(&words[3])) usleep(1000);
    assert(!pthread_join(thread, NULL));
    puts("done");
    return 0;
}
