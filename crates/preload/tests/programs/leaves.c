// The first thread leaves by pthread_exit: the destructors of its keys are called before it counts as ended, as the last
// thread as well, and the process does not end while they wait.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_key_t key;
static int is_last;

static void destroy(void *value) {
    // The other thread ends meanwhile.
    usleep(100000);
    printf("destroys %s\n", (char *)value);
    if (!strcmp(value, "a value")) pthread_setspecific(key, "another value");
}

static void *works(void *unused) {
    if (!is_last) usleep(20000);
    return unused;
}

int main(int count, char **arguments) {
    (void)arguments;
    is_last = count > 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_t thread;
    if (pthread_create(&thread, NULL, works, NULL)) return 1;
    if (is_last) pthread_join(thread, NULL);
    if (pthread_key_create(&key, destroy) || pthread_setspecific(key, "a value")) return 1;
    pthread_exit("left");
}
