// Threads that another stops by a signal, as collectors do: the handler waits for a second signal. Each waits in
// another call meanwhile. Those that natively go on after a handler with SA_RESTART go on, however the handler has
// waited, and the others end by EINTR.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP SIGUSR1
#define GO SIGUSR2
#define ROUNDS 3
#define READERS_ROUNDS 10

static sem_t stopped, reached;
static atomic_int ended, may_end;
// How the handler waits.
enum { SUSPENDS, WAITS_AND_SUSPENDS };
static atomic_int how;

static void go_on(int signal) { (void)signal; }

static void stop(int signal) {
    (void)signal;
    int error = errno;
    sigset_t all_but_go;
    sigfillset(&all_but_go);
    sigdelset(&all_but_go, GO);
    if (how == WAITS_AND_SUSPENDS) {
        // Waits of other kinds, which end in their own time.
        struct timespec soon = {0, 200000};
        nanosleep(&soon, NULL);
        poll(NULL, 0, 1);
    }
    sem_post(&stopped);
    sigsuspend(&all_but_go);
    errno = error;
}

// Calls that wait. Each ends when `finish` is called, with what it then answers.

static int sockets[2], limited[2], pipes[2], full[2], listener, locked, event, queue, semaphores;
static struct sockaddr_un address;
static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int told;
static pid_t child;
static int child_ends[2];
static char bytes[65536];

static long receives(void) { return recv(sockets[0], bytes, 1, 0); }
static void sends(void) { assert(send(sockets[1], "x", 1, 0) == 1); }

static long reads(void) { return read(pipes[0], bytes, 1); }
static void writes_byte(void) { assert(write(pipes[1], "x", 1) == 1); }

static long writes(void) { return write(full[1], bytes, 4096); }
static void drains(void) { while (read(full[0], bytes, sizeof bytes) > 0) {} }

static long accepts(void) {
    int file = accept(listener, NULL, NULL);
    return file >= 0 ? !close(file) : -1;
}
static void connects(void) {
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    assert(file >= 0 && !connect(file, (struct sockaddr *)&address, sizeof(sa_family_t) + 1 + strlen(address.sun_path + 1)));
    close(file);
}

static long takes(void) { return sem_wait(&semaphore); }
static void gives(void) { assert(!sem_post(&semaphore)); }

static long locks(void) {
    int file = open("/proc/self/exe", O_RDONLY);
    long answer = flock(file, LOCK_EX);
    close(file);
    return answer;
}
static void unlocks(void) { assert(!flock(locked, LOCK_UN)); }

static long awaits_child(void) { return waitpid(child, NULL, 0) == child; }
static void ends_child(void) { assert(!close(child_ends[1])); }

static long locks_mutex(void) {
    int answer = pthread_mutex_lock(&mutex);
    if (!answer) pthread_mutex_unlock(&mutex);
    return answer;
}
static void unlocks_mutex(void) { pthread_mutex_unlock(&mutex); }

static long awaits_condition(void) {
    // (It may return without a signal.)
    pthread_mutex_lock(&mutex);
    while (!told) assert(!pthread_cond_wait(&condition, &mutex));
    pthread_mutex_unlock(&mutex);
    return 0;
}
static void tells(void) {
    pthread_mutex_lock(&mutex);
    told = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
}

// These end by EINTR, whatever the handler's flags.

static void nothing(void) {}

static long receives_within(void) { return recv(limited[0], bytes, 1, 0); }

static long takes_in_time(void) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 100;
    return sem_timedwait(&semaphore, &end);
}

static long sleeps(void) {
    struct timespec time = {100, 0};
    return nanosleep(&time, NULL);
}
static long polls(void) {
    struct pollfd file = {sockets[0], POLLIN, 0};
    return poll(&file, 1, 100000);
}
static long selects(void) {
    fd_set files;
    FD_ZERO(&files);
    FD_SET(sockets[0], &files);
    struct timeval time = {100, 0};
    return select(sockets[0] + 1, &files, NULL, NULL, &time);
}
static long awaits_events(void) {
    struct epoll_event one;
    return epoll_wait(event, &one, 1, 100000);
}
static long awaits_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    struct timespec time = {100, 0};
    return sigtimedwait(&set, NULL, &time);
}
static long receives_message(void) {
    struct { long kind; char text[8]; } message;
    return msgrcv(queue, &message, sizeof message.text, 0, 0);
}
static long operates(void) {
    struct sembuf one = {0, -1, 0};
    return semop(semaphores, &one, 1);
}

static const struct call {
    const char *name;
    long (*call)(void);
    void (*finish)(void);
} calls[] = {
    {"recv", receives, sends},
    {"read", reads, writes_byte},
    {"write", writes, drains},
    {"accept", accepts, connects},
    {"sem_wait", takes, gives},
    {"flock", locks, unlocks},
    {"waitpid", awaits_child, ends_child},
    {"pthread_mutex_lock", locks_mutex, unlocks_mutex},
    {"pthread_cond_wait", awaits_condition, tells},
    {"recv with a limit", receives_within, nothing},
    {"sem_timedwait", takes_in_time, nothing},
    {"nanosleep", sleeps, nothing},
    {"poll", polls, nothing},
    {"select", selects, nothing},
    {"epoll_wait", awaits_events, nothing},
    {"sigtimedwait", awaits_signal, nothing},
    {"msgrcv", receives_message, nothing},
    {"semop", operates, nothing},
};

