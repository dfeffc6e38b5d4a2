// What threads and processes inherit from the thread that creates them: the signals that it blocks, its name, its niceness
// and its kin, and that programs get no new rights.
// (Threads that start with `stays` are none but threads.)
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static int done;

// What the kernel thinks of the calling thread of the kernel's, or process: its settings, its name and the signals that it
// blocks.
static void tell_all(const char *name, int has_settings) {
    char line[200] = "", comm[32] = "";
    unsigned long long blocked = 0;
    int no_new_rights = -1;
    FILE *status = fopen("/proc/thread-self/status", "r");
    assert(status);
    while (fgets(line, sizeof line, status)) {
        sscanf(line, "Name: %31s", comm);
        sscanf(line, "SigBlk: %llx", &blocked);
        sscanf(line, "NoNewPrivs: %d", &no_new_rights);
    }
    fclose(status);
    if (has_settings) {
        int niceness = getpriority(PRIO_PROCESS, 0), slack = prctl(PR_GET_TIMERSLACK);
        printf("%d %d %ld %d, ", niceness, slack, syscall(SYS_ioprio_get, 1, 0), no_new_rights);
    }
    printf("%s: %s blocks", name, comm);
    // (The others are not the program's alone.)
    for (int signal = 1; signal < 32; signal++) {
        if (blocked >> (signal - 1) & 1) printf(" %d", signal);
    }
    putchar('\n');
    fflush(stdout);
}

static void tell(const char *name) {
    tell_all(name, 1);
}

static void *stays(void *name) {
    tell(name);
    return name;
}

static int stays_too(void *name) {
    tell(name);
    return 7;
}

static void *ends_itself(void *name) {
    tell(name);
    pthread_exit(name);
}

static void is_notified(union sigval name) {
    // (libc creates it by a thread of its own, of which it depends whose name that has.)
    prctl(PR_SET_NAME, "notified");
    tell_all(name.sival_ptr, 0);
    pthread_mutex_lock(&mutex);
    done = 1;
    pthread_cond_signal(&told);
    pthread_mutex_unlock(&mutex);
}

static void create(const pthread_attr_t *attributes, void *(*function)(void *), char *name) {
    pthread_t thread;
    void *value;
    assert(!pthread_create(&thread, attributes, function, name));
    assert(!pthread_join(thread, &value) && value == name);
}

static void threads(void) {
    pthread_attr_t attributes;
    create(NULL, stays, "thread");
    thrd_t thread;
    int value;
    assert(thrd_create(&thread, stays_too, "thread of C11") == thrd_success);
    assert(thrd_join(thread, &value) == thrd_success && value == 7);
    // On a stack of its own, it stays a thread as well.
    size_t size = 1 << 18;
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(stack != MAP_FAILED && !pthread_attr_init(&attributes));
    assert(!pthread_attr_setstack(&attributes, stack, size));
    create(&attributes, ends_itself, "thread on a stack of its own");
    assert(!pthread_attr_destroy(&attributes));
#ifdef PTHREAD_ATTR_NO_SIGMASK_NP
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    assert(!pthread_attr_init(&attributes) && !pthread_attr_setsigmask_np(&attributes, &set));
    create(&attributes, stays, "thread with a mask of its own");
    assert(!pthread_attr_destroy(&attributes));
#endif
    // One of libc's.
    struct sigevent event;
    struct itimerspec time = {{0, 0}, {0, 1000000}};
    timer_t timer;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD;
    event.sigev_notify_function = is_notified;
    event.sigev_value.sival_ptr = "thread of a timer";
    assert(!timer_create(CLOCK_MONOTONIC, &event, &timer) && !timer_settime(timer, 0, &time, NULL));
    pthread_mutex_lock(&mutex);
    while (!done) pthread_cond_wait(&told, &mutex);
    pthread_mutex_unlock(&mutex);
    assert(!timer_delete(timer));
}

static void await(pid_t child) {
    int status;
    assert(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static char *say(const char *name) {
    static char text[200];
    snprintf(text, sizeof text, "echo '%s:' $(grep -e SigBlk -e NoNewPrivs /proc/self/status)", name);
    return text;
}

static void processes(void) {
    pid_t child = fork();
    if (child == 0) {
        tell("child");
        _exit(0);
    }
    await(child);
#if __GLIBC_PREREQ(2, 34)
    child = _Fork();
    if (child == 0) {
        tell("child without handlers");
        _exit(0);
    }
    await(child);
#endif
    char *arguments[] = {"sh", "-c", NULL, NULL};
    arguments[2] = say("vfork");
    child = vfork();
    if (child == 0) {
        execv("/bin/sh", arguments);
        _exit(1);
    }
    await(child);
    arguments[2] = say("vfork with another mask");
    child = vfork();
    if (child == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGWINCH);
        sigprocmask(SIG_BLOCK, &set, NULL);
        execv("/bin/sh", arguments);
        _exit(1);
    }
    await(child);
    arguments[2] = say("execve by number");
    child = vfork();
    if (child == 0) {
        syscall(SYS_execve, "/bin/sh", arguments, environ);
        _exit(1);
    }
    await(child);
    arguments[2] = say("execveat by number");
    child = vfork();
    if (child == 0) {
        syscall(SYS_execveat, AT_FDCWD, "/bin/sh", arguments, environ, 0);
        _exit(1);
    }
    await(child);
#if __GLIBC_PREREQ(2, 34)
    arguments[2] = say("execveat");
    child = vfork();
    if (child == 0) {
        execveat(AT_FDCWD, "/bin/sh", arguments, environ, 0);
        _exit(1);
    }
    await(child);
#endif
    arguments[2] = say("posix_spawn");
    assert(!posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ));
    await(child);
    posix_spawnattr_t attributes;
    sigset_t set;
    assert(!posix_spawnattr_init(&attributes));
    arguments[2] = say("posix_spawnp with attributes");
    assert(!posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP));
    assert(!posix_spawnp(&child, "sh", NULL, &attributes, arguments, environ));
    await(child);
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    arguments[2] = say("posix_spawn with a mask of its own");
    assert(!posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK));
    assert(!posix_spawnattr_setsigmask(&attributes, &set));
    assert(!posix_spawn(&child, "/bin/sh", NULL, &attributes, arguments, environ));
    await(child);
    assert(!posix_spawnattr_destroy(&attributes));
    assert(system(say("system")) == 0);
    FILE *file = popen(say("popen"), "r");
    char line[200];
    assert(file && fgets(line, sizeof line, file));
    fputs(line, stdout);
    assert(pclose(file) == 0);
    fflush(stdout);
    // What the thread itself blocks is as before.
    sigset_t own;
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &own));
    printf("the thread blocks");
    for (int signal = 1; signal < 32; signal++) {
        if (sigismember(&own, signal)) printf(" %d", signal);
    }
    putchar('\n');
    fflush(stdout);
}

