/* The CPU device, as its drivers see it. */
#pragma once

#include <stdatomic.h>

#include "engine/cpu/blas.h"
#include "engine/cpu/job.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/team.h"
#include "engine/device/device_impl.h"

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
    _Atomic size_t begun_bytes; /* of launches that have begun and not ended */
    struct cpu_spare spare;
    struct cpu_job waiting; /* stands for a launch for which there is no room */
    uint64_t memory_total;
    struct cpu_rates rates; /* owner thread */
    bool rates_measured;
};

/* The driver of each family of operations: runs a launch whose kernel is known to exist, or makes a job of it that the
 * caller continues. */
typedef int cpu_driver(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault);
cpu_driver cpu_elementwise, cpu_cast, cpu_reduce, cpu_softmax, cpu_matmul; /* by file */
cpu_driver cpu_full, cpu_arange, cpu_eye, cpu_random;                      /* create.c */
cpu_driver cpu_take, cpu_take_along_axis, cpu_one_hot;                     /* take.c */
cpu_driver cpu_topk;

/* What the device does in a nanosecond, in rates.c; by the owner thread. First usual figures, or measured ones, which takes a few
 * milliseconds; then those of products by BLAS, which has just been loaded. */
void cpu_rates_init(struct cpu *cpu, bool measure);
void cpu_rates_of_blas(struct cpu *cpu);
void cpu_rates(const struct device *device, struct device_rates *rates);

/* struct op_kernel of products, in matmul.c. */
int cpu_matmul_accepts(struct device *device, const struct launch *launch, struct fault *fault);
uint64_t cpu_matmul_workspace(struct device *device, const struct launch *launch);
