/* Creation: full, arange, linspace, of complex numbers, too, eye. */
#include "engine/cpu/create.h"

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

enum {
    RUN = 1 << 16,       /* elements that are made at a time */
    CONVERT_BLOCK = 256, /* of those that are made in another dtype and converted */
    STREAM_BYTES = 4096, /* the buffer through which streamed output goes; it stays in the first-level cache */
};

struct job {
    struct cpu_job base;
    /* Writes n elements, RUN at most, from number `first` on. */
    void (*make)(const struct job *job, int64_t first, int64_t n, char *out);
    const struct cpu_creation *creation;
    char *out;
    enum dtype dtype;
    bool streamed; /* the output is written past the caches */
    int64_t n;
    int64_t size;
    union {
        struct arange_attributes arange;
        struct linspace_attributes linspace;
        struct linspace_complex_attributes parts;
        struct eye_attributes eye;
    };
    double step, step_imaginary; /* of linspace */
    int64_t columns;             /* of eye */
    struct element element, one;
};

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    const struct operand *out = &launch->output;
    *job = (struct job){.base.cpu = cpu, .out = out->data, .dtype = (enum dtype)out->dtype, .n = 1};
    job->creation = cpu->kernels->creation;
    job->size = (int64_t)dtype_size(job->dtype);
    for (int i = 0; i < out->rank; i++) {
        job->n *= out->shape[i];
    }
    job->streamed = job->n * job->size >= CPU_STREAM_FROM;
}

/* Makes the elements from `begin` on in a buffer and writes them from there past the caches: else each cache line is read before it is written.
 * Returns where fewer than a buffer are left, before `end`. */
static int64_t job_stream(const struct job *job, int64_t begin, int64_t end) {
    _Alignas(64) char buffer[STREAM_BYTES];
    const struct cpu_kernels *kernels = job->base.cpu->kernels;
    const int64_t step = STREAM_BYTES / job->size;
    int64_t head = (int64_t)(-(uintptr_t)(job->out + begin * job->size) & 63) / job->size;
    head = head < end - begin ? head : end - begin;
    job->make(job, begin, head, job->out + begin * job->size);
    for (begin += head; end - begin >= step; begin += step) {
        job->make(job, begin, step, buffer);
        kernels->stream(job->out + begin * job->size, buffer, STREAM_BYTES);
    }
    kernels->stream_end();
    return begin;
}

static void job_make(const struct job *job, int64_t begin, int64_t end) {
    if (job->streamed) {
        begin = job_stream(job, begin, end);
    }
    for (; begin < end; begin += RUN) {
        job->make(job, begin, end - begin < RUN ? end - begin : RUN, job->out + begin * job->size);
    }
}

static bool make_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    job_make(job, cpu_part_begin(job->n, lane->part, base->parts), cpu_part_begin(job->n, lane->part + 1, base->parts));
    return true;
}

static void job_run(struct job *job, size_t element_work, bool (*run)(struct cpu_job *job, struct cpu_lane *lane),
                    void (*make)(const struct job *job, int64_t first, int64_t n, char *out), struct cpu_job **begun) {
    double work = (double)job->n * (double)element_work;
    job->base.run = run;
    job->make = make;
    job->base.parts = cpu_parts(job->base.cpu, work);
    cpu_job_begin(&job->base, sizeof *job, work, begun);
}

enum { FILL_BYTES = 16384 }; /* from so many bytes on words are filled */

/* Writes n words. Processors have an instruction that fills whole cache lines without reading them before, which takes less time than stores do. */
static void fill_words(void *to, uint64_t word, int64_t n) {
#if defined(__x86_64__)
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(n) : "a"(word) : "memory");
#else
    for (int64_t i = 0; i < n; i++) {
        memcpy((char *)to + i * (int64_t)sizeof word, &word, sizeof word);
    }
#endif
}

