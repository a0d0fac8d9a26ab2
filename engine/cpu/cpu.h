/* The CPU device, as its drivers see it. */
#pragma once

#include <stdatomic.h>

#include "engine/cpu/blas.h"
#include "engine/cpu/job.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/team.h"
#include "engine/device/device_impl.h"

extern const struct device_vtable cpu_device_vtable;

enum { CPU_STREAM_FROM = 16 << 20 }; /* an output of so many bytes or more is written past the caches */

/* What one thread does in a nanosecond. */
struct cpu_rates {
    double bytes;
    double flop[DTYPE_COUNT];
};

struct cpu {
    struct device base;
    struct team team;
    const struct cpu_kernels *kernels;
    struct blas blas;
    struct dnnl *dnnl; /* NULL: there is no oneDNN, or it has not been sought */
    bool dnnl_sought;
    _Atomic size_t begun_bytes; /* of jobs that have begun and not ended */
    struct cpu_spare spare;
    bool job_failed;        /* the job that has just ended; submitter */
    struct cpu_job waiting; /* in the place of the job of a launch for which there is no memory */
    uint64_t memory_total;
    struct cpu_rates rates; /* owner thread */
    bool rates_wanted;      /* the rates are to be measured */
    bool rates_due;         /* they have not been measured yet */
};

/* Runs a launch whose kernel exists, or makes a job of it, which the caller continues. */
typedef int cpu_driver(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault);

/* Of the device's vtable: elementwise.c. */
void cpu_launch_flat(struct device *device, const struct flat_launch *launches, unsigned n);
/* Several operations in one pass: fused.c. */
void cpu_fused_run(struct cpu *cpu, const struct fused_launch *launch, struct cpu_job **begun);
const void *cpu_fused_kernel(const struct device *device, const struct launch *launch);
void cpu_fused_ready(const struct device *device, struct fused_launch *launch);
unsigned cpu_fused_segments(const struct device *device, const struct launch *launch);
/* The reduction of an operation with these attributes; NULL: there is none for the dtype. In reduce.c. */
const struct cpu_reduction *cpu_reduction_find(const struct cpu_kernels *kernels, unsigned opcode,
                                               const struct op_attributes *attributes, unsigned dtype);
/* The same of a softmax, if rows of n elements are computed in one piece; else NULL. In softmax.c. */
const struct cpu_softmax *cpu_softmax_find(const struct cpu_kernels *kernels, unsigned opcode, unsigned dtype,
                                           int64_t n);
/* Elements of a row are reduced in segments, and those in pieces, counted from the segment's first element. Results depend on where they begin. */
enum { CPU_REDUCE_PIECE = 1 << 15, CPU_REDUCE_SEGMENTS_MAX = 16 };
/* Into how many segments `columns` elements of `size` bytes, which follow one another, are cut if there are `rows` of them. */
unsigned cpu_reduce_segments(int64_t rows, int64_t columns, int64_t size);
/* Takes n elements of a piece, which follow one another, the first of them number `position`. `cast`: NULL, or converts them as they are read. */
void cpu_reduce_take(const struct cpu_reduction *reduction, cpu_row_function *cast, int64_t n, const void *at,
                     int64_t size, int64_t position, struct cpu_accumulators *accumulators);
/* Reduces n elements of one segment to one. */
void cpu_reduce_run(const struct cpu_reduction *reduction, cpu_row_function *cast, int64_t n, const void *at,
                    int64_t size, double parameter, struct cpu_accumulators *accumulators, void *out);
/* An attribute of an elementwise operation as a row takes it. */
uint64_t cpu_parameter(double value, unsigned dtype);
/* What an element costs besides moving its bytes, as bytes of memory traffic. */
int64_t cpu_elementwise_weight(unsigned opcode, enum dtype dtype);
/* A copy whose output lies along another axis than its input: transpose.c. False: it is another copy. */
bool cpu_transpose(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun);

/* The device's entry for an operation: cpu_kernel_NAME, defined next to its driver. */
struct cpu_kernel {
    struct op_kernel base;
    cpu_driver *driver;
};
#define CPU_KERNEL(ID, name) extern const struct cpu_kernel cpu_kernel_##name;
OP_KERNELS(CPU_KERNEL)
CPU_KERNEL(, elementwise)
#undef CPU_KERNEL

/* Writes a value as one element of the dtype; in create.c. */
void cpu_element(const struct cpu *cpu, enum dtype dtype, const struct op_scalar *value, void *out);

/* op_kernel.converts for drivers that read their input tile by tile, through a buffer in the first-level cache. */
bool cpu_converts_tiles(const struct device *device, unsigned opcode, enum dtype from, enum dtype to);

/* Of op_kernel.needs: OpenBLAS is there, and the device knows its rates with it; in matmul.c. */
int cpu_needs_blas(struct cpu *cpu, struct fault *fault);
/* Loads oneDNN at the first call, if it is there: it is not needed. On the owner thread. */
void cpu_seeks_dnnl(struct cpu *cpu);

/* What the device does in a nanosecond, in rates.c; by the owner thread. First usual figures, then measured ones where they are
 * wanted: cpu_rates_measure() takes some 2 ms, once, and cpu_rates_of_blas() some 4 ms when BLAS has just been loaded. */
void cpu_rates_init(struct cpu *cpu, bool measure);
void cpu_rates_measure(struct device *device);
void cpu_rates_of_blas(struct cpu *cpu);
void cpu_rates(const struct device *device, struct device_rates *rates);
