/* Reductions: walk over kept and reduced axes, in the direction in which memory is read in order.
 *
 * "Down" (such as sums over leading axes): a block of outputs along the last kept axis is accumulated side by side, and takes one row for
 * each reduced element. "Along" (such as sums over trailing axes): one output takes runs along the last reduced axis. Few outputs of many
 * elements are cut into segments, which are merged in order. How many there are depends on the shape alone: so results are the same at
 * any number of threads. */
#include <math.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/walk.h"

enum {
    SEGMENTED_BLOCKS = 4,     /* blocks of outputs have segments if there are no more of them than these, */
    SEGMENT_WORK = 256 << 10, /* and enough work for each */
    NARROW = 64,              /* outputs of a block if wider blocks would be too few for the threads */
    SHORT_RUN = 16,           /* reductions with runs up to this length rather go down */
    PIECE_DOWN = 1 << 17,     /* elements between two looks whether to stop: 0.1 to 1 ms */
    CONVERT_BLOCK = 512,      /* elements that are converted at a time */
    PEEK = 4096,              /* elements of which any and all may be known, before other threads are woken */
    OUTPUT_WORK = 64,         /* the cost of an output besides its elements */
};

struct job {
    struct cpu_job base;
    const struct cpu_reduction *reduction;
    cpu_row_function *cast; /* of an input that is converted as it is read; else NULL */
    struct walk kept;       /* over lines of outputs: the kept axes, if `down` without the last one */
    struct walk reduced;    /* over steps: the reduced axes without the last one */
    char *in, *out;
    int64_t in_size, out_size;
    int64_t width, width_stride; /* outputs in a line; 1 if not `down` */
    int64_t run, run_stride;     /* elements in a step */
    int64_t lines, steps;
    int64_t block_width;
    int64_t columns; /* blocks of outputs in a line */
    int64_t count;   /* elements reduced into one */
    bool down;
    double parameter;               /* of the reduction */
    unsigned segments;              /* into which the elements of each block are cut; 0: they are not cut */
    int64_t first;                  /* the first block whose segments are in this job */
    struct cpu_accumulators *place; /* by block and segment; NULL: in the job's room */
};

static struct cpu_accumulators *job_accumulators(const struct job *job) {
    return job->place ? job->place : job->base.room;
}

static void job_start(const struct job *job, int64_t n, struct cpu_accumulators *accumulators) {
    accumulators->parameter = job->parameter;
    job->reduction->start(n, accumulators);
}

/* Takes n elements into accumulator 0; converts them block by block if necessary. */
static void take_along(const struct cpu_reduction *reduction, cpu_row_function *cast, int64_t n, const char *at,
                       int64_t size, int64_t stride, int64_t position, struct cpu_accumulators *accumulators) {
    _Alignas(64) char buffer[CONVERT_BLOCK * sizeof(int64_t)];
    if (!cast) {
        reduction->row(n, at, stride, position, accumulators);
        return;
    }
    for (int64_t i = 0; i < n; i += CONVERT_BLOCK) {
        int64_t block = n - i < CONVERT_BLOCK ? n - i : CONVERT_BLOCK;
        cast(&(struct cpu_row){block, {buffer, (char *)at + i * stride * size}, {1, stride}});
        reduction->row(block, buffer, 1, position + i, accumulators);
    }
}

void cpu_reduce_take(const struct cpu_reduction *reduction, cpu_row_function *cast, int64_t n, const void *at,
                     int64_t size, int64_t position, struct cpu_accumulators *accumulators) {
    take_along(reduction, cast, n, at, size, 1, position, accumulators);
}

void cpu_reduce_run(const struct cpu_reduction *reduction, cpu_row_function *cast, int64_t n, const void *at,
                    int64_t size, double parameter, struct cpu_accumulators *accumulators, void *out) {
    accumulators->parameter = parameter;
    reduction->start(1, accumulators);
    for (int64_t i = 0; i < n; i += CPU_REDUCE_PIECE) {
        int64_t piece = n - i < CPU_REDUCE_PIECE ? n - i : CPU_REDUCE_PIECE;
        take_along(reduction, cast, piece, (const char *)at + i * size, size, 1, i, accumulators);
    }
    reduction->finish(1, accumulators, n, out);
}

