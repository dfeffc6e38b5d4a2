// A thread has the name that its creator had, and keeps it when others are renamed.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct waiter {
    pthread_t thread;
    char *label;
    pthread_barrier_t turn;
};

static void tell(const char *label, pthread_t thread) {
    char name[16];
    assert(!pthread_getname_np(thread, name, sizeof name));
    printf("%s: %s\n", label, name);
}

static void tell_itself(const char *label) {
    char name[16] = "", by_number[16] = "";
    assert(!prctl(PR_GET_NAME, name) && !syscall(SYS_prctl, PR_GET_NAME, by_number));
    printf("%s: %s, %s\n", label, name, by_number);
    tell(label, pthread_self());
}

static void *waits(void *argument) {
    struct waiter *me = argument;
    tell_itself(me->label);
    pthread_barrier_wait(&me->turn);
    pthread_barrier_wait(&me->turn);
    tell_itself(me->label);
    return NULL;
}

static void begin(struct waiter *waiter, char *label) {
    waiter->label = label;
    assert(!pthread_barrier_init(&waiter->turn, NULL, 2));
    assert(!pthread_create(&waiter->thread, NULL, waits, waiter));
    pthread_barrier_wait(&waiter->turn);
}

static void end(struct waiter *waiter) {
    pthread_barrier_wait(&waiter->turn);
    assert(!pthread_join(waiter->thread, NULL));
}

static void *names(void *unused) {
    assert(!pthread_setname_np(pthread_self(), "one"));
    struct waiter child;
    begin(&child, "child of one");
    assert(!pthread_setname_np(pthread_self(), "another"));
    tell("child of one", child.thread);
    end(&child);
    assert(!prctl(PR_SET_NAME, "a name that is too long for the kernel"));
    tell_itself("creator");
    fflush(stdout);
    pid_t process = fork();
    if (process == 0) {
        tell_itself("forked");
        begin(&child, "child in forked");
        assert(!pthread_setname_np(pthread_self(), "renamed"));
        end(&child);
        begin(&child, "another in forked");
        end(&child);
        fflush(stdout);
        _exit(0);
    }
    assert(waitpid(process, NULL, 0) == process);
    return unused;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct waiter early, late;
    begin(&early, "early");
    tell("early", early.thread);
    assert(!pthread_setname_np(pthread_self(), "first"));
    tell("early", early.thread);
    tell_itself("first");
    begin(&late, "late");
    // By the number, too.
    assert(!syscall(SYS_prctl, PR_SET_NAME, "once more"));
    tell("early", early.thread);
    tell("late", late.thread);
    end(&late);
    end(&early);
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, names, NULL) && !pthread_join(thread, NULL));
    assert(!pthread_setname_np(pthread_self(), ""));
    tell_itself("nameless");
    return 0;
}
