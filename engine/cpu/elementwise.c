/* Elementwise operations: finds the row function and calls it for every run along the innermost axis. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/walk.h"

enum {
    CONVERT_BLOCK = 512, /* elements that are converted at a time: buffers of 8 KiB at most */
    SMALL = 16384,       /* a contiguous launch of so many elements or fewer runs at once, on this thread */
    STREAM_BYTES = 4096, /* the buffer through which streamed output goes; it stays in the first-level cache */
    ROW_WORK = 64,       /* the cost of a row besides its elements */
    ROW_SHORT = 128,     /* elements of a row that takes so little that it matters how the next one is found */
    /* Rows and elements of a tile, where an operand runs across: the cache lines that one row touches are still in the cache for the
     * next rows. Few elements, because lines of rows that are 2^n bytes apart compete for the same sets of the cache. */
    TILE_ROWS = 16,
    TILE_ELEMENTS = 64,
    SHORT_AXIS = CPU_GATHER_MAX, /* a last axis of so few elements is not worth a call for each of its rows */
    SHORT_BYTES = 64,            /* nor one of so few bytes, where they are only copied */
};
/* clang-format off */
#define MOVED(ID, dtype, text, bytes, kind)                                                                            \
    [OP_PLACE_WHERE][dtype] = CPU_ROW_where_##bytes, [OP_PLACE_COPY][dtype] = CPU_ROW_copy_##bytes,
#define NUMBER(ID, DTYPE, formula) [OP_PLACE_##ID][DTYPE_##DTYPE] = CPU_ROW_##formula,
const uint16_t cpu_row_numbers[OP_PLACES_ELEMENTWISE][DTYPE_COUNT] = {
    OP_FORMULA_TABLE(NUMBER)
    DTYPE_TABLE(MOVED)
};
/* clang-format on */

struct job {
    struct cpu_job base;
    cpu_row_function *row;
    cpu_row_function *cast[WALK_ARRAYS]; /* of an input that is converted; else NULL */
    bool converts;                       /* some input is converted */
    struct walk outer;                   /* over all axes except the innermost; each part has its own copy */
    struct cpu_row run;                  /* the innermost axis */
    char *origin[WALK_ARRAYS];
    int64_t size[WALK_ARRAYS];
    uint64_t parameters[WALK_ARRAYS]; /* attributes, in the places of arguments after the inputs */
    int64_t rows;
    unsigned row_parts, run_parts;
    bool tiled, streamed;
    /* The last two axes as one: of so many elements each is a row of the last one. Operands of which the two are not one are gathered, block by
     * block. 1: the innermost axis is the last one. */
    int64_t pair;
    bool gathered[WALK_ARRAYS];
    bool copied;                      /* to gather the operand is all */
    bool brief;                       /* rows are copied that are no longer than SHORT_BYTES, and apart in the output */
    int64_t pair_stride[WALK_ARRAYS]; /* of the axis before the last one, in elements */
};

static inline const struct operand *job_operand(const struct launch *launch, int i) {
    return i == 0 ? &launch->output : &launch->inputs[i - 1];
}

/* An attribute as a row takes it. */
uint64_t cpu_parameter(double value, unsigned dtype) {
    uint64_t bits = 0;
    float narrow = (float)value;
    if (dtype == DTYPE_F64) {
        memcpy(&bits, &value, sizeof value);
    } else {
        memcpy(&bits, &narrow, sizeof narrow);
    }
    return bits;
}

/* Attributes are behind the inputs: elements that repeat. */
static inline void job_parameters(const struct job *job, struct cpu_row *run) {
    for (int k = job->outer.arrays; k < WALK_ARRAYS; k++) {
        run->data[k] = (char *)(uintptr_t)&job->parameters[k];
        run->stride[k] = 0;
    }
}

/* A row with inputs that are converted, block by block. An input with stride 0 is converted once. */
static void job_convert(const struct job *job, const struct cpu_row *run) {
    _Alignas(64) char buffers[WALK_ARRAYS][CONVERT_BLOCK * sizeof(struct cpu_pair)];
    for (int64_t i = 0; i < run->n; i += CONVERT_BLOCK) {
        struct cpu_row block = *run;
        block.n = run->n - i < CONVERT_BLOCK ? run->n - i : CONVERT_BLOCK;
        block.data[0] += i * run->stride[0] * job->size[0];
        for (int k = 1; k < job->outer.arrays; k++) {
            char *from = run->data[k] + i * run->stride[k] * job->size[k];
            block.data[k] = job->cast[k] ? buffers[k] : from;
            if (!job->cast[k]) {
                continue;
            }
            block.stride[k] = run->stride[k] != 0;
            if (run->stride[k] != 0 || i == 0) {
                job->cast[k](&(struct cpu_row){block.stride[k] ? block.n : 1, {buffers[k], from}, {1, run->stride[k]}});
            }
        }
        job->row(&block);
    }
}

