/* Scans: share the lines out. "Down": a block of neighbouring lines is computed side by side, for results are written in the order of
 * memory then. "Along": line by line. */
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/walk.h"

enum {
    PIECE = 1 << 14,     /* elements between two looks whether to stop: 0.05 to 0.5 ms */
    CONVERT_BLOCK = 512, /* elements that are converted at a time */
    LINE_WORK = 64,      /* the cost of a line besides its elements */
};

union element {
    float f32;
    double f64;
    uint16_t half;
    uint64_t bits[2];
};

struct job {
    struct cpu_job base;
    const struct cpu_scan *scan;
    cpu_row_function *cast; /* of an input that is converted as it is read; else NULL */
    struct walk
        walk; /* of the result, x and the positions, without the last axis; if `down` without the one before, too */
    char *origin[3];
    int64_t out_size, in_size;
    int64_t n, out_stride, in_stride;                 /* of the axis */
    int64_t width, out_width_stride, in_width_stride; /* of the axis before, if `down`: else one line */
    int64_t block_width, columns, lines;              /* blocks of lines side by side, and how often they come */
    bool initial;                                     /* the result begins with an element of its own */
    bool down, positions;
    union element neutral; /* that element */
};

/* Where a block begins. */
struct block {
    int64_t width;
    char *out, *x;
    int64_t *positions;
};

static struct block job_block(const struct job *job, const struct walk *walk, int64_t number) {
    int64_t first = number % job->columns * job->block_width, left = job->width - first;
    int64_t at = first * job->out_width_stride;
    return (struct block){.width = left < job->block_width ? left : job->block_width,
                          .out = walk->at[0] + at * job->out_size,
                          .x = walk->at[1] + first * job->in_width_stride * job->in_size,
                          .positions = job->positions ? (int64_t *)(void *)walk->at[2] + at : NULL};
}

/* The results of no elements. */
static void block_initial(const struct job *job, struct block *block) {
    for (int64_t i = 0; i < block->width; i++) {
        memcpy(block->out + i * job->out_width_stride * job->out_size, &job->neutral, (size_t)job->out_size);
    }
}

/* Elements `begin` to `end` - 1 of a line. */
static void block_along(const struct job *job, const struct block *block, int64_t begin, int64_t end,
                        struct cpu_accumulators *accumulators) {
    _Alignas(64) char buffer[CONVERT_BLOCK * sizeof(int64_t)];
    int64_t most = job->cast ? CONVERT_BLOCK : end - begin;
    for (int64_t i = begin; i < end; i += most) {
        char *x = block->x + i * job->in_stride * job->in_size;
        int64_t at = (i + job->initial) * job->out_stride;
        struct cpu_scan_row row = {.n = end - i < most ? end - i : most,
                                   .x = x,
                                   .out = block->out + at * job->out_size,
                                   .positions = job->positions ? block->positions + at : NULL,
                                   .x_stride = job->in_stride,
                                   .out_stride = job->out_stride,
                                   .position = i};
        if (job->cast) {
            job->cast(&(struct cpu_row){row.n, {buffer, x}, {1, job->in_stride}});
            row.x = buffer;
            row.x_stride = 1;
        }
        job->scan->along(&row, accumulators);
    }
}

/* The same of several lines. */
static void block_down(const struct job *job, const struct block *block, int64_t begin, int64_t end,
                       struct cpu_accumulators *accumulators) {
    _Alignas(64) char buffer[CPU_REDUCE_WIDTH * sizeof(int64_t)];
    for (int64_t i = begin; i < end; i++) {
        char *x = block->x + i * job->in_stride * job->in_size;
        int64_t at = (i + job->initial) * job->out_stride;
        struct cpu_scan_row row = {.n = block->width,
                                   .x = x,
                                   .out = block->out + at * job->out_size,
                                   .positions = job->positions ? block->positions + at : NULL,
                                   .x_stride = job->in_width_stride,
                                   .out_stride = job->out_width_stride,
                                   .position = i};
        if (job->cast) {
            job->cast(&(struct cpu_row){row.n, {buffer, x}, {1, job->in_width_stride}});
            row.x = buffer;
            row.x_stride = 1;
        }
        job->scan->down(&row, accumulators);
    }
}

/* A block from *position on. False: it is left at *position. */
static bool job_pieces(struct job *job, struct block *block, int64_t *position, struct cpu_accumulators *accumulators) {
    int64_t piece = PIECE / block->width;
    if (*position == 0) {
        job->scan->start(block->width, accumulators);
        if (job->initial) {
            block_initial(job, block);
        }
    }
    while (*position < job->n) {
        int64_t stop = job->n - *position < piece ? job->n : *position + piece;
        (job->down ? block_down : block_along)(job, block, *position, stop, accumulators);
        *position = stop;
        if (stop < job->n && cpu_job_stops(&job->base)) {
            return false;
        }
    }
    return true;
}

/* The blocks of a part. lane->position counts the elements of one line of each block. */
static bool job_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct cpu_accumulators here, *accumulators = lane->state ? lane->state : &here;
    struct walk walk = job->walk;
    int64_t blocks = job->lines * job->columns;
    int64_t first = cpu_part_begin(blocks, lane->part, base->parts);
    int64_t end = cpu_part_begin(blocks, lane->part + 1, base->parts);
    int64_t number = first + lane->position / job->n, position = lane->position % job->n;
    walk_seek(&walk, job->origin, number / job->columns);
    while (number < end) {
        struct block block = job_block(job, &walk, number);
        if (!job_pieces(job, &block, &position, accumulators)) {
            lane->position = (number - first) * job->n + position;
            return false;
        }
        position = 0;
        if (++number % job->columns == 0) {
            walk_advance(&walk, 1);
        }
    }
    return true;
}

