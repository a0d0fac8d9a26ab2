/* Normalisations, row by row, in passes: mean and variance, for a gradient two sums with them, and the result. A row is left between
 * pieces; its sums so far are the lane's state.
 *
 * Gradients by weight and bias are sums over rows: of parts of the rows, which depend on shapes alone, then over the parts in their order, so
 * that they come out the same with any number of threads. */
#include "engine/device/normalisation.h"

#include <math.h>

#include "engine/cpu/floats.h"

enum {
    PIECE = 1 << 14,               /* elements between two looks whether to stop */
    ROW_PARTS = 32,                /* of the gradient with a factor for each element */
    SUMS_PIECE = CPU_FLOATS_BLOCK, /* factors between two looks */
};

enum pass { PASS_MOMENTS, PASS_GRADIENT, PASS_RESULT };

struct job {
    struct cpu_job base;
    const struct cpu_normalisation *functions;
    struct normalisation n;
    struct normalisation_operands of;
    enum pass passes[3];
    int n_passes;
    struct cpu_floats floats;
    int64_t elements;          /* of a row */
    double *sums;              /* workspace: [parts][2][factors], of the gradients by weight and bias */
    int64_t n_sums;            /* parts */
    struct cpu_normalised how; /* of rows that are taken whole */
};

/* What is known of a row so far, and where to go on in it. */
struct row {
    int64_t number, segment, offset;
    int pass;
    bool first; /* of its part */
    struct cpu_moments moments;
    double mean, scale;         /* x̂ = (x - mean) · scale */
    double gradient, with_x;    /* sums of weighted gradients, and of these times x̂ */
    double plain, plain_with_x; /* the same without the weight */
};

/* Sums over a piece of a row. */
struct sums {
    double squares, gradient, with_x;
};

/* Elements that are computed at a time: a piece, or of halves a part of it, in buffers. */
struct block {
    int64_t n, stride; /* of x and the gradient */
    int64_t from;      /* the first one's place in x */
    int64_t offset;    /* and in its segment */
    const void *x;
    const void *gradient;      /* NULL: the pass needs none */
    const void *weight, *bias; /* of each element; NULL: the pass needs none, or a segment has one */
};
enum { BUFFER_X, BUFFER_GRADIENT, BUFFER_WEIGHT, BUFFER_BIAS, BUFFERS };

static void *at(const struct job *job, const void *from, int64_t element) {
    return (char *)(uintptr_t)from + element * job->floats.size;
}

/* ---- a row ---- */

static void row_begin(const struct job *job, struct row *row, int64_t number, bool first) {
    *row = (struct row){.number = number, .first = first};
    if (job->n.given) {
        row->mean = cpu_floats_get(&job->floats, job->of.mean, number);
        row->scale = 1 / sqrt(cpu_floats_get(&job->floats, job->of.variance, number) + job->n.epsilon);
    }
}

/* The factor of a segment, or the first one of its elements. */
static int64_t row_factor(const struct job *job, const struct row *row, int64_t segment) {
    const struct normalisation *n = &job->n;
    return row->number % n->factor_rows * n->factor_row_step + segment * n->factor_segment_step;
}

/* The weight or bias of the row's present segment; `otherwise` if there are none. */
static double segment_factor(const struct job *job, const struct row *row, const void *factors, double otherwise) {
    return factors ? cpu_floats_get(&job->floats, factors, row_factor(job, row, row->segment)) : otherwise;
}

/* The sums of a segment belong to one factor: the parts of a group norm are its images, each with all channels. */
static double *segment_sums(const struct job *job, const struct row *row) {
    return job->sums + row->number / job->n.factor_rows * 2 * job->n.factors + row_factor(job, row, row->segment);
}

