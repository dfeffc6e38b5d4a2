// A program that is not position-independent, and has addresses of functions that it calls as well: they are addresses
// within the program. The loader says on standard error where it finds that this may be wrong.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int (*const syncs[])(int) = {fsync, fdatasync};
static ssize_t (*volatile reads)(int, void *, size_t) = read;
static int (*volatile creates)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = pthread_create;

static void *use(void *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    printf("%zd", write(file, "ab", 2));
    printf(" %d %d", fsync(file), fdatasync(file));
    printf(" %d %d", syncs[0](file), syncs[1](file));
    char bytes[2];
    lseek(file, 0, SEEK_SET);
    printf(" %zd", read(file, bytes, 1));
    printf(" %zd", reads(file, bytes, 2));
    printf(" %d\n", close(file));
    return NULL;
}

int main(void) {
    char path[] = "/tmp/fixedXXXXXX";
    close(mkstemp(path));
    pthread_t thread;
    pthread_create(&thread, NULL, use, path);
    pthread_join(thread, NULL);
    creates(&thread, NULL, use, path);
    pthread_join(thread, NULL);
    // All parts of the program have the same address of a function.
    printf("%d\n", dlsym(RTLD_DEFAULT, "fsync") == (void *)syncs[0]);
    return unlink(path);
}
