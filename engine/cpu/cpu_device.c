/* The CPU device. Its launches run on the caller's thread and on the team's, and have ended when launch() returns. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/dnnl.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { THREADS_MAX = 1024 };
static const size_t huge_page = (size_t)2 << 20;

/* The kernels of each vector level, compiled by engine/cpu/meson.build, the best level first. */
#if !defined(CPU_NATIVE)
extern const struct cpu_kernels cpu_v2_kernels, cpu_v3_kernels, cpu_v4_kernels;
static const struct {
    const char *word; /* in TENSORD_CPU_LEVEL */
    const struct cpu_kernels *kernels;
} levels[] = {{"v4", &cpu_v4_kernels}, {"v3", &cpu_v3_kernels}, {"v2", &cpu_v2_kernels}};

/* The place in `levels` of the best one that the processor has. */
static unsigned level_best(void) {
    __builtin_cpu_init();
    /* f16c and lzcnt came with these or earlier; clang 14 cannot test for them. */
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    return v4 ? 0 : v3 ? 1 : 2;
}
#else
extern const struct cpu_kernels cpu_native_kernels;
static const struct {
    const char *word;
    const struct cpu_kernels *kernels;
} levels[] = {{"native", &cpu_native_kernels}};

static unsigned level_best(void) {
    return 0;
}
#endif
enum { LEVELS = sizeof levels / sizeof *levels };

const struct cpu_kernels *cpu_kernels_level(unsigned number) {
    number += level_best();
    return number < LEVELS ? levels[number].kernels : NULL;
}

/* The level that the operator wants; the processor's best one where they do not say. */
static int level_choose(const struct cpu_kernels **kernels, struct fault *fault) {
    const char *word = getenv("TENSORD_CPU_LEVEL");
    unsigned best = level_best();
    char words[64] = "";
    *kernels = levels[best].kernels;
    if (!word || !*word) {
        return STATUS_OK;
    }
    for (unsigned i = 0; i < LEVELS; i++) {
        if (strcmp(word, levels[i].word) == 0 && i < best) {
            return fault_set(fault, STATUS_UNSUPPORTED,
                             "TENSORD_CPU_LEVEL is %s, but the best level of this processor is %s", word,
                             levels[best].word);
        }
        if (strcmp(word, levels[i].word) == 0) {
            *kernels = levels[i].kernels;
            return STATUS_OK;
        }
        size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%s", used ? ", " : "", levels[i].word);
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "TENSORD_CPU_LEVEL is \"%.16s\", which is not one of %s", word,
                     words);
}

/* ---- operations ---- */

bool cpu_converts_tiles(const struct device *device, unsigned opcode, enum dtype from, enum dtype to) {
    (void)opcode;
    return ((const struct cpu *)device)->kernels->cast[from][to] != NULL;
}

/* concat and stack. */
const struct cpu_kernel cpu_kernel_concat = {.base.parts = OP_PARTS_COPIES};
const struct cpu_kernel cpu_kernel_stack = {.base.parts = OP_PARTS_COPIES};

#define OTHER(ID, name) [OP_##ID] = &cpu_kernel_##name.base,
#define ELEMENTWISE(ID, inputs, flop) [OP_##ID] = &cpu_kernel_elementwise.base,
static const struct op_kernel *const cpu_operations[OP_CODE_MAX] = {OP_KERNELS(OTHER) OP_ELEMENTWISE(ELEMENTWISE)};

/* A launch that has begun is known by the address of its job. The job in the spare place is known by an odd number instead: it may end in
 * another launch's turn, and a third launch may have the place then. */
static struct device_begun *begun_of(const struct cpu *cpu, const struct cpu_job *job) {
    return (struct device_begun *)(job && job == cpu->spare.job ? 2 * cpu->spare.number + 1 : (uintptr_t)job);
}

