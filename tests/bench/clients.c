/* Many clients at once: each a process of its own, all with the same work, for the same time. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

/* Shared between the processes: clients report that they are connected, and how much they did. */
struct clients_board {
    volatile double end; /* seconds of CLOCK_MONOTONIC */
    volatile long ready;
    volatile long done[BENCH_CLIENTS_MAX];
};

static void client_run(const char *url, const struct bench_work *work, struct clients_board *board, int index) {
    struct bench_client client;
    int go = 0;
    sigset_t start;
    bench_client_open(&client, url, NULL);
    void *state = work->open(&client);
    bench_check(td_sync(client.device), "sync");
    __atomic_add_fetch(&board->ready, 1, __ATOMIC_SEQ_CST);
    sigemptyset(&start);
    sigaddset(&start, SIGUSR1);
    sigwait(&start, &go);
    while (bench_now() < board->end) {
        long done = work->round(&client, state);
        if (bench_now() < board->end)
            board->done[index] += done;
    }
    _exit(0); /* the daemon cleans up */
}

static void clients_start(const char *url, const struct bench_work *work, struct clients_board *board, int count,
                          pid_t *pids) {
    sigset_t start;
    sigemptyset(&start);
    sigaddset(&start, SIGUSR1);
    sigprocmask(SIG_BLOCK, &start, NULL);
    for (int i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            client_run(url, work, board, i);
    }
    while (__atomic_load_n(&board->ready, __ATOMIC_SEQ_CST) < count) {
        if (waitpid(-1, NULL, WNOHANG) > 0)
            bench_fail("a client ended before it began%s%s", *bench_failure() ? ": " : "", bench_failure());
        usleep(1000); /* only before the clock starts */
    }
}

void bench_clients_measure(const char *url, const struct bench_work *work, int count, double seconds, double *total,
                           double *slowest) {
    struct clients_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[BENCH_CLIENTS_MAX];
    clients_start(url, work, board, count, pids);
    board->end = bench_now() + seconds;
    for (int i = 0; i < count; i++)
        kill(pids[i], SIGUSR1);
    for (int i = 0; i < count; i++) {
        int status = 0;
        waitpid(pids[i], &status, 0);
        if (status != 0)
            bench_fail("a client failed%s%s", *bench_failure() ? ": " : "", bench_failure());
    }
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