/* Elements up to the beginning of a cache line, words, and the elements that are left. */
#define FILL(T)                                                                                                        \
    {                                                                                                                  \
        const int64_t each = sizeof(uint64_t) / sizeof(T);                                                             \
        T value, word[sizeof(uint64_t) / sizeof(T)], *to = (T *)(void *)out;                                           \
        int64_t i = 0;                                                                                                 \
        memcpy(&value, job->element.bytes, sizeof value);                                                              \
        if (n >= FILL_BYTES / (int64_t)sizeof(T)) {                                                                    \
            uint64_t bits;                                                                                             \
            for (int64_t k = 0; k < each; k++) {                                                                       \
                word[k] = value;                                                                                       \
            }                                                                                                          \
            memcpy(&bits, word, sizeof bits);                                                                          \
            for (; i < n && (uintptr_t)(to + i) % 64 != 0; i++) {                                                      \
                to[i] = value;                                                                                         \
            }                                                                                                          \
            fill_words(to + i, bits, (n - i) / each);                                                                  \
            i += (n - i) / each * each;                                                                                \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            to[i] = value;                                                                                             \
        }                                                                                                              \
        return;                                                                                                        \
    }

static void fill_pairs(struct cpu_pair *to, const void *pair, int64_t n) {
    struct cpu_pair value;
    memcpy(&value, pair, sizeof value);
    for (int64_t i = 0; i < n; i++) {
        to[i] = value;
    }
}

static void make_full(const struct job *job, int64_t first, int64_t n, char *out) {
    (void)first;
    switch (job->element.size) {
    case 1:
        memset(out, job->element.bytes[0], (size_t)n);
        return;
    case 2:
        FILL(uint16_t)
    case 4:
        FILL(uint32_t)
    case 8:
        FILL(uint64_t)
    case 16:
        fill_pairs((struct cpu_pair *)(void *)out, job->element.bytes, n);
    }
}

static int full_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    struct full_attributes attributes;
    full_attributes_read(&launch->attributes, &attributes);
    job.element = element_make(cpu, job.dtype, attributes.value.i, attributes.value.f);
    job_run(&job, (size_t)job.size, make_part, make_full, begun);
    return STATUS_OK;
}

/* start + i · step for n elements from number `first` on, each by itself, not as a running sum: computed in f64, then converted as cast does. */
static void make_steps(const struct job *job, double start, double step, int64_t first, int64_t n, char *out) {
    if (job->dtype == DTYPE_F32) {
        job->creation->steps_f32(start, step, first, n, (float *)(void *)out);
        return;
    }
    if (job->dtype == DTYPE_F64) {
        job->creation->steps_f64(start, step, first, n, (double *)(void *)out);
        return;
    }
    double values[CONVERT_BLOCK];
    for (int64_t i = 0; i < n; i += CONVERT_BLOCK) {
        int64_t count = n - i < CONVERT_BLOCK ? n - i : CONVERT_BLOCK;
        job->creation->steps_f64(start, step, first + i, count, values);
        convert(job->base.cpu, DTYPE_F64, values, job->dtype, out + i * job->size, count);
    }
}

/* The same modulo 2^64. */
static void make_integers(const struct job *job, int64_t first, int64_t n, char *out) {
    const bool wide = job->dtype == DTYPE_I64 || job->dtype == DTYPE_U64;
    const uint64_t step = (uint64_t)job->arange.step.i;
    uint64_t block[CONVERT_BLOCK], value = (uint64_t)job->arange.start.i + (uint64_t)first * step;
    for (int64_t i = 0; i < n; i += CONVERT_BLOCK) {
        int64_t count = n - i < CONVERT_BLOCK ? n - i : CONVERT_BLOCK;
        uint64_t *to = wide ? (uint64_t *)(void *)out + i : block;
        for (int64_t k = 0; k < count; k++, value += step) {
            to[k] = value;
        }
        if (!wide) {
            convert(job->base.cpu, DTYPE_I64, block, job->dtype, out + i * job->size, count);
        }
    }
}

static void make_arange(const struct job *job, int64_t first, int64_t n, char *out) {
    if (dtype_kind(job->dtype) == DTYPE_KIND_FLOAT) {
        make_steps(job, job->arange.start.f, job->arange.step.f, first, n, out);
    } else {
        make_integers(job, first, n, out);
    }
}

static int arange_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    arange_attributes_read(&launch->attributes, &job.arange);
    job_run(&job, 16, make_part, make_arange, begun);
    return STATUS_OK;
}

