/* Positions drawn by weights. engine/device/multinomial.h says how. */
#include "engine/device/multinomial.h"
#include "engine/cpu/cpu.h"

enum {
    KEYS = 512,        /* that are computed at a time */
    PIECE = 256,       /* runs or samples between two looks whether to stop */
    SAMPLE_WORK = 256, /* what a sample takes, as bytes of memory traffic */
};

enum round { ROUND_SUMS, ROUND_SAMPLES };

struct job {
    struct cpu_job base;
    cpu_row_function *cast; /* of weights to f64 */
    cpu_random_function *exponential;
    struct multinomial_attributes given;
    char *weights;
    int64_t size; /* of a weight */
    void *out;
    double *sums; /* [rows][runs + 1] */
    double *
        within; /* [rows][runs][MULTINOMIAL_RUN]: of each run the sums up to each of its weights; NULL: there is no room for them */
    int64_t rows, k, runs;
    enum round round;
};

/* The weights of n positions from `first` on. */
static void job_weights(const struct job *job, int64_t first, int64_t n, double *out) {
    job->cast(&(struct cpu_row){n, {(char *)out, job->weights + first * job->size}, {1, 1}});
    for (int64_t i = 0; i < n; i++) {
        out[i] = multinomial_weight(out[i]);
    }
}

/* ---- with replacement ---- */

static int64_t run_weights(const struct job *job, int64_t row, int64_t run, double *out) {
    int64_t first = run * MULTINOMIAL_RUN, n = job->k - first < MULTINOMIAL_RUN ? job->k - first : MULTINOMIAL_RUN;
    job_weights(job, row * job->k + first, n, out);
    return n;
}

static void row_sum(const struct job *job, int64_t row, int64_t run, double *sums) {
    double weights[MULTINOMIAL_RUN], sum = 0;
    double *within = job->within ? job->within + (row * job->runs + run) * MULTINOMIAL_RUN : NULL;
    int64_t n = run_weights(job, row, run, weights);
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i];
        if (within) {
            within[i] = sum;
        }
    }
    for (int64_t i = n; within && i < MULTINOMIAL_RUN; i++) {
        within[i] = sum;
    }
    sums[0] = run == 0 ? 0 : sums[0];
    sums[run + 1] = sums[run] + sum;
}

/* The position in a run where the sum of the weights up to it is more than `target`, for the first time: by weights one after another. If it is
 * nowhere, because sums are rounded, the last position that has a weight. */
static int64_t run_find(const struct job *job, int64_t row, int64_t run, double target) {
    double weights[MULTINOMIAL_RUN], sum = 0;
    int64_t n = run_weights(job, row, run, weights), found = 0;
    for (int64_t i = 0; i < n && !(target < sum); i++) {
        found = weights[i] > 0 ? i : found;
        sum += weights[i];
    }
    return found;
}

/* The same by the sums up to each of them, without a branch that depends on them. */
static int64_t run_find_within(const double *within, double target) {
    int64_t found = 0;
    for (int64_t half = MULTINOMIAL_RUN / 2; half > 0; half /= 2) {
        found += within[found + half - 1] <= target ? half : 0;
    }
    return found;
}

/* The position that the number u draws. */
static int64_t row_position(const struct job *job, int64_t row, const double *sums, double u) {
    const double total = sums[job->runs];
    if (!(total > 0)) {
        int64_t at = (int64_t)(u * (double)job->k);
        return at < job->k ? at : job->k - 1;
    }
    const double target = u * total;
    const int64_t run = multinomial_run(sums, job->runs, target);
    const double *within = job->within ? job->within + (row * job->runs + run) * MULTINOMIAL_RUN : NULL;
    const double rest = target - sums[run];
    bool there = within && rest >= 0 && rest < within[MULTINOMIAL_RUN - 1];
    return run * MULTINOMIAL_RUN + (there ? run_find_within(within, rest) : run_find(job, row, run, rest));
}

/* lane->position counts the runs of the rows of a part. */
static bool sums_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t first = cpu_part_begin(job->rows, lane->part, base->parts) * job->runs;
    int64_t all = cpu_part_begin(job->rows, lane->part + 1, base->parts) * job->runs - first;
    for (int64_t *at = &lane->position; *at < all;) {
        int64_t row = (first + *at) / job->runs;
        row_sum(job, row, (first + *at) % job->runs, job->sums + row * (job->runs + 1));
        if (++*at % PIECE == 0 && *at < all && cpu_job_stops(base)) {
            return false;
        }
    }
    return true;
}

/* lane->position counts the samples of a part: two have their numbers from one block of the generator. */
static bool samples_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t samples = job->given.samples, first = cpu_part_begin(job->rows * samples, lane->part, base->parts);
    int64_t all = cpu_part_begin(job->rows * samples, lane->part + 1, base->parts) - first;
    double u[2];
    for (int64_t *at = &lane->position; *at < all;) {
        int64_t sample = first + *at, row = sample / samples;
        if (sample % 2 == 0 || *at % PIECE == 0) {
            multinomial_units(job->given.seed, (uint64_t)job->given.offset, (uint64_t)sample, u);
        }
        ((int64_t *)job->out)[sample] = row_position(job, row, job->sums + row * (job->runs + 1), u[sample % 2]);
        if (++*at % PIECE == 0 && *at < all && cpu_job_stops(base)) {
            return false;
        }
    }
    return true;
}

