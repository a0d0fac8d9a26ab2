/* Small operations: what one costs to enqueue, how many run in a second, of one client and of many, and how long an answer
 * takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/session/session.h"
#include "engine/program/program.h"
#include "tests/bench/bench.h"

void bench_enqueue(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    enum { RUNS = 15 };
    const long count = bench_quick ? 1000 : 100000;
    double costs[RUNS];
    struct bench_client client;
    bench_client_open(&client, daemon->url, NULL);
    td_tensor *b = bench_vector16(client.device, 1), *x = bench_vector16(client.device, 0);
    for (int run = 0; run < RUNS; run++) {
        bench_check(td_sync(client.device), "sync");
        double begin = bench_thread_cpu();
        x = bench_adds(x, b, count);
        costs[run] = (bench_thread_cpu() - begin) / (double)count * 1e9;
    }
    bench_check(td_sync(client.device), "sync");
    bench_client_close(&client);
    char name[96];
    double cost = bench_median(costs, RUNS);
    snprintf(name, sizeof name, "enqueue add, caller's thread (%s)", placement->name);
    bench_row(name, cost, "ns/op", 100, cost / 100, BENCH_LOWER, 1);
}

/* The engine's own rate: the same chain submitted in this process, in batches as the worker does. */
struct engine_chain {
    struct fetch fetch;
    bool done;
};

static void engine_chain_done(struct fetch *fetch, const struct failure *failure) {
    if (failure) {
        fprintf(stderr, "bench: %s\n", failure->message);
        exit(1);
    }
    ((struct engine_chain *)fetch)->done = true;
}

static void engine_fetch(struct session *session, struct engine *engine, uint64_t id) {
    struct engine_chain chain = {.fetch.done = engine_chain_done};
    session_fetch(session, id, &chain.fetch);
    engine_kick(engine);
    engine_poll(engine);
    while (!chain.done)
        engine_wait(engine);
    fetch_release(&chain.fetch);
}

static double engine_rate(long count) {
    enum { BATCH = 1024, WINDOW = 65536 };
    struct fault fault;
    struct device *device;
    struct engine *engine;
    struct session *session;
    struct device_options device_options = {0};
    struct engine_options options = {0};
    struct session_limits limits = {.tensors = 1000};
    if (device_open("cpu", &device_options, &device, &fault) || engine_create(device, &options, &engine, &fault) ||
        session_create(engine_sessions(engine), &limits, &session, &fault)) {
        fprintf(stderr, "bench: engine: %s\n", fault.message);
        exit(1);
    }
    uint64_t id = 0, sequence = 0;
    int64_t ints[3] = {DTYPE_F32, 0, 16};
    double value = 1;
    struct op_request full = {.opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &value};
    for (int i = 0; i < 2; i++) {
        full.output = ++id;
        full.sequence = ++sequence;
        session_submit(session, &full);
    }
    double begin = bench_now();
    for (long i = 0; i < count; i++) {
        uint64_t inputs[2] = {id, 1};
        struct op_request add = {
            .opcode = OP_ADD, .n_inputs = 2, .inputs = inputs, .consume = 1, .output = id + 1, .sequence = ++sequence};
        session_submit(session, &add);
        id++;
        if (i % BATCH == BATCH - 1) {
            engine_kick(engine);
            engine_poll(engine);
            if (session_queued(session) > WINDOW)
                engine_fetch(session, engine, id);
        }
    }
    engine_fetch(session, engine, id);
    double rate = (double)count / (bench_now() - begin);
    session_destroy(session);
    engine_destroy(engine);
    return rate;
}

