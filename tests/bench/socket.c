/* A raw copy between two processes. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { SOCKET_CHUNK = 1 << 20, SOCKET_BUFFER = 4 << 20 };

static void socket_buffers(int fd) {
    int bytes = SOCKET_BUFFER;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

static void tcp_pair(int pair[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        exit(1);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(pair[0], (struct sockaddr *)&address, sizeof address) != 0)
        exit(1);
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void receive_all(int fd, char *data, size_t bytes, size_t chunk) {
    size_t have = 0;
    while (have < bytes) {
        size_t want = bytes - have < chunk ? bytes - have : chunk;
        ssize_t got = read(fd, data + have, want);
        if (got <= 0)
            exit(1);
        have += (size_t)got;
    }
}

static void send_all(int fd, const char *data, size_t bytes, size_t chunk) {
    size_t sent = 0;
    while (sent < bytes) {
        size_t want = bytes - sent < chunk ? bytes - sent : chunk;
        ssize_t put = write(fd, data + sent, want);
        if (put <= 0)
            exit(1);
        sent += (size_t)put;
    }
}

static void socket_receive(int fd, size_t bytes, int rounds) {
    char *target = malloc(bytes);
    memset(target, 1, bytes);
    for (int i = 0; i < rounds; i++) {
        receive_all(fd, target, bytes, SOCKET_CHUNK);
        send_all(fd, target, 1, 1);
    }
    _exit(0);
}

void bench_socket_open(struct bench_socket *to, bool tcp, size_t bytes, int rounds) {
    int pair[2];
    if (tcp)
        tcp_pair(pair);
    else if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        exit(1);
    for (int i = 0; i < 2 && !tcp; i++)
        socket_buffers(pair[i]);
    *to = (struct bench_socket){.pid = fork(), .fd = pair[0], .bytes = bytes};
    if (to->pid == 0) {
        close(pair[0]);
        socket_receive(pair[1], bytes, rounds);
    }
    close(pair[1]);
}

double bench_socket_copy(const struct bench_socket *to, const char *data) {
    char done;
    double begin = bench_now();
    send_all(to->fd, data, to->bytes, SOCKET_CHUNK);
    receive_all(to->fd, &done, 1, 1);
    return bench_now() - begin;
}

void bench_socket_close(struct bench_socket *to) {
    close(to->fd);
    waitpid(to->pid, NULL, 0);
}
