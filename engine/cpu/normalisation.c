/* Normalisations, row by row, in passes: the mean, the variance, for a gradient two sums with it, and the result. A row is left between
 * pieces; its sums so far are the lane's state.
 *
 * Gradients by weight and bias are sums over rows: of parts of the rows, which depend on shapes alone, then over the parts in their order, so
 * that they come out the same with any number of threads. */
#include "engine/device/normalisation.h"

#include <math.h>

#include "engine/cpu/cpu.h"

enum {
    PIECE = 1 << 14, /* elements between two looks whether to stop */
    ROW_PARTS = 32,  /* of the gradient with a factor for each element */
};

enum pass { PASS_MEAN, PASS_VARIANCE, PASS_GRADIENT, PASS_RESULT };

struct job {
    struct cpu_job base;
    const struct cpu_normalisation *functions;
    struct normalisation n;
    struct normalisation_operands of;
    enum pass passes[4];
    int n_passes;
    bool is_f64;
    int64_t size, elements; /* of an element; of a row */
    double *sums;           /* workspace: [parts][2][factors], of the gradients by weight and bias */
    int64_t n_sums;         /* parts */
};

/* What is known of a row so far. */
struct row {
    int64_t number;
    double sum, squares;        /* of x, of its distances from the mean */
    double gradient, with_x;    /* of weighted gradients, and of these times the distances */
    double plain, plain_with_x; /* the same without the weight */
};

static double element(const struct job *job, const void *from, int64_t at) {
    return job->is_f64 ? ((const double *)from)[at] : (double)((const float *)from)[at];
}

static void set(const struct job *job, void *to, int64_t at, double value) {
    if (job->is_f64) {
        ((double *)to)[at] = value;
    } else {
        ((float *)to)[at] = (float)value;
    }
}

static const char *at(const struct job *job, const void *from, int64_t element) {
    return (const char *)from + element * job->size;
}

/* ---- a row ---- */

static double row_mean(const struct job *job, const struct row *row) {
    return job->n.given     ? element(job, job->of.mean, row->number)
           : job->n.centred ? row->sum / (double)job->elements
                            : 0;
}

static double row_variance(const struct job *job, const struct row *row) {
    return job->n.given ? element(job, job->of.variance, row->number) : row->squares / (double)job->elements;
}

static double row_scale(const struct job *job, const struct row *row) {
    return 1 / sqrt(row_variance(job, row) + job->n.epsilon);
}

/* The factor of a segment, or the first one of its elements. */
static int64_t row_factor(const struct job *job, const struct row *row, int64_t segment) {
    const struct normalisation *n = &job->n;
    return row->number % n->factor_rows * n->factor_row_step + segment * n->factor_segment_step;
}

/* The sums of a segment belong to one factor: the parts of a group norm are its images, each with all channels. */
static double *segment_sums(const struct job *job, const struct row *row, int64_t factor) {
    return job->sums + row->number / job->n.factor_rows * 2 * job->n.factors + factor;
}

static void piece_gradient(const struct job *job, struct row *row, int64_t from, int64_t segment, int64_t offset,
                           int64_t n) {
    const char *g = at(job, job->of.gradient, from), *x = at(job, job->of.x, from);
    int64_t factor = row_factor(job, row, segment);
    double mean = row_mean(job, row), with_x, sum;
    const void *along = job->n.along && job->of.weight ? at(job, job->of.weight, offset) : NULL;
    sum = job->functions->dots(n, g, x, job->n.stride, mean, along, &with_x);
    double weight = !job->n.along && job->of.weight ? element(job, job->of.weight, factor) : 1;
    row->gradient += sum * weight;
    row->with_x += with_x * weight;
    row->plain += sum;
    row->plain_with_x += with_x;
    if (!job->n.along && job->sums) {
        double *sums = segment_sums(job, row, factor);
        sums[0] = (offset ? sums[0] : 0) + with_x * row_scale(job, row);
        sums[job->n.factors] = (offset ? sums[job->n.factors] : 0) + sum;
    }
}