/* The rows of an operand of which the last two axes are not one. */
static inline void gather(const struct job *job, int k, char *out, const char *x, int64_t rows) {
    job->base.cpu->kernels->gather[__builtin_ctzll((uint64_t)job->size[k])](out, x, rows, job->pair,
                                                                            job->pair_stride[k], job->run.stride[k]);
}

/* Elements begin … end - 1 of the last two axes, which are whole rows of the last one. */
static void job_call_pairs(const struct job *job, const struct walk *outer, int64_t begin, int64_t end) {
    _Alignas(64) char buffers[WALK_ARRAYS][CONVERT_BLOCK * sizeof(int64_t)];
    int64_t step = CONVERT_BLOCK;
    for (int k = 1; k < outer->arrays; k++) {
        step = job->size[k] > (int64_t)sizeof(int64_t) ? CONVERT_BLOCK / 2 : step;
    }
    step = step / job->pair * job->pair;
    for (; begin < end; begin += step) {
        struct cpu_row run = job->run;
        run.n = end - begin < step ? end - begin : step;
        for (int k = 0; k < outer->arrays; k++) {
            int64_t row = job->gathered[k] ? job->pair_stride[k] : job->pair * run.stride[k];
            run.data[k] = outer->at[k] + begin / job->pair * row * job->size[k];
            if (job->copied && k == 1) {
                gather(job, k, run.data[0], run.data[k], run.n / job->pair);
            } else if (job->gathered[k]) {
                gather(job, k, buffers[k], run.data[k], run.n / job->pair);
                run.data[k] = buffers[k];
                run.stride[k] = 1;
            }
        }
        if (!job->copied) {
            job_parameters(job, &run);
            job->row(&run);
        }
    }
}

static inline void job_row(const struct job *job, const struct cpu_row *run) {
    if (__builtin_expect(job->converts, 0)) {
        job_convert(job, run);
    } else {
        job->row(run);
    }
}

/* Calls the row function for elements begin … end - 1 of the innermost axis, at the walk's position in the other axes. */
static void job_call(const struct job *job, const struct walk *outer, int64_t begin, int64_t end) {
    struct cpu_row run = job->run;
    run.n = end - begin;
    for (int k = 0; k < outer->arrays; k++) {
        run.data[k] = outer->at[k] + begin * run.stride[k] * job->size[k];
    }
    job_parameters(job, &run);
    job_row(job, &run);
}

/* Writes the output to a buffer and from there past the caches: else each cache line is read before it is written. */
static void job_call_streamed(const struct job *job, const struct walk *outer, int64_t begin, int64_t end) {
    _Alignas(64) char buffer[STREAM_BYTES];
    struct cpu_row run = job->run;
    char *out = outer->at[0] + begin * job->size[0];
    int64_t step = STREAM_BYTES / job->size[0];
    int64_t head = (int64_t)(-(uintptr_t)out & 63) / job->size[0];
    if (head) {
        int64_t stop = begin + head < end ? begin + head : end;
        job_call(job, outer, begin, stop);
        begin = stop;
    }
    run.data[0] = buffer;
    run.n = step;
    job_parameters(job, &run);
    for (; begin + step <= end; begin += step) {
        for (int k = 1; k < outer->arrays; k++) {
            run.data[k] = outer->at[k] + begin * run.stride[k] * job->size[k];
        }
        job_row(job, &run);
        job->base.cpu->kernels->stream(outer->at[0] + begin * job->size[0], buffer, STREAM_BYTES);
    }
    job->base.cpu->kernels->stream_end();
    if (begin < end) {
        job_call(job, outer, begin, end);
    }
}

/* How far the next row along the last axis but one is, in array number k; attributes stay. */
static inline int64_t row_step(const struct walk *outer, int k) {
    return k < outer->arrays && outer->rank > 0 ? outer->strides[k][outer->rank - 1] : 0;
}

