/* Taking and giving back device memory as a job does, of many sizes, in a window of live blocks: tensord's pool against
 * CUDA's stream-ordered allocator. engine/memory/pool.h says why tensors come from the former. */
#include "engine/memory/pool.h"
#include "tests/bench/cuda/cuda.h"
#include "tests/stand_ins/null_device.h"

/* The pool looks at addresses alone, so a device without memory does. */
struct allocate {
    struct null_device device;
    struct pool pool;
    struct stream *stream;
    struct storage *live[RAW_BLOCKS];
    size_t most;
    const struct raw *raw;
};

static double allocate_run(void *user, long count) {
    struct allocate *allocate = user;
    uint64_t random = RAW_SEED;
    double begin = bench_now();
    for (long i = 0; i < count; i++) {
        struct storage **place = &allocate->live[i % RAW_BLOCKS];
        if (*place)
            storage_unref(*place);
        *place = NULL;
        if (pool_take(&allocate->pool, raw_block_bytes(&random, allocate->most), allocate->stream, NULL, place) !=
            STATUS_OK)
            bench_fail("the pool is out of memory");
        allocate->stream->enqueued++; /* something uses it, and has done so soon after */
        uses_add(&(*place)->uses, allocate->stream, allocate->stream->enqueued);
        if (i % RAW_BLOCKS == 0)
            atomic_store(&allocate->stream->completed, allocate->stream->enqueued);
    }
    return bench_now() - begin;
}

static double raw_run(void *user, long count) {
    const struct allocate *allocate = user;
    return raw_ask(allocate->raw, &(struct raw_request){.kind = RAW_ALLOCATE, .count = count, .bytes = allocate->most})
        .seconds;
}

void cuda_allocate(struct cuda *cuda, const struct cuda_bench *bench) {
    static struct stream stream;
    static struct allocate allocate = {.stream = &stream};
    struct cuda_side ours = {allocate_run, &allocate, 0}, raw = {raw_run, &allocate, 0};
    allocate.most = cuda->tiny ? 64 << 10 : RAW_BLOCK_MAX;
    allocate.raw = &cuda->raw;
    null_device_init(&allocate.device, (uint64_t)RAW_BLOCKS * RAW_BLOCK_MAX * 2);
    pool_init(&allocate.pool, &allocate.device.device);
    cuda_compare(cuda, &ours, &raw);
    double limit = raw.seconds * 1e9, value = ours.seconds * 1e9;
    cuda_report(bench, 0, value, limit, value / limit);
    bench_note(
        "limit: cudaMallocAsync and cudaFreeAsync of the same sizes in the same order, with a pool that keeps all");
}