static struct block block_read(const struct job *job, enum pass pass, int64_t from, int64_t offset, int64_t n,
                               struct cpu_floats_buffer *buffers) {
    const struct cpu_floats *floats = &job->floats;
    const struct normalisation_operands *of = &job->of;
    int64_t stride = job->n.stride;
    struct block block = {.n = n, .stride = cpu_floats_stride(floats, stride), .from = from, .offset = offset};
    block.x = cpu_floats_read(floats, n, at(job, of->x, from), stride, &buffers[BUFFER_X]);
    if (pass != PASS_MOMENTS && job->n.back) {
        block.gradient = cpu_floats_read(floats, n, at(job, of->gradient, from), stride, &buffers[BUFFER_GRADIENT]);
    }
    if (pass != PASS_MOMENTS && job->n.along && of->weight) {
        block.weight = cpu_floats_read(floats, n, at(job, of->weight, offset), 1, &buffers[BUFFER_WEIGHT]);
    }
    if (pass != PASS_MOMENTS && job->n.along && of->bias) {
        block.bias = cpu_floats_read(floats, n, at(job, of->bias, offset), 1, &buffers[BUFFER_BIAS]);
    }
    return block;
}

static void block_moments(const struct job *job, struct row *row, const struct block *block, struct sums *sums) {
    if (job->n.centred) {
        job->functions->moments(block->n, block->x, block->stride, &row->moments);
    } else {
        sums->squares += job->functions->squares(block->n, block->x, block->stride);
    }
}

static void block_gradient(const struct job *job, const struct row *row, const struct block *block, struct sums *sums) {
    double with_x;
    sums->gradient += job->functions->dots(block->n, block->gradient, block->x, block->stride, row->mean, row->scale,
                                           block->weight, &with_x);
    sums->with_x += with_x;
}

static void block_back(const struct job *job, const struct row *row, int64_t part, const struct block *block,
                       void *out) {
    double shift = job->n.centred ? row->gradient / (double)job->elements : 0;
    double slope = row->with_x / (double)job->elements;
    if (job->n.along) {
        double *weights = job->sums + part * 2 * job->n.factors + block->offset, *biases = weights + job->n.factors;
        if (row->first) {
            memset(weights, 0, (size_t)block->n * sizeof *weights);
            memset(biases, 0, (size_t)block->n * sizeof *biases);
        }
        job->functions->back_along(block->n, block->gradient, block->x, row->mean, row->scale, block->weight, shift,
                                   slope, out, weights, biases);
    } else {
        double weight = segment_factor(job, row, job->of.weight, 1);
        job->functions->back(block->n, block->gradient, block->x, block->stride, row->mean, row->scale, weight, shift,
                             slope, out);
    }
}

static void block_write(const struct job *job, const struct row *row, const struct block *block, void *out) {
    if (job->n.along) {
        job->functions->write_along(block->n, block->x, row->mean, row->scale, block->weight, block->bias, out);
    } else {
        double weight = segment_factor(job, row, job->of.weight, 1), bias = segment_factor(job, row, job->of.bias, 0);
        job->functions->write(block->n, block->x, block->stride, row->mean, row->scale, weight, bias, out);
    }
}

static void block_result(const struct job *job, const struct row *row, int64_t part, const struct block *block,
                         struct cpu_floats_buffer *buffers) {
    void *to = at(job, job->of.out[0], block->from), *out = cpu_floats_results(&job->floats, to, &buffers[BUFFER_X]);
    if (job->n.back) {
        block_back(job, row, part, block, out);
    } else {
        block_write(job, row, block, out);
    }
    cpu_floats_write(&job->floats, block->n, to, job->n.stride, &buffers[BUFFER_X]);
}

/* Adds the sums of a piece up for the row, and for the factor of its segment. */
static void piece_gradient(const struct job *job, struct row *row, const struct sums *piece) {
    double weight = job->n.along ? 1 : segment_factor(job, row, job->of.weight, 1);
    row->gradient += piece->gradient * weight;
    row->with_x += piece->with_x * weight;
    row->plain += piece->gradient;
    row->plain_with_x += piece->with_x;
    if (!job->n.along && job->sums) {
        double *sums = segment_sums(job, row);
        sums[0] = (row->offset ? sums[0] : 0) + piece->with_x;
        sums[job->n.factors] = (row->offset ? sums[job->n.factors] : 0) + piece->gradient;
    }
}

