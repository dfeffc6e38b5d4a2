// Calls that end halfway: connections that are refused, sockets that are shut down on one side, reads that want less
// than there is to be or get less than they want, locks on ranges that move, ends of FIFOs.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

// Microseconds in which a thread has mostly begun to wait. What is printed is the same where it has not yet, or it is
// tried again.
#define MOMENT 100000
#define TRIES 20

static void said(const char *what, long result) {
    printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}

// Waits until bytes can be read from an end, for what is printed, and until there is no room at the other, mostly: who
// writes has begun, and waits. (There may be room for all.)
static void await_full(int from, int to) {
    struct pollfd bytes = { from, POLLIN, 0 }, room = { to, POLLOUT, 0 };
    while (poll(&bytes, 1, -1) < 0);
    for (int look = 0; look < 100 && poll(&room, 1, 0) && room.revents & POLLOUT; look++) usleep(1000);
    usleep(MOMENT);
}

static pthread_t begin(void *(*run)(void *), void *argument) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, run, argument));
    return thread;
}

static void wait_for(pthread_t thread) { pthread_join(thread, NULL); }

static struct sockaddr_in bound(int socket) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    assert(!bind(socket, (struct sockaddr *)&address, length));
    assert(!getsockname(socket, (struct sockaddr *)&address, &length));
    return address;
}

static void refused(void) {
    int silent = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = bound(silent);
    said("connect", connect(one, (struct sockaddr *)&address, sizeof address));
    said("again", connect(one, (struct sockaddr *)&address, sizeof address));
    char byte;
    said("recv", recv(one, &byte, 1, 0));
    assert(!listen(silent, 5));
    said("to a listener", connect(one, (struct sockaddr *)&address, sizeof address));
    said("once more", connect(one, (struct sockaddr *)&address, sizeof address));
    int other = socket(AF_INET, SOCK_STREAM, 0), gone = socket(AF_INET, SOCK_STREAM, 0);
    address = bound(gone);
    close(gone);
    said("to nobody", connect(other, (struct sockaddr *)&address, sizeof address));
    said("listen", listen(other, 5));
    close(silent), close(one), close(other);
}

static char much[1 << 20];

static void *writes(void *fd) {
    ssize_t sent = write((long)fd, much, sizeof much);
    said("write of much", sent > 0 ? 1 : sent);
    return NULL;
}

static void *sends(void *fd) {
    // (Of the packets before, as many as there is room for.)
    ssize_t sent;
    while ((sent = send((long)fd, much, 1 << 10, MSG_NOSIGNAL)) > 0);
    said("send of packets", sent);
    return NULL;
}

static void *accepts(void *fd) {
    said("accept", accept((long)fd, NULL, NULL));
    return NULL;
}

static void shut(void) {
    for (int own = 0; own < 2; own++) {
        for (int packets = 0; packets < 2; packets++) {
            int ends[2];
            assert(!socketpair(AF_UNIX, packets ? SOCK_SEQPACKET : SOCK_STREAM, 0, ends));
            pthread_t thread = begin(packets ? sends : writes, (void *)(long)ends[0]);
            await_full(ends[1], ends[0]);
            if (own) shutdown(ends[0], SHUT_WR); else shutdown(ends[1], SHUT_RD);
            wait_for(thread);
            close(ends[0]), close(ends[1]);
        }
    }
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    assert(!bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)) && !listen(listener, 5));
    pthread_t thread = begin(accepts, (void *)(long)listener);
    usleep(MOMENT);
    shutdown(listener, SHUT_RDWR);
    wait_for(thread);
    close(listener);
}

static void *sends_two(void *fd) {
    usleep(20000);
    assert(send((long)fd, "ab", 2, 0) == 2);
    return NULL;
}

