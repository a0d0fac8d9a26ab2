/* Fused elementwise operations: the row functions of all of them run on one tile after another, so that what they pass on stays in the first-level
 * cache. The functions and their order are those of the operations by themselves, and so are the bits. */
#include "engine/cpu/cpu.h"

enum {
    /* Elements of a tile: long enough that calling the row functions costs little, short enough that a few slots of f32 stay in the first-level cache. */
    FUSED_TILE = 1024,
    FUSED_CALL = 16, /* what a call of a row function costs, as bytes of memory traffic */
};

struct job {
    struct cpu_job base;
    const struct fused_launch *launch;
    int64_t tiles; /* of a row */
    cpu_row_function *rows[FUSED_OPERATIONS_MAX];
    uint64_t parameters[FUSED_OPERATIONS_MAX][2];
};

typedef char slot_buffer[FUSED_TILE * FUSED_SLOT_ELEMENT];
/* A converted input has up to 16 bytes an element. */
typedef char cast_buffer[FUSED_TILE * sizeof(struct cpu_pair)];

static inline char *operand_at(const struct fused_operand *operand, slot_buffer *slots, int64_t row, int64_t column) {
    if (operand->in_slot) {
        return slots[operand->slot];
    }
    int64_t element = row * operand->row + column * operand->column;
    return (char *)operand->data + element * (int64_t)dtype_size((enum dtype)operand->dtype);
}

/* The operations on columns begin … begin + n - 1 of a row. */
static void fused_tile(const struct job *job, slot_buffer *slots, int64_t row, int64_t begin, int64_t n) {
    const struct fused_launch *launch = job->launch;
    _Alignas(64) cast_buffer casts[3];
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        struct cpu_row run = {.n = n, .data = {operand_at(&operation->output, slots, row, begin)}, .stride = {1}};
        unsigned k = 0;
        for (; k < operation->n_inputs; k++) {
            const struct fused_operand *input = &operation->inputs[k];
            run.data[k + 1] = operand_at(input, slots, row, begin);
            run.stride[k + 1] = input->column;
            if (__builtin_expect(input->as != input->dtype && operation->opcode != OP_CAST, 0)) {
                job->base.cpu->kernels->cast[input->dtype][input->as](
                    &(struct cpu_row){input->column ? n : 1, {casts[k], run.data[k + 1]}, {1, input->column}});
                run.data[k + 1] = casts[k];
            }
        }
        for (unsigned p = 0; p < operation->n_floats; p++) {
            run.data[++k] = (char *)(uintptr_t)&job->parameters[i][p];
        }
        job->rows[i](&run);
    }
}

static bool fused_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    const struct fused_launch *launch = job->launch;
    int64_t tiles = job->tiles * launch->rows;
    int64_t end = cpu_part_begin(tiles, lane->part + 1, base->parts);
    int64_t at = lane->position ? lane->position : cpu_part_begin(tiles, lane->part, base->parts);
    _Alignas(64) slot_buffer slots[FUSED_SLOTS_MAX];
    for (int64_t since = 0; at < end; at++, since++) {
        if (since == 64) {
            since = 0;
            if (cpu_job_stops(base)) {
                lane->position = at;
                return false;
            }
        }
        int64_t begin = at % job->tiles * FUSED_TILE, left = launch->columns - begin;
        fused_tile(job, slots, at / job->tiles, begin, left < FUSED_TILE ? left : FUSED_TILE);
    }
    return true;
}

static void fused_rows(struct job *job) {
    const struct cpu_kernels *kernels = job->base.cpu->kernels;
    for (uint32_t i = 0; i < job->launch->n; i++) {
        const struct fused_operation *operation = &job->launch->operations[i];
        const struct fused_operand *last = &operation->inputs[operation->n_inputs - 1];
        job->rows[i] = operation->opcode == OP_CAST ? kernels->cast[last->dtype][operation->output.dtype]
                                                    : cpu_row_find(kernels, operation->opcode, last->as);
        for (unsigned p = 0; p < operation->n_floats; p++) {
            job->parameters[i][p] = cpu_parameter(operation->floats[p], operation->inputs[0].as);
        }
    }
}

/* The work of an element: its bytes in memory, and what the operations cost. */
static double element_work(const struct fused_launch *launch) {
    double work = 0;
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        work += 1 + (double)cpu_elementwise_weight(operation->opcode, (enum dtype)operation->output.dtype);
        if (!operation->output.in_slot) {
            work += (double)dtype_size((enum dtype)operation->output.dtype);
        }
        for (unsigned k = 0; k < operation->n_inputs; k++) {
            const struct fused_operand *input = &operation->inputs[k];
            work += input->in_slot || !input->column ? 0 : (double)dtype_size((enum dtype)input->dtype);
        }
    }
    return work;
}

void cpu_fused_run(struct cpu *cpu, const struct fused_launch *launch, struct cpu_job **begun) {
    struct job job = {.base = {.cpu = cpu, .run = fused_part}, .launch = launch};
    job.tiles = (launch->columns + FUSED_TILE - 1) / FUSED_TILE;
    fused_rows(&job);
    if (launch->rows * launch->columns <= FUSED_TILE && launch->rows == 1) {
        _Alignas(64) slot_buffer slots[FUSED_SLOTS_MAX];
        fused_tile(&job, slots, 0, 0, launch->columns);
        return;
    }
    double work = (double)launch->rows *
                  ((double)launch->columns * element_work(launch) + (double)job.tiles * launch->n * FUSED_CALL);
    unsigned parts = cpu_parts(cpu, work);
    int64_t tiles = job.tiles * launch->rows;
    job.base.parts = tiles < parts ? (unsigned)tiles : parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
}

bool cpu_fuses(const struct device *device, unsigned opcode, enum dtype from, enum dtype as, enum dtype to) {
    const struct cpu_kernels *kernels = ((const struct cpu *)device)->kernels;
    if (opcode == OP_CAST) {
        return kernels->cast[from][to];
    }
    return cpu_row_find(kernels, opcode, as) && (from == as || kernels->cast[from][as]);
}
