/* Large operations: the price of the way through the daemon should vanish beside them. */
#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/session/session.h"
#include "engine/program/program.h"
#include "tests/bench/bench.h"

extern void openblas_set_num_threads(int threads);

enum { MATMUL_N = 2048, COMPUTE_RUNS = 7 };

static int matmul_n(void) {
    return bench_quick ? 256 : MATMUL_N;
}

static double library_matmul(const struct bench_placement *placement, const float *a, const float *b) {
    const int n = matmul_n();
    float *c = malloc((size_t)n * (size_t)n * sizeof *c);
    double times[COMPUTE_RUNS];
    openblas_set_num_threads((int)placement->cores);
    for (int i = -1; i < COMPUTE_RUNS; i++) {
        double begin = bench_now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a, n, b, n, 0, c, n);
        if (i >= 0)
            times[i] = bench_now() - begin;
    }
    free(c);
    return bench_median(times, COMPUTE_RUNS);
}

static double daemon_matmul(const struct bench_daemon *daemon, const float *a, const float *b) {
    const int64_t shape[2] = {matmul_n(), matmul_n()};
    double times[COMPUTE_RUNS];
    struct bench_client client;
    bench_client_open(&client, daemon->url, NULL);
    td_tensor *ta = bench_made(td_upload(client.device, TD_F32, 2, shape, a), "upload");
    td_tensor *tb = bench_made(td_upload(client.device, TD_F32, 2, shape, b), "upload");
    bench_check(td_wait(tb), "wait");
    for (int i = -1; i < COMPUTE_RUNS; i++) {
        double begin = bench_now();
        td_tensor *c = bench_made(td_matmul(ta, tb), "matmul");
        bench_check(td_wait(c), "wait");
        if (i >= 0)
            times[i] = bench_now() - begin;
        td_release(c);
    }
    bench_client_close(&client);
    return bench_median(times, COMPUTE_RUNS);
}

void bench_matmul(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    size_t n = (size_t)matmul_n() * (size_t)matmul_n();
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    for (size_t i = 0; i < n; i++) {
        a[i] = (float)rand() / (float)RAND_MAX;
        b[i] = (float)rand() / (float)RAND_MAX;
    }
    double ours[3], theirs[3];
    for (int i = 0; i < 3; i++) { /* in turn, so that a drifting clock speed hits both */
        theirs[i] = library_matmul(placement, a, b);
        ours[i] = daemon_matmul(daemon, a, b);
    }
    double library = bench_median(theirs, 3), value = bench_median(ours, 3);
    char name[96];
    snprintf(name, sizeof name, "matmul 2048, against OpenBLAS (%s)", placement->name);
    bench_row(name, value * 1e3, "ms", library * 1e3, library / value, BENCH_HIGHER, 0.97);
    free(a);
    free(b);
}

/* ---- add of 64 MiB, in this process ---- */

struct stream_part {
    pthread_t thread;
    const float *a, *b;
    float *c;
    size_t count;
};

static void *stream_add(void *argument) {
    struct stream_part *part = argument;
    const float *restrict a = part->a, *restrict b = part->b;
    float *restrict c = part->c;
    for (size_t i = 0; i < part->count; i++)
        c[i] = a[i] + b[i];
    return NULL;
}

static double stream_time(unsigned threads, const float *a, const float *b, float *c, size_t count) {
    struct stream_part parts[16];
    double begin = bench_now();
    size_t share = count / threads;
    for (unsigned i = 0; i < threads; i++) {
        parts[i] = (struct stream_part){.a = a + i * share, .b = b + i * share, .c = c + i * share, .count = share};
        pthread_create(&parts[i].thread, NULL, stream_add, &parts[i]);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(parts[i].thread, NULL);
    return bench_now() - begin;
}

struct add_wait {
    struct wait wait;
    bool done;
};

static void add_done(struct wait *wait, const struct failure *failure) {
    if (failure)
        fprintf(stderr, "bench: %s\n", failure->message), exit(1);
    ((struct add_wait *)wait)->done = true;
}

static void engine_wait_for(struct engine *engine, struct session *session, uint64_t id) {
    struct add_wait wait = {.wait.done = add_done};
    session_wait(session, id, &wait.wait);
    engine_kick(engine);
    engine_poll(engine);
    while (!wait.done)
        engine_wait(engine);
}

static double engine_add(struct engine *engine, struct session *session, uint64_t id) {
    uint64_t inputs[2] = {1, 2};
    struct op_request add = {.opcode = OP_ADD, .n_inputs = 2, .inputs = inputs, .output = id, .sequence = id};
    double begin = bench_now();
    session_submit(session, &add);
    engine_wait_for(engine, session, id);
    double time = bench_now() - begin;
    struct op_request release = {.opcode = OP_FREE, .n_inputs = 1, .inputs = &id};
    session_submit(session, &release);
    return time;
}

void bench_add(const struct bench_placement *placement) {
    const size_t count = (bench_quick ? 1 << 20 : 64 << 20) / sizeof(float);
    float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b), *c = malloc(count * sizeof *c);
    for (size_t i = 0; i < count; i++)
        a[i] = b[i] = c[i] = 1;
    struct fault fault;
    struct device *device;
    struct engine *engine;
    struct session *session;
    struct session_limits limits = {.tensors = 1000};
    if (device_open("cpu", &(struct device_options){0}, &device, &fault) ||
        engine_create(device, &(struct engine_options){0}, &engine, &fault) ||
        session_create(engine_sessions(engine), &limits, &session, &fault))
        fprintf(stderr, "bench: engine: %s\n", fault.message), exit(1);
    int64_t ints[3] = {DTYPE_F32, 0, (int64_t)count};
    double value = 1, ours[COMPUTE_RUNS * 3], theirs[COMPUTE_RUNS * 3];
    struct op_request full = {.opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &value};
    for (uint64_t id = 1; id <= 2; id++) {
        full.output = id;
        session_submit(session, &full);
    }
    engine_add(engine, session, 3);
    stream_time(placement->cores, a, b, c, count);
    for (int i = 0; i < COMPUTE_RUNS * 3; i++) {
        theirs[i] = stream_time(placement->cores, a, b, c, count);
        ours[i] = engine_add(engine, session, (uint64_t)i + 4);
    }
    session_destroy(session);
    engine_destroy(engine);
    double time = bench_median(ours, COMPUTE_RUNS * 3), limit = bench_median(theirs, COMPUTE_RUNS * 3);
    char name[96];
    snprintf(name, sizeof name, "add of 64 MiB, against a plain loop (%s)", placement->name);
    bench_row(name, 3e-9 * 4 * (double)count / time, "GB/s", 3e-9 * 4 * (double)count / limit, limit / time,
              BENCH_HIGHER, 0.8);
    free(a);
    free(b);
    free(c);
}