static void *creates(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR2);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    assert(!pthread_setname_np(pthread_self(), "creator"));
    assert(!setpriority(PRIO_PROCESS, 0, 3) && !prctl(PR_SET_TIMERSLACK, 777777));
    assert(!syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6));
    assert(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    threads();
    processes();
    return argument;
}

// Threads that block different signals fork at the same time.
static void *forks(void *signal) {
    sigset_t set, own;
    sigemptyset(&set);
    sigaddset(&set, (int)(long)signal);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL) && !pthread_sigmask(SIG_BLOCK, NULL, &set));
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (pthread_sigmask(SIG_BLOCK, NULL, &own)) _exit(1);
            for (int each = 1; each < 32; each++) {
                if (sigismember(&own, each) != sigismember(&set, each)) _exit(1);
            }
            _exit(0);
        }
        await(child);
    }
    return signal;
}

static volatile sig_atomic_t handled, elsewhere;
static volatile int begun, sent;
static pid_t process;
static int record;

static void handle(int signal) {
    (void)signal;
    handled++;
    if (getpid() != process) elsewhere++;
    if (record) assert(write(record, "x", 1) == 1);
}

// A signal that comes for the parent, while it waits for the child of a vfork.
static void *is_parent(void *argument) {
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    assert(!pthread_sigmask(SIG_BLOCK, &set, &before));
    pid_t child = vfork();
    if (child == 0) {
        begun = 1;
        while (!sent) {}
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        _exit(0);
    }
    await(child);
    // What the child has done with its mask is the child's.
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &before) && sigismember(&before, SIGUSR1) && handled == 0);
    assert(!pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    printf("handled: %d by the parent, %d by the child\n", handled - elsewhere, elsewhere);
    return argument;
}

static void *kills(void *thread) {
    while (!begun) usleep(100);
    assert(!pthread_kill(*(pthread_t *)thread, SIGUSR1));
    sent = 1;
    return thread;
}

// The ends of children are told when the command has ended.
static void *commands(void *argument) {
    sigset_t set;
    char command[100];
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    assert(!pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    record = memfd_create("record", 0);
    assert(record > 0);
    // A child that ends when the command says so.
    pid_t child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    snprintf(command, sizeof command, "kill -KILL %d; sleep .3; test -s /proc/self/fd/%d && exit 3; exit 4", (int)child, record);
    int status = system(command);
    while (!handled) usleep(100);
    printf("handled %s the command's end\n", WEXITSTATUS(status) == 4 ? "after" : "before");
    assert(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    assert(!pthread_sigmask(SIG_BLOCK, NULL, &set) && !sigismember(&set, SIGCHLD));
    return argument;
}

int main(void) {
    pthread_t thread, others[2];
    sigset_t set;
    process = getpid();
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    assert(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    create(NULL, creates, "value");
    for (long i = 0; i < 2; i++) {
        assert(!pthread_create(&others[i], NULL, forks, (void *)(i ? 10L : 12L)));
    }
    for (int i = 0; i < 2; i++) assert(!pthread_join(others[i], NULL));

    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    assert(!sigaction(SIGUSR1, &action, NULL));
    assert(!pthread_create(&thread, NULL, is_parent, NULL) && !pthread_create(&others[0], NULL, kills, &thread));
    assert(!pthread_join(thread, NULL) && !pthread_join(others[0], NULL));

    handled = 0;
    action.sa_flags = SA_RESTART;
    assert(!sigaction(SIGCHLD, &action, NULL));
    create(NULL, commands, "value");

    // The first thread's name is the process's.
    assert(!prctl(PR_SET_NAME, "renamed"));
    FILE *file = fopen("/proc/self/comm", "r");
    char line[32];
    assert(file && fgets(line, sizeof line, file));
    printf("the process is %s", line);
    fclose(file);
    fflush(stdout);
    // (The carrier may get no new rights any more.)
    execl("/bin/sh", "sh", "-c", "echo exec: $(grep SigBlk /proc/self/status)", (char *)NULL);
    return 1;
}
