/* Many clients at once: each a process of its own, all with small operations, for the same time. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { CLIENTS = 64 };

/* Shared between the processes: clients report that they are connected, and how much they did. */
struct clients_board {
    volatile double begin, end; /* seconds of CLOCK_MONOTONIC; begin 0: not yet */
    volatile long ready;
    volatile long done[CLIENTS];
};

/* Chains of adds, with a round trip every thousand, so that nobody is far ahead of what has run. */
static void client_run(const char *url, struct clients_board *board, int index) {
    struct bench_client client;
    float data[16] = {0};
    bench_client_open(&client, url);
    td_tensor *b = bench_made(td_upload(client.device, TD_F32, TD_SHAPE(16), data), "upload");
    td_tensor *x = bench_made(td_upload(client.device, TD_F32, TD_SHAPE(16), data), "upload");
    bench_check(td_sync(client.device), "sync");
    __atomic_add_fetch(&board->ready, 1, __ATOMIC_SEQ_CST);
    int go = 0;
    sigset_t start;
    sigemptyset(&start);
    sigaddset(&start, SIGUSR1);
    sigwait(&start, &go);
    while (bench_now() < board->end) {
        for (int i = 0; i < 1000; i++) {
            td_tensor *next = bench_made(td_add(x, b), "add");
            td_release(x);
            x = next;
        }
        bench_check(td_wait(x), "wait");
        if (bench_now() < board->end)
            board->done[index] += 1000;
    }
    _exit(0); /* the daemon cleans up */
}

static void clients_measure(const char *url, int count, double seconds, double *total, double *slowest) {
    struct clients_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[CLIENTS];
    sigset_t start;
    sigemptyset(&start);
    sigaddset(&start, SIGUSR1);
    sigprocmask(SIG_BLOCK, &start, NULL);
    for (int i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            client_run(url, board, i);
    }
    while (__atomic_load_n(&board->ready, __ATOMIC_SEQ_CST) < count)
        usleep(1000); /* only before the clock starts */
    board->end = bench_now() + seconds;
    for (int i = 0; i < count; i++)
        kill(pids[i], SIGUSR1);
    for (int i = 0; i < count; i++)
        waitpid(pids[i], NULL, 0);
    *total = 0;
    *slowest = 1e300;
    for (int i = 0; i < count; i++) {
        double rate = (double)board->done[i] / seconds;
        *total += rate;
        if (rate < *slowest)
            *slowest = rate;
    }
    munmap(board, sizeof *board);
}

void bench_clients(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    const double seconds = bench_quick ? 0.2 : 4;
    double one, many, slowest, ignored;
    char name[96];
    clients_measure(daemon->url, 1, seconds, &one, &ignored);
    clients_measure(daemon->url, CLIENTS, seconds, &many, &slowest);
    snprintf(name, sizeof name, "64 clients, total against one (%s)", placement->name);
    bench_row(name, many, "op/s", one, many / one, BENCH_HIGHER, 0.8);
    snprintf(name, sizeof name, "64 clients, slowest against mean (%s)", placement->name);
    bench_row(name, slowest, "op/s", many / CLIENTS, slowest / (many / CLIENTS), BENCH_HIGHER, 0.5);
}
