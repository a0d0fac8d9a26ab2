/* Fused operations: the row functions of all of them run on one tile after another, so that what they pass on stays in the first-level
 * cache; if some of them reduce rows, on one row after another. The functions and their order are those of the operations by themselves, and so are the
 * bits. */
#include "engine/cpu/cpu.h"

enum {
    /* Elements of a tile: long enough that calling the row functions costs little, short enough that a few slots of f32 stay in the first-level cache. */
    FUSED_TILE = 1024,
    FUSED_LOOK = 64 * FUSED_TILE, /* elements between two looks whether to stop, if no row is longer */
    FUSED_SOFTMAX = 24,           /* and what an element of a softmax costs */
    FUSED_SKEW = 192,
    FUSED_CALL = 16, /* what a call of a row function costs, as bytes of memory traffic */
    FUSED_SLOTS_ROOM = FUSED_SLOTS_BYTES + FUSED_SLOTS_MAX * FUSED_SKEW,
};

struct job {
    struct cpu_job base;
    const struct fused_launch *launch;
    int64_t width, tiles; /* elements of a tile, tiles of a row */
    int64_t slot;         /* bytes from a slot to the next */
    uint64_t parameters[FUSED_OPERATIONS_MAX][2];
};

/* What one thread computes a tile in. */
struct room {
    _Alignas(64) char slots[FUSED_SLOTS_ROOM];
    _Alignas(
        64) char casts[3][FUSED_TILE * sizeof(struct cpu_pair)]; /* a converted input has up to 16 bytes an element */
    struct cpu_accumulators accumulators;
};

static inline char *operand_at(const struct job *job, const struct fused_operand *operand, struct room *room,
                               int64_t row, int64_t column) {
    if (operand->in_slot) {
        return room->slots + operand->slot * job->slot;
    }
    int64_t apart = operand->row == FUSED_FLAT ? job->launch->columns : operand->row;
    int64_t element = row * apart + column * operand->column;
    return (char *)operand->data + element * (int64_t)dtype_size((enum dtype)operand->dtype);
}

static inline bool operand_converts(const struct fused_operation *operation, const struct fused_operand *input) {
    return input->as != input->dtype && operation->opcode != OP_CAST;
}

static void tile_reduce(const struct job *job, const struct fused_operation *operation, struct room *room,
                        int64_t row) {
    const struct fused_operand *input = &operation->inputs[0];
    cpu_row_function *cast = input->as != input->dtype ? job->base.cpu->kernels->cast[input->dtype][input->as] : NULL;
    cpu_reduce_run(operation->kernel, cast, job->launch->columns, operand_at(job, input, room, row, 0),
                   (int64_t)dtype_size((enum dtype)input->dtype), operation->floats[0], &room->accumulators,
                   operand_at(job, &operation->output, room, row, 0));
}

/* An operation with inputs that must be converted, n elements from a column on. */
static void tile_converts(const struct job *job, const struct fused_operation *operation, const uint64_t *parameters,
                          struct room *room, int64_t row, int64_t begin, int64_t n) {
    for (int64_t at = 0; at < n; at += FUSED_TILE) {
        int64_t block = n - at < FUSED_TILE ? n - at : FUSED_TILE;
        struct cpu_row run = {.n = block, .stride = {1}};
        unsigned k = 0;
        run.data[0] = operand_at(job, &operation->output, room, row, begin) +
                      at * (int64_t)dtype_size((enum dtype)operation->output.dtype);
        for (; k < operation->n_inputs; k++) {
            const struct fused_operand *input = &operation->inputs[k];
            run.data[k + 1] = operand_at(job, input, room, row, begin) +
                              at * input->column * (int64_t)dtype_size((enum dtype)input->dtype);
            run.stride[k + 1] = input->column;
            if (operand_converts(operation, input)) {
                job->base.cpu->kernels->cast[input->dtype][input->as](&(struct cpu_row){
                    input->column ? block : 1, {room->casts[k], run.data[k + 1]}, {1, input->column}});
                run.data[k + 1] = room->casts[k];
            }
        }
        for (unsigned p = 0; p < operation->n_floats; p++) {
            run.data[++k] = (char *)(uintptr_t)&parameters[p];
        }
        ((cpu_row_function *)operation->kernel)(&run);
    }
}

/* The operations on columns begin … begin + n - 1 of a row. */
static void fused_tile(const struct job *job, struct room *room, int64_t row, int64_t begin, int64_t n) {
    const struct fused_launch *launch = job->launch;
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        struct cpu_row run = {.n = operation->output.column ? n : 1,
                              .data = {operand_at(job, &operation->output, room, row, begin)},
                              .stride = {1}};
        bool converts = false;
        unsigned k = 0;
        if (__builtin_expect(operation->reduces, 0)) {
            tile_reduce(job, operation, room, row);
            continue;
        }
        if (__builtin_expect(operation->softmax, 0)) {
            const struct cpu_softmax *softmax = operation->kernel;
            softmax->row(n, operand_at(job, &operation->inputs[0], room, row, 0), 1, run.data[0], 1);
            continue;
        }
        for (; k < operation->n_inputs; k++) {
            const struct fused_operand *input = &operation->inputs[k];
            run.data[k + 1] = operand_at(job, input, room, row, begin);
            run.stride[k + 1] = input->column;
            converts |= operand_converts(operation, input);
        }
        if (__builtin_expect(converts, 0)) {
            tile_converts(job, operation, job->parameters[i], room, row, begin, run.n);
            continue;
        }
        for (unsigned p = 0; p < operation->n_floats; p++) {
            run.data[++k] = (char *)(uintptr_t)&job->parameters[i][p];
        }
        ((cpu_row_function *)operation->kernel)(&run);
    }
}