static void *calling(void *argument) {
    const struct call *call = argument;
    sem_post(&reached);
    errno = 0;
    long answer = call->call();
    printf("%s: %ld%s%s\n", call->name, answer, answer == -1 ? ", " : "", answer == -1 ? strerror(errno) : "");
    ended = 1;
    // Until no signal is for it any more.
    while (!may_end) usleep(200);
    return NULL;
}

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore)) assert(errno == EINTR);
}

// Stops some threads and lets them go on.
static void collect(pthread_t *threads, int count) {
    for (int i = 0; i < count; i++) assert(!pthread_kill(threads[i], STOP));
    for (int i = 0; i < count; i++) wait_for(&stopped);
    for (int i = 0; i < count; i++) assert(!pthread_kill(threads[i], GO));
}

// Threads that wait within libc, where old return addresses lie on their stacks.

#define READERS 64

static FILE *files[READERS];
static int file_ends[READERS];

static int reads_above(FILE *file, int bytes) {
    char old[bytes];
    __asm__ volatile("" : : "r"(old) : "memory");
    return getc(file);
}

static void *reads_line(void *argument) {
    int which = (int)(long)argument;
    // These leave addresses behind, at many depths.
    usleep(1000);
    pthread_setname_np(pthread_self(), "reader");
    sem_post(&reached);
    int got = reads_above(files[which], 16 + 48 * which);
    assert(got == 'x');
    return NULL;
}

static void stop_readers(void) {
    pthread_t threads[READERS];
    for (long i = 0; i < READERS; i++) {
        int ends[2];
        assert(!pipe(ends) && (files[i] = fdopen(ends[0], "r")));
        file_ends[i] = ends[1];
        assert(!pthread_create(&threads[i], NULL, reads_line, (void *)i));
    }
    for (int i = 0; i < READERS; i++) wait_for(&reached);
    usleep(20000);
    // (The signal to go on comes at any point of the handler's way into its wait.)
    for (int round = 0; round < READERS_ROUNDS; round++) collect(threads, READERS);
    for (int i = 0; i < READERS; i++) assert(write(file_ends[i], "x", 1) == 1);
    for (int i = 0; i < READERS; i++) {
        assert(!pthread_join(threads[i], NULL));
        fclose(files[i]);
        close(file_ends[i]);
    }
    printf("%d readers\n", READERS);
}

static void prepare(void) {
    assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, limited));
    struct timeval limit = {100, 0};
    assert(!setsockopt(limited[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    assert(!pipe(pipes) && !pipe2(full, O_NONBLOCK));
    while (write(full[1], bytes, 4096) > 0) {}
    assert(!fcntl(full[1], F_SETFL, 0));
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "carefree-stopped-%d", getpid());
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t length = sizeof(sa_family_t) + 1 + strlen(address.sun_path + 1);
    assert(!bind(listener, (struct sockaddr *)&address, length) && !listen(listener, 8));
    locked = open("/proc/self/exe", O_RDONLY);
    assert(locked >= 0 && !flock(locked, LOCK_EX));
    event = epoll_create1(0);
    queue = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    assert(event >= 0 && queue >= 0 && semaphores >= 0);
    // They go with the process.
    assert(!pipe(child_ends));
    child = fork();
    if (!child) {
        char byte;
        close(child_ends[1]);
        _exit(read(child_ends[0], &byte, 1) != 0);
    }
    assert(!sem_init(&semaphore, 0, 0));
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigfillset(&action.sa_mask);
    action.sa_handler = stop;
    action.sa_flags = SA_RESTART;
    assert(!sigaction(STOP, &action, NULL));
    action.sa_handler = go_on;
    action.sa_flags = 0;
    assert(!sigaction(GO, &action, NULL));
    assert(!sem_init(&stopped, 0, 0) && !sem_init(&reached, 0, 0));
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (how = SUSPENDS; how <= WAITS_AND_SUSPENDS; how++) {
        prepare();
        for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
            const struct call *call = &calls[i];
            pthread_t thread;
            told = ended = may_end = 0;
            if (call->call == locks_mutex) pthread_mutex_lock(&mutex);
            assert(!pthread_create(&thread, NULL, calling, (void *)call));
            wait_for(&reached);
            usleep(20000);
            // What a handler ends may not have begun by the first.
            int most = call->finish == nothing ? 100 * ROUNDS : ROUNDS;
            for (int round = 0; round < most && !ended; round++) {
                collect(&thread, 1);
                usleep(5000);
            }
            call->finish();
            may_end = 1;
            assert(!pthread_join(thread, NULL));
        }
        close(listener);
        msgctl(queue, IPC_RMID, NULL);
        semctl(semaphores, 0, IPC_RMID);
        stop_readers();
    }
    return 0;
}
