// Calls that the kernel answers at once, though a thread might wait in them; and what it does with signals in small.
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void *waits(void *unused) {
    for (;;) pause();
    return unused;
}

static void said(const char *what, long result) {
    printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
}

static int handled[8], count;

static void handler(int signal) {
    if (count < 8) handled[count++] = signal;
}

static void arguments(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert(!listen(listener, 5));
    said("accept4 with unknown flags", accept4(listener, NULL, NULL, 0x1234567));

    int queue = msgget(IPC_PRIVATE, 0600);
    struct { long type; char bytes[8]; } message;
    said("msgrcv of a copy", msgrcv(queue, &message, 8, 0, MSG_COPY));
    msgctl(queue, IPC_RMID, NULL);

    char name[64], bytes[16];
    snprintf(name, sizeof name, "/carefree-at-once-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = sizeof bytes};
    mqd_t posix = mq_open(name, O_CREAT | O_RDWR, 0600, &attributes);
    if (posix < 0) {
        // (Where the kernel has no such queues.)
        printf("mq_timedreceive before 1970: -1 %s\n", strerror(EINVAL));
        return;
    }
    mq_unlink(name);
    struct timespec before = {.tv_sec = -1};
    said("mq_timedreceive before 1970", mq_timedreceive(posix, bytes, sizeof bytes, NULL, &before));
}

static void signals(void) {
    struct sigaction action = {.sa_handler = handler}, after;
    sigset_t all;
    sigfillset(&all);
    sigfillset(&action.sa_mask);
    assert(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR2, &action, NULL));
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    kill(getpid(), SIGUSR1);
    raise(SIGUSR2);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    printf("a thread's own come first: %d %d\n", handled[0] == SIGUSR2, handled[1] == SIGUSR1);

    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR2);
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    assert(!sigaction(SIGUSR1, &action, NULL));
    raise(SIGUSR1);
    assert(!sigaction(SIGUSR1, NULL, &after));
    printf("once: default %d, flags %d, mask %d\n", after.sa_handler == SIG_DFL,
           (after.sa_flags & (SA_RESETHAND | SA_RESTART)) == (SA_RESETHAND | SA_RESTART),
           sigismember(&after.sa_mask, SIGUSR2));
}

static char guarded[] = "/tmp/carefree-at-once-XXXXXX";

// No poll says that a fanotify has room for an answer.
static void answers(void) {
    struct fanotify_response answer = {.response = FAN_ALLOW};
    int notices = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY);
    said("an answer to no question", write(notices, &answer, sizeof answer));

    int questions = fanotify_init(FAN_CLASS_CONTENT, O_RDONLY), file = mkstemp(guarded);
    assert(file >= 0 && !close(file));
    if (questions >= 0 && !fanotify_mark(questions, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, guarded)) {
        pid_t process = fork();
        if (!process) {
            close(questions);
            for (int i = 0; i < 3; i++) said("open of what is guarded", open(guarded, O_RDONLY) < 0 ? -1 : 0);
            _exit(0);
        }
        for (int i = 0; i < 3; i++) {
            struct fanotify_event_metadata question;
            assert(read(questions, &question, sizeof question) == sizeof question);
            answer.fd = question.fd;
            answer.response = i == 1 ? FAN_DENY : FAN_ALLOW;
            assert(write(questions, &answer, sizeof answer) == sizeof answer);
            close(question.fd);
        }
        assert(waitpid(process, NULL, 0) == process);
    }
    unlink(guarded);
}

static volatile sig_atomic_t ended;

static void child(int signal) { ended += signal == SIGCHLD; }

static void unwaited(void) {
    struct sigaction action = {.sa_handler = child, .sa_flags = SA_NOCLDWAIT};
    assert(!sigaction(SIGCHLD, &action, NULL));
    int late = 0;
    for (int i = 0; i < 30; i++) {
        int before = ended;
        pid_t process = fork();
        if (!process) {
            usleep(3000);
            _exit(7);
        }
        while (waitpid(process, NULL, 0) < 0 && errno == EINTR) {}
        late += ended == before;
        assert(errno == ECHILD);
    }
    printf("handled after waitpid: %d\n", late);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, waits, NULL));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    arguments();
    answers();
    signals();
    unwaited();
    return 0;
}
