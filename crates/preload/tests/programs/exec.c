// A program that takes the place of this one, and signals that come meanwhile.
#define _GNU_SOURCE
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

// A handler that waits.
static void handle(int signal) {
    (void)signal;
    handled++;
    usleep(10);
}

// Programs that there are not, and commands, while signals come.
static void *tries(void *unused) {
    char *arguments[] = {"none", NULL};
    for (int i = 0; i < 1500; i++) {
        assert(execvp("no-such-program-here", arguments) == -1 && errno == ENOENT);
        if (i % 100 == 0) {
            FILE *file = popen("exit 3", "r");
            assert(file && WEXITSTATUS(pclose(file)) == 3);
        }
    }
    return unused;
}

// Threads of the kernel's that do not block SIGALRM, where threads are fibers: none has been left so.
static int open_threads(void) {
    const char *preloaded = getenv("LD_PRELOAD");
    int count = 0;
    if (!preloaded || !strstr(preloaded, "libcarefree")) return 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], line[200];
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        // (The first one waits for signals, and blocks none meanwhile.)
        if (!status || task->d_name[0] == '.' || atoi(task->d_name) == getpid()) continue;
        while (fgets(line, sizeof line, status)) sscanf(line, "SigBlk: %llx", &blocked);
        fclose(status);
        count += !(blocked >> (SIGALRM - 1) & 1);
    }
    closedir(tasks);
    return count;
}

static void *starts(void *program) {
    sigset_t set;
    char *arguments[] = {program, "second", NULL};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL) && !pthread_kill(pthread_self(), SIGUSR1));
    // If there is no such program, the signal is the thread's still.
    assert(execv("/no-such-program", arguments) == -1);
    sigset_t pending;
    assert(!sigpending(&pending) && sigismember(&pending, SIGUSR1) && !sigismember(&pending, SIGUSR2));
    execv("/proc/self/exe", arguments);
    return NULL;
}

#define TEN "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"
#define MANY TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN

// Programs with so many arguments that few are in registers.
static void *lists(void *unused) {
    char *environment[] = {"MARK=there", NULL};
    int status;
    fflush(stdout);
    for (int kind = 0; kind < 5; kind++) {
        pid_t child = fork();
        const char *say = "echo $# $1 ${29} ${100} $MARK";
        if (child == 0) {
            if (kind == 0) execl("/bin/sh", "sh", "-c", say, "-", MANY, (char *)NULL);
            if (kind == 1) execlp("sh", "sh", "-c", say, "-", MANY, (char *)NULL);
            if (kind == 2) execle("/bin/sh", "sh", "-c", say, "-", MANY, (char *)NULL, environment);
            if (kind == 3) execle("/bin/sh", "sh", "-c", say, "-", TEN, TEN, TEN, "1", "2", "3", "4", (char *)NULL, environment);
            if (kind == 4) execle("/bin/sh", "sh", "-c", say, "-", TEN, TEN, TEN, "1", "2", "3", "4", "5", (char *)NULL, environment);
            _exit(1);
        }
        assert(waitpid(child, &status, 0) == child && status == 0);
    }
    return unused;
}

int main(int count, char **arguments) {
    pthread_t threads[4];
    sigset_t set;
    if (count > 1) {
        assert(!sigpending(&set));
        printf("pending: %d %d\n", sigismember(&set, SIGUSR1), sigismember(&set, SIGUSR2));
        assert(!sigprocmask(SIG_BLOCK, NULL, &set));
        printf("blocked: %d %d %d\n", sigismember(&set, SIGUSR1), sigismember(&set, SIGUSR2), sigismember(&set, SIGALRM));
        return 0;
    }
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    assert(!sigaction(SIGALRM, &action, NULL));
    assert(!setenv("PATH", "/bin:/usr/bin:/no:/no/such:/no/such/folder:/no/2:/no/3:/no/4", 1));
    assert(!pthread_create(&threads[0], NULL, lists, NULL) && !pthread_join(threads[0], NULL));
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    for (int i = 0; i < 4; i++) assert(!pthread_create(&threads[i], NULL, tries, NULL));
    assert(!setitimer(ITIMER_REAL, &often, NULL));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert(!setitimer(ITIMER_REAL, &never, NULL));
    assert(handled > 0);
    usleep(1000);
    printf("left open: %d\n", open_threads());
    fflush(stdout);
    assert(!pthread_create(&threads[0], NULL, starts, arguments[0]));
    pthread_join(threads[0], NULL);
    return 1;
}
