// Signals and cancellation reach threads in calls that wait in ways of their own.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void handle_with(int flags) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = flags};
    assert(!sigaction(SIGUSR1, &action, NULL));
    handled = 0;
}

static pthread_t start(void *(*function)(void *), void *argument) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, function, argument));
    usleep(100000); // it waits by now
    return thread;
}

static const char *end_of(pthread_t thread) {
    void *result;
    assert(!pthread_join(thread, &result));
    return result == PTHREAD_CANCELED ? "cancelled" : result ? result : "done";
}

// Sends signals until one has ended the thread's wait, for a while: the first may come before it waits.
static const char *interrupt(pthread_t thread) {
    void *result = "waits on";
    for (int i = 0; i < 2000; i++) {
        pthread_kill(thread, SIGUSR1);
        usleep(10000);
        if (!pthread_tryjoin_np(thread, &result)) break;
    }
    return handled ? result : "not handled";
}

static const char *told(long result) {
    return result < 0 ? strerror(errno) : "done";
}

// Another process holds a lock until it is let go on.
static char path[] = "/tmp/interrupted.XXXXXX";
static int let_go[2];

static pid_t hold(void) {
    int taken[2];
    char byte;
    assert(!pipe(taken) && !pipe(let_go));
    pid_t child = fork();
    if (!child) {
        close(let_go[1]);
        assert(!flock(open(path, O_RDWR), LOCK_EX));
        assert(write(taken[1], "", 1) == 1);
        _exit(read(let_go[0], &byte, 1) != 0);
    }
    close(let_go[0]);
    assert(read(taken[0], &byte, 1) == 1);
    close(taken[0]);
    close(taken[1]);
    return child;
}

static void release(pid_t child) {
    close(let_go[1]);
    assert(waitpid(child, NULL, 0) == child);
}

static void *locks(void *argument) {
    (void)argument;
    int fd = open(path, O_RDWR);
    const char *end = told(flock(fd, LOCK_EX));
    close(fd);
    return (void *)end;
}

// Of two that wait for the same lock, the second is interrupted.
static void the_second_in_line(void) {
    pid_t child = hold();
    pthread_t first = start(locks, NULL), second = start(locks, NULL);
    handle_with(0);
    printf("second in line: %s\n", interrupt(second));
    release(child);
    printf("first in line: %s\n", end_of(first));
}

// No thread is cancelled in these, so a cancelled one waits on. (It ends where it next can be cancelled.)
static int set;
static volatile int went_on;
static sem_t opened;

static void *locks_on(void *argument) {
    // (This is such a point.)
    int fd = open(path, O_RDWR);
    sem_post(&opened);
    if (!flock(fd, LOCK_EX)) went_on++;
    flock(fd, LOCK_UN);
    close(fd);
    return argument;
}

static void *takes_on(void *argument) {
    struct sembuf take = {0, -1, 0};
    // From glibc 2.41 on, cancelling a thread interrupts it even here.
    int result;
    do result = semop(set, &take, 1);
    while (result && errno == EINTR);
    if (!result) went_on++;
    pthread_testcancel();
    return argument;
}

static void no_points_of_cancellation(void) {
    struct sembuf give = {0, 1, 0};
    pid_t child = hold();
    set = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
    assert(!sem_init(&opened, 0, 0));
    pthread_t first = start(locks_on, NULL), second = start(locks_on, NULL);
    pthread_t third = start(takes_on, NULL);
    for (int i = 0; i < 2; i++) assert(!sem_wait(&opened));
    pthread_cancel(first);
    pthread_cancel(second);
    pthread_cancel(third);
    usleep(200000);
    printf("cancelled: %d\n", went_on);
    assert(!semop(set, &give, 1));
    release(child);
    printf("cancelled: %s, ", end_of(first));
    printf("%s, ", end_of(second));
    printf("%s\n", end_of(third));
    printf("cancelled: %d\n", went_on);
    semctl(set, 0, IPC_RMID);
}

// A handler is called while a thread waits in pthread_once, for a function that waits for that.
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_t waiter;
static volatile int is_there, begun, handled_amid;

static void waits_for_a_handler(void) {
    begun = 1;
    usleep(100000);
    pthread_kill(waiter, SIGUSR1);
    for (int look = 0; look < 20000 && !handled; look++) usleep(1000);
    handled_amid = handled;
}

static void *goes_first(void *argument) {
    pthread_once(&once, waits_for_a_handler);
    return argument;
}

static void *goes_second(void *argument) {
    waiter = pthread_self();
    is_there = 1;
    while (!begun) usleep(100);
    pthread_once(&once, waits_for_a_handler);
    return argument;
}

