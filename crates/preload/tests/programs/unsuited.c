// Programs that the library must be kept from are started by all ways, and print what is preloaded into them. One that
// is linked to a sanitizer's library (a stand-in for one, here) is such a program.
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined LIBRARY
int sanitize(void) { return 0; }
#elif defined UNSUITED
int sanitize(void);
int main(void) {
    const char *preloaded = getenv("LD_PRELOAD");
    printf("%s%s\n", preloaded ? preloaded : "nothing", getenv("LAST") ? " and the last" : "");
    return sanitize();
}
#elif defined SUITED
int main(void) {
    const char *preloaded = getenv("LD_PRELOAD"), *was = getenv("WAS");
    printf("%s\n", strcmp(preloaded ? preloaded : "", was) ? "changed" : "as it was");
    return 0;
}
#else
extern char **environ;

static char *path, *name, *script;

static void start(int way) {
    char *arguments[] = {name, NULL}, *folder = strrchr(path, '/');
    pid_t child;
    int fd = open(path, O_RDONLY | O_CLOEXEC), status;
    fflush(stdout);
    if (way == 0) {
        assert(!posix_spawn(&child, path, NULL, NULL, arguments, environ));
    } else if (way == 1) {
        assert(!posix_spawnp(&child, name, NULL, NULL, arguments, environ));
    } else if ((child = way == 2 ? vfork() : fork()) == 0) {
        switch (way) {
        case 2:
        case 3: execve(path, arguments, environ); break;
        case 4: execv(path, arguments); break;
        case 5: execvp(name, arguments); break;
        case 6: execvpe(name, arguments, environ); break;
        case 7: execl(path, name, NULL); break;
        case 8: execlp(name, name, NULL); break;
        case 9: execle(path, name, NULL, environ); break;
        case 10: fexecve(fd, arguments, environ); break;
        case 11:
            *folder = 0;
            execveat(open(path, O_PATH), folder + 1, arguments, environ, 0);
            break;
        case 12: execveat(fd, "", arguments, environ, AT_EMPTY_PATH); break;
        case 13: execve(script, arguments, environ); break;
        }
        _exit(9);
    }
    assert(waitpid(child, &status, 0) == child);
    printf("%d: %x\n", way, status);
    close(fd);
}

static void *all(void *unused) {
    for (int way = 0; way <= 13; way++) start(way);
    return unused;
}

static void preload_more(void) {
    const char *was = getenv("LD_PRELOAD");
    char line[4096];
    snprintf(line, sizeof line, "%s%slibm.so.6", was ? was : "", was ? ":" : "");
    setenv("LD_PRELOAD", line, 1);
    setenv("WAS", line, 1);
}

int main(int count, char **arguments) {
    assert(count == 4);
    path = arguments[1];
    script = arguments[2];
    name = strrchr(path, '/') + 1;
    char folders[4096];
    snprintf(folders, sizeof folders, "/nonexistent::%.*s:/bin", (int)(name - path) - 1, path);
    setenv("PATH", folders, 1);
    const char *was = getenv("LD_PRELOAD");
    setenv("WAS", was ? was : "", 1);
    pthread_t thread;
    all(NULL);
    preload_more();
    assert(!pthread_create(&thread, NULL, all, NULL) && !pthread_join(thread, NULL));
    // More lines than there is room for at hand.
    for (int i = 0; i < 700; i++) {
        char variable[32];
        snprintf(variable, sizeof variable, "VARIABLE_%d", i);
        setenv(variable, "value", 1);
    }
    setenv("LAST", "1", 1);
    all(NULL);
    path = arguments[3];
    start(0);
    start(3);
    return 0;
}
#endif
