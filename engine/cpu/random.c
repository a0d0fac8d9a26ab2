/* Random numbers. A part makes its elements by itself, since each depends only on its position. */
#include "engine/cpu/cpu.h"
#include "engine/device/philox.h"

struct job {
    struct cpu_job base;
    cpu_random_function *function;
    struct cpu_random parameters;
    struct philox_permutation permutation;
    char *out;
    int64_t n;
};

static bool job_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct cpu_random parameters = job->parameters;
    parameters.permutation = &job->permutation; /* of the job where it is now */
    job->function(&parameters, cpu_part_begin(job->n, lane->part, base->parts),
                  cpu_part_begin(job->n, lane->part + 1, base->parts), job->out);
    return true;
}

/* What the attributes say; returns the kernels' place in the table. */
typedef enum cpu_random_kind random_reader(const struct launch *launch, struct job *job);

static enum cpu_random_kind read_uniform(const struct launch *launch, struct job *job) {
    struct uniform_attributes given;
    enum dtype dtype = (enum dtype)launch->output.dtype;
    uniform_attributes_read(&launch->attributes, &given);
    job->parameters = (struct cpu_random){.seed = given.seed,
                                          .offset = (uint64_t)given.offset,
                                          .first = given.low,
                                          .second = given.high,
                                          .least = given.low,
                                          .last = given.high};
    if (given.low < given.high) {
        job->parameters.least = dtype_not_below(dtype, given.low);
        job->parameters.last = dtype_below(dtype, given.high);
    }
    return CPU_RANDOM_UNIFORM;
}

static enum cpu_random_kind read_normal(const struct launch *launch, struct job *job) {
    struct normal_attributes given;
    normal_attributes_read(&launch->attributes, &given);
    job->parameters = (struct cpu_random){
        .seed = given.seed, .offset = (uint64_t)given.offset, .first = given.mean, .second = given.deviation};
    return CPU_RANDOM_NORMAL;
}

static enum cpu_random_kind read_exponential(const struct launch *launch, struct job *job) {
    struct exponential_attributes given;
    exponential_attributes_read(&launch->attributes, &given);
    job->parameters = (struct cpu_random){.seed = given.seed, .offset = (uint64_t)given.offset, .first = given.scale};
    return CPU_RANDOM_EXPONENTIAL;
}

static enum cpu_random_kind read_randint(const struct launch *launch, struct job *job) {
    struct randint_attributes given;
    randint_attributes_read(&launch->attributes, &given);
    job->parameters = (struct cpu_random){.seed = given.seed,
                                          .offset = (uint64_t)given.offset,
                                          .low = given.low,
                                          .range = (uint64_t)given.high - (uint64_t)given.low};
    return CPU_RANDOM_RANDINT;
}

static enum cpu_random_kind read_bernoulli(const struct launch *launch, struct job *job) {
    struct bernoulli_attributes given;
    bernoulli_attributes_read(&launch->attributes, &given);
    job->parameters = (struct cpu_random){
        .seed = given.seed, .offset = (uint64_t)given.offset, .threshold = philox_threshold(given.probability)};
    return CPU_RANDOM_BERNOULLI;
}

static enum cpu_random_kind read_permutation(const struct launch *launch, struct job *job) {
    struct permutation_attributes given;
    permutation_attributes_read(&launch->attributes, &given);
    philox_permutation_init(&job->permutation, given.seed, (uint64_t)given.n);
    return CPU_RANDOM_PERMUTATION;
}

static enum cpu_random_kind read_dropout(const struct launch *launch, struct job *job) {
    struct dropout_attributes given;
    dropout_attributes_read(&launch->attributes, &given);
    job->parameters = (struct cpu_random){.seed = given.seed,
                                          .offset = (uint64_t)given.offset,
                                          .first = 1 / (1 - given.probability),
                                          .threshold = philox_threshold(given.probability),
                                          .x = launch->inputs[0].data};
    return CPU_RANDOM_DROPOUT;
}

static enum cpu_random_kind read_bernoulli_like(const struct launch *launch, struct job *job) {
    struct bernoulli_like_attributes given;
    bernoulli_like_attributes_read(&launch->attributes, &given);
    job->parameters =
        (struct cpu_random){.seed = given.seed, .offset = (uint64_t)given.offset, .x = launch->inputs[0].data};
    return CPU_RANDOM_BERNOULLI_LIKE;
}

static int run(struct cpu *cpu, const struct launch *launch, random_reader *read, struct cpu_job **begun) {
    const struct operand *out = &launch->output;
    struct job job = {.base = {.cpu = cpu, .run = job_part}, .out = out->data, .n = 1};
    for (int i = 0; i < out->rank; i++) {
        job.n *= out->shape[i];
    }
    enum cpu_random_kind kind = read(launch, &job);
    job.function = cpu->kernels->random[kind][out->dtype];
    double work = (double)job.n * (kind == CPU_RANDOM_PERMUTATION ? 128 : 32);
    job.base.parts = cpu_parts(cpu, work);
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

static uint32_t found(const struct device *device, enum cpu_random_kind kind) {
    uint32_t dtypes = 0;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        dtypes |= (uint32_t)(((const struct cpu *)device)->kernels->random[kind][dtype] != NULL) << dtype;
    }
    return dtypes;
}

#define RANDOM(name, KIND)                                                                                             \
    static int name##_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) { \
        (void)fault;                                                                                                   \
        return run(cpu, launch, read_##name, begun);                                                                   \
    }                                                                                                                  \
    static uint32_t name##_found(const struct device *device, unsigned opcode) {                                       \
        (void)opcode;                                                                                                  \
        return found(device, KIND);                                                                                    \
    }                                                                                                                  \
    const struct cpu_kernel cpu_kernel_##name = {{.dtypes = name##_found}, name##_run};
RANDOM(uniform, CPU_RANDOM_UNIFORM)
RANDOM(normal, CPU_RANDOM_NORMAL)
RANDOM(exponential, CPU_RANDOM_EXPONENTIAL)
RANDOM(randint, CPU_RANDOM_RANDINT)
RANDOM(bernoulli, CPU_RANDOM_BERNOULLI)
RANDOM(permutation, CPU_RANDOM_PERMUTATION)
RANDOM(dropout, CPU_RANDOM_DROPOUT)
RANDOM(bernoulli_like, CPU_RANDOM_BERNOULLI_LIKE)
