// An allocator of the program's that its handlers of forks lock: nothing may ask for memory, or give it back, between
// them, on the thread that forks.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

// The thread that forks, while the allocator is locked.
static _Thread_local int forks;

static void check(const char *what) {
    if (!forks) return;
    forks = 0;
    dprintf(2, "%s was called amid a fork\n", what);
    void *frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), 2);
    abort();
}

void *malloc(size_t size) { return check("malloc"), __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return check("calloc"), __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return check("realloc"), __libc_realloc(old, size); }
void *memalign(size_t to, size_t size) { return check("memalign"), __libc_memalign(to, size); }
void *aligned_alloc(size_t to, size_t size) { return check("aligned_alloc"), __libc_memalign(to, size); }
int posix_memalign(void **place, size_t to, size_t size) {
    check("posix_memalign");
    return (*place = __libc_memalign(to, size)) ? 0 : ENOMEM;
}
void free(void *old) {
    if (old) check("free");
    __libc_free(old);
}

static void lock(void) { forks = 1; }
static void unlock(void) { forks = 0; }

__attribute__((constructor)) static void begin(void) { assert(!pthread_atfork(lock, unlock, unlock)); }

static void *nothing(void *unused) { return unused; }

static void create(void *(*body)(void *)) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, body, NULL) && !pthread_join(thread, NULL));
}

static void fork_some(int depth) {
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = fork();
        assert(child >= 0);
        if (!child) {
            // With threads and forks of its own.
            if (turn) create(nothing);
            if (depth) fork_some(depth - 1);
            _exit(turn);
        }
        int status;
        assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == turn);
    }
}

static void *forking(void *unused) {
    pthread_setname_np(pthread_self(), "forking");
    fork_some(1);
    return unused;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int over;

static void *waiting(void *unused) {
    pthread_mutex_lock(&mutex);
    while (!over) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}

// Waits of most kinds, which last.
static int listener, ends[2], file;

static void *accepting(void *unused) { return accept(listener, NULL, NULL), unused; }
static void *reading(void *unused) { return (void)!read(ends[0], &file, 1), unused; }
static void *sleeping(void *unused) { return sleep(1000), unused; }
static void *locking(void *unused) {
    struct flock whole = {.l_type = F_WRLCK};
    int other = dup(file);
    return fcntl(other, F_OFD_SETLKW, &whole), unused;
}
static void *polling(void *unused) {
    struct pollfd end = {ends[0], POLLIN, 0};
    return poll(&end, 1, -1), unused;
}
static void *awaiting(void *unused) {
    sigset_t set;
    int which;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return sigwait(&set, &which), unused;
}

static void wait_in_all_ways(void) {
    void *(*ways[])(void *) = {accepting, reading, sleeping, locking, polling, awaiting};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct flock whole = {.l_type = F_WRLCK};
    char name[] = "/tmp/carefree-forks-XXXXXX";
    listener = socket(AF_INET, SOCK_STREAM, 0);
    assert(listener >= 0 && !bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 5));
    // Two descriptions, of which one has the lock that the other waits for.
    int holder = mkstemp(name);
    file = open(name, O_RDWR);
    assert(holder >= 0 && file >= 0 && !unlink(name) && !pipe(ends) && !fcntl(holder, F_OFD_SETLK, &whole));
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        pthread_t thread;
        assert(!pthread_create(&thread, NULL, ways[i], NULL) && !pthread_detach(thread));
    }
    usleep(20000);
}

int main(void) {
    void *frames[2];
    // (It loads a library at its first call.)
    backtrace(frames, 2);
    fork_some(0);
    create(nothing);
    fork_some(1);
    create(forking);
    pthread_t waiters[20], other;
    for (int i = 0; i < 20; i++) assert(!pthread_create(&waiters[i], NULL, waiting, NULL));
    assert(!pthread_create(&other, NULL, forking, NULL));
    fork_some(1);
    assert(!pthread_join(other, NULL));
    assert(!pthread_mutex_lock(&mutex));
    over = 1;
    pthread_cond_broadcast(&changed);
    assert(!pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 20; i++) assert(!pthread_join(waiters[i], NULL));
    wait_in_all_ways();
    fork_some(1);
    create(forking);
    puts("done");
    return 0;
}
