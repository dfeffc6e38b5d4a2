// When signals that a thread is sent are handled, how often, and what is told of them; and whom the kernel finds.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_t first;
static sem_t one, two;
static volatile int handled;

static void handler(int signal) { handled++; }

static void said(const char *what, long result) {
    printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}

static pthread_t begin(void *(*run)(void *), void *argument) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, run, argument));
    return thread;
}

static void *sends(void *none) {
    usleep(5000);
    sem_post(&one);
    pthread_kill(first, SIGUSR1);
    sem_post(&two);
    return none;
}

static void late(void) {
    int late_wait = 0, late_join = 0;
    for (int round = 0; round < 20; round++) {
        handled = 0;
        pthread_t thread = begin(sends, NULL);
        while (sem_wait(&one));
        while (sem_wait(&two));
        late_wait += !handled;
        pthread_join(thread, NULL);
        late_join += !handled;
    }
    // (On threads, too, a wait may find the semaphore before the signal has come.)
    printf("mostly late after a wait: %d, after a join: %d\n", late_wait > 10, late_join > 10);
}

static void *waits(void *set) {
    siginfo_t info;
    sigwaitinfo(set, &info);
    said("sent to a thread, it says", info.si_code);
    return NULL;
}

static void *children(void *none) {
    int interrupted = 0;
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        if (child == 0) {
            usleep(10000);
            raise(SIGSTOP);
            _exit(0);
        }
        interrupted += waitpid(child, NULL, WUNTRACED) < 0;
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR);
    }
    said("waits for a stop that its signal ended", interrupted);
    return none;
}

static void *asks(void *none) {
    said("signal to one of another process", tgkill(1, gettid(), 0));
    said("to one of no process", tgkill(-1, gettid(), 0));
    cpu_set_t set;
    CPU_ZERO(&set);
    said("on no processor", pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    CPU_SET(900, &set);
    said("on one that there is not", pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    said("the same", sched_setaffinity(0, sizeof set, &set));
    sched_getaffinity(0, sizeof set, &set);
    said("on all", pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    return none;
}

int main(void) {
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    first = pthread_self();
    sem_init(&one, 0, 0), sem_init(&two, 0, 0);
    sigaction(SIGUSR1, &action, NULL);
    late();

    sigaction(SIGUSR2, &action, NULL);
    sigset_t set, before;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    handled = 0;
    raise(SIGUSR2), raise(SIGUSR2), kill(getpid(), SIGUSR2), kill(getpid(), SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int look = 0; look < 60000 && handled < 2; look++) usleep(1000);
    usleep(20000);
    said("the thread's and the process's", handled);

    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread = begin(waits, &set);
    usleep(20000);
    pthread_kill(thread, SIGUSR2);
    pthread_join(thread, NULL);

    action.sa_flags = 0;
    sigaction(SIGCHLD, &action, NULL);
    pthread_join(begin(children, NULL), NULL);
    pthread_join(begin(asks, NULL), NULL);
    return 0;
}
