/* The process that calls CUDA directly, from inside. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/bench/bench.h"
#include "tests/bench/cuda/raw.h"
#include "tests/bench/cuda/raw_cuda.h"

enum { SMALL_BYTES = 64 };

struct state {
    int ordinal;
    cudaStream_t stream;
    float *x, *b; /* of small adds; NULL: not yet */
    cudaGraphExec_t graph;
    int64_t graph_adds; /* in the graph; 0: there is none */
    void *from, *to;
    uint64_t copy_bytes;
    struct raw_product product;
    cudaMemPool_t pool; /* of blocks; NULL: not yet */
    void *blocks[RAW_BLOCKS];
};

static const char *cuda_words(cudaError_t error) {
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t try_error = (call);                                                                                \
        if (try_error != cudaSuccess)                                                                                  \
            return cuda_words(try_error);                                                                              \
    } while (0)

static const char *do_context(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    size_t free_bytes, total;
    (void)state, (void)request;
    TRY(cudaMemGetInfo(&free_bytes, &total));
    reply->free_bytes = free_bytes;
    return NULL;
}

static const char *open_small(struct state *state) {
    if (state->x)
        return NULL;
    TRY(cudaMalloc((void **)&state->x, SMALL_BYTES));
    TRY(cudaMalloc((void **)&state->b, SMALL_BYTES));
    TRY(cudaMemsetAsync(state->x, 0, SMALL_BYTES, state->stream));
    TRY(cudaMemsetAsync(state->b, 0, SMALL_BYTES, state->stream));
    TRY(cudaStreamSynchronize(state->stream));
    return NULL;
}

static const char *open_graph(struct state *state, int64_t adds) {
    cudaGraph_t graph;
    if (state->graph_adds == adds)
        return NULL;
    if (state->graph_adds)
        TRY(cudaGraphExecDestroy(state->graph));
    state->graph_adds = 0;
    TRY(cudaStreamBeginCapture(state->stream, cudaStreamCaptureModeThreadLocal));
    TRY(raw_adds(state->x, state->b, adds, state->stream));
    TRY(cudaStreamEndCapture(state->stream, &graph));
    TRY(cudaGraphInstantiate(&state->graph, graph, 0));
    TRY(cudaGraphDestroy(graph));
    state->graph_adds = adds;
    return NULL;
}

static const char *do_graph(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    const char *error = open_small(state);
    if (!error)
        error = open_graph(state, request->n);
    if (error)
        return error;
    double begin = bench_now();
    for (int64_t i = 0; i < request->count; i++)
        TRY(cudaGraphLaunch(state->graph, state->stream));
    TRY(cudaStreamSynchronize(state->stream));
    reply->seconds = bench_now() - begin;
    return NULL;
}

static const char *do_launches(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    const char *error = open_small(state);
    if (error)
        return error;
    double begin = bench_now();
    TRY(raw_adds(state->x, state->b, request->count, state->stream));
    TRY(cudaStreamSynchronize(state->stream));
    reply->seconds = bench_now() - begin;
    return NULL;
}

static const char *do_close(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    (void)request, (void)reply;
    TRY(cudaFree(state->from));
    TRY(cudaFree(state->to));
    state->from = state->to = NULL;
    raw_product_close(&state->product);
    return NULL;
}

static const char *do_copy_open(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    const char *error = do_close(state, request, reply);
    if (error)
        return error;
    state->copy_bytes = request->bytes;
    TRY(cudaMalloc(&state->from, request->bytes));
    TRY(cudaMalloc(&state->to, request->bytes));
    TRY(raw_fill(state->from, RAW_F32, (int64_t)(request->bytes / sizeof(float)), 1, state->stream));
    TRY(cudaStreamSynchronize(state->stream));
    return NULL;
}

static const char *do_copy(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    double begin = bench_now();
    for (int64_t i = 0; i < request->count; i++)
        TRY(cudaMemcpyAsync(state->to, state->from, state->copy_bytes, cudaMemcpyDeviceToDevice, state->stream));
    TRY(cudaStreamSynchronize(state->stream));
    reply->seconds = bench_now() - begin;
    return NULL;
}

static const char *do_sum(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    const int64_t n = (int64_t)(state->copy_bytes / sizeof(float));
    double begin = bench_now();
    TRY(raw_sums(state->from, n, state->to, state->copy_bytes, request->count, state->stream));
    TRY(cudaStreamSynchronize(state->stream));
    reply->seconds = bench_now() - begin;
    return NULL;
}

static const char *do_product_open(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    const char *error = do_close(state, request, reply);
    if (!error)
        error = raw_product_open(&state->product, (int)request->type, request->n, state->stream);
    if (error)
        return error;
    TRY(cudaStreamSynchronize(state->stream));
    return NULL;
}

static const char *do_product(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    double begin = bench_now();
    const char *error = request->kind == RAW_CHAIN ? raw_product_chain(&state->product, request->count, state->stream)
                                                   : raw_product_run(&state->product, request->count, state->stream);
    if (error)
        return error;
    TRY(cudaStreamSynchronize(state->stream));
    reply->seconds = bench_now() - begin;
    return NULL;
}

static const char *do_allocate(struct state *state, const struct raw_request *request, struct raw_reply *reply) {
    uint64_t keep = UINT64_MAX, random = RAW_SEED;
    if (!state->pool) {
        TRY(cudaDeviceGetDefaultMemPool(&state->pool, state->ordinal));
        TRY(cudaMemPoolSetAttribute(state->pool, cudaMemPoolAttrReleaseThreshold, &keep));
    }
    double begin = bench_now();
    for (int64_t i = 0; i < request->count; i++) {
        void **place = &state->blocks[i % RAW_BLOCKS];
        if (*place)
            TRY(cudaFreeAsync(*place, state->stream));
        *place = NULL;
        TRY(cudaMallocAsync(place, raw_block_bytes(&random, request->bytes), state->stream));
    }
    reply->seconds = bench_now() - begin;
    TRY(cudaStreamSynchronize(state->stream));
    return NULL;
}

typedef const char *raw_do(struct state *state, const struct raw_request *request, struct raw_reply *reply);
static raw_do *const does[RAW_KINDS] = {
    [RAW_CONTEXT] = do_context,     [RAW_LAUNCHES] = do_launches, [RAW_GRAPH] = do_graph,
    [RAW_COPY_OPEN] = do_copy_open, [RAW_COPY] = do_copy,         [RAW_PRODUCT_OPEN] = do_product_open,
    [RAW_PRODUCT] = do_product,     [RAW_SUM] = do_sum,           [RAW_CHAIN] = do_product,
    [RAW_ALLOCATE] = do_allocate,   [RAW_CLOSE] = do_close,
};

static const char *state_init(struct state *state, int ordinal) {
    int count; /* asked for, since it tells best why there is no GPU */
    *state = (struct state){.ordinal = ordinal};
    TRY(cudaGetDeviceCount(&count));
    TRY(cudaSetDevice(ordinal));
    TRY(cudaStreamCreateWithPriority(&state->stream, cudaStreamNonBlocking, 0));
    return NULL;
}

int raw_main(int fd, int ordinal) {
    struct state state;
    struct raw_request request;
    const char *broken = state_init(&state, ordinal);
    while (recv(fd, &request, sizeof request, 0) == sizeof request) {
        struct raw_reply reply = {0};
        const char *error = broken ? broken : does[request.kind](&state, &request, &reply);
        snprintf(reply.error, sizeof reply.error, "%s", error ? error : "");
        if (send(fd, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply)
            return 1;
    }
    return 0; /* nobody asks any more */
}