/* One pass over a piece: the next n elements. */
static void piece_run(const struct job *job, struct row *row, enum pass pass, int64_t part, int64_t n,
                      struct cpu_floats_buffer *buffers) {
    int64_t from = row->number * job->n.row_step + row->segment * job->n.segment_step + row->offset * job->n.stride;
    int64_t most = cpu_floats_block(&job->floats, n);
    struct sums sums = {0, 0, 0};
    for (int64_t i = 0; i < n; i += most) {
        int64_t left = n - i, count = left < most ? left : most;
        struct block block = block_read(job, pass, from + i * job->n.stride, row->offset + i, count, buffers);
        if (pass == PASS_MOMENTS) {
            block_moments(job, row, &block, &sums);
        } else if (pass == PASS_GRADIENT) {
            block_gradient(job, row, &block, &sums);
        } else {
            block_result(job, row, part, &block, buffers);
        }
    }
    if (pass == PASS_MOMENTS) {
        row->moments.squares += sums.squares;
    } else if (pass == PASS_GRADIENT) {
        piece_gradient(job, row, &sums);
    }
}

/* What a row gives besides its elements. */
static void row_finish(const struct job *job, const struct row *row) {
    const struct cpu_floats *floats = &job->floats;
    double count = (double)job->elements, keep = 1 - job->n.momentum;
    if (job->of.mean && !job->n.given) {
        double mean = cpu_floats_get(floats, job->of.mean, row->number);
        double variance = cpu_floats_get(floats, job->of.variance, row->number);
        cpu_floats_set(floats, job->of.out[1], row->number, keep * mean + job->n.momentum * row->mean);
        cpu_floats_set(floats, job->of.out[2], row->number,
                       keep * variance + job->n.momentum * row->moments.squares / (count - 1));
    }
    if (job->n.back && !job->sums) { /* all that a factor has is in this row */
        cpu_floats_set(floats, job->of.out[1], row->number, row->plain_with_x);
        cpu_floats_set(floats, job->of.out[2], row->number, row->plain);
    }
}

/* A row from where it was left. False: it is left again. `seen` counts elements since the last look whether to stop. */
static bool row_run(struct job *job, struct row *row, int64_t part, int64_t *seen, struct cpu_floats_buffer *buffers) {
    for (; row->pass < job->n_passes; row->pass++, row->segment = 0) {
        enum pass pass = job->passes[row->pass];
        for (; row->segment < job->n.segments; row->segment++, row->offset = 0) {
            while (row->offset < job->n.length) {
                int64_t left = job->n.length - row->offset, n = left < PIECE ? left : PIECE;
                if (*seen >= PIECE) {
                    if (cpu_job_stops(&job->base)) {
                        return false;
                    }
                    *seen = 0;
                }
                piece_run(job, row, pass, part, n, buffers);
                row->offset += n;
                *seen += n;
            }
        }
        if (pass == PASS_MOMENTS) {
            row->mean = row->moments.mean;
            row->scale = 1 / sqrt(row->moments.squares / (double)job->elements + job->n.epsilon);
        }
    }
    row_finish(job, row);
    return true;
}

/* ---- parts ---- */

/* lane->position: 1 and the number of rows that the part has behind it. */
static bool rows_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct row here, *row = lane->state ? lane->state : &here;
    struct cpu_floats_buffer buffers[BUFFERS];
    int64_t begin = cpu_part_begin(job->n.rows, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->n.rows, lane->part + 1, base->parts), seen = 0;
    bool left = lane->position > 0;
    cpu_floats_begin(buffers, BUFFERS);
    for (int64_t number = begin + (left ? lane->position - 1 : 0); number < end; number++) {
        if (!left) {
            row_begin(job, row, number, number == begin);
        }
        left = false;
        if (!row_run(job, row, lane->part, &seen, buffers)) {
            lane->position = number - begin + 1;
            return false;
        }
    }
    return true;
}