static void piece_back(const struct job *job, const struct row *row, int64_t part, int64_t from, int64_t segment,
                       int64_t offset, int64_t n) {
    const char *g = at(job, job->of.gradient, from), *x = at(job, job->of.x, from);
    double mean = row_mean(job, row), scale = row_scale(job, row), count = (double)job->elements;
    const void *along = job->n.along && job->of.weight ? at(job, job->of.weight, offset) : NULL;
    double weight = !job->n.along && job->of.weight ? element(job, job->of.weight, row_factor(job, row, segment)) : 1;
    double shift = job->n.centred ? row->gradient / count * scale : 0;
    double slope = row->with_x / count * scale * scale * scale;
    job->functions->back(n, g, x, job->n.stride, mean, along, weight * scale, shift, slope,
                         (char *)job->of.out[0] + from * job->size);
    if (job->n.along) {
        double *sums = job->sums + part * 2 * job->n.factors + offset;
        job->functions->collect(n, g, x, mean, scale, sums, sums + job->n.factors);
    }
}

static void piece_write(const struct job *job, const struct row *row, int64_t from, int64_t segment, int64_t offset,
                        int64_t n) {
    const char *x = at(job, job->of.x, from);
    char *out = (char *)job->of.out[0] + from * job->size;
    double mean = row_mean(job, row), scale = row_scale(job, row);
    if (job->n.along) {
        job->functions->write_along(n, x, mean, scale, job->of.weight ? at(job, job->of.weight, offset) : NULL,
                                    job->of.bias ? at(job, job->of.bias, offset) : NULL, out);
    } else {
        int64_t factor = row_factor(job, row, segment);
        double weight = job->of.weight ? element(job, job->of.weight, factor) : 1;
        double bias = job->of.bias ? element(job, job->of.bias, factor) : 0;
        job->functions->write(n, x, job->n.stride, mean, scale * weight, bias, out);
    }
}

/* One pass over a piece: n elements of a segment from `offset` on. */
static void piece_run(const struct job *job, struct row *row, enum pass pass, int64_t part, int64_t segment,
                      int64_t offset, int64_t n) {
    int64_t from = row->number * job->n.row_step + segment * job->n.segment_step + offset * job->n.stride;
    const char *x = at(job, job->of.x, from);
    switch (pass) {
    case PASS_MEAN:
        row->sum += job->functions->sum(n, x, job->n.stride);
        break;
    case PASS_VARIANCE:
        row->squares += job->functions->squares(n, x, job->n.stride, row_mean(job, row));
        break;
    case PASS_GRADIENT:
        piece_gradient(job, row, from, segment, offset, n);
        break;
    case PASS_RESULT:
        if (job->n.back) {
            piece_back(job, row, part, from, segment, offset, n);
        } else {
            piece_write(job, row, from, segment, offset, n);
        }
    }
}

/* What a row gives besides its elements. */
static void row_finish(const struct job *job, const struct row *row) {
    double count = (double)job->elements, keep = 1 - job->n.momentum;
    if (job->of.mean && !job->n.given) {
        double mean = element(job, job->of.mean, row->number), variance = element(job, job->of.variance, row->number);
        set(job, job->of.out[1], row->number, keep * mean + job->n.momentum * row_mean(job, row));
        set(job, job->of.out[2], row->number, keep * variance + job->n.momentum * row->squares / (count - 1));
    }
    if (job->n.back && !job->sums) { /* all that a factor has is in this row */
        set(job, job->of.out[1], row->number, row->plain_with_x * row_scale(job, row));
        set(job, job->of.out[2], row->number, row->plain);
    }
}

/* A row from *position on, which counts the elements of its passes. False: it is left. */
static bool row_run(struct job *job, struct row *row, int64_t part, int64_t *position) {
    int64_t all = job->n_passes * job->elements, seen = 0;
    while (*position < all) {
        int64_t place = *position % job->elements, offset = place % job->n.length;
        int64_t left = job->n.length - offset, n = left < PIECE ? left : PIECE;
        piece_run(job, row, job->passes[*position / job->elements], part, place / job->n.length, offset, n);
        *position += n;
        seen += n;
        if (seen >= PIECE && *position < all) {
            seen = 0;
            if (cpu_job_stops(&job->base)) {
                return false;
            }
        }
    }
    row_finish(job, row);
    *position = 0;
    return true;
}

/* ---- parts ---- */