/* Elements begin … end - 1 of rows that follow one another along the last axis but one. Addresses are in variables: from an array in memory, where
 * they have just been written one by one, they would be read together, and that waits for all that has been written before. */
static void job_call_rows(const struct job *job, const struct walk *outer, int64_t rows, int64_t begin, int64_t end) {
    const int64_t steps[WALK_ARRAYS] = {row_step(outer, 0), row_step(outer, 1), row_step(outer, 2), row_step(outer, 3)};
    struct cpu_row run = job->run;
    run.n = end - begin;
    job_parameters(job, &run);
    for (int k = 0; k < outer->arrays; k++) {
        run.data[k] = outer->at[k] + begin * run.stride[k] * job->size[k];
    }
    char *out = run.data[0], *x = run.data[1], *y = run.data[2], *z = run.data[3];
    for (int64_t i = 0; i < rows; i++) {
        run.data[0] = out;
        run.data[1] = x;
        run.data[2] = y;
        run.data[3] = z;
        job_row(job, &run);
        out += steps[0];
        x += steps[1];
        y += steps[2];
        z += steps[3];
    }
}

/* Rows that follow one another along the last axis but one, in tiles. */
static void job_tile(const struct job *job, const struct walk *outer, int64_t rows, int64_t begin, int64_t end) {
    for (; begin < end; begin += TILE_ELEMENTS) {
        job_call_rows(job, outer, rows, begin, end - begin < TILE_ELEMENTS ? end : begin + TILE_ELEMENTS);
    }
}

/* A row of one to two times sizeof(T) bytes is its first and its last sizeof(T) bytes, which may overlap. */
#define BRIEF(name, T)                                                                                                 \
    static void brief_##name(char *out, int64_t out_step, const char *x, int64_t x_step, int64_t rows,                 \
                             int64_t bytes) {                                                                          \
        const int64_t last = bytes - (int64_t)sizeof(T);                                                               \
        for (int64_t i = 0; i < rows; i++, out += out_step, x += x_step) {                                             \
            T head, tail;                                                                                              \
            memcpy(&head, x, sizeof head);                                                                             \
            memcpy(&tail, x + last, sizeof tail);                                                                      \
            memcpy(out, &head, sizeof head);                                                                           \
            memcpy(out + last, &tail, sizeof tail);                                                                    \
        }                                                                                                              \
    }
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint8_t bytes32 __attribute__((vector_size(32)));
BRIEF(2, uint16_t)
BRIEF(4, uint32_t)
BRIEF(8, uint64_t)
BRIEF(16, bytes16)
BRIEF(32, bytes32)
#undef BRIEF

/* Rows that follow one another along the last axis but one, each of 2 to SHORT_BYTES bytes. */
static void job_brief(const struct job *job, const struct walk *outer, int64_t rows) {
    const int last = outer->rank - 1;
    const int64_t bytes = job->run.n * job->size[0];
    void (*const widths[])(char *, int64_t, const char *, int64_t, int64_t, int64_t) = {brief_2, brief_4, brief_8,
                                                                                        brief_16, brief_32};
    const int width = (bytes >= 4) + (bytes >= 8) + (bytes >= 16) + (bytes >= 32);
    widths[width](outer->at[0], outer->strides[0][last], outer->at[1], outer->strides[1][last], rows, bytes);
}

static bool job_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    struct walk outer = job->outer;
    int64_t row_part = lane->part / job->run_parts, run_part = lane->part % job->run_parts;
    int64_t row = cpu_part_begin(job->rows, row_part, job->row_parts);
    int64_t rows_end = cpu_part_begin(job->rows, row_part + 1, job->row_parts);
    int64_t begin = cpu_part_begin(job->run.n / job->pair, run_part, job->run_parts) * job->pair;
    int64_t end = cpu_part_begin(job->run.n / job->pair, run_part + 1, job->run_parts) * job->pair;
    walk_seek(&outer, job->origin, row);
    while (row < rows_end) {
        const int last = outer.rank - 1;
        const bool single = job->pair > 1 || last < 0 || (job->run.n > ROW_SHORT && !job->tiled);
        int64_t rows = single ? 1 : outer.shape[last] - outer.index[last];
        rows = job->tiled && rows > TILE_ROWS ? TILE_ROWS : rows;
        rows = rows < rows_end - row ? rows : rows_end - row;
        if (job->pair > 1) {
            job_call_pairs(job, &outer, begin, end);
        } else if (job->streamed) {
            job_call_streamed(job, &outer, begin, end);
        } else if (job->brief) {
            job_brief(job, &outer, rows);
        } else if (job->tiled) {
            job_tile(job, &outer, rows, begin, end);
        } else if (single) {
            job_call(job, &outer, begin, end);
        } else {
            job_call_rows(job, &outer, rows, begin, end);
        }
        walk_advance(&outer, rows);
        row += rows;
    }
    return true;
}

