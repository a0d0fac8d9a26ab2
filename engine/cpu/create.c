/* Creation: full, arange, eye. */
#include "engine/cpu/cpu.h"

#include <string.h>

/* A value in any dtype's bytes. */
struct element {
    _Alignas(16) unsigned char bytes[16];
    size_t size;
};

static void convert(const struct cpu *cpu, enum dtype from, const void *x, enum dtype to, void *out, int64_t n) {
    const struct cpu_row row = {.n = n, .data = {out, (char *)(uintptr_t)x}, .stride = {1, 1}};
    cpu->kernels->cast[from][to](&row);
}

void cpu_element(const struct cpu *cpu, enum dtype dtype, const struct op_scalar *value, void *out) {
    if (dtype_is_complex(dtype)) {
        double parts[2] = {value->f};
        memcpy(&parts[1], &value->i, sizeof value->i);
        convert(cpu, DTYPE_C128, parts, dtype, out, 1);
    } else if (dtype_kind(dtype) == DTYPE_KIND_FLOAT) {
        convert(cpu, DTYPE_F64, &value->f, dtype, out, 1);
    } else {
        convert(cpu, DTYPE_I64, &value->i, dtype, out, 1);
    }
}

static struct element element_make(const struct cpu *cpu, enum dtype dtype, int64_t integer, double value) {
    struct element element = {.size = dtype_size(dtype)};
    cpu_element(cpu, dtype, &(struct op_scalar){integer, value}, element.bytes);
    return element;
}

struct job {
    struct cpu_job base;
    const struct launch *launch;
    char *out;
    enum dtype dtype;
    int64_t n;
    int64_t size;
    int64_t columns, diagonal; /* of eye */
    struct element element, one;
};

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    const struct operand *out = &launch->output;
    *job = (struct job){.base.cpu = cpu, .launch = launch, .out = out->data, .dtype = (enum dtype)out->dtype, .n = 1};
    job->size = (int64_t)dtype_size(job->dtype);
    for (int i = 0; i < out->rank; i++) {
        job->n *= out->shape[i];
    }
}

static void job_run(struct job *job, size_t element_work, bool (*run)(struct cpu_job *job, struct cpu_lane *lane),
                    struct cpu_job **begun) {
    double work = (double)job->n * (double)element_work;
    job->base.run = run;
    job->base.parts = cpu_parts(job->base.cpu, work);
    cpu_job_begin(&job->base, sizeof *job, work, begun);
}

/* The element at which a part begins. */
static int64_t part_begin(const struct job *job, const struct cpu_lane *lane) {
    return cpu_part_begin(job->n, lane->part, job->base.parts);
}

static int64_t part_end(const struct job *job, const struct cpu_lane *lane) {
    return cpu_part_begin(job->n, lane->part + 1, job->base.parts);
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

static void fill(const struct job *job, int64_t begin, int64_t end) {
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
    case 16:
        FILL(struct cpu_pair)
    }
}

static bool fill_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    fill(job, part_begin(job, lane), part_end(job, lane));
    return true;
}

static int full_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    struct full_attributes attributes;
    full_attributes_read(&launch->attributes, &attributes);
    job.element = element_make(cpu, job.dtype, attributes.value.i, attributes.value.f);
    job_run(&job, (size_t)job.size, fill_part, begun);
    return STATUS_OK;
}

enum { ARANGE_BLOCK = 256 };

/* start + i·step for n elements from number `first` on, each by itself, not as a running sum. Compilers find vectors for the conversion of
 * 32 bits alone; the sum of two whole numbers is exact. */
static void steps_fill(double start, double step, int64_t first, int64_t n, double *values) {
    const double from = (double)first;
    for (int32_t k = 0; k < (int32_t)n; k++) {
        values[k] = start + (from + (double)k) * step;
    }
}

/* Computed block by block in i64 or f64, then converted as cast does. Element i is start + i·step, not a running sum. */
static bool arange_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    struct arange_attributes given;
    arange_attributes_read(&job->launch->attributes, &given);
    int64_t begin = part_begin(job, lane), end = part_end(job, lane);
    const bool floating = dtype_kind(job->dtype) == DTYPE_KIND_FLOAT;
    double values[ARANGE_BLOCK];
    uint64_t integers[ARANGE_BLOCK];
    for (int64_t i = begin; i < end; i += ARANGE_BLOCK) {
        int64_t n = end - i < ARANGE_BLOCK ? end - i : ARANGE_BLOCK;
        if (floating) {
            steps_fill(given.start.f, given.step.f, i, n, values);
        } else {
            uint64_t value = (uint64_t)given.start.i + (uint64_t)i * (uint64_t)given.step.i;
            for (int64_t k = 0; k < n; k++, value += (uint64_t)given.step.i) {
                integers[k] = value;
            }
        }
        convert(job->base.cpu, floating ? DTYPE_F64 : DTYPE_I64, floating ? (void *)values : (void *)integers,
                job->dtype, job->out + i * job->size, n);
    }
    return true;
}

static int arange_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job_run(&job, 16, arange_part, begun);
    return STATUS_OK;
}

/* As arange, but the last element is `stop` itself. */
static bool linspace_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    struct linspace_attributes given;
    linspace_attributes_read(&job->launch->attributes, &given);
    int64_t begin = part_begin(job, lane), end = part_end(job, lane), steps = given.count - given.endpoint;
    double values[ARANGE_BLOCK], step = steps > 0 ? (given.stop - given.start) / (double)steps : 0;
    for (int64_t i = begin; i < end; i += ARANGE_BLOCK) {
        int64_t n = end - i < ARANGE_BLOCK ? end - i : ARANGE_BLOCK;
        steps_fill(given.start, step, i, n, values);
        if (given.endpoint && steps > 0 && steps >= i && steps < i + n) {
            values[steps - i] = given.stop;
        }
        convert(job->base.cpu, DTYPE_F64, values, job->dtype, job->out + i * job->size, n);
    }
    return true;
}

static int linspace_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job_run(&job, 16, linspace_part, begun);
    return STATUS_OK;
}

/* Writes zeros, then the ones. No number here overflows, since the shape rule limits the diagonal. */
static bool eye_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t begin = part_begin(job, lane), end = part_end(job, lane);
    int64_t row = begin / job->columns, first = job->diagonal < 0 ? -job->diagonal : 0;
    fill(job, begin, end);
    int64_t last = (end - 1) / job->columns; /* `first` may be far below it */
    for (int64_t i = row > first ? row : first; i <= last && i + job->diagonal < job->columns; i++) {
        int64_t at = i * job->columns + i + job->diagonal;
        if (at >= begin && at < end) {
            memcpy(job->out + at * job->size, job->one.bytes, job->one.size);
        }
    }
    return true;
}

static int eye_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job.element = (struct element){.size = dtype_size(job.dtype)};
    job.one = element_make(cpu, job.dtype, dtype_is_complex(job.dtype) ? 0 : 1, 1);
    job.columns = launch->output.shape[1];
    struct eye_attributes attributes;
    eye_attributes_read(&launch->attributes, &attributes);
    job.diagonal = attributes.diagonal;
    job_run(&job, (size_t)job.size, eye_part, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_full = {.driver = full_run};
const struct cpu_kernel cpu_kernel_arange = {.driver = arange_run};
const struct cpu_kernel cpu_kernel_linspace = {.driver = linspace_run};
const struct cpu_kernel cpu_kernel_eye = {.driver = eye_run};