static void less(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = bound(listener);
    assert(!listen(listener, 5) && !connect(one, (struct sockaddr *)&address, sizeof address));
    int two = accept(listener, NULL, NULL), least = 100;
    struct timeval limit = { 0, 400000 };
    setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(one, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
    char bytes[200];
    struct iovec place = { bytes, sizeof bytes };
    struct msghdr message = { .msg_iov = &place, .msg_iovlen = 1 };
    for (int how = 0; how < 6; how++) {
        // From the fourth on: as many as there are to be.
        size_t length = how < 3 ? sizeof bytes : 2;
        place.iov_len = length;
        long got = -1;
        // (Where the sender comes after the limit: once more.)
        for (int i = 0; i < TRIES && got < 0; i++) {
            pthread_t thread = begin(sends_two, (void *)(long)two);
            got = how % 3 == 0   ? recv(one, bytes, length, 0)
                  : how % 3 == 1 ? read(one, bytes, length)
                                 : recvmsg(one, &message, 0);
            int error = errno;
            wait_for(thread);
            if (got < 0) assert(recv(one, bytes, sizeof bytes, MSG_DONTWAIT) == 2);
            errno = error;
        }
        said("less than the low-water mark", got);
    }
    said("and no more", recv(one, bytes, sizeof bytes, MSG_DONTWAIT));
    close(listener), close(one), close(two);
}

static void *types(void *fd) {
    usleep(MOMENT);
    assert(write((long)fd, "xy", 2) == 2);
    usleep(MOMENT);
    assert(write((long)fd, "z", 1) == 1);
    return NULL;
}

static void terminal(void) {
    int master, slave;
    assert(!openpty(&master, &slave, NULL, NULL, NULL));
    for (int time = 0; time < 2; time++) {
        struct termios settings;
        tcgetattr(slave, &settings);
        cfmakeraw(&settings);
        settings.c_cc[VMIN] = time ? 8 : 3, settings.c_cc[VTIME] = time ? 5 : 0;
        tcsetattr(slave, TCSANOW, &settings);
        char bytes[8];
        long got = 2;
        // (The third byte may come after the time that is waited for it: once more.)
        for (int i = 0; i < (time ? TRIES : 1) && got == 2; i++) {
            pthread_t thread = begin(types, (void *)(long)master);
            got = read(slave, bytes, time ? 8 : 2);
            wait_for(thread);
            tcflush(slave, TCIFLUSH);
        }
        said("read of several bytes", got);
    }
    close(master), close(slave);
}

static void *reads(void *fd) {
    char byte;
    said("read of a byte", read((long)fd, &byte, 1));
    return NULL;
}

static void *reads_line(void *fd) {
    char bytes[8];
    said("read of a terminal", read((long)fd, bytes, sizeof bytes));
    return NULL;
}

static void closed_terminal(void) {
    int master, slave;
    assert(!openpty(&master, &slave, NULL, NULL, NULL));
    pthread_t thread = begin(reads_line, (void *)(long)slave);
    usleep(MOMENT);
    close(master);
    wait_for(thread);
    reads_line((void *)(long)slave);
    close(slave);
}

// Notices that nobody takes out of a socket's error queue are reported by each poll, and end no call.
static void notices(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = bound(listener);
    assert(!listen(listener, 5) && !connect(one, (struct sockaddr *)&address, sizeof address));
    int two = accept(listener, NULL, NULL), on = 1;
    setsockopt(one, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
    assert(send(one, much, 1 << 16, MSG_ZEROCOPY) == 1 << 16);
    for (size_t got = 0; got < 1 << 16;) got += read(two, much, sizeof much);
    for (int writing = 0; writing < 2; writing++) {
        pthread_t thread = begin(writing ? writes : reads, (void *)(long)one);
        clock_t before = clock();
        if (writing) await_full(two, one);
        usleep(300000);
        printf("busy meanwhile: %d\n", clock() - before > CLOCKS_PER_SEC / 10);
        if (writing) shutdown(two, SHUT_RDWR), close(two);
        else assert(write(two, "x", 1) == 1);
        wait_for(thread);
    }
    close(listener), close(one);
}

static void urged(int signal) {}

static void urgent(void) {
    struct sigaction action = { .sa_handler = urged };
    sigaction(SIGURG, &action, NULL);
    int listener = socket(AF_INET, SOCK_STREAM, 0), interrupted = 0;
    struct sockaddr_in address = bound(listener);
    assert(!listen(listener, 5));
    for (int round = 0; round < 10; round++) {
        int one = socket(AF_INET, SOCK_STREAM, 0);
        assert(!connect(one, (struct sockaddr *)&address, sizeof address));
        int two = accept(listener, NULL, NULL);
        fcntl(two, F_SETOWN, getpid());
        pid_t child = fork();
        if (child == 0) {
            usleep(5000);
            send(one, "u", 1, MSG_OOB);
            _exit(0);
        }
        struct pollfd file = { two, POLLPRI, 0 };
        interrupted += poll(&file, 1, 60000) < 0;
        while (waitpid(child, NULL, 0) < 0);
        close(one), close(two);
    }
    printf("polls that the signal of their event ended: %d\n", interrupted);
    close(listener);
}

static void *polls(void *fd) {
    struct pollfd file = { (long)fd, 0, 0 };
    int found = poll(&file, 1, 60000);
    printf("poll for nothing: %d, %x\n", found, (unsigned)file.revents);
    return NULL;
}

static void hung_up(void) {
    int ends[2];
    assert(!pipe(ends));
    pthread_t poller = begin(polls, (void *)(long)ends[0]);
    usleep(MOMENT);
    pthread_t reader = begin(reads, (void *)(long)ends[0]);
    usleep(MOMENT);
    assert(write(ends[1], "x", 1) == 1);
    wait_for(reader);
    usleep(MOMENT);
    close(ends[1]);
    wait_for(poller);
    close(ends[0]);
}

static void semaphores(void) {
    int set = semget(IPC_PRIVATE, 2, 0600);
    struct sembuf both[2] = { { 0, 1, 0 }, { 1, -1, IPC_NOWAIT } };
    said("semop, not to wait for the second", semop(set, both, 2));
    semctl(set, 0, IPC_RMID);
}

static char folder[] = "/tmp/halfway-XXXXXX";

static void *locks(void *fd) {
    struct flock last = { .l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -10, .l_len = 10 };
    long locked = fcntl((long)fd, F_SETLKW, &last);
    if (locked) said("lock of the last ten", locked);
    return NULL;
}

// Where the range begins that was locked.
static long locked_from(int pause) {
    char path[64];
    snprintf(path, sizeof path, "%s/file", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600), ready[2], go[2];
    assert(write(fd, much, 100) == 100 && !pipe(ready) && !pipe(go));
    char byte;
    pid_t holder = fork();
    if (holder == 0) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 90, .l_len = 10 };
        fcntl(fd, F_SETLK, &lock);
        (void)!write(ready[1], "x", 1);
        (void)!read(go[0], &byte, 1);
        (void)!write(fd, much, 50);
        _exit(0);
    }
    assert(read(ready[0], &byte, 1) == 1);
    pthread_t thread = begin(locks, (void *)(long)fd);
    usleep(pause);
    assert(write(go[1], "x", 1) == 1);
    wait_for(thread);
    waitpid(holder, NULL, 0);
    int status;
    pid_t asks = fork();
    if (asks == 0) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        _exit(fcntl(fd, F_GETLK, &lock) || lock.l_type == F_UNLCK || lock.l_len != 10 ? 0 : lock.l_start);
    }
    waitpid(asks, &status, 0);
    close(fd), close(ready[0]), close(ready[1]), close(go[0]), close(go[1]);
    unlink(path);
    return WEXITSTATUS(status);
}