static void amid_pthread_once(void) {
    pthread_t first, second;
    handle_with(0);
    assert(!pthread_create(&second, NULL, goes_second, NULL));
    while (!is_there) usleep(1000);
    assert(!pthread_create(&first, NULL, goes_first, NULL));
    assert(!pthread_join(first, NULL) && !pthread_join(second, NULL));
    printf("amid pthread_once: handled %d\n", handled_amid);
}

// What a set of semaphores or a queue of messages was removed for.
static void *takes(void *argument) {
    struct sembuf take = {0, -1, 0};
    (void)argument;
    return (void *)told(semop(set, &take, 1));
}

static void *receives(void *queue) {
    struct { long type; char text[8]; } message;
    return (void *)told(msgrcv(*(int *)queue, &message, sizeof message.text, 0, 0));
}

static void *fails_at_once(void *queue) {
    return (void *)told(msgrcv(*(int *)queue, NULL, 0, 0, 0));
}

static void removed_meanwhile(void) {
    int queue;
    const char *takes_end, *receives_end;
    // (On a busy machine they may come when there is nothing any more: then once more.)
    for (int i = 0; i < 20; i++) {
        queue = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
        set = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
        pthread_t first = start(takes, NULL), second = start(receives, &queue);
        assert(!semctl(set, 0, IPC_RMID) && !msgctl(queue, IPC_RMID, NULL));
        takes_end = end_of(first);
        receives_end = end_of(second);
        if (strcmp(takes_end, strerror(EINVAL)) && strcmp(receives_end, strerror(EINVAL))) break;
    }
    printf("removed: %s, %s\n", takes_end, receives_end);
    printf("not there: %s, ", end_of(start(takes, NULL)));
    printf("%s\n", end_of(start(fails_at_once, &queue)));
}

// A wait for a futex by its number goes on after a handler with SA_RESTART, unless it has a time limit.
static int word;

static void *waits_for_word(void *limit) {
    const char *end = told(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, limit, NULL, 0));
    return (void *)end;
}

static void waits_by_number(void) {
    struct timespec limit = {200, 0};
    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        handle_with(flags);
        printf("with a limit: %s\n", interrupt(start(waits_for_word, &limit)));
    }
    handle_with(0);
    printf("without: %s\n", interrupt(start(waits_for_word, NULL)));
    handle_with(SA_RESTART);
    pthread_t thread = start(waits_for_word, NULL);
    assert(!pthread_kill(thread, SIGUSR1));
    while (!handled) usleep(1000);
    usleep(50000);
    // (Until it waits again.)
    for (int look = 0; look < 60000 && syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) != 1; look++)
        usleep(1000);
    printf("begun again: %s\n", end_of(thread));
}

// Handlers are called amid calls that no signal ends: of a command that is waited for until it may end, and at a barrier
// of two processes.
static int may_end[2];
static pthread_barrier_t *barrier;

static void *closes(void *argument) {
    char command[64];
    snprintf(command, sizeof command, "read line <&%d; exit 3", may_end[0]);
    FILE *stream = popen(command, "r");
    assert(stream);
    printf("pclose: %x\n", pclose(stream));
    return argument;
}

static void *arrives(void *argument) {
    int end = pthread_barrier_wait(barrier);
    printf("barrier: %s\n", end == PTHREAD_BARRIER_SERIAL_THREAD || !end ? "done" : strerror(end));
    return argument;
}

static void wait_until_handled(pthread_t thread) {
    assert(!pthread_kill(thread, SIGUSR1));
    for (int look = 0; look < 20000 && !handled; look++) usleep(1000);
    printf("amid it: %d\n", handled);
    fflush(stdout);
}

static void amid_calls_of_libc(void) {
    pthread_t thread;
    handle_with(0);
    assert(!pipe(may_end));
    thread = start(closes, NULL);
    wait_until_handled(thread);
    assert(write(may_end[1], "\n", 1) == 1);
    printf("%s\n", end_of(thread));
    pthread_barrierattr_t attributes;
    barrier = mmap(NULL, sizeof *barrier, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(barrier != MAP_FAILED);
    assert(!pthread_barrierattr_init(&attributes));
    assert(!pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    assert(!pthread_barrier_init(barrier, &attributes, 2));
    handle_with(0);
    thread = start(arrives, NULL);
    wait_until_handled(thread);
    pid_t child = fork();
    if (!child) {
        pthread_barrier_wait(barrier);
        _exit(0);
    }
    printf("%s\n", end_of(thread));
    assert(waitpid(child, NULL, 0) == child);
}

int main(void) {
    close(mkstemp(path));
    the_second_in_line();
    no_points_of_cancellation();
    amid_pthread_once();
    removed_meanwhile();
    waits_by_number();
    amid_calls_of_libc();
    unlink(path);
    return 0;
}