/* Whether an operand's elements are further apart along the innermost axis than along the axis before it. */
static bool job_runs_across(const struct launch *launch) {
    int last = launch->output.rank - 1;
    for (int k = 0; k <= launch->n_inputs && last > 0; k++) {
        const int64_t *strides = job_operand(launch, k)->strides;
        int64_t inner = strides[last] < 0 ? -strides[last] : strides[last];
        int64_t outer = strides[last - 1] < 0 ? -strides[last - 1] : strides[last - 1];
        if (outer != 0 && outer < inner) {
            return true;
        }
    }
    return false;
}

static bool job_streams(const struct launch *launch, int64_t bytes) {
    if (bytes < CPU_STREAM_FROM || launch->output.rank != 1 || launch->output.strides[0] != 1) {
        return false;
    }
    for (int k = 0; k < launch->n_inputs; k++) {
        if (launch->inputs[k].data == launch->output.data) {
            return false; /* the output is an input, too, so its cache lines are read anyway */
        }
    }
    return true;
}

/* Makes one axis of the last two, if the last one is short. */
static void job_pair(struct job *job, const struct launch *launch) {
    const struct operand *out = &launch->output;
    int last = out->rank - 1;
    job->pair = 1;
    if (last < 1 || job->converts || launch->opcode == OP_CAST || out->shape[last] < 2 ||
        out->shape[last] > SHORT_AXIS || out->shape[last - 1] / 4 < out->shape[last] || out->strides[last] != 1 ||
        out->strides[last - 1] != out->shape[last]) {
        return;
    }
    job->pair = out->shape[last];
    job->tiled = false;
    job->rows /= out->shape[last - 1];
    job->outer.rank--;
    job->run.n *= out->shape[last - 1];
    for (int k = 0; k < job->outer.arrays; k++) {
        const int64_t *strides = job_operand(launch, k)->strides;
        job->pair_stride[k] = strides[last - 1];
        job->gathered[k] = strides[last - 1] != job->pair * strides[last];
    }
    job->copied = launch->opcode == OP_COPY && job->gathered[1];
}

/* Whether many rows are copied that have few bytes each: parts of rows that are joined, or taken out of longer ones. */
static bool job_is_brief(const struct job *job, const struct launch *launch) {
    const int last = launch->output.rank - 1;
    return last > 0 && launch->opcode == OP_COPY && job->pair == 1 && !job->converts && job->run.stride[0] == 1 &&
           job->run.stride[1] == 1 && job->run.n > 1 && job->run.n * job->size[0] <= SHORT_BYTES &&
           launch->output.shape[last - 1] > 1;
}

/* The cost of an element, as bytes of memory traffic: functions of real numbers cost more than moving their bytes, and more in f64, where
 * they are libm's. */
int64_t cpu_elementwise_weight(unsigned opcode, enum dtype dtype) {
#define FLOP(ID, inputs, flop) [OP_PLACE_##ID] = (flop),
    static const uint8_t flops[OP_PLACES_ELEMENTWISE] = {OP_ELEMENTWISE(FLOP)};
    uint8_t flop = flops[op_place(opcode)];
    return flop <= 1 ? 0 : dtype == DTYPE_F64 ? 40 : flop;
}

