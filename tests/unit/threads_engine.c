/* The engine's threads under ThreadSanitizer, hence a plain main: random graphs over several streams and sessions on
 * the CPU device, with small and large tensors, so that owner, submitter and the device's team all have their part.
 * Every value is checked against the same sums done here. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/program/kernel.h"
#include "engine/session/session.h"
#include "engine/watch/trace.h"
#include "tests/stand_ins/late.h"
#include "tests/stand_ins/launch.h"
#include "tests/unit/requests.h"

enum { STREAMS = 4, TENSORS = 24, ROUNDS = 400 };

static struct engine *engine;
static bool kernels; /* the device takes them */
static uint32_t seed = 12345;

static unsigned pick(unsigned limit) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 10) % limit;
}

static void expect(int good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "threads_engine: %s\n", what);
    exit(1);
}

/* One session's tensors: all elements of tensor i are `value[i]`. */
struct graph {
    struct session *session;
    uint64_t ids[TENSORS], next_id, sequence;
    double value[TENSORS];
    int64_t elements;
    uint64_t kernel; /* the newest one's id */
};

static void submit(struct graph *graph, struct op_request *request) {
    request->stream = pick(STREAMS);
    request->output = ++graph->next_id;
    request->sequence = ++graph->sequence;
    request->label = pick(2) ? "layer" : NULL;
    expect(session_submit(graph->session, request) == STATUS_OK, "submit");
}

static void fill(struct graph *graph, unsigned at) {
    double value = pick(100);
    struct op_request request = REQUEST_FULL(DTYPE_F64, graph->elements, value, );
    submit(graph, &request);
    graph->ids[at] = graph->next_id;
    graph->value[at] = value;
}

static void *compile_job(void *job) {
    kernel_job_compile(job);
    return NULL;
}

static void *load_job(void *job) {
    kernel_job_load(job);
    return NULL;
}

/* A kernel, compiled by another thread while the engine's are at work; the one before is released. */
static void compile(struct graph *graph) {
    struct kernel_job job;
    struct fault fault;
    pthread_t thread;
    expect(kernel_job_init(&job, engine_kernels(engine), "a source", "mean", &fault) == STATUS_OK, "kernel");
    expect(session_kernel_id(graph->session, graph->kernel + 1, &fault) == STATUS_OK, "kernel's id");
    if (!kernel_job_compiled(&job)) {
        expect(!pthread_create(&thread, NULL, compile_job, &job), "thread");
        engine_poll(engine);
        pthread_join(thread, NULL);
    }
    expect(kernel_job_charge(&job, graph->session) == STATUS_OK, "kernel's bytes");
    expect(!pthread_create(&thread, NULL, load_job, &job), "thread");
    if (graph->kernel)
        session_kernel_release(graph->session, graph->kernel, &fault);
    engine_kick(engine);
    engine_poll(engine);
    pthread_join(thread, NULL);
    expect(kernel_job_bind(&job, graph->session, ++graph->kernel, &fault) == STATUS_OK, "bind");
    kernel_job_finish(&job);
}

static void launch_mean(struct graph *graph, uint64_t a, uint64_t b) {
    const struct kernel_attributes launch = {
        .kernel = (int64_t)graph->kernel,
        .grid = LAUNCH_LIST(1, 1, 1),
        .block = LAUNCH_LIST(1, 1, 1),
        .arguments = LAUNCH_LIST(KERNEL_OUTPUT, KERNEL_INPUT, KERNEL_INPUT, KERNEL_BITS64),
        .numbers = LAUNCH_LIST(graph->elements),
        .results = LAUNCH_LIST(DTYPE_F64, 1, graph->elements),
    };
    struct launch_ints ints;
    launch_ints_write(&ints, &launch);
    struct op_request request = {.opcode = OP_KERNEL,
                                 .stream = pick(STREAMS),
                                 .n_inputs = 2,
                                 .inputs = (uint64_t[]){a, b},
                                 .n_ints = ints.count,
                                 .ints = ints.values,
                                 .output = ++graph->next_id,
                                 .sequence = ++graph->sequence};
    expect(session_submit(graph->session, &request) == STATUS_OK, "launch");
}

static void graph_init(struct graph *graph, int64_t elements) {
    struct fault fault;
    struct session_limits limits = {.tensors = 1000, .streams = STREAMS};
    *graph = (struct graph){.elements = elements};
    expect(session_create(engine_sessions(engine), &limits, &graph->session, &fault) == STATUS_OK, "session");
    for (uint32_t i = 1; i < STREAMS; i++)
        expect(session_stream_open(graph->session, i, (int)i - 2, &fault) == STATUS_OK, "stream");
    for (unsigned i = 0; i < TENSORS; i++)
        fill(graph, i);
    if (kernels)
        compile(graph);
}

