// Threads change what the resolver asks, and how (`_res`); each by itself.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <assert.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <resolv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in addresses[2];
static int sockets[2];

// Answers each question with an address that tells the server and the length of the name, but none that begins with `q`.
static void *serve(void *argument) {
    intptr_t server = (intptr_t)argument;
    unsigned char packet[1024];
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        long bytes = recvfrom(sockets[server], packet, 512, 0, (void *)&from, &length);
        if (bytes < 17 || packet[13] == 'q') continue;
        int end = 12;
        while (packet[end]) end += packet[end] + 1;
        unsigned char name = end - 12;
        end += 5;
        unsigned char answer[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, server, name};
        memset(packet + 2, 0, 10);
        packet[2] = 0x84, packet[5] = packet[7] = 1;
        memcpy(packet + end, answer, sizeof answer);
        sendto(sockets[server], packet, end + sizeof answer, 0, (void *)&from, length);
    }
}

static void use(intptr_t server) {
    assert(!res_init());
    _res.nscount = 1;
    _res.nsaddr_list[0] = addresses[server];
    _res.retrans = 1;
    _res.retry = 1;
}

static const char *text(const struct in_addr *address) {
    static __thread char text[64];
    return address ? inet_ntop(AF_INET, address, text, sizeof text) : "none";
}

static const char *by_getaddrinfo(const char *name) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    int failed = getaddrinfo(name, NULL, &hints, &found);
    if (failed) return gai_strerror(failed);
    const char *told = text(&((struct sockaddr_in *)found->ai_addr)->sin_addr);
    freeaddrinfo(found);
    return told;
}

static const char *by_gethostbyname(const char *name) {
    struct hostent host, *found;
    char buffer[2048];
    int error;
    gethostbyname_r(name, &host, buffer, sizeof buffer, &found, &error);
    return text(found ? (void *)found->h_addr_list[0] : NULL);
}

static const char *by_search(const char *name) {
    unsigned char answer[512];
    int length = res_search(name, C_IN, T_A, answer, sizeof answer);
    return text(length > 4 ? (void *)(answer + length - 4) : NULL);
}

static void *asks(void *server) {
    for (int i = 0; i < 50; i++) {
        use((intptr_t)server);
        char expected[32];
        sprintf(expected, "10.0.%d.10", (int)(intptr_t)server);
        assert(!strcmp(by_getaddrinfo("a.example"), expected));
        assert(!strcmp(by_gethostbyname("b.example"), expected));
        assert(!strcmp(by_search("c.example"), expected));
        assert(_res.nsaddr_list[0].sin_port == addresses[(intptr_t)server].sin_port);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    for (intptr_t i = 0; i < 2; i++) {
        socklen_t length = sizeof *addresses;
        addresses[i].sin_family = AF_INET;
        addresses[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        sockets[i] = socket(AF_INET, SOCK_DGRAM, 0);
        assert(!bind(sockets[i], (void *)(addresses + i), length));
        assert(!getsockname(sockets[i], (void *)(addresses + i), &length));
        assert(!pthread_create(threads, NULL, serve, (void *)i));
    }
    for (intptr_t i = 0; i < 8; i++) assert(!pthread_create(threads + i, NULL, asks, (void *)(i % 2)));
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);

    use(1);
    char domain[] = "some.example";
    _res.options |= RES_DNSRCH | RES_DEFNAMES;
    _res.dnsrch[0] = domain;
    _res.dnsrch[1] = NULL;
    printf("search %s\n", by_search("d"));
    printf("getaddrinfo %s\n", by_getaddrinfo("e"));
    printf("gethostbyname %s\n", by_gethostbyname("f"));

    // Of two servers, one that nothing answers at.
    use(0);
    _res.nscount = 2;
    _res.nsaddr_list[1] = addresses[0];
    _res.nsaddr_list[0].sin_port = htons(9);
    printf("second %s\n", by_getaddrinfo("g.example"));

    use(0);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    printf("unanswered %s\n", by_search("q.example"));
    printf("error %d %d\n", h_errno, _res.res_h_errno);
    clock_gettime(CLOCK_MONOTONIC, &after);
    printf("soon %d\n", after.tv_sec - before.tv_sec < 4);
    fflush(stdout);
    _exit(0);
}
