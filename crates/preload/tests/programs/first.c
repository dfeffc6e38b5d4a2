// A signal for a thread that comes as soon as there are threads. Many times, in processes of their own.
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static sem_t handled, done;

static void handle(int signal) {
    (void)signal;
    sem_post(&handled);
}

static void *waits(void *argument) {
    while (sem_wait(&done)) assert(errno == EINTR);
    return argument;
}

static int is_handled(void) {
    pthread_t thread;
    struct timespec until;
    assert(!pthread_create(&thread, NULL, waits, NULL));
    assert(!pthread_kill(thread, SIGUSR1));
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    int lost = sem_timedwait(&handled, &until);
    sem_post(&done);
    assert(!pthread_join(thread, NULL));
    return !lost;
}

int main(void) {
    struct sigaction action = {.sa_handler = handle};
    assert(!sem_init(&handled, 0, 0) && !sem_init(&done, 0, 0) && !sigaction(SIGUSR1, &action, NULL));
    int lost = 0;
    for (int i = 0; i < 60 && !lost; i++) {
        pid_t child = fork();
        if (child == 0) _exit(!is_handled());
        int status;
        assert(child > 0 && waitpid(child, &status, 0) == child);
        lost += status != 0;
    }
    printf("lost: %d\n", lost);
    return 0;
}