static bool draw_part(struct cpu_job *base, struct cpu_lane *lane) {
    return (((struct job *)base)->round == ROUND_SUMS ? sums_part : samples_part)(base, lane);
}

/* The sums are shared out by rows, the samples one by one. */
static void round_begin(struct job *job, enum round round) {
    bool sums = round == ROUND_SUMS;
    int64_t things = sums ? job->rows : job->rows * job->given.samples;
    job->round = round;
    job->base.parts =
        cpu_parts(job->base.cpu, sums ? (double)job->rows * (double)job->k * 8 : (double)things * SAMPLE_WORK);
    job->base.parts = things < job->base.parts ? (unsigned)things : job->base.parts;
}

static bool samples_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    bool again = job->round == ROUND_SUMS && job->given.samples > 0;
    if (again) {
        round_begin(job, ROUND_SAMPLES);
    }
    return again;
}

/* ---- without ---- */

/* The keys of n positions from `first` on: weights by exponentially distributed numbers. */
static void keys_fill(const struct job *job, int64_t first, int64_t n) {
    const struct cpu_random numbers = {
        .seed = job->given.seed, .offset = (uint64_t)job->given.offset, .first = 1}; /* of the mean 1 */
    double weights[KEYS], *keys = job->out;
    job->exponential(&numbers, first, first + n, keys);
    job_weights(job, first, n, weights);
    for (int64_t i = 0; i < n; i++) {
        keys[first + i] = weights[i] > 0 ? weights[i] / keys[first + i] : -1;
    }
}

static bool key_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t all = job->rows * job->k, end = cpu_part_begin(all, lane->part + 1, base->parts);
    for (int64_t i = cpu_part_begin(all, lane->part, base->parts); i < end; i += KEYS) {
        keys_fill(job, i, end - i < KEYS ? end - i : KEYS);
    }
    return true;
}

static int64_t runs_of(const struct launch *launch) {
    return (launch->inputs[0].shape[1] + MULTINOMIAL_RUN - 1) / MULTINOMIAL_RUN;
}

/* Whether the sums up to each weight are worth their memory: of draws with replacement, whose samples then take as much at least. */
static bool keeps_sums(const struct launch *launch) {
    struct multinomial_attributes given;
    multinomial_attributes_read(&launch->attributes, &given);
    return given.replacement && given.samples >= runs_of(launch) * MULTINOMIAL_RUN;
}

static int multinomial_run_launch(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun,
                                  struct fault *fault) {
    const struct operand *weights = &launch->inputs[0];
    struct job job = {.base = {.cpu = cpu},
                      .cast = cpu->kernels->cast[weights->dtype][DTYPE_F64],
                      .exponential = cpu->kernels->random[CPU_RANDOM_EXPONENTIAL][DTYPE_F64],
                      .weights = weights->data,
                      .size = (int64_t)dtype_size((enum dtype)weights->dtype),
                      .out = launch->output.data,
                      .sums = launch->workspace,
                      .rows = weights->shape[0],
                      .k = weights->shape[1],
                      .runs = runs_of(launch)};
    (void)fault;
    multinomial_attributes_read(&launch->attributes, &job.given);
    job.within = keeps_sums(launch) ? job.sums + job.rows * (job.runs + 1) : NULL;
    double each = (double)job.k * (job.given.replacement ? 8 : 64) + (double)job.given.samples * SAMPLE_WORK;
    double work = (double)job.rows * each;
    job.base.run = job.given.replacement ? draw_part : key_part;
    if (job.given.replacement) {
        job.base.again = samples_again;
        round_begin(&job, ROUND_SUMS);
    } else {
        job.base.parts = cpu_parts(cpu, work);
    }
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

static uint64_t multinomial_workspace(struct device *device, const struct launch *launch) {
    (void)device;
    if (launch->output.dtype != DTYPE_I64) {
        return 0;
    }
    uint64_t rows = (uint64_t)launch->inputs[0].shape[0], runs = (uint64_t)runs_of(launch);
    uint64_t sums = rows * (runs + 1), within = keeps_sums(launch) ? rows * runs * MULTINOMIAL_RUN : 0;
    return (sums + within) * sizeof(double);
}

static uint32_t multinomial_found(const struct device *device, unsigned opcode) {
    (void)device, (void)opcode;
    return 1u << DTYPE_F16 | 1u << DTYPE_BF16 | 1u << DTYPE_F32 | 1u << DTYPE_F64;
}

const struct cpu_kernel cpu_kernel_multinomial = {{.dtypes = multinomial_found, .workspace = multinomial_workspace},
                                                  multinomial_run_launch};
