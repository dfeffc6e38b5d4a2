// A program that closes all descriptors while its threads run goes on, and its next files get the lowest numbers.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void closefrom(int first);

static int fds[2];
static atomic_int reached;

// Waits for a socket, then for a time.
static void *echo(void *unused) {
    char byte;
    while (read(fds[1], &byte, 1) == 1) {
        struct timespec moment = {0, 1000000};
        nanosleep(&moment, NULL);
        write(fds[1], &byte, 1);
        reached++;
    }
    return unused;
}

static void exchange(const char *after) {
    pthread_t threads[4];
    char byte = 'x';
    int answers = 0;
    socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
    for (int each = 0; each < 4; each++) pthread_create(&threads[each], NULL, echo, NULL);
    for (int each = 0; each < 8; each++) {
        write(fds[0], &byte, 1);
        answers += read(fds[0], &byte, 1) == 1;
    }
    shutdown(fds[0], SHUT_WR);
    for (int each = 0; each < 4; each++) pthread_join(threads[each], NULL);
    printf("after %s: files %d and %d, %d answers\n", after, fds[0], fds[1], answers);
}

static void *parked(void *lock) {
    pthread_mutex_lock(lock);
    return NULL;
}

static int lowest(void) {
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    exchange("the start");
    // A thread is there all the time.
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    pthread_t waits;
    pthread_create(&waits, NULL, parked, &lock);

    for (int fd = 3; fd < 1024; fd++) close(fd);
    exchange("close");
    close_range(3, ~0u, 0);
    exchange("close_range");
    // The range may end amid Carefree's numbers.
    close_range(3, 33, 0);
    exchange("a short close_range");
    closefrom(3);
    exchange("closefrom");
    syscall(SYS_close_range, 3, ~0u, 0);
    exchange("the system call");
    // (On fibers one or two are refused.)
    for (int fd = 32; fd < 48; fd++)
        if (dup2(1, fd) == fd) close(fd);
    exchange("dup2");
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    exchange("CLOSE_RANGE_CLOEXEC");
    close_range(3, ~0u, 0);
    printf("lowest %d\n", lowest());

    // What a child closes is its own, also the parent's that it has inherited.
    fflush(stdout);
    for (int how = 0; how < 2; how++) {
        pid_t child = how ? vfork() : fork();
        if (child == 0) {
            closefrom(3);
            int same = 0;
            for (int fd = 32; fd < 48; fd++) same += dup2(1, fd) == fd;
            _exit(same);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%s: %d of 16 numbers are free\n", how ? "vfork" : "fork", WEXITSTATUS(status));
        exchange("the child");
    }
    // Errors are told as natively.
    int bad = close_range(5, 4, 0);
    printf("range %d %d\n", bad, errno);
    bad = close_range(32, 32, 64);
    printf("flags %d %d\n", bad, errno);
    bad = close(1000);
    printf("close %d %d\n", bad, errno);
    pthread_mutex_unlock(&lock);
    pthread_join(waits, NULL);
    printf("reached %d\n", reached);
}
