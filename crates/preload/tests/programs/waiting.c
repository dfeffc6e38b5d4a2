// Waiting for signals, and what cleanup handlers of a cancelled thread may do.
#define _GNU_SOURCE
#define _XOPEN_SOURCE 700
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define TURNS 300

static sem_t ready, taken, go;
static pthread_mutex_t mutex;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static volatile int handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

// A signal may come at any moment of the call that waits for it.
static void *takes(void *argument) {
    (void)argument;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < TURNS; i++) {
        int signal = 0;
        struct timespec time = {100, 0};
        sem_post(&ready);
        switch (i % 3) {
        case 0: assert(!sigwait(&set, &signal)); break;
        case 1: signal = sigwaitinfo(&set, NULL); break;
        case 2: signal = sigtimedwait(&set, NULL, &time); break;
        }
        assert(signal == SIGUSR1);
        sem_post(&taken);
    }
    return NULL;
}

static void *pauses(void *argument) {
    (void)argument;
    sigset_t set;
    assert(!sighold(SIGUSR2));
    sem_post(&ready);
    assert(sigpause(SIGUSR2) == -1 && errno == EINTR && handled == 1);
    assert(!raise(SIGUSR2) && handled == 1);
    assert(!sigpending(&set) && sigismember(&set, SIGUSR2));
    assert(!sigrelse(SIGUSR2) && handled == 2);
    assert(sigset(SIGUSR2, SIG_HOLD) == handle && sigset(SIGUSR2, handle) == SIG_HOLD);
    assert(!raise(SIGUSR2) && handled == 3);
    return NULL;
}

static atomic_int has_slept;

static double seconds(void) {
    struct timespec time;
    assert(!clock_gettime(CLOCK_MONOTONIC, &time));
    return time.tv_sec + time.tv_nsec * 1e-9;
}

// Interrupted, it returns the whole seconds that are left: those of all but the time that has passed.
static void *sleeps(void *argument) {
    (void)argument;
    sem_post(&ready);
    double begun = seconds();
    unsigned left = sleep(100);
    double passed = seconds() - begun;
    has_slept = 1;
    // (The kernel adds how late it may end.)
    assert(left <= (passed < 0.01 ? 100 : 99) && left > 99 - passed);
    return (void *)(long)sleep(0);
}

static void cleans_first(void *argument) {
    (void)argument;
    // The mutex is owned, and waits are as before the cancellation.
    assert(pthread_mutex_lock(&mutex) == EDEADLK);
    sem_post(&taken);
    assert(!sem_wait(&go));
    struct timespec time = {0, 1000000};
    assert(!nanosleep(&time, NULL));
}

static void cleans_last(void *argument) {
    (void)argument;
    assert(!pthread_mutex_unlock(&mutex) && pthread_mutex_unlock(&mutex) == EPERM);
}

static void *waits(void *argument) {
    assert(!pthread_mutex_lock(&mutex));
    pthread_cleanup_push(cleans_last, NULL);
    pthread_cleanup_push(cleans_first, NULL);
    sem_post(&ready);
    struct timespec late = {4000000000, 0};
    while (1) {
        if (argument) assert(!pthread_cond_wait(&condition, &mutex));
        else assert(!pthread_cond_timedwait(&condition, &mutex, &late));
    }
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
}

static void *tests(void *argument) {
    (void)argument;
    assert(!pthread_mutex_lock(&mutex));
    pthread_cleanup_push(cleans_last, NULL);
    pthread_cleanup_push(cleans_first, NULL);
    sem_post(&ready);
    while (1) pthread_testcancel();
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
}

static atomic_int cancelled, reached;

// Calls at which no thread is cancelled.
static void *goes_on(void *argument) {
    (void)argument;
    sem_post(&ready);
    while (!cancelled) {}
    struct timespec time;
    struct timeval day;
    assert(!clock_gettime(CLOCK_MONOTONIC, &time) && !gettimeofday(&day, NULL));
    assert(!sched_yield());
    int copy = dup(1);
    assert(copy > 0);
    char name[16];
    assert(!pthread_getname_np(pthread_self(), name, sizeof name));
    pthread_spinlock_t lock;
    assert(!pthread_spin_init(&lock, 0) && !pthread_spin_lock(&lock) && !pthread_spin_unlock(&lock));
    reached = 1;
    close(copy);
    reached = 2;
    return NULL;
}

int main(void) {
    pthread_t thread;
    assert(!sem_init(&ready, 0, 0) && !sem_init(&taken, 0, 0) && !sem_init(&go, 0, 0));
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    assert(!sigaction(SIGUSR2, &action, NULL));

    assert(!pthread_create(&thread, NULL, takes, NULL));
    for (int i = 0; i < TURNS; i++) {
        assert(!sem_wait(&ready));
        assert(!pthread_kill(thread, SIGUSR1));
        assert(!sem_wait(&taken));
    }
    assert(!pthread_join(thread, NULL));
    puts("all are taken");

    assert(!pthread_create(&thread, NULL, pauses, NULL));
    assert(!sem_wait(&ready) && !pthread_kill(thread, SIGUSR2) && !pthread_join(thread, NULL));
    printf("handled %d\n", handled);

    void *left;
    assert(!pthread_create(&thread, NULL, sleeps, NULL) && !sem_wait(&ready));
    // The first may come before the thread sleeps.
    do {
        usleep(100000);
        assert(!pthread_kill(thread, SIGUSR2));
    } while (!has_slept);
    assert(!pthread_join(thread, &left));
    printf("of no sleep is left: %ld\n", (long)left);

    pthread_mutexattr_t kind;
    assert(!pthread_mutexattr_init(&kind) && !pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK));
    assert(!pthread_mutex_init(&mutex, &kind));
    void *(*functions[])(void *) = {waits, waits, tests, waits};
    for (long i = 0; i < 4; i++) {
        void *value;
        assert(!pthread_create(&thread, NULL, functions[i], (void *)i));
        assert(!sem_wait(&ready));
        // The wait has begun when the mutex is free; what only tests keeps it. What is cancelled waits for it.
        if (i != 2) assert(!pthread_mutex_lock(&mutex));
        assert(!pthread_cancel(thread));
        usleep(1000);
        if (i != 2) assert(!pthread_mutex_unlock(&mutex));
        assert(!sem_wait(&taken) && pthread_mutex_trylock(&mutex) == EBUSY && !sem_post(&go));
        assert(!pthread_join(thread, &value) && value == PTHREAD_CANCELED);
        if (i == 2) {
            // The last one waits with what is shared with other processes.
            pthread_condattr_t shared;
            assert(!pthread_mutex_destroy(&mutex) && !pthread_cond_destroy(&condition));
            assert(!pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED));
            assert(!pthread_condattr_init(&shared));
            assert(!pthread_condattr_setpshared(&shared, PTHREAD_PROCESS_SHARED));
            assert(!pthread_mutex_init(&mutex, &kind) && !pthread_cond_init(&condition, &shared));
        }
    }
    puts("all are cancelled");

    assert(!pthread_create(&thread, NULL, goes_on, NULL));
    assert(!sem_wait(&ready) && !pthread_cancel(thread));
    cancelled = 1;
    void *value;
    assert(!pthread_join(thread, &value) && value == PTHREAD_CANCELED);
    printf("cancelled after %d\n", reached);
    return 0;
}