/* All operations on few elements. */
static void fused_plain(const struct fused_launch *launch) {
    uint64_t parameters[2];
    struct cpu_row run = {.n = launch->columns, .stride = {1}};
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        run.data[0] = operation->output.data;
        run.data[1] = operation->inputs[0].data;
        run.stride[1] = operation->inputs[0].column;
        run.data[2] = operation->inputs[1].data;
        run.stride[2] = operation->inputs[1].column;
        run.data[3] = operation->inputs[2].data;
        run.stride[3] = operation->inputs[2].column;
        for (unsigned p = 0; p < operation->n_floats; p++) {
            parameters[p] = cpu_parameter(operation->floats[p], operation->inputs[0].as);
            run.data[1 + operation->n_inputs + p] = (char *)&parameters[p];
            run.stride[1 + operation->n_inputs + p] = 0;
        }
        ((cpu_row_function *)operation->kernel)(&run);
    }
}

static bool fused_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    const struct fused_launch *launch = job->launch;
    int64_t tiles = job->tiles * launch->rows, look = 1 + FUSED_LOOK / job->width;
    int64_t end = cpu_part_begin(tiles, lane->part + 1, base->parts);
    int64_t at = lane->position ? lane->position : cpu_part_begin(tiles, lane->part, base->parts);
    struct room room;
    for (int64_t since = 0; at < end; at++, since++) {
        if (since == look) {
            since = 0;
            if (cpu_job_stops(base)) {
                lane->position = at;
                return false;
            }
        }
        int64_t begin = at % job->tiles * job->width, left = launch->columns - begin;
        fused_tile(job, &room, at / job->tiles, begin, left < job->width ? left : job->width);
    }
    return true;
}

/* The work of an element: its bytes in memory, and what the operations cost. */
static double element_work(const struct fused_launch *launch) {
    double work = 0;
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        if (!operation->output.column && !operation->reduces) {
            continue;
        }
        work += operation->reduces ? 1
                : operation->softmax
                    ? FUSED_SOFTMAX
                    : 1 + (double)cpu_elementwise_weight(operation->opcode, (enum dtype)operation->output.dtype);
        if (!operation->output.in_slot && operation->output.column) {
            work += (double)dtype_size((enum dtype)operation->output.dtype);
        }
        for (unsigned k = 0; k < operation->n_inputs; k++) {
            const struct fused_operand *input = &operation->inputs[k];
            work += input->in_slot || !input->column ? 0 : (double)dtype_size((enum dtype)input->dtype);
        }
    }
    return work;
}

static void fused_parameters(struct job *job) {
    for (uint32_t i = 0; i < job->launch->n; i++) {
        const struct fused_operation *operation = &job->launch->operations[i];
        for (unsigned p = 0; p < operation->n_floats && !operation->reduces; p++) {
            job->parameters[i][p] = cpu_parameter(operation->floats[p], operation->inputs[0].as);
        }
    }
}

void cpu_fused_run(struct cpu *cpu, const struct fused_launch *launch, struct cpu_job **begun) {
    struct job job;
    if (launch->plain && launch->columns <= FUSED_TILE) {
        fused_plain(launch);
        return;
    }
    job.base = (struct cpu_job){.cpu = cpu, .run = fused_part};
    job.launch = launch;
    job.width = launch->whole_rows || launch->columns < FUSED_TILE ? launch->columns : FUSED_TILE;
    job.tiles = (launch->columns + job.width - 1) / job.width;
    /* Slots do not begin at the same place of a page: that would cost cache lines, and stores that seem to be followed by loads. */
    job.slot = ((job.width * FUSED_SLOT_ELEMENT + 63) & ~(int64_t)63) + FUSED_SKEW;
    fused_parameters(&job);
    if (launch->columns <= FUSED_TILE && launch->rows == 1) {
        struct room room;
        fused_tile(&job, &room, 0, 0, launch->columns);
        return;
    }
    double work = (double)launch->rows *
                  ((double)launch->columns * element_work(launch) + (double)job.tiles * launch->n * FUSED_CALL);
    unsigned parts = cpu_parts(cpu, work);
    int64_t tiles = job.tiles * launch->rows;
    job.base.parts = tiles < parts ? (unsigned)tiles : parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
}

const void *cpu_fused_kernel(const struct device *device, const struct launch *launch) {
    const struct cpu_kernels *kernels = ((const struct cpu *)device)->kernels;
    const struct operand *last = &launch->inputs[launch->n_inputs - 1];
    for (unsigned i = 0; i < launch->n_inputs; i++) {
        const struct operand *input = &launch->inputs[i];
        if (launch->opcode != OP_CAST && input->as != input->dtype && !kernels->cast[input->dtype][input->as]) {
            return NULL;
        }
    }
    enum op_family family = op_info(launch->opcode)->family;
    if (launch->opcode == OP_CAST) {
        return (const void *)(uintptr_t)kernels->cast[last->dtype][launch->output.dtype];
    }
    if (family == OP_FAMILY_SOFTMAX) {
        return cpu_softmax_find(kernels, launch->opcode, last->dtype, last->shape[last->rank - 1]);
    }
    return family == OP_FAMILY_REDUCE
               ? (const void *)cpu_reduction_find(kernels, launch->opcode, &launch->attributes, last->as)
               : (const void *)(uintptr_t)cpu_row_find(kernels, launch->opcode, last->as);
}
