// A thread sleeps while it holds a stream, for which another one waits within libc, after threads that read it have had
// carriers added and have ended: the sleep ends.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static FILE *stream;

static void *reads(void *unused) {
    char line[64];
    while (fgets(line, sizeof line, stream)) {}
    return unused;
}

static void *holds(void *unused) {
    flockfile(stream);
    usleep(100000);
    funlockfile(stream);
    return unused;
}

static void *waits(void *unused) {
    for (int round = 0; round < 10; round++) {
        pthread_t threads[4];
        int ends[2];
        assert(!pipe(ends));
        stream = fdopen(ends[0], "r");
        for (int i = 0; i < 4; i++) assert(!pthread_create(&threads[i], NULL, reads, NULL));
        for (int i = 0; i < 100; i++) {
            dprintf(ends[1], "line %d\n", i);
            if (i % 10 == 0) usleep(2000);
        }
        close(ends[1]);
        for (int i = 0; i < 4; i++) assert(!pthread_join(threads[i], NULL));
        fclose(stream);

        assert(!pipe(ends));
        stream = fdopen(ends[0], "r");
        assert(write(ends[1], "byte", 4) == 4);
        assert(!pthread_create(&threads[0], NULL, holds, NULL));
        usleep(30000);
        printf("%c\n", getc(stream));
        assert(!pthread_join(threads[0], NULL));
        fclose(stream);
        close(ends[1]);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, waits, NULL));
    return pthread_join(thread, NULL);
}
