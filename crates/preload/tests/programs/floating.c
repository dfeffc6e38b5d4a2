// Each thread has its own floating-point environment: how it rounds, and the exceptions that it has raised.
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile int stop;
static volatile double zero, one = 1;
static volatile long double long_zero, long_one = 1;
static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

enum { ROUNDS = 200 };

// Raises exceptions, or clears them, and waits in between.
static void *other(void *raises) {
    while (!stop) {
        if (raises) {
            volatile double x = one / zero;
            volatile long double y = long_one / long_zero;
            (void)x, (void)y;
            feraiseexcept(FE_OVERFLOW | FE_UNDERFLOW);
        } else {
            feclearexcept(FE_ALL_EXCEPT);
        }
        sched_yield();
        pthread_mutex_lock(&mutex);
        usleep(1);
        pthread_mutex_unlock(&mutex);
        sem_post(&semaphore);
        sem_post(&semaphore);
    }
    return NULL;
}

static void by_yield(void) { sched_yield(); }

static void by_sleep(void) { usleep(1); }

static void by_mutex(void) {
    pthread_mutex_lock(&mutex);
    sched_yield();
    pthread_mutex_unlock(&mutex);
}

static void by_semaphore(void) { sem_wait(&semaphore); }

static void by_poll(void) { poll(NULL, 0, 1); }

static void by_condition(void) {
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&mutex);
    pthread_cond_timedwait(&condition, &mutex, &until);
    pthread_mutex_unlock(&mutex);
}

static void by_child(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, (void *(*)(void *))sched_yield, NULL);
    pthread_join(thread, NULL);
}

static void *test(void *unused) {
    struct {
        const char *name;
        void (*wait)(void);
    } waits[] = {{"yield", by_yield}, {"sleep", by_sleep}, {"mutex", by_mutex}, {"semaphore", by_semaphore},
                 {"poll", by_poll}, {"condition", by_condition}, {"child", by_child}};
    for (int raised = 0; raised < 3; raised++) {
        int raises[] = {0, FE_INVALID, FE_OVERFLOW | FE_INEXACT};
        pthread_t thread;
        stop = 0;
        pthread_create(&thread, NULL, other, raises[raised] ? NULL : (void *)&stop);
        for (unsigned each = 0; each < sizeof waits / sizeof *waits; each++) {
            int wrong = 0;
            for (int round = 0; round < ROUNDS; round++) {
                feclearexcept(FE_ALL_EXCEPT);
                if (raises[raised]) feraiseexcept(raises[raised]);
                int before = fetestexcept(FE_ALL_EXCEPT);
                waits[each].wait();
                wrong += fetestexcept(FE_ALL_EXCEPT) != before;
            }
            printf("%d, %s: %d\n", raised, waits[each].name, wrong);
        }
        stop = 1;
        pthread_join(thread, NULL);
    }
    return unused;
}

static void *tell(void *what) {
    printf("%s: rounds %#x, raised %d\n", (char *)what, fegetround(), fetestexcept(FE_INVALID) != 0);
    fesetround(FE_DOWNWARD);
    usleep(10);
    printf("%s: rounds %#x\n", (char *)what, fegetround());
    return NULL;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    sem_init(&semaphore, 0, 0);
    // The first thread keeps its own when it creates another, which inherits them.
    fesetround(FE_UPWARD);
    feraiseexcept(FE_INVALID);
    pthread_t thread;
    pthread_create(&thread, NULL, tell, "the first");
    // Told after the thread has ended, which may tell its own at once.
    int rounds = fegetround(), raised = fetestexcept(FE_INVALID) != 0;
    pthread_join(thread, NULL);
    printf("main: rounds %#x, raised %d\n", rounds, raised);
    pthread_create(&thread, NULL, tell, "the second");
    pthread_join(thread, NULL);
    printf("main: rounds %#x, raised %d\n", fegetround(), fetestexcept(FE_INVALID) != 0);
    fesetround(FE_TONEAREST);
    pthread_create(&thread, NULL, test, NULL);
    pthread_join(thread, NULL);
    test(NULL);
}
