// Signals and cancellation end waits for room for a named datagram, and for all of a message with control data.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int ends[2], sender, receiver;
static struct sockaddr_un name = {.sun_family = AF_UNIX};
static volatile int handled, ended;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void handle_with(int flags) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = flags};
    assert(!sigaction(SIGUSR1, &action, NULL));
}

static pthread_t start(void *(*function)(void *)) {
    pthread_t thread;
    ended = 0;
    assert(!pthread_create(&thread, NULL, function, NULL));
    usleep(50000); // it mostly waits by now
    return thread;
}

static void end(pthread_t thread) {
    void *result;
    assert(!pthread_join(thread, &result));
    if (result == PTHREAD_CANCELED) printf("cancelled\n");
}

// The handler is called while the thread waits, and before what it waits for.
static void interrupt(pthread_t thread) {
    int before = handled;
    assert(!pthread_kill(thread, SIGUSR1));
    for (int look = 0; look < 20000 && handled == before; look++) usleep(1000);
    usleep(20000);
    printf("%s\n", handled == before ? "not handled" : "handled");
}

// Handlers are called until one has ended the thread's wait: the first may come before it waits.
static void interrupt_until_it_ends(pthread_t thread) {
    for (int look = 0; look < 3000 && !ended; look++) {
        assert(!pthread_kill(thread, SIGUSR1));
        usleep(20000);
    }
    printf("%s\n", ended ? "interrupted" : "not interrupted");
}

static void *receives(void *argument) {
    char bytes[6], control[100];
    struct iovec buffer = {bytes, sizeof bytes};
    struct msghdr message = {
        .msg_iov = &buffer, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(ends[0], &message, MSG_WAITALL);
    if (got < 0) printf("recvmsg: %s\n", strerror(errno));
    else printf("recvmsg: %.*s, control data %zu\n", (int)got, bytes, message.msg_controllen);
    ended = 1;
    return argument;
}

static void put(const char *text) {
    assert(write(ends[1], text, strlen(text)) == (ssize_t)strlen(text));
    usleep(20000);
}

static void put_with_file(char *text) {
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec buffer = {text, strlen(text)};
    struct msghdr message = {
        .msg_iov = &buffer, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &ends[0], sizeof(int));
    assert(sendmsg(ends[1], &message, 0) == (ssize_t)strlen(text));
    usleep(20000);
}

static void what_is_left(void) {
    char bytes[64];
    ssize_t left = recv(ends[0], bytes, sizeof bytes, MSG_DONTWAIT);
    printf("left: %zd\n", left < 0 ? 0 : left);
}

static void all_of_a_message(void) {
    pthread_t thread;
    assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    handle_with(0);
    thread = start(receives);
    interrupt_until_it_ends(thread);
    put("abcdef");
    end(thread);
    what_is_left();
    thread = start(receives);
    put("abc");
    interrupt_until_it_ends(thread);
    put("def");
    end(thread);
    what_is_left();
    handle_with(SA_RESTART);
    thread = start(receives);
    interrupt(thread);
    put("abc");
    put("def");
    end(thread);
    thread = start(receives);
    pthread_cancel(thread);
    end(thread);
    // A file that comes along ends a part.
    thread = start(receives);
    put("ab");
    put_with_file("cd");
    put("ef");
    end(thread);
    what_is_left();
    put("ab");
    put_with_file("cd");
    put("ef");
    end(start(receives));
    what_is_left();
    thread = start(receives);
    put("ab");
    close(ends[1]);
    end(thread);
    close(ends[0]);
    // Each part tells of its sender.
    int on = 1;
    assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    assert(!setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    thread = start(receives);
    interrupt(thread);
    put("ab");
    put("cdef");
    end(thread);
    thread = start(receives);
    pthread_cancel(thread);
    end(thread);
    thread = start(receives);
    put("ab");
    pid_t child = fork();
    if (!child) {
        put("cd");
        _exit(0);
    }
    assert(waitpid(child, NULL, 0) == child);
    end(thread);
    what_is_left();
}

static void *sends(void *argument) {
    ssize_t sent = sendto(sender, "x", 1, 0, (struct sockaddr *)&name, sizeof name);
    printf("sendto: %s\n", sent < 0 ? strerror(errno) : "done");
    ended = 1;
    return argument;
}

static void *sends_message(void *argument) {
    struct iovec buffer = {"y", 1};
    struct msghdr message = {
        .msg_iov = &buffer, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = sizeof name};
    ssize_t sent = sendmsg(sender, &message, 0);
    printf("sendmsg: %s\n", sent < 0 ? strerror(errno) : "done");
    return argument;
}

static void fill(void) {
    while (sendto(sender, "", 1, MSG_DONTWAIT, (struct sockaddr *)&name, sizeof name) == 1) continue;
}

static void take(void) {
    char byte;
    assert(recv(receiver, &byte, 1, 0) == 1);
}

static void room_for_a_datagram(void) {
    pthread_t thread, all[4];
    strcpy(name.sun_path + 1, "carefree-test");
    sprintf(name.sun_path + 1 + strlen(name.sun_path + 1), "-%d", (int)getpid());
    receiver = socket(AF_UNIX, SOCK_DGRAM, 0);
    sender = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert(!bind(receiver, (struct sockaddr *)&name, sizeof name));
    fill();
    handle_with(0);
    thread = start(sends);
    interrupt_until_it_ends(thread);
    end(thread);
    handle_with(SA_RESTART);
    thread = start(sends_message);
    interrupt(thread);
    take();
    end(thread);
    thread = start(sends_message);
    pthread_cancel(thread);
    end(thread);
    struct timeval limit = {0, 50000};
    assert(!setsockopt(sender, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    end(start(sends));
    limit.tv_usec = 0;
    assert(!setsockopt(sender, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    for (int i = 0; i < 4; i++) all[i] = start(sends);
    for (int i = 0; i < 4; i++) take();
    for (int i = 0; i < 4; i++) end(all[i]);
    // No receiver is left.
    thread = start(sends);
    close(receiver);
    end(thread);
}

int main(void) {
    alarm(200);
    all_of_a_message();
    room_for_a_datagram();
    return 0;
}