static void mean(struct graph *graph, unsigned a, unsigned b, bool consume) {
    uint64_t inputs[2] = {graph->ids[a], graph->ids[b]};
    struct op_request add = {.opcode = OP_ADD, .n_inputs = 2, .inputs = inputs, .consume = consume};
    submit(graph, &add);
    uint64_t sum = graph->next_id;
    double half = 0.5;
    int64_t ints[2] = {DTYPE_F64, 0};
    struct op_request scalar = {.opcode = OP_FULL, .n_ints = 2, .ints = ints, .n_floats = 1, .floats = &half};
    submit(graph, &scalar);
    uint64_t product[2] = {sum, graph->next_id};
    struct op_request scale = {.opcode = OP_MULTIPLY, .n_inputs = 2, .inputs = product, .consume = 3};
    submit(graph, &scale);
}

/* One random operation: the mean of two tensors replaces a third. */
static void graph_step(struct graph *graph) {
    unsigned a = pick(TENSORS), b = pick(TENSORS), to = pick(TENSORS);
    if (kernels && pick(50) == 0)
        compile(graph);
    bool launches = kernels && pick(3) == 0;
    if (launches)
        launch_mean(graph, graph->ids[a], graph->ids[b]);
    else
        mean(graph, a, b, to == a);
    if (launches || to != a) {
        struct op_request release = {.opcode = OP_FREE, .n_inputs = 1, .inputs = &graph->ids[to]};
        release.sequence = ++graph->sequence;
        expect(session_submit(graph->session, &release) == STATUS_OK, "free");
    }
    graph->value[to] = (graph->value[a] + graph->value[b]) * 0.5;
    graph->ids[to] = graph->next_id;
}

struct check {
    struct fetch fetch;
    const struct graph *graph;
    double value;
    int *left;
};

static void checked(struct fetch *fetch, const struct failure *failure) {
    struct check *check = (struct check *)fetch;
    expect(!failure, failure ? failure->message : "");
    const double *data = (const double *)(const void *)fetch->data;
    for (int64_t i = 0; i < check->graph->elements; i++)
        expect(data[i] == check->value, "a wrong value");
    --*check->left;
}

static void graph_check(struct graph *graph, int *left, struct check *checks) {
    for (unsigned i = 0; i < TENSORS; i++) {
        checks[i] = (struct check){.fetch.done = checked, .graph = graph, .value = graph->value[i], .left = left};
        ++*left;
        session_fetch(graph->session, graph->ids[i], &checks[i].fetch);
    }
}

/* Now and then a trace begins or ends in the middle of it all; what comes has its times in order. */
static void trace_step(int round) {
    struct trace_event event;
    struct fault fault;
    if (round % 50 == 10)
        expect(engine_trace_start(engine, NULL, 0, &fault) == STATUS_OK, "a trace");
    while (trace_next(engine_trace(engine), &event))
        expect(event.begin_ns <= event.end_ns && *event.name, "an event");
    if (round % 50 == 30)
        trace_stop(engine_trace(engine));
}

int main(int argc, char **argv) {
    struct fault fault;
    struct device *device;
    struct device_options options = {.threads = 2, .memory_total = 1 << 30};
    bool late = argc > 1 && !strcmp(argv[1], "late");
    expect((late ? late_open(&options, &device, &fault) : device_open("cpu", &options, &device, &fault)) == STATUS_OK,
           "device");
    kernels = late;
    expect(engine_create(device, &(struct engine_options){0}, &engine, &fault) == STATUS_OK, "engine");
    struct graph graphs[3];
    const int64_t sizes[3] = {16, 3000, 100000};
    for (int i = 0; i < 3; i++)
        graph_init(&graphs[i], sizes[i]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 3; i++)
            for (int step = 0; step < (i == 2 ? 1 : 10); step++)
                graph_step(&graphs[i]);
        engine_kick(engine);
        engine_poll(engine);
        trace_step(round);
        struct engine_stall stall;
        expect(!engine_stalled(engine, UINT64_C(3600) * 1000000000, &stall), "a stall");
        if (round % 20)
            continue;
        struct check checks[3][TENSORS];
        int left = 0;
        for (int i = 0; i < 3; i++)
            graph_check(&graphs[i], &left, checks[i]);
        while (left)
            engine_wait(engine);
        for (int i = 0; i < 3; i++)
            for (unsigned k = 0; k < TENSORS; k++)
                fetch_release(&checks[i][k].fetch);
    }
    for (int i = 0; i < 3; i++)
        session_destroy(graphs[i].session);
    engine_destroy(engine);
    puts("1 passed, 0 failed");
    return 0;
}
