/* Operations that read positions out of an index tensor. Each index is checked; the first bad one met is reported, and
 * elements that it would have filled are 0. */
#include "engine/cpu/cpu.h"

#include <string.h>

struct job {
    struct cpu *cpu;
    const struct launch *launch;
    const int64_t *indices;
    const char *x;
    char *out;
    int64_t outer, extent, count, inner; /* x [outer, extent, inner], output [outer, count, inner] */
    int64_t size;
    unsigned parts;
    _Alignas(8) char one[8]; /* one_hot's */
};

/* The first writer claims the report by a code that no reader sees: readers come after the launch. */
static void job_report(const struct job *job, int64_t value, int64_t position) {
    struct report *report = job->launch->report;
    uint32_t none = STATUS_OK;
    if (atomic_compare_exchange_strong(&report->code, &none, STATUS_OUT_OF_RANGE)) {
        report->value = value;
        report->position = position;
        report->limit = job->extent;
    }
}

static inline bool job_index(const struct job *job, int64_t position, int64_t *index) {
    *index = job->indices[position];
    if ((uint64_t)*index < (uint64_t)job->extent) {
        return true;
    }
    job_report(job, *index, position);
    return false;
}

static void take_part(void *context, unsigned part) {
    const struct job *job = context;
    int64_t rows = job->outer * job->count, bytes = job->inner * job->size, index;
    int64_t row = cpu_part_begin(rows, part, job->parts), end = cpu_part_begin(rows, part + 1, job->parts);
    for (; row < end; row++) {
        int64_t outer = row / job->count, position = row % job->count;
        char *out = job->out + row * bytes;
        if (job_index(job, position, &index)) {
            memcpy(out, job->x + (outer * job->extent + index) * bytes, (size_t)bytes);
        } else {
            memset(out, 0, (size_t)bytes);
        }
    }
}

static void take_along_axis_part(void *context, unsigned part) {
    const struct job *job = context;
    int64_t rows = job->outer * job->count, size = job->size, index;
    int64_t row = cpu_part_begin(rows, part, job->parts), end = cpu_part_begin(rows, part + 1, job->parts);
    for (; row < end; row++) {
        const char *x = job->x + row / job->count * job->extent * job->inner * size;
        for (int64_t i = 0; i < job->inner; i++) {
            int64_t position = row * job->inner + i;
            char *out = job->out + position * size;
            if (job_index(job, position, &index)) {
                memcpy(out, x + (index * job->inner + i) * size, (size_t)size);
            } else {
                memset(out, 0, (size_t)size);
            }
        }
    }
}

static void one_hot_part(void *context, unsigned part) {
    const struct job *job = context;
    int64_t row = cpu_part_begin(job->count, part, job->parts), end = cpu_part_begin(job->count, part + 1, job->parts);
    int64_t bytes = job->extent * job->size, index;
    memset(job->out + row * bytes, 0, (size_t)((end - row) * bytes));
    for (; row < end; row++) {
        if (job_index(job, row, &index)) {
            memcpy(job->out + row * bytes + index * job->size, job->one, (size_t)job->size);
        }
    }
}

static void job_run(struct job *job, void (*body)(void *context, unsigned part)) {
    int64_t rows = job->outer * job->count;
    job->parts = cpu_parts(job->cpu, rows * job->inner * (job->size + 8));
    job->parts = rows < job->parts ? (unsigned)rows : job->parts;
    team_run(&job->cpu->team, job->parts, body, job);
}

static struct job job_make(struct cpu *cpu, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    return (struct job){.cpu = cpu,
                        .launch = launch,
                        .indices = launch->inputs[1].data,
                        .x = x->data,
                        .out = out->data,
                        .outer = x->shape[0],
                        .extent = x->shape[1],
                        .inner = x->shape[2],
                        .count = out->shape[1],
                        .size = (int64_t)dtype_size((enum dtype)x->dtype)};
}

int cpu_take(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    struct job job = job_make(cpu, launch);
    (void)fault;
    job_run(&job, take_part);
    return STATUS_OK;
}

int cpu_take_along_axis(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    struct job job = job_make(cpu, launch);
    (void)fault;
    job_run(&job, take_along_axis_part);
    return STATUS_OK;
}

int cpu_one_hot(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    const struct operand *out = &launch->output;
    struct job job = {.cpu = cpu,
                      .launch = launch,
                      .indices = launch->inputs[0].data,
                      .out = out->data,
                      .outer = 1,
                      .inner = 1,
                      .count = out->shape[0],
                      .extent = out->shape[1],
                      .size = (int64_t)dtype_size((enum dtype)out->dtype)};
    const int64_t one = 1;
    const struct cpu_row row = {.n = 1, .data = {job.one, (char *)(uintptr_t)&one}, .stride = {1, 1}};
    (void)fault;
    cpu->kernels->cast[DTYPE_I64][out->dtype](&row);
    job_run(&job, one_hot_part);
    return STATUS_OK;
}