void bench_chain(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    enum { RUNS = 3 };
    const long count = bench_quick ? 100000 : 10000000;
    double rates[RUNS], own[RUNS];
    struct bench_client client;
    bench_client_open(&client, daemon->url, NULL);
    for (int run = 0; run < RUNS; run++) {
        own[run] = engine_rate(count);
        td_tensor *b = bench_vector16(client.device, 1), *x = bench_vector16(client.device, 0);
        float result[16];
        double begin = bench_now();
        x = bench_adds(x, b, count);
        bench_check(td_fetch(x, result, sizeof result), "fetch");
        rates[run] = (double)count / (bench_now() - begin);
        if (result[0] != (float)count)
            fprintf(stderr, "bench: the chain gave %g, not %ld\n", (double)result[0], count), exit(1);
        td_release(x);
        td_release(b);
    }
    bench_client_close(&client);
    char name[96];
    double rate = bench_median(rates, RUNS), engine = bench_median(own, RUNS);
    snprintf(name, sizeof name, "chain of adds of 16 floats (%s)", placement->name);
    bench_row(name, rate, "op/s", 2e6, rate / 2e6, BENCH_HIGHER, 1);
    snprintf(name, sizeof name, "  against the engine alone (%s)", placement->name);
    bench_row(name, rate, "op/s", engine, rate / engine, BENCH_HIGHER, 0.5);
}

/* ---- round trip ---- */

static void echo(int fd) {
    char data[64];
    for (;;) {
        size_t have = 0;
        while (have < sizeof data) {
            ssize_t got = read(fd, data + have, sizeof data - have);
            if (got <= 0)
                _exit(0);
            have += (size_t)got;
        }
        if (write(fd, data, sizeof data) != sizeof data)
            _exit(1);
    }
}

static double raw_round_trip(int rounds) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        echo(pair[1]);
    }
    close(pair[1]);
    double *times = malloc((size_t)rounds * sizeof *times);
    char data[64] = {0};
    for (int i = 0; i < rounds; i++) {
        double begin = bench_now();
        size_t have = 0;
        if (write(pair[0], data, sizeof data) != sizeof data)
            exit(1);
        while (have < sizeof data) {
            ssize_t got = read(pair[0], data + have, sizeof data - have);
            if (got <= 0)
                exit(1);
            have += (size_t)got;
        }
        times[i] = bench_now() - begin;
    }
    close(pair[0]);
    waitpid(child, NULL, 0);
    double median = bench_median(times, (size_t)rounds);
    free(times);
    return median * 1e6;
}

void bench_round_trip(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    const int rounds = bench_quick ? 200 : 20000;
    double raw = raw_round_trip(rounds);
    struct bench_client client;
    bench_client_open(&client, daemon->url, NULL);
    td_tensor *x = bench_vector16(client.device, 1);
    float data[16];
    double *times = malloc((size_t)rounds * sizeof *times);
    for (int i = 0; i < rounds; i++) {
        double begin = bench_now();
        bench_check(td_fetch(x, data, sizeof data), "fetch");
        times[i] = bench_now() - begin;
    }
    double value = bench_median(times, (size_t)rounds) * 1e6;
    free(times);
    bench_client_close(&client);
    char name[96];
    snprintf(name, sizeof name, "fetch of 64 bytes; raw + 20 us (%s)", placement->name);
    bench_row(name, value, "us", raw + 20, value / (raw + 20), BENCH_LOWER, 1);
}

/* ---- many clients: chains of adds, with a round trip every thousand, so that nobody is far ahead of what has run ---- */

struct small {
    td_tensor *x, *b;
};

static void *small_open(struct bench_client *client) {
    static struct small small;
    small = (struct small){bench_vector16(client->device, 0), bench_vector16(client->device, 0)};
    return &small;
}

static long small_round(struct bench_client *client, void *state) {
    struct small *small = state;
    (void)client;
    small->x = bench_adds(small->x, small->b, 1000);
    bench_check(td_wait(small->x), "wait");
    return 1000;
}

void bench_clients(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    const struct bench_work work = {small_open, small_round};
    enum { CLIENTS = BENCH_CLIENTS_MAX };
    const double seconds = bench_quick ? 0.2 : 4;
    double one, many, slowest, ignored;
    char name[96];
    bench_clients_measure(daemon->url, &work, 1, seconds, &one, &ignored);
    bench_clients_measure(daemon->url, &work, CLIENTS, seconds, &many, &slowest);
    snprintf(name, sizeof name, "64 clients, total against one (%s)", placement->name);
    bench_row(name, many, "op/s", one, many / one, BENCH_HIGHER, 0.8);
    snprintf(name, sizeof name, "64 clients, slowest against mean (%s)", placement->name);
    bench_row(name, slowest, "op/s", many / CLIENTS, slowest / (many / CLIENTS), BENCH_HIGHER, 0.5);
}
