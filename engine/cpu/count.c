/* histogram: each part counts in bins of its own, which are added at the end. */
#include "engine/cpu/cpu.h"

#include <string.h>

enum {
    BLOCK = 1024,    /* elements that are converted at a time */
    PIECE = 1 << 16, /* elements between two looks whether to stop */
};

struct job {
    struct cpu_job base;
    cpu_row_function *widen; /* to f64; NULL: the elements are f64 */
    const char *x;
    int64_t *out, *bins; /* those of the first part are the output */
    int64_t n, count, size;
    double low, high, scale;
};

static void count_block(const struct job *job, const double *x, int64_t n, int64_t *bins) {
    for (int64_t i = 0; i < n; i++) {
        if (x[i] >= job->low && x[i] <= job->high) {
            int64_t bin = (int64_t)((x[i] - job->low) * job->scale);
            bins[bin < job->count ? bin : job->count - 1]++;
        }
    }
}

static bool count_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->n, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->n, lane->part + 1, base->parts), since = 0;
    int64_t *bins = lane->part ? job->bins + (lane->part - 1) * job->count : job->out;
    double block[BLOCK];
    if (lane->position == 0) {
        memset(bins, 0, (size_t)job->count * sizeof *bins);
    }
    for (int64_t at = begin + lane->position; at < end; at += BLOCK) {
        int64_t n = end - at < BLOCK ? end - at : BLOCK;
        char *x = (char *)(uintptr_t)job->x + at * job->size;
        if (since >= PIECE && cpu_job_stops(base)) {
            lane->position = at - begin;
            return false;
        }
        since = since >= PIECE ? 0 : since + n;
        if (job->widen) {
            job->widen(&(struct cpu_row){n, {(char *)block, x}, {1, 1}});
        }
        count_block(job, job->widen ? block : (const double *)(const void *)x, n, bins);
    }
    return true;
}

static void count_end(struct cpu_job *base) {
    const struct job *job = (const struct job *)base;
    for (unsigned part = 1; part < base->parts; part++) {
        for (int64_t i = 0; i < job->count; i++) {
            job->out[i] += job->bins[(part - 1) * job->count + i];
        }
    }
}

/* As many parts as there are threads, unless there are more bins than elements for each. */
static unsigned count_parts(const struct cpu *cpu, const struct launch *launch) {
    int64_t n = launch->inputs[0].shape[0], bins = launch->output.shape[0];
    unsigned parts = cpu_parts(cpu, (double)n * 16);
    parts = parts < cpu->team.threads ? parts : cpu->team.threads;
    return (int64_t)parts > n / bins ? 1 : parts;
}

static uint64_t count_workspace(struct device *device, const struct launch *launch) {
    return (uint64_t)(count_parts((const struct cpu *)device, launch) - 1) * (uint64_t)launch->output.shape[0] *
           sizeof(int64_t);
}

static int histogram_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *x = &launch->inputs[0];
    enum dtype dtype = (enum dtype)x->dtype;
    struct histogram_attributes given;
    (void)fault;
    histogram_attributes_read(&launch->attributes, &given);
    struct job job = {.base = {.cpu = cpu, .run = count_part, .end = count_end, .parts = count_parts(cpu, launch)},
                      .widen = dtype == DTYPE_F64 ? NULL : cpu->kernels->cast[dtype][DTYPE_F64],
                      .x = x->data,
                      .out = launch->output.data,
                      .bins = launch->workspace,
                      .n = x->shape[0],
                      .count = given.bins,
                      .size = (int64_t)dtype_size(dtype),
                      .low = given.low,
                      .high = given.high,
                      .scale = (double)given.bins / (given.high - given.low)};
    cpu_job_begin(&job.base, sizeof job, (double)job.n * 16, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_histogram = {{.workspace = count_workspace}, histogram_run};
