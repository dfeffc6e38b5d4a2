// A library whose constructor and destructor wait for what other threads do, and a function that the loader calls for
// each library and that waits. The library, where LIBRARY is defined.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LIBRARY
static void *reads(void *path) {
    int fd = open(path, O_RDONLY);
    char *bytes = malloc(4 << 20);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ssize_t got = read(fd, bytes, 4 << 20);
    free(bytes);
    close(fd);
    return (void *)(got > 0);
}

__attribute__((constructor)) static void begin(void) {
    struct addrinfo *found;
    const char *what = getenv("WHAT"), *file = getenv("FILE_TO_READ");
    if (!strcmp(what, "name")) printf("name %d\n", getaddrinfo("localhost", NULL, NULL, &found));
    if (!strcmp(what, "user")) printf("user %d\n", getpwnam("root") != NULL);
    if (!strcmp(what, "read")) printf("read %d\n", reads((void *)file) != NULL);
    if (!strcmp(what, "command")) {
        char line[9];
        FILE *command = popen("echo said", "r");
        printf("command %s", fgets(line, sizeof line, command));
        printf("%d\n", pclose(command));
    }
    // Another thread does it, and is waited for.
    if (!strcmp(what, "thread")) {
        pthread_t thread;
        void *got;
        pthread_create(&thread, NULL, reads, (void *)file);
        pthread_join(thread, &got);
        printf("thread %d\n", got != NULL);
    }
}

__attribute__((destructor)) static void end(void) {
    if (!strcmp(getenv("WHAT"), "read")) printf("end %d\n", reads(getenv("FILE_TO_READ")) != NULL);
}
#else
static void *load(void *path) {
    void *library = dlopen(path, RTLD_NOW);
    printf("%s\n", library ? "loaded" : dlerror());
    if (library) printf("closed %d\n", dlclose(library));
    return NULL;
}

static int visit(struct dl_phdr_info *info, size_t size, void *count) {
    sched_yield();
    usleep(200);
    ++*(int *)count;
    return 0;
}

static void *list(void *unused) {
    for (int round = 0; round < 5; round++) {
        int count = 0;
        dl_iterate_phdr(visit, &count);
        if (!count) printf("none\n");
    }
    return unused;
}

static void *nap(void *unused) {
    for (int round = 0; round < 200; round++) usleep(50);
    return unused;
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IONBF, 0);
    setenv("FILE_TO_READ", arguments[0], 1);
    pthread_t threads[4];
    if (count == 1) {
        for (int each = 0; each < 4; each++) pthread_create(&threads[each], NULL, each % 2 ? nap : list, NULL);
        for (int each = 0; each < 4; each++) pthread_join(threads[each], NULL);
        printf("listed\n");
        return 0;
    }
    for (int each = 2; each < count; each++) {
        setenv("WHAT", arguments[each], 1);
        pthread_create(&threads[0], NULL, load, arguments[1]);
        pthread_join(threads[0], NULL);
    }
}
#endif
