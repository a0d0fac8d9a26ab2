/* Large transfers: upload and fetch of 64 MiB against a raw copy over the same kind of socket. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { BULK_CHUNK = 1 << 20, BULK_BUFFER = 4 << 20, BULK_RUNS = 9 };

static void socket_buffers(int fd) {
    int bytes = BULK_BUFFER;
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

/* Bytes per second of a copy from this process into memory of another one, which answers with a byte at its end. */
static double raw_rate(bool tcp, char *data, size_t bytes) {
    int pair[2];
    double rates[BULK_RUNS];
    if (tcp)
        tcp_pair(pair);
    else if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        exit(1);
    for (int i = 0; i < 2 && !tcp; i++)
        socket_buffers(pair[i]);
    pid_t child = fork();
    if (child == 0) {
        char *target = malloc(bytes);
        memset(target, 1, bytes);
        for (int i = 0; i < BULK_RUNS; i++) {
            receive_all(pair[1], target, bytes, BULK_CHUNK);
            send_all(pair[1], target, 1, 1);
        }
        _exit(0);
    }
    for (int i = 0; i < BULK_RUNS; i++) {
        char done;
        double begin = bench_now();
        send_all(pair[0], data, bytes, BULK_CHUNK);
        receive_all(pair[0], &done, 1, 1);
        rates[i] = (double)bytes / (bench_now() - begin);
    }
    waitpid(child, NULL, 0);
    close(pair[0]);
    close(pair[1]);
    return bench_median(rates, BULK_RUNS);
}

static void bulk_over(const struct bench_placement *placement, const char *url, const char *kind) {
    const size_t bytes = bench_quick ? 4 << 20 : 64 << 20;
    const int64_t elements = (int64_t)(bytes / sizeof(float));
    char *data = malloc(bytes), *back = malloc(bytes);
    double up[BULK_RUNS], down[BULK_RUNS];
    /* Not zeros: compilers make calloc() of that, and reading its untouched pages, all the one page of zeros, costs no
     * memory traffic. */
    memset(data, 2, bytes);
    memset(back, 1, bytes);
    double raw = raw_rate(strcmp(kind, "TCP") == 0, data, bytes);
    struct bench_client client;
    bench_client_open(&client, url);
    /* Once to warm up: memory is then in the pool, as the raw copy's is in its process. */
    for (int i = -1; i < BULK_RUNS; i++) {
        double begin = bench_now();
        td_tensor *x = bench_made(td_upload(client.device, TD_F32, 1, &elements, data), "upload");
        bench_check(td_wait(x), "wait");
        double middle = bench_now();
        bench_check(td_fetch(x, back, bytes), "fetch");
        double end = bench_now();
        td_release(x);
        bench_check(td_sync(client.device), "sync");
        if (i >= 0) {
            up[i] = (double)bytes / (middle - begin);
            down[i] = (double)bytes / (end - middle);
        }
    }
    bench_client_close(&client);
    char name[96];
    double rate = bench_median(up, BULK_RUNS);
    snprintf(name, sizeof name, "upload of 64 MiB, %s (%s)", kind, placement->name);
    bench_row(name, rate / 1e9, "GB/s", raw / 1e9, rate / raw, BENCH_HIGHER, 0.8);
    rate = bench_median(down, BULK_RUNS);
    snprintf(name, sizeof name, "fetch of 64 MiB, %s (%s)", kind, placement->name);
    bench_row(name, rate / 1e9, "GB/s", raw / 1e9, rate / raw, BENCH_HIGHER, 0.8);
    free(data);
    free(back);
}

void bench_bulk(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    bulk_over(placement, daemon->url, "Unix");
    bulk_over(placement, daemon->tcp, "TCP");
}