/* NULL: it has ended. */
static struct cpu_job *begun_job(const struct cpu *cpu, const struct device_begun *begun) {
    uintptr_t number = (uintptr_t)begun;
    if (number % 2 == 0) {
        return (struct cpu_job *)number;
    }
    return number == 2 * cpu->spare.number + 1 ? cpu->spare.job : NULL;
}

/* A piece of a launch, or of a fused one. */
static inline int launch_piece(struct cpu *cpu, const struct launch *launch, const struct fused_launch *fused,
                               struct device_turn *turn, struct device_begun **begun, struct fault *fault) {
    struct cpu_job *job = begun_job(cpu, *begun);
    int code = STATUS_OK;
    if (__builtin_expect(*begun && !job, 0)) {
        turn->used_ns = 1;
        *begun = NULL;
        return STATUS_OK;
    }
    if (!job || job == &cpu->waiting) {
        job = NULL;
        if (launch)
            code = ((const struct cpu_kernel *)cpu_operations[launch->opcode])->driver(cpu, launch, &job, fault);
        else
            cpu_fused_run(cpu, fused, &job);
    }
    if (__builtin_expect(job == &cpu->waiting, 0)) {
        cpu_job_wait(cpu, turn);
    } else if (__builtin_expect(job != NULL, 0) && cpu_job_continue(job, turn)) {
        job = NULL;
    }
    *begun = begun_of(cpu, job);
    if (__builtin_expect(cpu->job_failed, 0)) {
        cpu->job_failed = false;
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "the host has no memory for what a library needs to compute it");
    }
    return code;
}

static int cpu_launch_part(struct device *device, const struct launch *launch, struct device_turn *turn,
                           struct device_begun **begun, struct fault *fault) {
    return launch_piece((struct cpu *)device, launch, NULL, turn, begun, fault);
}

static int cpu_launch_fused(struct device *device, const struct fused_launch *launch, struct device_turn *turn,
                            struct device_begun **begun, struct fault *fault) {
    return launch_piece((struct cpu *)device, NULL, launch, turn, begun, fault);
}

static void cpu_abandon(struct device *device, struct device_begun *begun) {
    struct cpu *cpu = (struct cpu *)device;
    struct cpu_job *job = begun_job(cpu, begun);
    if (job && job != &cpu->waiting) {
        cpu_job_abandon(job);
    }
}

/* The memory of jobs that have begun: their state and partial results. Its size depends on how many threads take part, so it is not asked
 * for when the launch is bound. It is freed when the job ends. */
static void cpu_workspaces(struct device *device, struct device_workspaces *workspaces) {
    uint64_t bytes = atomic_load(&((struct cpu *)device)->begun_bytes);
    *workspaces = (struct device_workspaces){.bytes = bytes, .limit = bytes};
}

static int cpu_launch(struct device *device, struct device_stream *stream, const struct launch *launch,
                      struct fault *fault) {
    struct device_turn turn = {0};
    struct device_begun *begun = NULL;
    int code;
    (void)stream;
    do {
        code = cpu_launch_part(device, launch, &turn, &begun, fault);
    } while (begun);
    return code;
}

/* ---- memory ---- */

static int cpu_reserve(struct device *device, size_t bytes, void **segment, struct fault *fault) {
    (void)device;
    /* A large segment begins where a huge page may begin: so more addresses are reserved than needed, and the rest given back below. */
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
        madvise(address, bytes, MADV_HUGEPAGE); /* only advice: if the kernel refuses, there are small pages */
    }
    *segment = address;
    return STATUS_OK;
}

static void cpu_release(struct device *device, void *segment, size_t bytes) {
    (void)device;
    munmap(segment, bytes);
}

/* ---- what the host has ---- */

/* Cores that this process may run on; at least 1. */
static unsigned host_cores(void) {
    cpu_set_t set;
    int cores = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        cores = CPU_COUNT(&set);
    } else { /* more cores than cpu_set_t has bits */
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    return cores > 0 ? (unsigned)cores : 1;
}

