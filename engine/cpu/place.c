/* pad, tril and triu: each row of the output is a piece of a row of the input, and other elements on its sides. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/walk.h"

#include <string.h>

enum { PIECE = 1 << 16 }; /* bytes between two looks whether to stop */

struct job {
    struct cpu_job base;
    const struct launch *launch;
    const char *x;
    char *out;
    struct walk rows; /* the output's axes but the last */
    int64_t n_rows, columns, size;
    _Alignas(16) char value[16];
    /* pad */
    enum op_pad_mode mode;
    int64_t before[SHAPE_RANK_MAX]; /* what is added in front of each axis */
    /* tril, triu */
    int64_t diagonal;
    bool upper;
};

static void fill(const struct job *job, char *out, int64_t n) {
    switch (job->size) {
#define FILL(bytes, T)                                                                                                 \
    case bytes: {                                                                                                      \
        T value;                                                                                                       \
        memcpy(&value, job->value, sizeof value);                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            ((T *)(void *)out)[i] = value;                                                                             \
        }                                                                                                              \
        break;                                                                                                         \
    }
        FILL(1, uint8_t)
        FILL(2, uint16_t)
        FILL(4, uint32_t)
        FILL(8, uint64_t)
        FILL(16, struct cpu_pair)
    }
}

/* n elements of a row of x, which lie `stride` apart. */
static void copy(const struct job *job, char *out, const char *x, int64_t stride, int64_t n) {
    if (stride == 1) {
        job->base.cpu->kernels->move(out, x, (size_t)(n * job->size));
        return;
    }
    switch (job->size) {
#define COPY(bytes, T)                                                                                                 \
    case bytes:                                                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            ((T *)(void *)out)[i] = ((const T *)(const void *)x)[i * stride];                                          \
        }                                                                                                              \
        break;
        COPY(1, uint8_t)
        COPY(2, uint16_t)
        COPY(4, uint32_t)
        COPY(8, uint64_t)
        COPY(16, struct cpu_pair)
    }
}

/* Where element `at` of an axis of the padded tensor is on the axis of x; -1: nowhere, it is the value. */
static inline int64_t pad_source(enum op_pad_mode mode, int64_t at, int64_t before, int64_t extent) {
    int64_t from = at - before;
    if (from >= 0 && from < extent) {
        return from;
    }
    switch (mode) {
    case OP_PAD_MODE_REFLECT:
        return from < 0 ? -from : 2 * (extent - 1) - from;
    case OP_PAD_MODE_EDGE:
        return from < 0 ? 0 : extent - 1;
    case OP_PAD_MODE_WRAP:
        return from < 0 ? from + extent : from - extent;
    default:
        return -1;
    }
}

/* Elements `begin` to `end` - 1 of a row, of which none is in x itself. */
static void pad_side(const struct job *job, char *out, const char *x, int64_t begin, int64_t end) {
    const struct operand *operand = &job->launch->inputs[0];
    int last = operand->rank - 1;
    if (job->mode == OP_PAD_MODE_CONSTANT) {
        fill(job, out + begin * job->size, end - begin);
        return;
    }
    for (int64_t at = begin; at < end; at++) {
        int64_t from = pad_source(job->mode, at, job->before[last], operand->shape[last]);
        memcpy(out + at * job->size, x + from * operand->strides[last] * job->size, (size_t)job->size);
    }
}

static void pad_row(const struct job *job, const struct walk *at, char *out) {
    const struct operand *x = &job->launch->inputs[0];
    const char *from = job->x;
    int last = x->rank - 1;
    for (int i = 0; i < last; i++) {
        int64_t source = pad_source(job->mode, at->index[i], job->before[i], x->shape[i]);
        if (source < 0) {
            fill(job, out, job->columns);
            return;
        }
        from += source * x->strides[i] * job->size;
    }
    int64_t before = job->before[last], extent = x->shape[last];
    pad_side(job, out, from, 0, before);
    copy(job, out + before * job->size, from, x->strides[last], extent);
    pad_side(job, out, from, before + extent, job->columns);
}

