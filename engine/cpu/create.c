/* Creation: full, arange, eye, random numbers. */
#include "engine/cpu/cpu.h"

#include <string.h>

/* A value in any dtype's bytes. */
struct element {
    _Alignas(8) unsigned char bytes[8];
    size_t size;
};

static void convert(const struct cpu *cpu, enum dtype from, const void *x, enum dtype to, void *out, int64_t n) {
    const struct cpu_row row = {.n = n, .data = {out, (char *)(uintptr_t)x}, .stride = {1, 1}};
    cpu->kernels->cast[from][to](&row);
}

/* Floating dtypes take the float, others the integer. */
static struct element element_make(const struct cpu *cpu, enum dtype dtype, int64_t integer, double value) {
    struct element element = {.size = dtype_size(dtype)};
    if (dtype_kind(dtype) == DTYPE_KIND_FLOAT) {
        convert(cpu, DTYPE_F64, &value, dtype, element.bytes, 1);
    } else {
        convert(cpu, DTYPE_I64, &integer, dtype, element.bytes, 1);
    }
    return element;
}

struct job {
    struct cpu *cpu;
    const struct launch *launch;
    char *out;
    enum dtype dtype;
    int64_t n;
    int64_t size;
    unsigned parts;
    struct element element;
    cpu_random_function *random;
    struct cpu_random parameters;
};

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    const struct operand *out = &launch->output;
    *job = (struct job){.cpu = cpu, .launch = launch, .out = out->data, .dtype = (enum dtype)out->dtype, .n = 1};
    job->size = (int64_t)dtype_size(job->dtype);
    for (int i = 0; i < out->rank; i++) {
        job->n *= out->shape[i];
    }
}

static void job_run(struct job *job, int64_t work, void (*body)(void *context, unsigned part)) {
    job->parts = cpu_parts(job->cpu, work);
    team_run(&job->cpu->team, job->parts, body, job);
}

#define FILL(T)                                                                                                        \
    {                                                                                                                  \
        T value, *out = (T *)(void *)job->out;                                                                         \
        memcpy(&value, job->element.bytes, sizeof value);                                                              \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            out[i] = value;                                                                                            \
        }                                                                                                              \
        return;                                                                                                        \
    }

static void fill_part(void *context, unsigned part) {
    const struct job *job = context;
    int64_t begin = cpu_part_begin(job->n, part, job->parts), end = cpu_part_begin(job->n, part + 1, job->parts);
    switch (job->element.size) {
    case 1:
        memset(job->out + begin, job->element.bytes[0], (size_t)(end - begin));
        return;
    case 2:
        FILL(uint16_t)
    case 4:
        FILL(uint32_t)
    case 8:
        FILL(uint64_t)
    }
}

int cpu_full(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job.element = element_make(cpu, job.dtype, launch->ints[1], launch->floats[0]);
    job_run(&job, job.n * job.size, fill_part);
    return STATUS_OK;
}

enum { ARANGE_BLOCK = 256 };

/* Block by block in i64 or f64, converted as cast does. Element i is start + i·step, not a running sum. */
static void arange_part(void *context, unsigned part) {
    const struct job *job = context;
    const int64_t *ints = job->launch->ints;
    const double *floats = job->launch->floats;
    int64_t begin = cpu_part_begin(job->n, part, job->parts), end = cpu_part_begin(job->n, part + 1, job->parts);
    bool floating = dtype_kind(job->dtype) == DTYPE_KIND_FLOAT;
    double values[ARANGE_BLOCK];
    uint64_t integers[ARANGE_BLOCK];
    for (int64_t i = begin; i < end; i += ARANGE_BLOCK) {
        int64_t n = end - i < ARANGE_BLOCK ? end - i : ARANGE_BLOCK;
        for (int64_t k = 0; k < n; k++) {
            values[k] = floats[0] + (double)(i + k) * floats[2];
            integers[k] = (uint64_t)ints[1] + (uint64_t)(i + k) * (uint64_t)ints[3];
        }
        convert(job->cpu, floating ? DTYPE_F64 : DTYPE_I64, floating ? (void *)values : (void *)integers, job->dtype,
                job->out + i * job->size, n);
    }
}

int cpu_arange(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job_run(&job, job.n * 8, arange_part);
    return STATUS_OK;
}

int cpu_eye(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job.element = (struct element){.size = dtype_size(job.dtype)};
    job_run(&job, job.n * job.size, fill_part);
    const struct element one = element_make(cpu, job.dtype, 1, 1);
    /* The bound of the diagonal in the shape rule keeps these from overflowing. */
    int64_t rows = launch->output.shape[0], columns = launch->output.shape[1];
    int64_t diagonal = launch->ints[launch->n_ints - 1];
    for (int64_t i = diagonal < 0 ? -diagonal : 0; i < rows && i + diagonal < columns; i++) {
        memcpy(job.out + (i * columns + i + diagonal) * job.size, one.bytes, one.size);
    }
    return STATUS_OK;
}

static void random_part(void *context, unsigned part) {
    const struct job *job = context;
    job->random(&job->parameters, cpu_part_begin(job->n, part, job->parts),
                cpu_part_begin(job->n, part + 1, job->parts), job->out);
}

int cpu_random(struct cpu *cpu, const struct launch *launch, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job.random = cpu->kernels->random[launch->opcode][launch->output.dtype];
    job.parameters = (struct cpu_random){.seed = (uint64_t)launch->ints[1],
                                         .offset = (uint64_t)launch->ints[2],
                                         .first = launch->floats[0],
                                         .second = launch->floats[1],
                                         .least = launch->floats[0],
                                         .last = launch->floats[1]};
    if (launch->opcode == OP_UNIFORM && job.parameters.first < job.parameters.second) {
        job.parameters.least = dtype_not_below((enum dtype)job.dtype, job.parameters.first);
        job.parameters.last = dtype_below((enum dtype)job.dtype, job.parameters.second);
    }
    job_run(&job, job.n * 32, random_part);
    return STATUS_OK;
}