/* Takes `units` elements that follow one another on the last reduced axis, if `down` for each of n outputs. */
static void job_take(const struct job *job, char *at, int64_t n, int64_t units, int64_t position,
                     struct cpu_accumulators *accumulators) {
    _Alignas(64) char buffer[CONVERT_BLOCK * sizeof(int64_t)];
    const struct cpu_reduction *reduction = job->reduction;
    if (!job->cast && job->down) {
        reduction->columns(n, at, job->width_stride, units, job->run_stride, position, accumulators);
    } else if (!job->down) {
        take_along(reduction, job->cast, units, at, job->in_size, job->run_stride, position, accumulators);
    } else { /* n is one block at most */
        for (int64_t i = 0; i < units; i++) {
            job->cast(&(struct cpu_row){n, {buffer, at + i * job->run_stride * job->in_size}, {1, job->width_stride}});
            reduction->columns(n, buffer, 1, 1, 0, position + i, accumulators);
        }
    }
}

/* Takes elements begin … end - 1 (at least one) into the accumulators of each of the n outputs, whose elements begin at `at`. */
static void job_accumulate(const struct job *job, char *at, int64_t n, int64_t begin, int64_t end,
                           struct cpu_accumulators *accumulators) {
    if (job->steps == 1) { /* mostly: then a row need not take the time of a walk */
        job_take(job, at + begin * job->run_stride * job->in_size, n, end - begin, begin, accumulators);
        return;
    }
    struct walk walk = job->reduced;
    int64_t skip = begin % job->run;
    walk_seek(&walk, &at, begin / job->run);
    while (begin < end) {
        int64_t units = job->run - skip < end - begin ? job->run - skip : end - begin;
        job_take(job, walk.at[0] + skip * job->run_stride * job->in_size, n, units, begin, accumulators);
        begin += units;
        skip = 0;
        walk_advance(&walk, 1);
    }
}

/* The same in pieces, from *position on. False: it is left at *position. */
static bool job_pieces(struct job *job, char *at, int64_t n, int64_t *position, int64_t end,
                       struct cpu_accumulators *accumulators) {
    int64_t piece = job->down ? PIECE_DOWN / n : CPU_REDUCE_PIECE;
    while (*position < end) {
        int64_t stop = end - *position < piece ? end : *position + piece;
        job_accumulate(job, at, n, *position, stop, accumulators);
        *position = stop;
        if (stop < end && cpu_job_stops(&job->base)) {
            return false;
        }
    }
    return true;
}

/* Finds a block of outputs in the present line of `kept`: where its elements begin, where its results go; returns how many. */
static int64_t job_block(const struct job *job, const struct walk *kept, int64_t block, char **at, char **out) {
    bool single = job->columns == 1; /* a division takes as long as some elements */
    int64_t line = single ? block : block / job->columns;
    int64_t first = single ? 0 : block % job->columns * job->block_width, left = job->width - first;
    *at = kept->at[0] + first * job->width_stride * job->in_size;
    *out = job->out + (line * job->width + first) * job->out_size;
    return left < job->block_width ? left : job->block_width;
}

/* The blocks of a part. lane->position counts the elements of one output of each of its blocks. */
static bool job_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct cpu_accumulators here, *accumulators = lane->state ? lane->state : &here;
    struct walk kept = job->kept;
    int64_t blocks = job->lines * job->columns, units = job->count;
    int64_t first = cpu_part_begin(blocks, lane->part, base->parts);
    int64_t end = cpu_part_begin(blocks, lane->part + 1, base->parts);
    int64_t block = first + (units > 0 ? lane->position / units : 0);
    int64_t position = units > 0 ? lane->position % units : 0;
    char *at, *out;
    walk_seek(&kept, &job->in, block / job->columns);
    while (block < end) {
        int64_t n = job_block(job, &kept, block, &at, &out);
        if (position == 0) {
            job_start(job, n, accumulators);
        }
        if (!job_pieces(job, at, n, &position, units, accumulators)) {
            lane->position = (block - first) * units + position;
            return false;
        }
        job->reduction->finish(n, accumulators, job->count, out);
        position = 0;
        block++;
        if (job->columns == 1 || block % job->columns == 0) {
            walk_advance(&kept, 1);
        }
    }
    return true;
}

