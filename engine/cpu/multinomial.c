/* Positions drawn by weights. engine/device/multinomial.h says how. */
#include <math.h>

#include "engine/cpu/cpu.h"
#include "engine/device/multinomial.h"

enum { PIECE = 256 }; /* runs or samples between two looks whether to stop */

struct job {
    struct cpu_job base;
    cpu_row_function *cast; /* of weights to f64 */
    struct multinomial_attributes given;
    char *weights;
    int64_t size; /* of a weight */
    void *out;
    double *sums; /* [rows][runs + 1] */
    int64_t rows, k, runs;
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
    int64_t n = run_weights(job, row, run, weights);
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i];
    }
    sums[0] = run == 0 ? 0 : sums[0];
    sums[run + 1] = sums[run] + sum;
}

static int64_t row_sample(const struct job *job, int64_t row, int64_t sample, const double *sums) {
    const uint64_t element = (uint64_t)(row * job->given.samples + sample);
    const double u = multinomial_unit(job->given.seed, (uint64_t)job->given.offset, element), total = sums[job->runs];
    if (!(total > 0)) {
        int64_t at = (int64_t)(u * (double)job->k);
        return at < job->k ? at : job->k - 1;
    }
    const double target = u * total;
    double weights[MULTINOMIAL_RUN], sum = 0;
    int64_t run = multinomial_run(sums, job->runs, target), n = run_weights(job, row, run, weights), found = 0;
    for (int64_t i = 0; i < n && !(target - sums[run] < sum); i++) {
        found = weights[i] > 0 ? i : found;
        sum += weights[i];
    }
    return run * MULTINOMIAL_RUN + found;
}

/* lane->position counts the runs and samples of the rows of a part. */
static bool draw_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t first = cpu_part_begin(job->rows, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->rows, lane->part + 1, base->parts), steps = job->runs + job->given.samples;
    for (int64_t *at = &lane->position; *at < (end - first) * steps;) {
        int64_t row = first + *at / steps, step = *at % steps;
        double *sums = job->sums + row * (job->runs + 1);
        if (step < job->runs) {
            row_sum(job, row, step, sums);
        } else {
            step -= job->runs;
            ((int64_t *)job->out)[row * job->given.samples + step] = row_sample(job, row, step, sums);
        }
        if (++*at % PIECE == 0 && *at < (end - first) * steps && cpu_job_stops(base)) {
            return false;
        }
    }
    return true;
}

/* ---- without ---- */

static bool key_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t all = job->rows * job->k, end = cpu_part_begin(all, lane->part + 1, base->parts);
    for (int64_t i = cpu_part_begin(all, lane->part, base->parts); i < end; i += MULTINOMIAL_RUN) {
        double *keys = (double *)job->out + i;
        int64_t n = end - i < MULTINOMIAL_RUN ? end - i : MULTINOMIAL_RUN;
        job_weights(job, i, n, keys);
        for (int64_t k = 0; k < n; k++) {
            double u = multinomial_unit(job->given.seed, (uint64_t)job->given.offset, (uint64_t)(i + k));
            keys[k] = keys[k] > 0 ? keys[k] / -log1p(-u) : -1;
        }
    }
    return true;
}

static int multinomial_run_launch(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun,
                                  struct fault *fault) {
    const struct operand *weights = &launch->inputs[0];
    struct job job = {.base = {.cpu = cpu},
                      .cast = cpu->kernels->cast[weights->dtype][DTYPE_F64],
                      .weights = weights->data,
                      .size = (int64_t)dtype_size((enum dtype)weights->dtype),
                      .out = launch->output.data,
                      .sums = launch->workspace,
                      .rows = weights->shape[0],
                      .k = weights->shape[1],
                      .runs = (weights->shape[1] + MULTINOMIAL_RUN - 1) / MULTINOMIAL_RUN};
    (void)fault;
    multinomial_attributes_read(&launch->attributes, &job.given);
    double each = (double)job.k * (job.given.replacement ? 8 : 64) + (double)job.given.samples * 256;
    double work = (double)job.rows * each;
    unsigned parts = cpu_parts(cpu, work);
    job.base.run = job.given.replacement ? draw_part : key_part;
    job.base.parts = job.given.replacement && job.rows < parts ? (unsigned)job.rows : parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

static uint64_t multinomial_workspace(struct device *device, const struct launch *launch) {
    const int64_t *shape = launch->inputs[0].shape;
    (void)device;
    return launch->output.dtype == DTYPE_I64
               ? (uint64_t)shape[0] * (uint64_t)((shape[1] + MULTINOMIAL_RUN - 1) / MULTINOMIAL_RUN + 1) *
                     sizeof(double)
               : 0;
}

static uint32_t multinomial_found(const struct device *device, unsigned opcode) {
    (void)device, (void)opcode;
    return 1u << DTYPE_F16 | 1u << DTYPE_BF16 | 1u << DTYPE_F32 | 1u << DTYPE_F64;
}

const struct cpu_kernel cpu_kernel_multinomial = {{.dtypes = multinomial_found, .workspace = multinomial_workspace},
                                                  multinomial_run_launch};