static void triangle_row(const struct job *job, const struct walk *at, char *out) {
    const struct operand *x = &job->launch->inputs[0];
    int last = x->rank - 1;
    const char *from = job->x;
    for (int i = 0; i < last; i++) {
        from += at->index[i] * x->strides[i] * job->size;
    }
    /* The first column that is not in the lower triangle, or that is in the upper one. No sum overflows: a diagonal is far
     * from 2^63 wherever it is inside. */
    int64_t row = at->index[last - 1], n = job->columns;
    int64_t border = job->diagonal < -row ? 0 : job->diagonal >= n - row ? n : row + job->diagonal;
    if (!job->upper && job->diagonal >= -row && job->diagonal < n - row) {
        border++;
    }
    int64_t stride = x->strides[last], begin = job->upper ? border : 0, end = job->upper ? n : border;
    fill(job, out, begin);
    copy(job, out + begin * job->size, from + begin * stride * job->size, stride, end - begin);
    fill(job, out + end * job->size, n - end);
}

static bool place_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct walk at = job->rows;
    int64_t begin = cpu_part_begin(job->n_rows, lane->part, base->parts) + lane->position;
    int64_t end = cpu_part_begin(job->n_rows, lane->part + 1, base->parts), since = 0, bytes = job->columns * job->size;
    walk_seek(&at, NULL, begin);
    for (int64_t row = begin; row < end; row++, walk_advance(&at, 1)) {
        if (job->launch->opcode == OP_PAD) {
            pad_row(job, &at, job->out + row * bytes);
        } else {
            triangle_row(job, &at, job->out + row * bytes);
        }
        lane->position++;
        since += bytes;
        if (since >= PIECE && row + 1 < end) {
            since = 0;
            if (cpu_job_stops(base)) {
                return false;
            }
        }
    }
    return true;
}

static struct job job_make(struct cpu *cpu, const struct launch *launch) {
    const struct operand *out = &launch->output;
    int last = out->rank - 1;
    struct job job = {.base = {.cpu = cpu, .run = place_part},
                      .launch = launch,
                      .x = launch->inputs[0].data,
                      .out = out->data,
                      .rows = {.rank = last < 0 ? 0 : last},
                      .n_rows = 1,
                      .columns = last < 0 ? 1 : out->shape[last],
                      .size = (int64_t)dtype_size((enum dtype)out->dtype)};
    for (int i = 0; i < last; i++) {
        job.rows.shape[i] = out->shape[i];
        job.n_rows *= out->shape[i];
    }
    return job;
}

static void job_run(struct job *job, struct cpu_job **begun) {
    double work = (double)job->n_rows * ((double)job->columns * (double)job->size * 2 + 64);
    job->base.parts = cpu_parts(job->base.cpu, work);
    job->base.parts = job->n_rows < (int64_t)job->base.parts ? (unsigned)job->n_rows : job->base.parts;
    cpu_job_begin(&job->base, sizeof *job, work, begun);
}

static int pad_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job = job_make(cpu, launch);
    enum dtype dtype = (enum dtype)launch->output.dtype;
    struct pad_attributes given;
    (void)fault;
    pad_attributes_read(&launch->attributes, &given);
    cpu_element(cpu, dtype, &given.value, job.value);
    job.mode = given.mode;
    for (int i = 0; i < launch->output.rank; i++) {
        job.before[i] = given.widths.values[2 * i];
    }
    if (launch->output.rank == 0) { /* nothing can be added */
        memcpy(job.out, job.x, (size_t)job.size);
        return STATUS_OK;
    }
    job_run(&job, begun);
    return STATUS_OK;
}

/* tril and triu have the same attributes. */
static int triangle_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job = job_make(cpu, launch);
    struct tril_attributes given;
    (void)fault;
    tril_attributes_read(&launch->attributes, &given);
    job.diagonal = given.diagonal;
    job.upper = launch->opcode == OP_TRIU;
    job_run(&job, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_pad = {.driver = pad_run};
const struct cpu_kernel cpu_kernel_tril = {.driver = triangle_run};
const struct cpu_kernel cpu_kernel_triu = {.driver = triangle_run};