static void job_run(struct cpu *cpu, const struct launch *launch, cpu_row_function *row, struct cpu_job **begun) {
    const struct operand *out = &launch->output;
    struct job job = {.base = {.cpu = cpu, .run = job_part}, .row = row, .rows = 1, .run = {.n = 1}};
    job.outer.arrays = launch->n_inputs + 1;
    job.outer.rank = out->rank > 0 ? out->rank - 1 : 0;
    for (int i = 0; i < job.outer.rank; i++) {
        job.outer.shape[i] = out->shape[i];
        job.rows *= out->shape[i];
    }
    int64_t bytes = 0;
    for (int k = 0; k < job.outer.arrays; k++) {
        const struct operand *operand = job_operand(launch, k);
        job.size[k] = (int64_t)dtype_size((enum dtype)operand->dtype);
        if (k > 0 && operand->as != operand->dtype) {
            job.cast[k] = cpu->kernels->cast[operand->dtype][operand->as];
            job.converts = true;
        }
        job.origin[k] = operand->data;
        walk_array(&job.outer, k, operand->strides, 0, job.size[k]);
        job.run.stride[k] = out->rank > 0 ? operand->strides[out->rank - 1] : 1;
        bytes += job.size[k];
    }
    for (unsigned i = 0; i < launch->attributes.n_floats; i++) {
        job.parameters[launch->n_inputs + 1 + i] = cpu_parameter(launch->attributes.floats[i], launch->inputs[0].as);
    }
    job.run.n = out->rank > 0 ? out->shape[out->rank - 1] : 1;
    int64_t elements = job.rows * job.run.n;
    job.tiled = job_runs_across(launch);
    job.streamed = job_streams(launch, elements * job.size[0]);
    job_pair(&job, launch);
    job.brief = job_is_brief(&job, launch);
    job.tiled &= !job.brief;
    double work = (double)elements * (double)(bytes + cpu_elementwise_weight(launch->opcode, (enum dtype)out->dtype)) +
                  (double)job.rows * ROW_WORK;
    unsigned parts = cpu_parts(cpu, work);
    job.row_parts = job.rows < parts ? (unsigned)job.rows : parts;
    job.run_parts = (parts + job.row_parts - 1) / job.row_parts;
    if (job.run.n < (int64_t)job.run_parts * 64) {
        job.run_parts = 1;
    }
    job.base.parts = job.row_parts * job.run_parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
}

static int elementwise_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *out = &launch->output, *last = &launch->inputs[launch->n_inputs - 1];
    cpu_row_function *row = cpu_row_find(cpu->kernels, launch->opcode, last->as);
    bool converts = false;
    (void)fault;
    for (int k = 0; k < launch->n_inputs; k++) {
        converts |= launch->inputs[k].as != launch->inputs[k].dtype;
    }
    if (out->rank != 1 || out->shape[0] > SMALL || converts) {
        job_run(cpu, launch, row, begun);
        return STATUS_OK;
    }
    struct cpu_row run = {.n = out->shape[0], .data = {out->data}, .stride = {out->strides[0]}};
    for (int k = 0; k < launch->n_inputs; k++) {
        run.data[k + 1] = launch->inputs[k].data;
        run.stride[k + 1] = launch->inputs[k].strides[0];
    }
    uint64_t parameters[2];
    for (unsigned i = 0; i < launch->attributes.n_floats; i++) {
        parameters[i] = cpu_parameter(launch->attributes.floats[i], last->as);
        run.data[launch->n_inputs + 1 + i] = (char *)&parameters[i];
    }
    row(&run);
    return STATUS_OK;
}

void cpu_launch_flat(struct device *device, const struct flat_launch *launches, unsigned n) {
    const struct cpu *cpu = (const struct cpu *)device;
    for (unsigned i = 0; i < n; i++) {
        const struct flat_launch *launch = &launches[i];
        const struct cpu_row run = {
            launch->elements, {launch->data[0], launch->data[1], launch->data[2], launch->data[3]}, {1, 1, 1, 1}};
        cpu_row_find(cpu->kernels, launch->opcode, launch->dtype)(&run);
    }
}

static int copy_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    return cpu_transpose(cpu, launch, begun) ? STATUS_OK : elementwise_run(cpu, launch, begun, fault);
}

static int cast_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    (void)fault;
    job_run(cpu, launch, cpu->kernels->cast[launch->inputs[0].dtype][launch->output.dtype], begun);
    return STATUS_OK;
}

static uint32_t elementwise_found(const struct device *device, unsigned opcode) {
    uint32_t found = 0;
    (void)device;
    for (unsigned dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        found |= (uint32_t)(cpu_row_numbers[op_place(opcode)][dtype] != CPU_ROW_NONE) << dtype;
    }
    return found;
}

const struct cpu_kernel cpu_kernel_elementwise = {{.dtypes = elementwise_found, .converts = cpu_converts_tiles},
                                                  elementwise_run};
const struct cpu_kernel cpu_kernel_copy = {{.dtypes = elementwise_found, .converts = cpu_converts_tiles}, copy_run};
const struct cpu_kernel cpu_kernel_cast = {.driver = cast_run};