/* If there are few blocks: a part is one segment of a block. */
static bool job_segment(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct walk kept = job->kept;
    int64_t block = job->first + lane->part / job->segments, segment = lane->part % job->segments;
    int64_t begin = cpu_part_begin(job->count, segment, job->segments);
    int64_t end = cpu_part_begin(job->count, segment + 1, job->segments);
    int64_t position = begin + lane->position;
    char *at, *out;
    walk_seek(&kept, &job->in, block / job->columns);
    int64_t n = job_block(job, &kept, block, &at, &out);
    if (lane->position == 0) {
        job_start(job, n, &job_accumulators(job)[lane->part]);
    }
    bool ended = job_pieces(job, at, n, &position, end, &job_accumulators(job)[lane->part]);
    lane->position = position - begin;
    return ended;
}

/* Merges the segments in order, so that of equal extremes the first stays the first. */
static void job_merge(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    struct walk kept = job->kept;
    char *at, *out;
    walk_seek(&kept, &job->in, job->first / job->columns);
    for (int64_t block = job->first; block < job->first + base->parts / job->segments;) {
        struct cpu_accumulators *all = &job_accumulators(job)[(block - job->first) * job->segments];
        int64_t n = job_block(job, &kept, block, &at, &out);
        for (unsigned i = 1; i < job->segments; i++) {
            job->reduction->merge(n, &all[0], &all[i]);
        }
        job->reduction->finish(n, &all[0], job->count, out);
        if (++block % job->columns == 0) {
            walk_advance(&kept, 1);
        }
    }
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

static bool job_goes_down(const struct operand *x, int k) {
    if (k == 0 || x->shape[k - 1] < 4) {
        return false;
    }
    if (k == x->rank) {
        return true;
    }
    int64_t kept = magnitude(x->strides[k - 1]), reduced = magnitude(x->strides[x->rank - 1]);
    return kept < reduced || (x->shape[x->rank - 1] <= SHORT_RUN && x->shape[k - 1] >= 4 * SHORT_RUN);
}

/* Sets up a walk over axes first … end - 1 of the input; returns the number of its positions. */
static int64_t job_walk(struct walk *walk, const struct operand *x, int first, int end, int64_t size) {
    int64_t positions = 1;
    walk->arrays = 1;
    walk->rank = end - first;
    walk_array(walk, 0, x->strides, first, size);
    for (int i = first; i < end; i++) {
        walk->shape[i - first] = x->shape[i];
        positions *= x->shape[i];
    }
    return positions;
}

_Static_assert((int)CPU_REDUCE_WIDTH <= (int)CONVERT_BLOCK, "columns are one block");

/* An empty input has no memory. `nowhere` takes its place; no step reads it, since there are none. */
static void job_init_empty(struct job *job, const struct launch *launch) {
    static char nowhere[16];
    const struct operand *out = &launch->output;
    *job = (struct job){.in = nowhere,
                        .out = out->data,
                        .out_size = (int64_t)dtype_size((enum dtype)out->dtype),
                        .width = 1,
                        .block_width = 1,
                        .run = 1,
                        .lines = 1,
                        .columns = 1};
    for (int i = 0; i < out->rank; i++) {
        job->lines *= out->shape[i];
    }
    job->kept = (struct walk){.arrays = 1, .rank = 1, .shape = {job->lines}};
}

static void job_cut(struct job *job, int64_t block_width) {
    job->block_width = block_width;
    job->columns = (job->width + block_width - 1) / block_width;
}

static void job_init(struct job *job, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    int k = launch->output.rank;
    if (!x->data) {
        job_init_empty(job, launch);
        return;
    }
    *job = (struct job){.in = x->data,
                        .out = launch->output.data,
                        .in_size = (int64_t)dtype_size((enum dtype)x->dtype),
                        .out_size = (int64_t)dtype_size((enum dtype)launch->output.dtype),
                        .down = job_goes_down(x, k),
                        .width = 1,
                        .run = 1};
    if (job->down) {
        job->width = x->shape[k - 1];
        job->width_stride = x->strides[k - 1];
    }
    if (k < x->rank) {
        job->run = x->shape[x->rank - 1];
        job->run_stride = x->strides[x->rank - 1];
    }
    job->lines = job_walk(&job->kept, x, 0, job->down ? k - 1 : k, job->in_size);
    job->steps = job_walk(&job->reduced, x, k, k < x->rank ? x->rank - 1 : k, job->in_size);
    job->count = job->steps * job->run;
    job_cut(job, CPU_REDUCE_WIDTH);
}

/* If the job can be left, the segments of all blocks run as one job; else one block after another, with accumulators on the stack. */
static void job_run_segments(struct job *job, int64_t blocks, double work, struct cpu_job **begun) {
    job->base.run = job_segment;
    job->base.end = job_merge;
    job->base.parts = (unsigned)blocks * job->segments;
    job->base.room_bytes = job->base.parts * sizeof(struct cpu_accumulators);
    if (cpu_job_keep(&job->base, sizeof *job, work, begun)) {
        return;
    }
    struct cpu_accumulators place[CPU_REDUCE_SEGMENTS_MAX];
    job->place = place;
    job->base.parts = job->segments;
    for (; job->first < blocks; job->first++) {
        cpu_job_run(&job->base);
    }
}

/* The work of reducing `count` elements of `size` bytes to each of so many outputs. */
static double reduction_work(double outputs, int64_t count, int64_t size) {
    return outputs * ((double)count * (double)(size < 4 ? 4 : size) + OUTPUT_WORK);
}

/* Into how many segments each block, of `count` elements for an output, is cut. */
static unsigned segments_of(int64_t blocks, int64_t count, double work) {
    if (blocks > SEGMENTED_BLOCKS) {
        return 1;
    }
    double most = work / (double)blocks / SEGMENT_WORK;
    most = most < CPU_REDUCE_SEGMENTS_MAX ? most : CPU_REDUCE_SEGMENTS_MAX;
    most = most < (double)count ? most : (double)count;
    return most < 2 ? 1 : (unsigned)most;
}

unsigned cpu_reduce_segments(int64_t rows, int64_t columns, int64_t size) {
    return segments_of(rows, columns, reduction_work((double)rows, columns, size));
}

/* any and all of one long row: whether the first elements decide. */
static bool job_peek(struct job *job, unsigned opcode) {
    if ((opcode != OP_ANY && opcode != OP_ALL) || job->lines * job->width != 1 || job->down || job->steps != 1 ||
        job->count <= PEEK) {
        return false;
    }
    struct cpu_accumulators accumulators;
    job_start(job, 1, &accumulators);
    job_take(job, job->in, 1, PEEK, 0, &accumulators);
    if (*accumulators.value != (opcode == OP_ANY)) {
        return false;
    }
    job->reduction->finish(1, &accumulators, job->count, job->out);
    return true;
}

/* The kernels' place in the table. */
static enum cpu_reduction_kind norm_kind(double ord) {
    return ord == 0           ? CPU_REDUCE_NORM_0
           : ord == 1         ? CPU_REDUCE_NORM_1
           : ord == 2         ? CPU_REDUCE_NORM_2
           : ord == HUGE_VAL  ? CPU_REDUCE_NORM_MAX
           : ord == -HUGE_VAL ? CPU_REDUCE_NORM_MIN
                              : CPU_REDUCE_NORM_POWER;
}

static enum cpu_reduction_kind reduction_kind(unsigned opcode, double parameter) {
    switch (opcode) {
    case OP_PROD:
        return CPU_REDUCE_PROD;
    case OP_MEAN:
        return CPU_REDUCE_MEAN;
    case OP_MAX:
        return CPU_REDUCE_MAX;
    case OP_MIN:
        return CPU_REDUCE_MIN;
    case OP_ANY:
        return CPU_REDUCE_ANY;
    case OP_ALL:
        return CPU_REDUCE_ALL;
    case OP_ARGMAX:
        return CPU_REDUCE_ARGMAX;
    case OP_ARGMIN:
        return CPU_REDUCE_ARGMIN;
    case OP_VAR:
        return CPU_REDUCE_VAR;
    case OP_STD:
        return CPU_REDUCE_STD;
    case OP_COUNT_NONZERO:
        return CPU_REDUCE_COUNT_NONZERO;
    case OP_LOGSUMEXP:
        return CPU_REDUCE_LOGSUMEXP;
    case OP_VECTOR_NORM:
        return norm_kind(parameter);
    default:
        return CPU_REDUCE_SUM;
    }
}

const struct cpu_reduction *cpu_reduction_find(const struct cpu_kernels *kernels, unsigned opcode,
                                               const struct op_attributes *attributes, unsigned dtype) {
    return kernels->reductions[reduction_kind(opcode, attributes->n_floats ? attributes->floats[0] : 0)][dtype];
}

static int reduce_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, launch);
    job.base.cpu = cpu;
    const struct operand *x = &launch->inputs[0];
    job.parameter = launch->attributes.n_floats ? launch->attributes.floats[0] : 0;
    job.reduction = cpu_reduction_find(cpu->kernels, launch->opcode, &launch->attributes, x->as);
    job.cast = x->as != x->dtype ? cpu->kernels->cast[x->dtype][x->as] : NULL;
    if (job_peek(&job, launch->opcode)) {
        return STATUS_OK;
    }
    int64_t blocks = job.lines * job.columns;
    double outputs = (double)job.lines * (double)job.width;
    double work = reduction_work(outputs, job.count, job.in_size);
    job.segments = segments_of(blocks, job.count, work);
    if (job.segments > 1) {
        job_run_segments(&job, blocks, work, begun);
        return STATUS_OK;
    }
    unsigned parts = cpu_parts(cpu, work);
    if (job.width > NARROW && blocks < (int64_t)parts) {
        job_cut(&job, NARROW);
        blocks = job.lines * job.columns;
    }
    job.base.run = job_part;
    job.base.lane_bytes = sizeof(struct cpu_accumulators);
    job.base.parts = blocks < parts ? (unsigned)blocks : parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