static bool rows_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct row here, *row = lane->state ? lane->state : &here;
    int64_t begin = cpu_part_begin(job->n.rows, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->n.rows, lane->part + 1, base->parts);
    int64_t all = job->n_passes * job->elements, position = lane->position % all, seen = 0;
    if (lane->position == 0 && job->n.along && job->sums) {
        memset(job->sums + lane->part * 2 * job->n.factors, 0, (size_t)(2 * job->n.factors) * sizeof *job->sums);
    }
    for (int64_t number = begin + lane->position / all; number < end; number++) {
        if (position == 0) {
            *row = (struct row){.number = number};
        }
        bool whole = row_run(job, row, lane->part, &position);
        seen += all;
        if (!whole || (seen >= PIECE && number + 1 < end && cpu_job_stops(base))) {
            lane->position = (number + whole - begin) * all + position;
            return false;
        }
        seen = seen >= PIECE ? 0 : seen;
    }
    return true;
}

/* Adds the parts of the gradients by weight and bias up. */
static void sums_end(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    int64_t factors = job->n.factors;
    for (int64_t i = 0; i < factors; i++) {
        double weight = 0, bias = 0;
        for (int64_t part = 0; part < job->n_sums; part++) {
            weight += job->sums[part * 2 * factors + i];
            bias += job->sums[(part * 2 + 1) * factors + i];
        }
        set(job, job->of.out[1], i, weight);
        if (job->of.out[2]) {
            set(job, job->of.out[2], i, bias);
        }
    }
}

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    *job = (struct job){.base = {.cpu = cpu, .run = rows_part, .lane_bytes = sizeof(struct row)}};
    normalisation_make(&job->n, launch);
    job->of = normalisation_operands(launch);
    job->is_f64 = launch->output.dtype == DTYPE_F64;
    job->size = job->is_f64 ? 8 : 4;
    job->functions = &cpu->kernels->normalisation[job->is_f64];
    job->elements = job->n.segments * job->n.length;
    if (!job->n.given) {
        if (job->n.centred) {
            job->passes[job->n_passes++] = PASS_MEAN;
        }
        job->passes[job->n_passes++] = PASS_VARIANCE;
    }
    if (job->n.back) {
        job->passes[job->n_passes++] = PASS_GRADIENT;
    }
    job->passes[job->n_passes++] = PASS_RESULT;
    if (job->n.back && job->n.along) {
        job->n_sums = job->n.rows < ROW_PARTS ? job->n.rows : ROW_PARTS;
    } else if (job->n.back && job->n.factor_rows != job->n.rows) {
        job->n_sums = job->n.rows / job->n.factor_rows;
    } else if (job->n.back && launch->opcode == OP_GROUP_NORM_GRAD) {
        job->n_sums = job->n.rows > 0;
    }
}

static uint64_t normalisation_workspace(struct device *device, const struct launch *launch) {
    struct job job;
    job_init(&job, (struct cpu *)device, launch);
    return (uint64_t)(job.n_sums * 2 * job.n.factors) * sizeof *job.sums;
}

static int normalisation_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun,
                             struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    if (job.n_sums > 0) {
        job.sums = launch->workspace;
        job.base.end = sums_end;
    }
    if (job.n.rows == 0) { /* a gradient of an empty batch */
        sums_end(&job.base);
        return STATUS_OK;
    }
    double work = (double)job.n.rows * (double)job.elements * (double)(job.n_passes * 8);
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = job.n.rows < job.base.parts ? (unsigned)job.n.rows : job.base.parts;
    if (job.n.along && job.n.back) {
        job.base.parts = (unsigned)job.n_sums;
    }
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define NORMALISATION                                                                                                  \
    { {.workspace = normalisation_workspace}, normalisation_run }
const struct cpu_kernel cpu_kernel_batch_norm = NORMALISATION;
const struct cpu_kernel cpu_kernel_batch_norm_inference = NORMALISATION;
const struct cpu_kernel cpu_kernel_batch_norm_grad = NORMALISATION;
const struct cpu_kernel cpu_kernel_layer_norm = NORMALISATION;
const struct cpu_kernel cpu_kernel_layer_norm_grad = NORMALISATION;
const struct cpu_kernel cpu_kernel_group_norm = NORMALISATION;
const struct cpu_kernel cpu_kernel_group_norm_grad = NORMALISATION;
const struct cpu_kernel cpu_kernel_rms_norm = NORMALISATION;
const struct cpu_kernel cpu_kernel_rms_norm_grad = NORMALISATION;
