/* Positions drawn by weights. engine/device/multinomial.h says how. */
#include "engine/device/multinomial.h"
#include "engine/cpu/cpu.h"

enum {
    KEYS = 512,     /* that are computed at a time */
    PIECE = 256,    /* runs, samples or entries of a guide between two looks whether to stop */
    NEAR = 1 << 12, /* a guide of so many entries or fewer has some times as many: it stays in the first-level cache */
    FINER = 4,
    SAMPLE_WORK = 256, /* what a sample takes at most, as bytes of memory traffic, */
    GUIDE_WORK = 64,   /* and an entry of a guide */
};

enum round { ROUND_SUMS, ROUND_GUIDES, ROUND_SAMPLES };

struct job {
    struct cpu_job base;
    cpu_row_function *cast; /* of weights to f64 */
    cpu_random_function *exponential, *uniform;
    struct multinomial_attributes given;
    char *weights;
    int64_t size; /* of a weight */
    void *out;
    double *sums; /* [rows][runs + 1] */
    double *
        within; /* [rows][runs][MULTINOMIAL_RUN]: of each run the sums up to each of its weights; NULL: there is no room for them */
    /* [rows][entries] for each of as many equal parts of [0, 1) a position that no number in it draws one before: the search begins there, and is
     * over after few steps. Entries are a power of two, so that a number's part is found without an error. NULL: there is no room for them */
    int32_t *guides;
    int64_t rows, k, runs, entries;
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

/* A row of weights of which some are positive. */
struct row {
    int64_t number;
    const double *sums;
    const double *within; /* NULL: as in the job */
};

static struct row row_of(const struct job *job, int64_t number) {
    return (struct row){number, job->sums + number * (job->runs + 1),
                        job->within ? job->within + number * job->runs * MULTINOMIAL_RUN : NULL};
}

/* The position where `target` lies. */
static int64_t row_position(const struct job *job, const struct row *row, double target) {
    const int64_t run = multinomial_run(row->sums, job->runs, target);
    const double *within = row->within ? row->within + run * MULTINOMIAL_RUN : NULL;
    const double rest = target - row->sums[run];
    bool there = within && rest >= 0 && rest < within[MULTINOMIAL_RUN - 1];
    return run * MULTINOMIAL_RUN + (there ? run_find_within(within, rest) : run_find(job, row->number, run, rest));
}

/* The same from a position on that is not behind it. Sums ascend, so the first one that is more than the target is found step by step. */
static inline int64_t row_position_from(const struct job *job, const struct row *row, double target, int64_t position) {
    const double *sums = row->sums;
    int64_t run = position / MULTINOMIAL_RUN;
    if (__builtin_expect(!(target < sums[job->runs]), 0)) {
        return row_position(job, row, target);
    }
    while (sums[run + 1] <= target) {
        position = ++run * MULTINOMIAL_RUN;
    }
    const double rest = target - sums[run], *within = row->within;
    if (__builtin_expect(!(rest < within[run * MULTINOMIAL_RUN + MULTINOMIAL_RUN - 1]), 0)) {
        return row_position(job, row, target);
    }
    while (within[position] <= rest) {
        position++;
    }
    return position;
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

/* lane->position counts the entries of the guides of a part. An entry is what the least number of its part of [0, 1) draws. */
static bool guides_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t first = cpu_part_begin(job->rows * job->entries, lane->part, base->parts);
    int64_t all = cpu_part_begin(job->rows * job->entries, lane->part + 1, base->parts) - first, position = -1;
    for (int64_t *at = &lane->position; *at < all;) {
        int64_t entry = (first + *at) % job->entries;
        struct row row = row_of(job, (first + *at) / job->entries);
        double total = row.sums[job->runs], target = (double)entry / (double)job->entries * total;
        position = entry == 0     ? 0
                   : !(total > 0) ? 0
                   : position < 0 ? row_position(job, &row, target)
                                  : row_position_from(job, &row, target, position);
        job->guides[first + *at] = (int32_t)position;
        if (++*at % PIECE == 0 && *at < all && cpu_job_stops(base)) {
            return false;
        }
    }
    return true;
}

/* Samples of one row, with their numbers u. */
static void row_draw(const struct job *job, int64_t number, int64_t n, const double *u, int64_t *out) {
    const struct row row = row_of(job, number);
    const double total = row.sums[job->runs];
    if (!(total > 0)) {
        for (int64_t i = 0; i < n; i++) {
            int64_t at = (int64_t)(u[i] * (double)job->k);
            out[i] = at < job->k ? at : job->k - 1;
        }
        return;
    }
    if (!job->guides) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = row_position(job, &row, u[i] * total);
        }
        return;
    }
    const int32_t *guide = job->guides + number * job->entries;
    for (int64_t i = 0; i < n; i++) {
        out[i] = row_position_from(job, &row, u[i] * total, guide[(int64_t)(u[i] * (double)job->entries)]);
    }
}