static uint32_t reductions_found(const struct device *device, unsigned opcode) {
    uint32_t found = 0;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        const struct cpu_kernels *kernels = ((const struct cpu *)device)->kernels;
        found |= (uint32_t)(kernels->reductions[reduction_kind(opcode, 2)][dtype] != NULL) << dtype;
    }
    return found;
}

#define REDUCTION                                                                                                      \
    { {.dtypes = reductions_found, .converts = cpu_converts_tiles}, reduce_run }
const struct cpu_kernel cpu_kernel_sum = REDUCTION;
const struct cpu_kernel cpu_kernel_prod = REDUCTION;
const struct cpu_kernel cpu_kernel_mean = REDUCTION;
const struct cpu_kernel cpu_kernel_max = REDUCTION;
const struct cpu_kernel cpu_kernel_min = REDUCTION;
const struct cpu_kernel cpu_kernel_any = REDUCTION;
const struct cpu_kernel cpu_kernel_all = REDUCTION;
const struct cpu_kernel cpu_kernel_argmax = REDUCTION;
const struct cpu_kernel cpu_kernel_argmin = REDUCTION;
const struct cpu_kernel cpu_kernel_var = REDUCTION;
const struct cpu_kernel cpu_kernel_std = REDUCTION;
const struct cpu_kernel cpu_kernel_count_nonzero = REDUCTION;
const struct cpu_kernel cpu_kernel_logsumexp = REDUCTION;
const struct cpu_kernel cpu_kernel_vector_norm = REDUCTION;
