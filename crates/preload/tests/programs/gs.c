// Each thread has its own GS base, and a new one its creator's.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
enum { SET_GS = 0x1001, GET_GS = 0x1004 };

static long base(void) {
    long base = 0;
    syscall(SYS_arch_prctl, GET_GS, &base);
    return base;
}

static void *run(void *block) {
    long inherited = base(), wrong = 0;
    if (block) syscall(SYS_arch_prctl, SET_GS, block);
    for (int round = 0; round < 100; round++) {
        usleep(500);
        wrong += base() != (block ? (long)block : inherited);
        if (block) {
            long word;
            __asm__ volatile("mov %%gs:8, %0" : "=r"(word));
            wrong += word != ((long *)block)[1];
        }
    }
    return (void *)wrong;
}

static long own[2] = {1, 2}, others[2][2] = {{3, 4}, {5, 6}};

static void on_signal(int signal) {
    (void)signal;
    printf("in a handler: %d\n", base() == (long)own);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    pthread_t threads[4];
    void *wrong[4];
    // Threads that were there before keep none.
    pthread_create(&threads[0], NULL, run, NULL);
    syscall(SYS_arch_prctl, SET_GS, own);
    pthread_create(&threads[1], NULL, run, NULL);
    for (int each = 0; each < 2; each++) pthread_create(&threads[2 + each], NULL, run, others[each]);
    for (int each = 0; each < 4; each++) {
        pthread_join(threads[each], &wrong[each]);
        printf("thread %d: %ld wrong; main's is its own: %d\n", each, (long)wrong[each], base() == (long)own);
    }
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    pid_t child = fork();
    if (child == 0) _exit(base() == (long)own);
    int status;
    waitpid(child, &status, 0);
    printf("in a child: %d\n", WEXITSTATUS(status));
}
#else
int main(void) {}
#endif