/* lane->position counts the samples of a part. A block of the generator has the numbers of two, the even one first. */
static bool samples_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t samples = job->given.samples, first = cpu_part_begin(job->rows * samples, lane->part, base->parts);
    int64_t all = cpu_part_begin(job->rows * samples, lane->part + 1, base->parts) - first, n;
    double u[PIECE + 1];
    for (; lane->position < all; lane->position += n) {
        int64_t sample = first + lane->position, skip = sample % 2, row = sample / samples;
        struct cpu_random numbers = {.seed = job->given.seed,
                                     .offset = (uint64_t)job->given.offset + (uint64_t)sample / 2,
                                     .second = 1,
                                     .last = 1};
        if (lane->position > 0 && cpu_job_stops(base)) {
            return false;
        }
        n = all - lane->position < PIECE ? all - lane->position : PIECE;
        job->uniform(&numbers, 0, skip + n, u);
        for (int64_t i = 0, more; i < n; i += more, row++) {
            int64_t left = (row + 1) * samples - sample - i;
            more = left < n - i ? left : n - i;
            row_draw(job, row, more, u + skip + i, (int64_t *)job->out + sample + i);
        }
    }
    return true;
}

static bool draw_part(struct cpu_job *base, struct cpu_lane *lane) {
    enum round round = ((struct job *)base)->round;
    return (round == ROUND_SUMS ? sums_part : round == ROUND_GUIDES ? guides_part : samples_part)(base, lane);
}

/* The sums are shared out by rows, the rest one by one. */
static void round_begin(struct job *job, enum round round) {
    int64_t things = job->rows * (round == ROUND_SUMS ? 1 : round == ROUND_GUIDES ? job->entries : job->given.samples);
    double each = round == ROUND_SUMS ? (double)job->k * 8 : round == ROUND_GUIDES ? GUIDE_WORK : SAMPLE_WORK;
    job->round = round;
    job->base.parts = cpu_parts(job->base.cpu, (double)things * each);
    job->base.parts = things < job->base.parts ? (unsigned)things : job->base.parts;
}

static bool samples_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    if (job->round == ROUND_SAMPLES || job->given.samples == 0) {
        return false;
    }
    round_begin(job, job->round == ROUND_SUMS && job->guides ? ROUND_GUIDES : ROUND_SAMPLES);
    return true;
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

/* The entries of a row's guide, if sums are kept; 0: its positions would not fit. */
static int64_t guide_entries(const struct launch *launch) {
    int64_t k = launch->inputs[0].shape[1], entries = 1;
    if (k > INT32_MAX) {
        return 0;
    }
    while (entries < k) {
        entries *= 2;
    }
    return entries <= NEAR ? entries * FINER : entries;
}

static int multinomial_run_launch(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun,
                                  struct fault *fault) {
    const struct operand *weights = &launch->inputs[0];
    struct job job = {.base = {.cpu = cpu},
                      .cast = cpu->kernels->cast[weights->dtype][DTYPE_F64],
                      .exponential = cpu->kernels->random[CPU_RANDOM_EXPONENTIAL][DTYPE_F64],
                      .uniform = cpu->kernels->random[CPU_RANDOM_UNIFORM][DTYPE_F64],
                      .weights = weights->data,
                      .size = (int64_t)dtype_size((enum dtype)weights->dtype),
                      .out = launch->output.data,
                      .sums = launch->workspace,
                      .rows = weights->shape[0],
                      .k = weights->shape[1],
                      .runs = runs_of(launch)};
    (void)fault;
    multinomial_attributes_read(&launch->attributes, &job.given);
    if (keeps_sums(launch)) {
        job.within = job.sums + job.rows * (job.runs + 1);
        job.entries = guide_entries(launch);
        job.guides = job.entries ? (int32_t *)(job.within + job.rows * job.runs * MULTINOMIAL_RUN) : NULL;
    }
    double each = (double)job.k * (job.given.replacement ? 8 : 64) + (double)job.given.samples * SAMPLE_WORK;
    double work = (double)job.rows * each;
    job.base.run = job.given.replacement ? draw_part : key_part;
    if (job.given.replacement) {
        job.base.again = samples_again;
        /* A job has no more lanes than its first round has parts, of which some may be empty. */
        round_begin(&job, ROUND_SAMPLES);
        const unsigned lanes = job.base.parts < cpu->team.threads ? job.base.parts : cpu->team.threads;
        round_begin(&job, ROUND_SUMS);
        job.base.parts = job.base.parts < lanes ? lanes : job.base.parts;
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
    uint64_t sums = rows * (runs + 1) * sizeof(double);
    uint64_t within = runs * MULTINOMIAL_RUN * sizeof(double),
             guide = (uint64_t)guide_entries(launch) * sizeof(int32_t);
    return keeps_sums(launch) ? sums + rows * (within + guide) : sums;
}

static uint32_t multinomial_found(const struct device *device, unsigned opcode) {
    (void)device, (void)opcode;
    return 1u << DTYPE_F16 | 1u << DTYPE_BF16 | 1u << DTYPE_F32 | 1u << DTYPE_F64;
}

const struct cpu_kernel cpu_kernel_multinomial = {{.dtypes = multinomial_found, .workspace = multinomial_workspace},
                                                  multinomial_run_launch};