static enum cpu_scan_kind scan_kind(unsigned opcode) {
    switch (opcode) {
    case OP_CUMULATIVE_PROD:
        return CPU_SCAN_PROD;
    case OP_CUMMAX:
        return CPU_SCAN_MAX;
    case OP_CUMMIN:
        return CPU_SCAN_MIN;
    case OP_LOGCUMSUMEXP:
        return CPU_SCAN_LOGSUMEXP;
    default:
        return CPU_SCAN_SUM;
    }
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

static void job_axes(struct job *job, const struct launch *launch) {
    const struct operand *out = &launch->output, *x = &launch->inputs[0];
    int last = x->rank - 1;
    job->down = x->shape[last - 1] >= 4 && magnitude(out->strides[last - 1]) < magnitude(out->strides[last]);
    job->walk.rank = job->down ? last - 1 : last;
    job->walk.arrays = job->positions ? 3 : 2;
    walk_array(&job->walk, 0, out->strides, 0, job->out_size);
    walk_array(&job->walk, 1, x->strides, 0, job->in_size);
    if (job->positions) {
        walk_array(&job->walk, 2, launch_further(launch, 1)->strides, 0, sizeof(int64_t));
    }
    job->lines = 1;
    for (int i = 0; i < job->walk.rank; i++) {
        job->walk.shape[i] = x->shape[i];
        job->lines *= x->shape[i];
    }
    job->width = 1;
    if (job->down) {
        job->width = x->shape[last - 1];
        job->out_width_stride = out->strides[last - 1];
        job->in_width_stride = x->strides[last - 1];
    }
}

/* Narrower blocks where others would be too few for the threads. */
static void job_cut(struct job *job, unsigned parts) {
    enum { NARROW = 32 };
    job->block_width = CPU_REDUCE_WIDTH;
    while (job->block_width > NARROW &&
           job->lines * ((job->width + job->block_width - 1) / job->block_width) < (int64_t)parts) {
        job->block_width /= 2;
    }
    job->columns = (job->width + job->block_width - 1) / job->block_width;
}

static union element scan_neutral(unsigned opcode, enum dtype dtype) {
    union element one = {.bits = {0}};
    if (opcode != OP_CUMULATIVE_PROD) {
        return one;
    }
    switch (dtype_real(dtype)) { /* in memory a complex number begins with its real part */
    case DTYPE_F16:
        one.half = 0x3c00;
        break;
    case DTYPE_BF16:
        one.half = 0x3f80;
        break;
    case DTYPE_F32:
        one.f32 = 1;
        break;
    case DTYPE_F64:
        one.f64 = 1;
        break;
    default:
        one.bits[0] = 1;
    }
    return one;
}

static int scan_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *out = &launch->output, *x = &launch->inputs[0];
    int last = x->rank - 1;
    struct job job = {.base = {.cpu = cpu, .run = job_part, .lane_bytes = sizeof(struct cpu_accumulators)},
                      .scan = cpu->kernels->scans[scan_kind(launch->opcode)][x->as],
                      .cast = x->as != x->dtype ? cpu->kernels->cast[x->dtype][x->as] : NULL,
                      .origin = {out->data, x->data, launch->further ? launch_further(launch, 1)->data : NULL},
                      .out_size = (int64_t)dtype_size((enum dtype)out->dtype),
                      .in_size = (int64_t)dtype_size((enum dtype)x->dtype),
                      .n = x->shape[last],
                      .out_stride = out->strides[last],
                      .in_stride = x->strides[last],
                      .initial = out->shape[last] > x->shape[last],
                      .positions = launch->further > 0,
                      .neutral = scan_neutral(launch->opcode, (enum dtype)out->dtype)};
    (void)fault;
    job_axes(&job, launch);
    double element = launch->opcode == OP_LOGCUMSUMEXP ? 64 : 16;
    double work = (double)job.lines * (double)job.width * ((double)job.n * element + LINE_WORK);
    unsigned parts = cpu_parts(cpu, work);
    job_cut(&job, parts);
    int64_t blocks = job.lines * job.columns;
    job.base.parts = blocks < parts ? (unsigned)blocks : parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

static uint32_t scans_found(const struct device *device, unsigned opcode) {
    uint32_t found = 0;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        const struct cpu_kernels *kernels = ((const struct cpu *)device)->kernels;
        found |= (uint32_t)(kernels->scans[scan_kind(opcode)][dtype] != NULL) << dtype;
    }
    return found;
}

#define SCAN                                                                                                           \
    { {.dtypes = scans_found, .converts = cpu_converts_tiles}, scan_run }
const struct cpu_kernel cpu_kernel_cumulative_sum = SCAN;
const struct cpu_kernel cpu_kernel_cumulative_prod = SCAN;
const struct cpu_kernel cpu_kernel_cummax = SCAN;
const struct cpu_kernel cpu_kernel_cummin = SCAN;
const struct cpu_kernel cpu_kernel_logcumsumexp = SCAN;
