/* Operations that read positions out of an index tensor. Each index is checked. One wrong index is reported, and elements that a wrong
 * index would have filled are 0. */
#include "engine/cpu/cpu.h"

#include <string.h>

enum { PIECE_BYTES = 1 << 18 }; /* of a row that is copied in pieces */

struct job {
    struct cpu_job base;
    const struct launch *launch;
    const void *indices;
    enum dtype index_dtype;
    const char *x;
    char *out;
    int64_t outer, extent, count, inner; /* x [outer, extent, inner], output [outer, count, inner] */
    int64_t size;
    int64_t piece, pieces;   /* elements of a piece of a row, and pieces of a row */
    _Alignas(8) char one[8]; /* the value that one_hot writes */
};

/* The first thread claims the report by setting its code. No reader sees a code without its figures: readers come after the launch. */
static void job_report(const struct job *job, int64_t value, int64_t position) {
    struct report *report = job->launch->report;
    uint32_t none = STATUS_OK;
    if (atomic_compare_exchange_strong(&report->code, &none, STATUS_OUT_OF_RANGE)) {
        report->value = value;
        report->position = position;
        report->limit = job->extent;
    }
}

static inline int64_t job_read(const struct job *job, int64_t position) {
    switch (job->index_dtype) {
    case DTYPE_U8:
        return ((const uint8_t *)job->indices)[position];
    case DTYPE_I8:
        return ((const int8_t *)job->indices)[position];
    case DTYPE_I16:
        return ((const int16_t *)job->indices)[position];
    case DTYPE_I32:
        return ((const int32_t *)job->indices)[position];
    case DTYPE_U16:
        return ((const uint16_t *)job->indices)[position];
    case DTYPE_U32:
        return ((const uint32_t *)job->indices)[position];
    default:
        return ((const int64_t *)job->indices)[position];
    }
}

static inline bool job_index(const struct job *job, int64_t position, int64_t *index) {
    *index = job_read(job, position);
    if ((uint64_t)*index < (uint64_t)job->extent) {
        return true;
    }
    job_report(job, *index, position);
    return false;
}

/* The first piece of a part; parts are made of pieces of rows. */
static int64_t part_begin(const struct job *job, int64_t part) {
    return cpu_part_begin(job->outer * job->count * job->pieces, part, job->base.parts);
}

/* Where a piece begins in its row; *n: its elements. */
static int64_t piece_begin(const struct job *job, int64_t piece, int64_t *n) {
    int64_t begin = piece % job->pieces * job->piece, left = job->inner - begin;
    *n = left < job->piece ? left : job->piece;
    return begin;
}

static bool take_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t piece = part_begin(job, lane->part), end = part_begin(job, lane->part + 1);
    for (; piece < end; piece++) {
        int64_t row = piece / job->pieces, n, index, begin = piece_begin(job, piece, &n);
        int64_t outer = row / job->count, position = row % job->count;
        char *out = job->out + (row * job->inner + begin) * job->size;
        if (job_index(job, position, &index)) {
            memcpy(out, job->x + ((outer * job->extent + index) * job->inner + begin) * job->size,
                   (size_t)(n * job->size));
        } else {
            memset(out, 0, (size_t)(n * job->size));
        }
    }
    return true;
}

static bool take_along_axis_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t piece = part_begin(job, lane->part), end = part_begin(job, lane->part + 1), size = job->size;
    for (; piece < end; piece++) {
        int64_t row = piece / job->pieces, n, index, begin = piece_begin(job, piece, &n);
        const char *x = job->x + row / job->count * job->extent * job->inner * size;
        for (int64_t i = begin; i < begin + n; i++) {
            int64_t position = row * job->inner + i;
            char *out = job->out + position * size;
            if (job_index(job, position, &index)) {
                memcpy(out, x + (index * job->inner + i) * size, (size_t)size);
            } else {
                memset(out, 0, (size_t)size);
            }
        }
    }
    return true;
}

static bool one_hot_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t piece = part_begin(job, lane->part), end = part_begin(job, lane->part + 1);
    for (; piece < end; piece++) {
        int64_t row = piece / job->pieces, n, index, begin = piece_begin(job, piece, &n);
        char *out = job->out + row * job->inner * job->size;
        memset(out + begin * job->size, 0, (size_t)(n * job->size));
        if (job_index(job, row, &index) && index >= begin && index < begin + n) {
            memcpy(out + index * job->size, job->one, (size_t)job->size);
        }
    }
    return true;
}

static void job_run(struct job *job, bool (*run)(struct cpu_job *job, struct cpu_lane *lane), struct cpu_job **begun) {
    double rows = (double)job->outer * (double)job->count;
    double work = rows * (double)job->inner * (double)(job->size + 8) + rows * 8;
    job->piece = PIECE_BYTES / job->size;
    job->pieces = (job->inner + job->piece - 1) / job->piece;
    job->base.run = run;
    job->base.parts = cpu_parts(job->base.cpu, work);
    job->base.parts =
        rows * (double)job->pieces < job->base.parts ? (unsigned)(rows * (double)job->pieces) : job->base.parts;
    cpu_job_begin(&job->base, sizeof *job, work, begun);
}

static struct job job_make(struct cpu *cpu, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    return (struct job){.base.cpu = cpu,
                        .launch = launch,
                        .indices = launch->inputs[1].data,
                        .index_dtype = (enum dtype)launch->inputs[1].dtype,
                        .x = x->data,
                        .out = out->data,
                        .outer = x->shape[0],
                        .extent = x->shape[1],
                        .inner = x->shape[2],
                        .count = out->shape[1],
                        .size = (int64_t)dtype_size((enum dtype)x->dtype)};
}

static int take_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job = job_make(cpu, launch);
    (void)fault;
    job_run(&job, take_part, begun);
    return STATUS_OK;
}

static int take_along_axis_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job = job_make(cpu, launch);
    (void)fault;
    job_run(&job, take_along_axis_part, begun);
    return STATUS_OK;
}

static int one_hot_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *out = &launch->output;
    struct job job = {.base.cpu = cpu,
                      .launch = launch,
                      .indices = launch->inputs[0].data,
                      .index_dtype = (enum dtype)launch->inputs[0].dtype,
                      .out = out->data,
                      .outer = 1,
                      .inner = out->shape[1],
                      .count = out->shape[0],
                      .extent = out->shape[1],
                      .size = (int64_t)dtype_size((enum dtype)out->dtype)};
    const int64_t one = 1;
    const struct cpu_row row = {.n = 1, .data = {job.one, (char *)(uintptr_t)&one}, .stride = {1, 1}};
    (void)fault;
    cpu->kernels->cast[DTYPE_I64][out->dtype](&row);
    job_run(&job, one_hot_part, begun);
    return STATUS_OK;
}

/* These operations convert their positions as they read them. */
static bool converts_positions(const struct device *device, unsigned opcode, enum dtype from, enum dtype to) {
    (void)device;
    (void)opcode;
    return to == DTYPE_I64 && dtype_kind(from) == DTYPE_KIND_INT;
}

const struct cpu_kernel cpu_kernel_take = {{.converts = converts_positions}, take_run};
const struct cpu_kernel cpu_kernel_take_along_axis = {{.converts = converts_positions}, take_along_axis_run};
const struct cpu_kernel cpu_kernel_one_hot = {{.converts = converts_positions}, one_hot_run};
