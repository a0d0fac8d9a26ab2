/* searchsorted: a binary search for each value. Values of another dtype are converted block by block; what is sorted has the common dtype. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/key.h"

enum {
    PIECE = 4096, /* values between two looks whether to stop */
    BLOCK = 512,  /* values that are converted at a time */
};

struct job {
    struct cpu_job base;
    cpu_search_function *search;
    struct cpu_search in;
    cpu_row_function *convert; /* of values; NULL: they have the dtype */
    const char *values;
    int64_t *out;
    int64_t count, size; /* of a value as it is in memory */
};

static void search_run(const struct job *job, int64_t begin, int64_t end) {
    if (!job->convert) {
        job->search(&job->in, job->values + begin * job->size, end - begin, job->out + begin);
        return;
    }
    _Alignas(8) char block[BLOCK * sizeof(int64_t)];
    for (int64_t n; begin < end; begin += n) {
        n = end - begin < BLOCK ? end - begin : BLOCK;
        char *from = (char *)(uintptr_t)job->values + begin * job->size;
        job->convert(&(struct cpu_row){n, {block, from}, {1, 1}});
        job->search(&job->in, block, n, job->out + begin);
    }
}

static bool search_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->count, lane->part, base->parts) + lane->position;
    int64_t end = cpu_part_begin(job->count, lane->part + 1, base->parts);
    for (; begin < end; begin += PIECE) {
        search_run(job, begin, end - begin < PIECE ? end : begin + PIECE);
        lane->position += PIECE;
        if (begin + PIECE < end && cpu_job_stops(base)) {
            return false;
        }
    }
    return true;
}

static int searchsorted_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *sorted = &launch->inputs[0], *values = &launch->inputs[1];
    struct searchsorted_attributes attributes;
    (void)fault;
    searchsorted_attributes_read(&launch->attributes, &attributes);
    struct job job = {.base = {.cpu = cpu, .run = search_part},
                      .search = cpu->kernels->search[key_place((enum dtype)sorted->dtype)],
                      .in = {.sorted = sorted->data,
                             .n = sorted->shape[0],
                             .infinity = key_infinity((enum dtype)sorted->dtype),
                             .right = attributes.right},
                      .values = values->data,
                      .out = launch->output.data,
                      .count = values->shape[0],
                      .size = (int64_t)dtype_size((enum dtype)values->dtype)};
    if (values->dtype != sorted->dtype) {
        job.convert = cpu->kernels->cast[values->dtype][sorted->dtype];
    }
    double work = (double)job.count * (8 + 16 * (double)(64 - __builtin_clzll((uint64_t)job.in.n)));
    job.base.parts = cpu_parts(cpu, work);
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_searchsorted = {{.converts = cpu_converts_tiles}, searchsorted_run};
