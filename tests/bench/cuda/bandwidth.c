/* Operations that only move memory, on 1 GiB, against a copy on the device: bytes read and written, each counted once. */
#include <math.h>

#include "tests/bench/cuda/cuda.h"

struct job {
    td_device *device;
    td_tensor *a, *b;
    td_tensor *(*operation)(const struct job *job);
};

static td_tensor *do_add(const struct job *job) {
    return td_add(job->a, job->b);
}

static td_tensor *do_cast(const struct job *job) {
    return td_cast(job->a, TD_BF16);
}

static td_tensor *do_transpose(const struct job *job) {
    return td_copy(job->b); /* a view across a */
}

static td_tensor *do_sum(const struct job *job) {
    return td_sum(job->a, TD_ALL_AXES, 0);
}

static td_tensor *do_sum_rows(const struct job *job) {
    return td_sum(job->a, TD_AXES(1), 0);
}

static td_tensor *do_sum_columns(const struct job *job) {
    return td_sum(job->a, TD_AXES(0), 0);
}

static td_tensor *do_softmax(const struct job *job) {
    return td_softmax(job->a, 1);
}

/* Indexed by what main.c's rows name. Bytes moved, as multiples of the input's, but for what is too little to count. */
static const struct {
    td_tensor *(*operation)(const struct job *job);
    double moved;
} kinds[] = {
    {do_add, 3}, {do_cast, 1.5}, {do_transpose, 2}, {do_sum, 1}, {do_sum_rows, 1}, {do_sum_columns, 1}, {do_softmax, 2},
};

static double bandwidth_ours(void *user, long count) {
    const struct job *job = user;
    double begin = bench_now();
    for (long i = 0; i < count; i++) {
        td_tensor *result = job->operation(job);
        while (!result && bench_again(job->device))
            result = job->operation(job);
        td_release(bench_made(result, "operation"));
    }
    bench_check(td_sync(job->device), "sync");
    return bench_now() - begin;
}

/* Rows of `columns` float32, or as many as there are columns. */
static td_tensor *matrix(td_device *device, size_t bytes, int64_t columns, uint64_t seed) {
    const int64_t elements = (int64_t)(bytes / sizeof(float));
    if (columns == 0 || columns > elements)
        columns = (int64_t)lround(sqrt((double)elements));
    return bench_made(td_uniform(device, TD_F32, TD_SHAPE(elements / columns, columns), seed, -1, 1), "uniform");
}

void cuda_bandwidth(struct cuda *cuda, const struct cuda_bench *bench) {
    const size_t bytes = cuda->tiny ? 1 << 20 : 1 << 30; /* a power of four, in floats: square */
    const double moved = kinds[bench->what].moved * (double)bytes, copied = 2.0 * (double)bytes;
    struct bench_client client;
    bench_client_open(&client, cuda->daemon.url, NULL);
    struct job job = {.device = client.device, .operation = kinds[bench->what].operation};
    job.a = matrix(client.device, bytes, bench->size, 1);
    job.b = job.operation == do_add ? matrix(client.device, bytes, 0, 2) : bench_made(td_transpose(job.a), "transpose");
    bench_check(td_wait(job.b), "wait");
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_COPY_OPEN, .bytes = bytes});
    struct cuda_side ours = {.run = bandwidth_ours, .user = &job};
    struct cuda_side raw = {.run = cuda_raw_copies, .user = &cuda->raw};
    cuda_compare(cuda, &ours, &raw);
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_CLOSE});
    bench_client_close(&client);
    double rate = moved / ours.seconds, limit = copied / raw.seconds;
    cuda_report(bench, 0, rate / 1e9, limit / 1e9, rate / limit);
    bench_note("%.4g GiB counted; limit: cudaMemcpyAsync of %.4g GiB on the device, which counts twice",
               moved / (1 << 30), (double)bytes / (1 << 30));
}

/* CUB's sum is of floats in float32; ours goes on in float64. */
void cuda_sum(struct cuda *cuda, const struct cuda_bench *bench) {
    const size_t bytes = cuda->tiny ? 1 << 20 : 1 << 30;
    struct bench_client client;
    bench_client_open(&client, cuda->daemon.url, NULL);
    struct job job = {.device = client.device, .operation = do_sum};
    job.a = matrix(client.device, bytes, 0, 1);
    bench_check(td_wait(job.a), "wait");
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_COPY_OPEN, .bytes = bytes});
    struct cuda_side ours = {.run = bandwidth_ours, .user = &job};
    struct cuda_side raw = {.run = cuda_raw_sums, .user = &cuda->raw};
    cuda_compare(cuda, &ours, &raw);
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_CLOSE});
    bench_client_close(&client);
    cuda_report(bench, 0, (double)bytes / ours.seconds / 1e9, (double)bytes / raw.seconds / 1e9,
                raw.seconds / ours.seconds);
    bench_note("limit: cub::DeviceReduce::Sum called directly");
}