/* Rows that lie one behind another, and that are not halves, whole. lane->position counts those of the part. */
static bool plain_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    const int64_t n = job->n.length, some = PIECE / n;
    int64_t begin = cpu_part_begin(job->n.rows, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->n.rows, lane->part + 1, base->parts);
    for (int64_t row = begin + lane->position; row < end;) {
        const int64_t rows = end - row < some ? end - row : some;
        job->functions->rows(rows, n, at(job, job->of.x, row * n), &job->how, at(job, job->of.out[0], row * n));
        row += rows;
        lane->position += rows;
        if (row < end && cpu_job_stops(base)) {
            return false;
        }
    }
    return true;
}

/* Adds the parts of the gradients by weight and bias up. */
static bool sums_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t factors = job->n.factors, end = cpu_part_begin(factors, lane->part + 1, base->parts);
    int64_t i = cpu_part_begin(factors, lane->part, base->parts) + lane->position;
    struct cpu_floats_buffer buffer;
    while (i < end) {
        int64_t n = end - i < SUMS_PIECE ? end - i : SUMS_PIECE;
        for (int which = 0; which < 2 && job->of.out[1 + which]; which++) {
            void *to = at(job, job->of.out[1 + which], i), *out = cpu_floats_results(&job->floats, to, &buffer);
            job->functions->total(n, job->n_sums, 2 * factors, job->sums + which * factors + i, out);
            cpu_floats_write(&job->floats, n, to, 1, &buffer);
        }
        i += n;
        if (i < end && cpu_job_stops(base)) {
            lane->position = i - cpu_part_begin(factors, lane->part, base->parts);
            return false;
        }
    }
    return true;
}

static double sums_work(const struct job *job) {
    return (double)job->n_sums * (double)job->n.factors * 16;
}

/* The second round of a job with sums. */
static bool sums_begin(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    if (base->run == sums_part) {
        return false;
    }
    base->run = sums_part;
    base->parts = cpu_parts(base->cpu, sums_work(job));
    return true;
}

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    *job = (struct job){.base = {.cpu = cpu, .run = rows_part, .lane_bytes = sizeof(struct row)}};
    normalisation_make(&job->n, launch);
    job->of = normalisation_operands(launch);
    job->floats = cpu_floats_of(cpu, (enum dtype)launch->output.dtype);
    job->functions = &cpu->kernels->normalisation[job->floats.is_f64];
    job->elements = job->n.segments * job->n.length;
    if (!job->n.given) {
        job->passes[job->n_passes++] = PASS_MOMENTS;
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

static bool job_is_plain(const struct job *job) {
    return job->n.along && !job->n.back && !job->floats.widen && job->n.length > 0 && job->n.length <= PIECE;
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
        job.base.again = sums_begin;
    }
    if (job.n.rows == 0) { /* a gradient of an empty batch: the sums are of nothing */
        job.base.run = sums_part;
        job.base.parts = 1;
        cpu_job_begin(&job.base, sizeof job, sums_work(&job), begun);
        return STATUS_OK;
    }
    if (job_is_plain(&job)) {
        job.how = (struct cpu_normalised){.centred = job.n.centred,
                                          .streamed = job.n.rows * job.n.length * job.floats.size >= CPU_STREAM_FROM &&
                                                      job.of.x != job.of.out[0],
                                          .epsilon = job.n.epsilon,
                                          .weight = job.of.weight,
                                          .bias = job.of.bias};
        job.base.run = plain_part;
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
    { {.workspace = normalisation_workspace, .halves = true}, normalisation_run }
const struct cpu_kernel cpu_kernel_batch_norm = NORMALISATION;
const struct cpu_kernel cpu_kernel_batch_norm_inference = NORMALISATION;
const struct cpu_kernel cpu_kernel_batch_norm_grad = NORMALISATION;
const struct cpu_kernel cpu_kernel_layer_norm = NORMALISATION;
const struct cpu_kernel cpu_kernel_layer_norm_grad = NORMALISATION;
const struct cpu_kernel cpu_kernel_group_norm = NORMALISATION;
const struct cpu_kernel cpu_kernel_group_norm_grad = NORMALISATION;
const struct cpu_kernel cpu_kernel_rms_norm = NORMALISATION;
const struct cpu_kernel cpu_kernel_rms_norm_grad = NORMALISATION;