// The end is that of the file when the wait has begun.
static void ranges(void) {
    long from = 0;
    // (One that has not begun when the file grows begins later: once more.)
    for (int i = 1; i <= 5 && from != 90; i++) from = locked_from(i * i * MOMENT);
    printf("locked: 10 of %ld\n", from);
}

static void *opens(void *path) {
    int fd = open(path, O_RDONLY);
    char byte;
    said("read from a FIFO", read(fd, &byte, 1));
    said("flags", fcntl(fd, F_GETFD));
    close(fd);
    return NULL;
}

static void fifo(void) {
    char path[64];
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert(!mkfifo(path, 0600));
    pthread_t thread = begin(opens, path);
    usleep(MOMENT);
    pid_t child;
    char *arguments[] = { "sleep", "20", NULL };
    assert(!posix_spawn(&child, "/bin/sleep", NULL, NULL, arguments, environ));
    usleep(MOMENT);
    int fd = open(path, O_WRONLY);
    assert(write(fd, "x", 1) == 1);
    wait_for(thread);
    said("write when the reader has closed", write(fd, "y", 1));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(fd);
    unlink(path);
}

static void *all(void *none) {
    refused();
    shut();
    less();
    terminal();
    closed_terminal();
    notices();
    urgent();
    hung_up();
    semaphores();
    ranges();
    fifo();
    return none;
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    assert(mkdtemp(folder));
    wait_for(begin(all, NULL));
    rmdir(folder);
    return 0;
}
