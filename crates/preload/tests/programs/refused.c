// Waits that only some events end, and what libc and the kernel answer at once: a thread is not cancelled at `sendfile`,
// signals end a sleep by a process's clock, libc's own signals are refused, a peer that ends resets a connection.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char bytes[100000];
static int ends[2];

static void handle(int signal) { (void)signal; }

static pthread_t start(void *(*function)(void *), void *argument) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, function, argument));
    usleep(100000); // it waits by now
    return thread;
}

static void *sends_files(void *unused) {
    FILE *file = tmpfile();
    fwrite(bytes, 1, sizeof bytes, file);
    fflush(file);
    for (int i = 0; i < 100; i++) {
        lseek(fileno(file), 0, SEEK_SET);
        if (sendfile(ends[0], fileno(file), NULL, sizeof bytes) < 0) printf("sendfile: %s\n", strerror(errno));
    }
    printf("all is sent\n");
    return unused;
}

static void *reads_all(void *unused) {
    char buffer[4096];
    for (long all = 0; all < 100 * (long)sizeof bytes;) {
        long got = read(ends[1], buffer, sizeof buffer);
        if (got <= 0) break;
        all += got;
    }
    return unused;
}

static void *sleeps_by_processor(void *absolute) {
    struct timespec time = {1000, 0}, left = {0, 0};
    printf("slept: %d", clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, absolute ? TIMER_ABSTIME : 0, &time, &left));
    printf(", %d left\n", left.tv_sec >= 900);
    return clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &time, NULL), NULL;
}

static void *sends_until_reset(void *write_instead) {
    long sent;
    do sent = write_instead ? write(ends[0], bytes, 1000) : send(ends[0], bytes, 1000, 0);
    while (sent > 0);
    printf("reset: %s\n", strerror(errno));
    return NULL;
}

static void *all(void *unused) {
    void *result;
    assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t thread = start(sends_files, NULL);
    pthread_cancel(thread);
    usleep(50000);
    pthread_t reader = start(reads_all, NULL);
    assert(!pthread_join(thread, &result));
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    close(ends[0]);
    assert(!pthread_join(reader, NULL));

    for (long absolute = 0; absolute < 2; absolute++) {
        thread = start(sleeps_by_processor, (void *)absolute);
        pthread_kill(thread, SIGUSR1);
        usleep(100000);
        pthread_cancel(thread);
        assert(!pthread_join(thread, &result));
        printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    }

    for (long write_instead = 0; write_instead < 2; write_instead++) {
        assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        thread = start(sends_until_reset, (void *)write_instead);
        close(ends[1]); // with bytes that were not received
        assert(!pthread_join(thread, NULL));
        close(ends[0]);
    }

    union sigval value = {0};
    for (int signal = 32; signal < 34; signal++) {
        printf("signal %d: %d %d\n", signal, pthread_kill(pthread_self(), signal),
               pthread_sigqueue(pthread_self(), signal, value));
    }

    struct timespec limit = {5, 0}, wait = {0, 0};
    struct timeval patience = {0, 200000};
    assert(!socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    assert(!setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    struct iovec parts[2] = {{bytes, 10}, {bytes, 10}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
    assert(send(ends[0], "one", 3, 0) == 3);
    printf("messages: %d", recvmmsg(ends[1], messages, 2, 0, &limit));
    printf(", left when it came: %d\n", limit.tv_sec == 4 && limit.tv_nsec > 850000000);

    errno = 0;
    printf("no words: %ld", syscall(449, NULL, 1, 0, &wait, CLOCK_MONOTONIC));
    printf(" %s\n", strerror(errno));
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, all, NULL));
    return pthread_join(thread, NULL);
}
