/* Recorded programs against the same operations one by one, over the same socket. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

enum { RUNS = 5, ADDS = 1000 };

/* A program of one parameter and one result. */
static td_program *record(td_device *device, int64_t elements, td_tensor *(*function)(td_tensor *, td_tensor *),
                          td_tensor *b) {
    td_program *program;
    bench_check(td_record_begin(device), "td_record_begin");
    td_tensor *x = td_parameter(TD_F32, 1, &elements), *y = function(x, b);
    bench_check(td_record_end(device, 1, &y, &program), "td_record_end");
    td_release(x);
    td_release(y);
    return program;
}

static td_tensor *adds(td_tensor *x, td_tensor *b) {
    for (int i = 0; i < ADDS; i++) {
        td_tensor *sum = bench_made(td_add(x, b), "td_add");
        if (i)
            td_release(x);
        x = sum;
    }
    return x;
}

/* Ten elementwise operations. */
static td_tensor *ten(td_tensor *x, td_tensor *b) {
    td_tensor *made[10];
    made[0] = td_multiply(x, b);
    made[1] = td_add(made[0], b);
    made[2] = td_exp(made[1]);
    made[3] = td_add(made[2], x);
    made[4] = td_sqrt(made[3]);
    made[5] = td_multiply(made[4], x);
    made[6] = td_subtract(made[5], b);
    made[7] = td_tanh(made[6]);
    made[8] = td_add(made[7], made[3]);
    made[9] = bench_made(td_multiply(made[8], b), "a chain");
    for (int i = 0; i < 9; i++)
        td_release(made[i]);
    return made[9];
}

/* Seconds that a run of the program takes, and what it costs the caller's thread to enqueue it and to release its result: of its time on the processor, since
 * on one core the daemon takes that in the middle of a call. */
static double run_program(td_device *device, td_program *program, td_tensor *x, int times, double *call) {
    double begin = bench_now(), before = bench_thread_cpu();
    for (int i = 0; i < times; i++) {
        td_tensor *y;
        while (td_program_run(program, 1, &x, 1, &y))
            if (!bench_again(device))
                bench_check(td_last_error()->code, "td_program_run");
        td_release(y);
    }
    *call = (bench_thread_cpu() - before) / times;
    bench_check(td_sync(device), "td_sync");
    return (bench_now() - begin) / times;
}

static double run_eagerly(td_device *device, td_tensor *(*function)(td_tensor *, td_tensor *), td_tensor *x,
                          td_tensor *b, int times) {
    double begin = bench_now();
    for (int i = 0; i < times; i++) {
        td_release(function(x, b));
        if (i % 8 == 7)
            bench_check(td_sync(device), "td_sync"); /* so that the send queue is never full */
    }
    bench_check(td_sync(device), "td_sync");
    return (bench_now() - begin) / times;
}

/* What both have in common. */
struct chain {
    td_tensor *x, *b;
    td_program *program;
};

static void chain_open(struct chain *chain, td_device *device, int64_t elements,
                       td_tensor *(*function)(td_tensor *, td_tensor *)) {
    chain->x = bench_made(td_full(device, TD_F32, 1, &elements, 0.25), "td_full");
    chain->b = bench_made(td_full(device, TD_F32, 0, NULL, 0.5), "td_full");
    chain->program = record(device, elements, function, chain->b);
}

static void chain_close(struct chain *chain) {
    td_program_release(chain->program);
    td_release(chain->x);
    td_release(chain->b);
}

/* `ns_goal`: of an operation. */
static void compare_adds(td_device *device, const struct bench_placement *placement, const char *how, double ns_goal) {
    double by_program[RUNS], eager[RUNS], calls[RUNS];
    struct chain chain;
    char name[96];
    int times = bench_quick ? 20 : 2000;
    chain_open(&chain, device, 16, adds);
    for (int run = 0; run < RUNS; run++) {
        by_program[run] = run_program(device, chain.program, chain.x, times, &calls[run]);
        eager[run] = run_eagerly(device, adds, chain.x, chain.b, times / 8);
    }
    double program_ns = bench_median(by_program, RUNS) / ADDS * 1e9, eager_ns = bench_median(eager, RUNS) / ADDS * 1e9;
    double call = bench_median(calls, RUNS) * 1e6;
    snprintf(name, sizeof name, "1000 adds of 16 floats, %s, against them one by one (%s)", how, placement->name);
    bench_row(name, program_ns, "ns/op", eager_ns, program_ns / eager_ns, BENCH_LOWER, 0.3);
    bench_row("  an operation", program_ns, "ns", ns_goal, program_ns / ns_goal, BENCH_LOWER, 1);
    bench_row("  the call that runs it, its thread", call, "us", 0.34, call / 0.34, BENCH_LOWER, 1);
    chain_close(&chain);
}

static void compare_ten(td_device *device, const struct bench_placement *placement) {
    double by_program[RUNS], eager[RUNS], call;
    struct chain chain;
    char name[96];
    int times = bench_quick ? 2 : 8;
    chain_open(&chain, device, bench_quick ? 1 << 16 : 16 << 20, ten);
    for (int run = 0; run < RUNS; run++) {
        by_program[run] = run_program(device, chain.program, chain.x, times, &call);
        eager[run] = run_eagerly(device, ten, chain.x, chain.b, times);
    }
    double mine = bench_median(by_program, RUNS) * 1e3, theirs = bench_median(eager, RUNS) * 1e3;
    snprintf(name, sizeof name, "10 operations on 64 MiB, against them one by one (%s)", placement->name);
    bench_row(name, mine, "ms", theirs, mine / theirs, BENCH_LOWER, 0.25);
    chain_close(&chain);
}

static void compare_unfused(const struct bench_placement *placement) {
    struct bench_daemon daemon;
    struct bench_client client;
    setenv("TENSORD_FUSE", "none", 1); /* for the daemon */
    bench_daemon_start(&daemon);
    unsetenv("TENSORD_FUSE");
    bench_client_open(&client, daemon.url, NULL);
    compare_adds(client.device, placement, "unfused", 60);
    bench_client_close(&client);
    bench_daemon_stop(&daemon);
}

void bench_programs(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    struct bench_client client;
    compare_unfused(placement);
    bench_client_open(&client, daemon->url, NULL);
    compare_adds(client.device, placement, "fused", 5);
    compare_ten(client.device, placement);
    bench_training(placement, client.device);
    bench_client_close(&client);
}
