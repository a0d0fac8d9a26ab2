/* The CPU device. Its launches run on the caller's thread and on the team's, and have ended when launch() returns. */
#include "engine/cpu/cpu_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/host.h"

enum { THREADS_MAX = 1024 };
static const size_t huge_page = (size_t)2 << 20;

/* One row for each vector level, compiled by engine/cpu/meson.build; the first one that the processor has is taken. */
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_v2_kernels, cpu_v3_kernels, cpu_v4_kernels;

const struct cpu_kernels *cpu_kernels_choose(void) {
    __builtin_cpu_init();
    /* f16c and lzcnt, which clang 14 cannot be asked for, came with or before these. */
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    return v4 ? &cpu_v4_kernels : v3 ? &cpu_v3_kernels : &cpu_v2_kernels;
}
#else
extern const struct cpu_kernels cpu_native_kernels;

const struct cpu_kernels *cpu_kernels_choose(void) {
    return &cpu_native_kernels;
}
#endif

/* ---- operations ---- */

static cpu_driver *const drivers[CPU_OPCODES] = {
    [OP_FULL] = cpu_full,
    [OP_ARANGE] = cpu_arange,
    [OP_EYE] = cpu_eye,
    [OP_UNIFORM] = cpu_random,
    [OP_NORMAL] = cpu_random,
    [OP_CAST] = cpu_cast,
    [OP_COPY] = cpu_elementwise,
    [OP_ADD] = cpu_elementwise,
    [OP_SUBTRACT] = cpu_elementwise,
    [OP_MULTIPLY] = cpu_elementwise,
    [OP_DIVIDE] = cpu_elementwise,
    [OP_POW] = cpu_elementwise,
    [OP_MAXIMUM] = cpu_elementwise,
    [OP_MINIMUM] = cpu_elementwise,
    [OP_EQUAL] = cpu_elementwise,
    [OP_NOT_EQUAL] = cpu_elementwise,
    [OP_LESS] = cpu_elementwise,
    [OP_LESS_EQUAL] = cpu_elementwise,
    [OP_GREATER] = cpu_elementwise,
    [OP_GREATER_EQUAL] = cpu_elementwise,
    [OP_LOGICAL_AND] = cpu_elementwise,
    [OP_LOGICAL_OR] = cpu_elementwise,
    [OP_LOGICAL_NOT] = cpu_elementwise,
    [OP_NEGATIVE] = cpu_elementwise,
    [OP_ABS] = cpu_elementwise,
    [OP_EXP] = cpu_elementwise,
    [OP_LOG] = cpu_elementwise,
    [OP_SQRT] = cpu_elementwise,
    [OP_TANH] = cpu_elementwise,
    [OP_SIGMOID] = cpu_elementwise,
    [OP_RELU] = cpu_elementwise,
    [OP_WHERE] = cpu_elementwise,
    [OP_SUM] = cpu_reduce,
    [OP_PROD] = cpu_reduce,
    [OP_MEAN] = cpu_reduce,
    [OP_MAX] = cpu_reduce,
    [OP_MIN] = cpu_reduce,
    [OP_ANY] = cpu_reduce,
    [OP_ALL] = cpu_reduce,
    [OP_ARGMAX] = cpu_reduce,
    [OP_ARGMIN] = cpu_reduce,
    [OP_SOFTMAX] = cpu_softmax,
    [OP_LOG_SOFTMAX] = cpu_softmax,
    [OP_MATMUL] = cpu_matmul,
    [OP_LINEAR] = cpu_matmul,
    [OP_TAKE] = cpu_take,
    [OP_TAKE_ALONG_AXIS] = cpu_take_along_axis,
    [OP_ONE_HOT] = cpu_one_hot,
};

static int cpu_launch_part(struct device *device, const struct launch *launch, struct device_turn *turn,
                           struct device_begun **begun, struct fault *fault) {
    struct cpu *cpu = (struct cpu *)device;
    struct cpu_job *job = (struct cpu_job *)*begun;
    cpu_driver *driver = launch->opcode < CPU_OPCODES ? drivers[launch->opcode] : NULL;
    int code = STATUS_OK;
    if (__builtin_expect(!driver, 0)) {
        return fault_set(fault, STATUS_INTERNAL, "operation %u has no kernel on a cpu device", launch->opcode);
    }
    if (!job) {
        code = driver(cpu, launch, &job, fault);
    }
    if (__builtin_expect(job != NULL, 0) && cpu_job_continue(job, turn)) {
        job = NULL;
    }
    *begun = (struct device_begun *)job;
    return code;
}

static void cpu_abandon(struct device *device, struct device_begun *begun) {
    (void)device;
    cpu_job_abandon((struct cpu_job *)begun);
}

static int cpu_launch(struct device *device, struct device_stream *stream, const struct launch *launch,
                      struct fault *fault) {
    struct device_turn turn = {0};
    struct device_begun *begun = NULL;
    (void)stream;
    return cpu_launch_part(device, launch, &turn, &begun, fault);
}

/* Drivers that look their kernel up by dtype have an entry to show; the others take every dtype. */
static bool cpu_has_kernel(const struct cpu *cpu, unsigned opcode, enum dtype dtype) {
    const struct cpu_kernels *kernels = cpu->kernels;
    cpu_driver *driver = opcode < CPU_OPCODES && dtype_valid((int)dtype) ? drivers[opcode] : NULL;
    return !driver                     ? false
           : driver == cpu_elementwise ? kernels->elementwise[opcode][dtype] != NULL
           : driver == cpu_reduce      ? kernels->reductions[opcode][dtype] != NULL
           : driver == cpu_softmax     ? kernels->softmax[opcode][dtype] != NULL
           : driver == cpu_random      ? kernels->random[opcode][dtype] != NULL
                                       : true;
}