/* The number in a file of one line; UINT64_MAX where there is none ("max"). */
static uint64_t read_limit(const char *path) {
    FILE *file = fopen(path, "re");
    uint64_t limit = UINT64_MAX;
    if (file) {
        if (fscanf(file, "%" SCNu64, &limit) != 1) {
            limit = UINT64_MAX;
        }
        fclose(file);
    }
    return limit;
}

/* The lowest limit of a control group and of the groups above it; `group` is "/a/b", and is cut off step by step. */
static uint64_t group_limit(const char *root, char *group, const char *name) {
    uint64_t lowest = UINT64_MAX;
    char path[1024];
    for (;;) {
        if ((size_t)snprintf(path, sizeof path, "%s%s/%s", root, group, name) < sizeof path) {
            uint64_t limit = read_limit(path);
            lowest = limit < lowest ? limit : lowest;
        }
        char *slash = strrchr(group, '/');
        if (!slash) {
            return lowest;
        }
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/group" for version 2, "4:memory:/group" for version 1. */
static uint64_t groups_limit(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    uint64_t lowest = UINT64_MAX;
    char line[768];
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) {
            continue;
        }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        bool unified = controllers[1] == '\0';
        if (!unified && strcmp(controllers + 1, "memory") != 0) {
            continue;
        }
        uint64_t limit = unified ? group_limit("/sys/fs/cgroup", group, "memory.max")
                                 : group_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        lowest = limit < lowest ? limit : lowest;
    }
    if (file) {
        fclose(file);
    }
    return lowest;
}

/* Bytes: physical memory, or the limit of the process's control group (version 1 or 2) where that is less. */
static uint64_t host_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t physical = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 30;
    uint64_t limit = groups_limit();
    return limit < physical ? limit : physical;
}

/* The processor's name, cut at `size`. */
static void host_model(char *model, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    struct utsname name;
    snprintf(model, size, "%s processor", uname(&name) == 0 ? name.machine : "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", 10) == 0) {
            value += 1 + strspn(value + 1, " ");
            value[strcspn(value, "\n")] = '\0';
            snprintf(model, size, "%s", value);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
}

/* ---- the device ---- */

static int cpu_count(unsigned *count, struct fault *fault) {
    (void)fault;
    *count = 1;
    return STATUS_OK;
}

static int cpu_open(const struct device_options *options, struct device **device, struct fault *fault) {
    const struct cpu_kernels *kernels;
    int code = level_choose(&kernels, fault);
    if (code) {
        return code;
    }
    struct cpu *cpu = aligned_alloc(_Alignof(struct cpu), sizeof *cpu);
    if (!cpu) {
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a cpu device");
    }
    unsigned threads = options->threads ? options->threads : host_cores();
    *cpu = (struct cpu){.base.vtable = &cpu_device_vtable, .kernels = kernels};
    cpu->memory_total = options->memory_total ? options->memory_total
                                              : host_memory() / 5 * 4 / (options->sharers ? options->sharers : 1);
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    if (cpu_spare_init(&cpu->spare, threads, fault) != STATUS_OK) {
        free(cpu);
        return STATUS_NO_HOST_MEMORY;
    }
    blas_prepare();
    cpu_rates_init(cpu, options->measure);
    team_init(&cpu->team, threads);
    *device = &cpu->base;
    return STATUS_OK;
}

static void cpu_close(struct device *device) {
    struct cpu *cpu = (struct cpu *)device;
    team_finish(&cpu->team);
    dnnl_unload(cpu->dnnl);
    cpu_spare_finish(&cpu->spare);
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
    .measure = cpu_rates_measure,
    .reserve = cpu_reserve,
    .release = cpu_release,
    .launch = cpu_launch,
    .launch_part = cpu_launch_part,
    .launch_flat = cpu_launch_flat,
    .launch_fused = cpu_launch_fused,
    .fused_kernel = cpu_fused_kernel,
    .fused_ready = cpu_fused_ready,
    .fused_segments = cpu_fused_segments,
    .exact_activations = true,
    .abandon = cpu_abandon,
    .workspaces = cpu_workspaces,
    .operations = cpu_operations,
};