/* As arange, but the last element is `stop` itself. */
static void make_linspace(const struct job *job, int64_t first, int64_t n, char *out) {
    const int64_t last = job->linspace.count - 1;
    make_steps(job, job->linspace.start, job->step, first, n, out);
    if (job->linspace.endpoint && last > 0 && last >= first && last < first + n) {
        convert(job->base.cpu, DTYPE_F64, &job->linspace.stop, job->dtype, out + (last - first) * job->size, 1);
    }
}

static int linspace_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    linspace_attributes_read(&launch->attributes, &job.linspace);
    const int64_t steps = job.linspace.count - job.linspace.endpoint;
    job.step = steps > 0 ? (job.linspace.stop - job.linspace.start) / (double)steps : 0;
    job_run(&job, 16, make_part, make_linspace, begun);
    return STATUS_OK;
}

/* The parts of n complex numbers from number `first` on, block by block, one beside the other. */
#define PARTS(name, T)                                                                                                 \
    static void make_parts_##name(const struct job *job, int64_t first, int64_t n, T *out) {                           \
        T re[CONVERT_BLOCK], im[CONVERT_BLOCK];                                                                        \
        for (int64_t i = 0; i < n; i += CONVERT_BLOCK) {                                                               \
            const int64_t count = n - i < CONVERT_BLOCK ? n - i : CONVERT_BLOCK;                                       \
            job->creation->steps_##name(job->parts.start_real, job->step, first + i, count, re);                       \
            job->creation->steps_##name(job->parts.start_imaginary, job->step_imaginary, first + i, count, im);        \
            for (int64_t k = 0; k < count; k++) {                                                                      \
                out[2 * (i + k)] = re[k];                                                                              \
                out[2 * (i + k) + 1] = im[k];                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
PARTS(f32, float)
PARTS(f64, double)

static void make_linspace_complex(const struct job *job, int64_t first, int64_t n, char *out) {
    const int64_t last = job->parts.count - 1;
    if (job->dtype == DTYPE_C64) {
        make_parts_f32(job, first, n, (float *)(void *)out);
    } else {
        make_parts_f64(job, first, n, (double *)(void *)out);
    }
    if (job->parts.endpoint && last > 0 && last >= first && last < first + n) {
        const double stop[2] = {job->parts.stop_real, job->parts.stop_imaginary};
        convert(job->base.cpu, DTYPE_C128, stop, job->dtype, out + (last - first) * job->size, 1);
    }
}

static int linspace_complex_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun,
                                struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    linspace_complex_attributes_read(&launch->attributes, &job.parts);
    const struct linspace_complex_attributes *given = &job.parts;
    const int64_t steps = given->count - given->endpoint;
    job.step = steps > 0 ? (given->stop_real - given->start_real) / (double)steps : 0;
    job.step_imaginary = steps > 0 ? (given->stop_imaginary - given->start_imaginary) / (double)steps : 0;
    job_run(&job, 32, make_part, make_linspace_complex, begun);
    return STATUS_OK;
}

/* Writes zeros, then the ones. No number here overflows, since the shape rule limits the diagonal. */
static bool eye_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    const int64_t begin = cpu_part_begin(job->n, lane->part, base->parts), diagonal = job->eye.diagonal;
    const int64_t end = cpu_part_begin(job->n, lane->part + 1, base->parts);
    int64_t row = begin / job->columns, first = diagonal < 0 ? -diagonal : 0;
    job_make(job, begin, end);
    int64_t last = (end - 1) / job->columns; /* `first` may be far below it */
    for (int64_t i = row > first ? row : first; i <= last && i + diagonal < job->columns; i++) {
        int64_t at = i * job->columns + i + diagonal;
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
    eye_attributes_read(&launch->attributes, &job.eye);
    job_run(&job, (size_t)job.size, eye_part, make_full, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_full = {.driver = full_run};
const struct cpu_kernel cpu_kernel_arange = {.driver = arange_run};
const struct cpu_kernel cpu_kernel_linspace = {.driver = linspace_run};
const struct cpu_kernel cpu_kernel_linspace_complex = {.driver = linspace_complex_run};
const struct cpu_kernel cpu_kernel_eye = {.driver = eye_run};
