/* Products of random square matrices against cublasLt called directly; and ten of them, one after another. */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/cuda/cuda.h"

/* Of the client's header where it has them. */
enum { DTYPE_F8E4M3 = 11 };

static const td_dtype dtypes[RAW_TYPES] = {
    [RAW_F32] = TD_F32,
    [RAW_TF32] = TD_F32,
    [RAW_BF16] = TD_BF16,
    [RAW_F16] = TD_F16,
    [RAW_FP8] = (td_dtype)DTYPE_F8E4M3,
};

struct product {
    struct bench_client client;
    td_tensor *a, *b;
};

static td_tensor *factor(td_device *device, enum raw_type type, int64_t n, uint64_t seed) {
    td_tensor *x = bench_made(td_uniform(device, TD_F32, TD_SHAPE(n, n), seed, -1, 1), "uniform");
    if (dtypes[type] == TD_F32)
        return x;
    td_tensor *cast = td_cast(x, dtypes[type]);
    td_release(x);
    return cast;
}

/* False, with td_last_error() set, where the daemon has no such dtype or no product of it. */
static bool product_open(struct product *product, const struct cuda *cuda, enum raw_type type, int64_t n) {
    const td_options options = {.allow_tf32 = type == RAW_TF32};
    bench_client_open(&product->client, cuda->daemon.url, &options);
    product->a = factor(product->client.device, type, n, 1);
    td_tensor *b = factor(product->client.device, type, n, 2);
    product->b = type == RAW_FP8 ? td_transpose(b) : b;
    td_tensor *c = td_matmul(product->a, product->b);
    bool taken = c && td_wait(c) == TD_OK;
    td_release(c);
    return taken;
}

static double products_ours(void *user, long count) {
    struct product *product = user;
    double begin = bench_now();
    for (long i = 0; i < count; i++) {
        td_tensor *c = td_matmul(product->a, product->b);
        while (!c && bench_again(product->client.device))
            c = td_matmul(product->a, product->b);
        td_release(bench_made(c, "matmul"));
    }
    bench_check(td_sync(product->client.device), "sync");
    return bench_now() - begin;
}

static bool refusal(int code) {
    return code == TD_E_DTYPE || code == TD_E_UNSUPPORTED;
}

void cuda_product(struct cuda *cuda, const struct cuda_bench *bench) {
    const int64_t n = cuda->tiny ? bench->size / 32 : bench->size;
    const double operations = 2.0 * (double)n * (double)n * (double)n;
    const struct raw_request open = {.kind = RAW_PRODUCT_OPEN, .type = (uint32_t)bench->what, .n = n};
    struct product product;
    struct raw_reply reply;
    if (!product_open(&product, cuda, (enum raw_type)bench->what, n)) {
        const td_error *error = td_last_error();
        if (!refusal(error->code))
            bench_check(error->code, "matmul");
        cuda_report_not_run(bench, error->message);
        return;
    }
    if (!raw_try(&cuda->raw, &open, &reply))
        bench_fail("cublasLt called directly: %s", reply.error);
    struct cuda_side ours = {.run = products_ours, .user = &product};
    struct cuda_side raw = {.run = cuda_raw_products, .user = &cuda->raw};
    cuda_compare(cuda, &ours, &raw);
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_CLOSE});
    bench_client_close(&product.client);
    cuda_report(bench, 0, operations / ours.seconds / 1e12, operations / raw.seconds / 1e12,
                raw.seconds / ours.seconds);
    bench_note("limit: cublasLt's first choice, workspace of 32 MiB");
}

/* ---- ten in a chain ---- */

enum { TEN = 10, RUNS = 5 };

struct ten {
    struct bench_client client;
    td_tensor *a, *b;
    double enqueue, end; /* seconds since the first call */
};

static td_tensor *ten_enqueue(struct ten *ten) {
    double begin = bench_now();
    td_tensor *x = bench_made(td_matmul(ten->a, ten->b), "matmul");
    for (int i = 1; i < TEN; i++) {
        td_tensor *next = bench_made(td_matmul(x, ten->b), "matmul");
        td_release(x);
        x = next;
    }
    ten->enqueue = bench_now() - begin;
    return x;
}

/* Fetches the last product's first 16 numbers, or all of it into `whole`. */
static void ten_run(struct ten *ten, float *whole) {
    float few[16];
    double begin = bench_now();
    td_tensor *x = ten_enqueue(ten);
    if (whole) {
        bench_check(td_fetch(x, whole, td_tensor_bytes(x)), "fetch");
    } else {
        td_tensor *row = bench_made(td_slice(x, 0, 0, 1, 1), "slice");
        td_tensor *corner = bench_made(td_slice(row, 1, 0, 16, 1), "slice");
        bench_check(td_fetch(corner, few, sizeof few), "fetch");
        td_release(row);
        td_release(corner);
    }
    ten->end = bench_now() - begin;
    td_release(x);
    bench_check(td_sync(ten->client.device), "sync");
}

static double ten_raw(const struct cuda *cuda) {
    return raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_CHAIN, .count = TEN}).seconds;
}

struct ten_times {
    double enqueue[RUNS], few[RUNS], all[RUNS], raw[RUNS], socket[RUNS];
};

static void ten_measure(struct cuda *cuda, struct ten *ten, int64_t n, struct ten_times *times) {
    const size_t bytes = (size_t)n * (size_t)n * sizeof(float);
    float *whole = malloc(bytes);
    struct bench_socket to;
    memset(whole, 1, bytes);
    bench_socket_open(&to, false, bytes, RUNS + 1);
    for (int i = -1; i < RUNS; i++) { /* once to warm up */
        double raw = ten_raw(cuda);
        ten_run(ten, NULL);
        double few = ten->end, enqueue = ten->enqueue;
        ten_run(ten, whole);
        double socket = bench_socket_copy(&to, (const char *)whole);
        if (i < 0)
            continue;
        times->raw[i] = raw;
        times->few[i] = few;
        times->enqueue[i] = enqueue;
        times->all[i] = ten->end;
        times->socket[i] = socket;
    }
    bench_socket_close(&to);
    free(whole);
}

void cuda_ten(struct cuda *cuda, const struct cuda_bench *bench) {
    const int64_t n = cuda->tiny ? 100 : bench->size;
    struct ten ten;
    struct ten_times times;
    bench_client_open(&ten.client, cuda->daemon.url, NULL);
    ten.a = factor(ten.client.device, RAW_F32, n, 1);
    ten.b = factor(ten.client.device, RAW_F32, n, 2);
    bench_check(td_sync(ten.client.device), "sync");
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_PRODUCT_OPEN, .type = RAW_F32, .n = n});
    ten_measure(cuda, &ten, n, &times);
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_CLOSE});
    bench_client_close(&ten.client);
    double enqueue = bench_median(times.enqueue, RUNS) * 1e3, raw = bench_median(times.raw, RUNS);
    double few = bench_median(times.few, RUNS), all = bench_median(times.all, RUNS);
    double whole = raw + bench_median(times.socket, RUNS);
    cuda_report(bench, 0, enqueue, 1, enqueue);
    cuda_report(bench, 1, few, raw, few / raw);
    bench_note("limit: the ten products by cublasLt called directly, and a synchronisation");
    cuda_report(bench, 2, all, whole, all / whole);
    bench_note("limit: the same, and a bare copy of as many bytes over a Unix socket");
}
