/* Operations that read positions out of an index tensor. Each index is checked. One wrong index is reported, and elements that a wrong
 * index would have filled are 0. */
#include "engine/cpu/indices.h"

#include <string.h>

enum {
    PIECE_BYTES = 1 << 18, /* of a row that is copied in pieces */
    BLOCK = CPU_INDICES_BLOCK,
};

struct gather;
struct job {
    struct cpu_job base;
    const struct launch *launch;
    bool (*gather)(const struct gather *gather);
    struct cpu_indices indices;
    int64_t index_strides[3], x_strides[3]; /* of take and one_hot: the first of those of the indices */
    const char *x;
    char *out;
    int64_t outer, extent, count, inner; /* x [outer, extent, inner], output [outer, count, inner] */
    int64_t size;
    int64_t piece, pieces;     /* elements of a piece of a row, and pieces of a row */
    _Alignas(16) char one[16]; /* the value that one_hot writes */
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

static inline bool job_index(const struct job *job, int64_t position, int64_t *index) {
    *index = cpu_index(&job->indices, position * job->index_strides[0]);
    if ((uint64_t)*index < (uint64_t)job->extent) {
        return true;
    }
    job_report(job, *index, position);
    return false;
}

/* ---- elements, and rows that are as short ---- */

/* For n elements: out[i] = x[index[i] · step + i · along], or 0 where the index is wrong; true: some index is. */
struct gather {
    const int64_t *index;
    int64_t n, extent, step, along;
    const void *x;
    void *out;
};

/* Rows, which are aligned as their elements. */
typedef uint8_t row1;
typedef uint16_t row2 __attribute__((aligned(1), may_alias));
typedef uint32_t row4 __attribute__((aligned(1), may_alias));
typedef uint64_t row8 __attribute__((aligned(1), may_alias));
typedef struct {
    row8 half[2];
} row16;

#define GATHER(T)                                                                                                      \
    static inline                                                                                                      \
        __attribute__((always_inline)) bool gather_by_##T(const struct gather *g, int64_t step, int64_t along) {       \
        const T *x = g->x, nothing = {0};                                                                              \
        T *out = g->out;                                                                                               \
        const int64_t *index = g->index, n = g->n;                                                                     \
        const uint64_t extent = (uint64_t)g->extent;                                                                   \
        bool wrong = false;                                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const int64_t at = index[i];                                                                               \
            if (__builtin_expect((uint64_t)at < extent, 1)) {                                                          \
                out[i] = x[at * step + i * along];                                                                     \
            } else {                                                                                                   \
                out[i] = nothing;                                                                                      \
                wrong = true;                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
        return wrong;                                                                                                  \
    }                                                                                                                  \
    static bool gather_##T(const struct gather *g) {                                                                   \
        return g->step == 1 && g->along == 0 ? gather_by_##T(g, 1, 0)                                                  \
               : g->along == 1               ? gather_by_##T(g, g->step, 1)                                            \
                                             : gather_by_##T(g, g->step, g->along);                                                  \
    }
GATHER(row1)
GATHER(row2)
GATHER(row4)
GATHER(row8)
GATHER(row16)

/* NULL: no element has so many bytes. */
static bool (*gather_find(int64_t bytes))(const struct gather *gather) {
    return bytes == 1    ? gather_row1
           : bytes == 2  ? gather_row2
           : bytes == 4  ? gather_row4
           : bytes == 8  ? gather_row8
           : bytes == 16 ? gather_row16
                         : NULL;
}

/* Indices of a run: where they are in memory, and the position of the first one in the index tensor. */
struct places {
    int64_t offset, stride, position;
};

/* Runs `gather` block by block. */
static void job_gather(const struct job *job, struct gather gather, const struct places *places, int64_t n,
                       int64_t bytes) {
    int64_t block[BLOCK];
    for (int64_t done = 0; done < n; done += gather.n) {
        gather.n = n - done < BLOCK ? n - done : BLOCK;
        gather.index =
            cpu_indices_read(&job->indices, places->offset + done * places->stride, places->stride, gather.n, block);
        if (job->gather(&gather)) {
            int64_t i = 0;
            while ((uint64_t)gather.index[i] < (uint64_t)job->extent) {
                i++;
            }
            job_report(job, gather.index[i], places->position + done + i);
        }
        gather.out = (char *)gather.out + gather.n * bytes;
        gather.x = (const char *)gather.x + gather.n * gather.along * bytes;
    }
}