static int cpu_finds_kernel(struct device *device, unsigned opcode, enum dtype dtype, struct fault *fault) {
    if (__builtin_expect(!cpu_has_kernel((struct cpu *)device, opcode, dtype), 0)) {
        return fault_set(fault, STATUS_UNSUPPORTED, "a cpu device has no kernel for this with %s", dtype_name(dtype));
    }
    return STATUS_OK;
}

static int cpu_supports(struct device *device, unsigned opcode, enum dtype dtype, struct fault *fault) {
    struct cpu *cpu = (struct cpu *)device;
    int code = cpu_finds_kernel(device, opcode, dtype, fault);
    if (__builtin_expect(code != STATUS_OK, 0)) {
        return code;
    }
    bool product = opcode == OP_MATMUL || opcode == OP_LINEAR;
    if (!product || dtype_kind(dtype) != DTYPE_KIND_FLOAT || cpu->blas.library) {
        return STATUS_OK;
    }
    code = blas_load(&cpu->blas, fault);
    if (code == STATUS_OK) {
        cpu_rates_of_blas(cpu);
    }
    return code;
}

/* Tile by tile, through a buffer in the first-level cache. Of operations that read positions, the positions. */
static bool cpu_converts(const struct device *device, unsigned opcode, enum dtype from, enum dtype to) {
    const struct cpu *cpu = (const struct cpu *)device;
    cpu_driver *driver = opcode < CPU_OPCODES ? drivers[opcode] : NULL;
    if (driver == cpu_elementwise || driver == cpu_reduce) {
        return cpu->kernels->cast[from][to] != NULL;
    }
    bool takes = driver == cpu_take || driver == cpu_take_along_axis || driver == cpu_one_hot;
    return takes && to == DTYPE_I64 && dtype_kind(from) == DTYPE_KIND_INT;
}

/* ---- memory ---- */

static int cpu_reserve(struct device *device, size_t bytes, void **segment, struct fault *fault) {
    (void)device;
    /* Large segments begin where a huge page may, hence some more address space, given back below. */
    size_t slack = bytes >= huge_page ? huge_page : 0;
    if (bytes > SIZE_MAX - slack) {
        return fault_set(fault, STATUS_OUT_OF_MEMORY, "%zu bytes are more than there are addresses", bytes);
    }
    char *address =
        mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
        return fault_set(fault, STATUS_OUT_OF_MEMORY, "the host has no %zu bytes: %s", bytes, strerror(errno));
    }
    if (slack) {
        size_t page = 4096, rounded = (bytes + page - 1) / page * page;
        size_t head = -(uintptr_t)address & (huge_page - 1);
        if (head) {
            munmap(address, head);
        }
        if (slack > head) {
            munmap(address + head + rounded, slack - head);
        }
        address += head;
        madvise(address, bytes, MADV_HUGEPAGE); /* advice: where it is refused, small pages do */
    }
    *segment = address;
    return STATUS_OK;
}

static void cpu_release(struct device *device, void *segment, size_t bytes) {
    (void)device;
    munmap(segment, bytes);
}

/* ---- the device ---- */

static int cpu_count(unsigned *count, struct fault *fault) {
    (void)fault;
    *count = 1;
    return STATUS_OK;
}

static int cpu_open(const struct device_options *options, struct device **device, struct fault *fault) {
    struct cpu *cpu = aligned_alloc(_Alignof(struct cpu), sizeof *cpu);
    if (!cpu) {
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a cpu device");
    }
    unsigned threads = options->threads ? options->threads : host_cores();
    *cpu = (struct cpu){.base.vtable = &cpu_device_vtable, .kernels = cpu_kernels_choose()};
    cpu->memory_total = options->memory_total ? options->memory_total
                                              : host_memory() / 5 * 4 / (options->sharers ? options->sharers : 1);
    blas_prepare();
    cpu_rates_init(cpu, options->measure);
    team_init(&cpu->team, threads < THREADS_MAX ? threads : THREADS_MAX);
    *device = &cpu->base;
    return STATUS_OK;
}

static void cpu_close(struct device *device) {
    struct cpu *cpu = (struct cpu *)device;
    team_finish(&cpu->team);
    free(cpu->scratch);
    free(cpu);
}

static void cpu_describe(const struct device *device, struct device_info *info) {
    const struct cpu *cpu = (const struct cpu *)device;
    *info = (struct device_info){.processors = cpu->team.threads, .memory_total = cpu->memory_total};
    snprintf(info->kind, sizeof info->kind, "%s", cpu_device_vtable.kind);
    snprintf(info->capability, sizeof info->capability, "%s", cpu->kernels->level);
    host_model(info->model, sizeof info->model);
}

const struct device_vtable cpu_device_vtable = {
    .kind = "cpu",
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .rates = cpu_rates,
    .reserve = cpu_reserve,
    .release = cpu_release,
    .launch = cpu_launch,
    .launch_part = cpu_launch_part,
    .abandon = cpu_abandon,
    .workspaces = cpu_workspaces,
    .supports = cpu_supports,
    .converts = cpu_converts,
    .has_kernel = cpu_finds_kernel,
};
