// Whose a process is that a thread changes: all threads', once. (It takes root to see it.)
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { SOME = 65534 };

static void tell(const char *who) {
    uid_t real, effective, saved;
    assert(!getresuid(&real, &effective, &saved));
    printf("%s: %d %d %d\n", who, (int)real, (int)effective, (int)saved);
}

static void *changes(void *argument) {
    tell("a thread");
    // Without rights, setuid changes only the effective number; made once more, all of them.
    assert(!setuid(0));
    tell("after it");
    assert(setresuid(-1, -1, SOME) == 0 && seteuid(SOME) == 0);
    tell("at last");
    errno = 0;
    assert(setuid(1) == -1 && errno == EPERM);
    return argument;
}

int main(void) {
    pthread_t thread;
    if (getuid() != 0) return 0;
    assert(!setresuid(SOME, SOME, 0));
    assert(!pthread_create(&thread, NULL, changes, NULL));
    assert(!pthread_join(thread, NULL));
    tell("the first thread");
    return 0;
}
