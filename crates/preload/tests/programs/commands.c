// A thread that is to be cancelled is so at commands of fcntl and lockf that wait, and at no other: what its cleanup asks
// of a file is done.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int file;
static pthread_barrier_t requested;

static void say(void *what) { printf("%s: ends\n", (char *)what); }

static int asks(const char *what) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    switch (*what) {
    case 'a': return fcntl(file, F_GETFL) >= 0;
    case 'b': return fcntl(file, F_SETLK, &lock);
    case 'c': return fcntl(file, F_SETLKW, &lock);
    case 'd': return fcntl(file, F_OFD_SETLKW, &lock);
    case 'e': return lockf(file, F_TEST, 0);
    case 'f': return lockf(file, F_TLOCK, 0);
    case 'g': return lockf(file, F_ULOCK, 0);
    default: return lockf(file, F_LOCK, 0);
    }
}

static void *is_cancelled(void *what) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_barrier_wait(&requested);
    pthread_barrier_wait(&requested);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_cleanup_push(say, what);
    int answer = asks(what);
    printf("%s: %d\n", (char *)what, answer);
    pthread_cleanup_pop(0);
    return what;
}

int main(void) {
    char name[] = "/tmp/commands-XXXXXX";
    file = mkstemp(name);
    if (file < 0 || unlink(name)) return 1;
    pthread_barrier_init(&requested, NULL, 2);
    char *commands[] = {
        "a mode", "b lock", "c wait", "d wait of the open file's", "e test", "f try", "g unlock", "h wait of lockf's",
    };
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        void *result;
        if (pthread_create(&thread, NULL, is_cancelled, commands[i])) return 1;
        pthread_barrier_wait(&requested);
        pthread_cancel(thread);
        pthread_barrier_wait(&requested);
        pthread_join(thread, &result);
        puts(result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
    }
    return 0;
}