/* take of rows of at most 16 bytes: the part is a range of them. */
static bool take_short_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t row = cpu_part_begin(job->outer * job->count, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->outer * job->count, lane->part + 1, base->parts), bytes = job->inner * job->size;
    while (row < end) {
        int64_t outer = row / job->count, position = row % job->count, left = job->count - position;
        int64_t n = left < end - row ? left : end - row;
        struct gather gather = {
            .extent = job->extent, .step = 1, .x = job->x + outer * job->extent * bytes, .out = job->out + row * bytes};
        int64_t stride = job->index_strides[0];
        job_gather(job, gather, &(struct places){position * stride, stride, position}, n, bytes);
        row += n;
    }
    return true;
}

/* ---- rows, in pieces ---- */

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
            job->base.cpu->kernels->move(out, job->x + ((outer * job->extent + index) * job->inner + begin) * job->size,
                                         (size_t)(n * job->size));
        } else {
            memset(out, 0, (size_t)(n * job->size));
        }
    }
    return true;
}

static bool take_along_axis_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t at = cpu_part_begin(job->outer * job->count * job->inner, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->outer * job->count * job->inner, lane->part + 1, base->parts);
    /* With elements behind the axis a run is one row of them; without any, all of one outer place. */
    bool across = job->inner > 1;
    int64_t length = across ? job->inner : job->count, begin = at % length, number = at / length;
    int64_t outer = across ? number / job->count : number, place = across ? number % job->count : 0;
    const int64_t *index = job->index_strides, *x = job->x_strides;
    int64_t index_stride = across ? index[2] : index[1], along = across ? x[2] : 0;
    while (at < end) {
        int64_t n = length - begin < end - at ? length - begin : end - at;
        struct places places = {.offset = outer * index[0] + place * index[1] + begin * index_stride,
                                .stride = index_stride,
                                .position = at};
        struct gather gather = {.extent = job->extent,
                                .step = x[1],
                                .along = along,
                                .x = job->x + (outer * x[0] + begin * along) * job->size,
                                .out = job->out + at * job->size};
        job_gather(job, gather, &places, n, job->size);
        at += n;
        begin = 0;
        if (!across || ++place == job->count) {
            place = 0;
            outer++;
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
                        .indices = cpu_indices_of(cpu, &launch->inputs[1]),
                        .index_strides = {launch->inputs[1].strides[0]},
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
    job.gather = gather_find(job.inner * job.size);
    job_run(&job, job.gather ? take_short_part : take_part, begun);
    return STATUS_OK;
}

static int take_along_axis_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun,
                               struct fault *fault) {
    struct job job = job_make(cpu, launch);
    (void)fault;
    job.gather = gather_find(job.size);
    memcpy(job.x_strides, launch->inputs[0].strides, sizeof job.x_strides);
    memcpy(job.index_strides, launch->inputs[1].strides, sizeof job.index_strides);
    job_run(&job, take_along_axis_part, begun);
    return STATUS_OK;
}

static int one_hot_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *out = &launch->output;
    struct job job = {.base.cpu = cpu,
                      .launch = launch,
                      .indices = cpu_indices_of(cpu, &launch->inputs[0]),
                      .index_strides = {launch->inputs[0].strides[0]},
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

const struct cpu_kernel cpu_kernel_take = {{.index_dtypes = CPU_INDEX_DTYPES}, take_run};
const struct cpu_kernel cpu_kernel_take_along_axis = {{.index_dtypes = CPU_INDEX_DTYPES}, take_along_axis_run};
const struct cpu_kernel cpu_kernel_one_hot = {{.index_dtypes = CPU_INDEX_DTYPES}, one_hot_run};
