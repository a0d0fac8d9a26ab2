/* Pooling, of rows of places along the last axis. Forward each row of y is a unit of its own; a gradient is added up for each channel of an
 * image in the order of y's places, so that it comes out the same with any number of threads. */
#include "proto/ops/pooling.h"

#include <math.h>
#include <string.h>

#include "engine/cpu/cpu.h"

enum { PIECE = 256 /* places of a row that are computed at a time */ };

struct job {
    struct cpu_job base;
    const struct cpu_pooling *functions;
    struct pooling p;
    unsigned opcode;
    bool is_f64;
    bool pairs; /* the windows are 2 × 2 places side by side: a row of y comes from two rows of x in one pass */
    int64_t size;
    const char *from;         /* x, or the gradient */
    char *to;                 /* y, or x's gradient */
    int64_t *positions;       /* of max_pool: its result, */
    const int64_t *indices;   /* of max_pool_grad: its input */
    int64_t x_places, y_rows; /* places of x; rows of y, in one channel */
    int64_t units;
};

/* A piece of a row of y. */
struct piece {
    int64_t plane, z, y, x, n;
    _Alignas(64) char values[PIECE * sizeof(double)];
    int32_t positions[PIECE];
};

/* A pass over the places of the piece whose windows have one place of the kernel inside x: for each, its place in x. */
struct pass {
    int64_t first, n;      /* places of the piece */
    int64_t begin, stride; /* places of x */
};

static struct pass pass_make(const struct job *job, const struct piece *piece, int64_t tap) {
    const struct pooling *p = &job->p;
    int64_t stride = p->stride[2], at = piece->x * stride - p->padding[2] + tap * p->dilation[2];
    int64_t first = at < 0 ? (-at + stride - 1) / stride : 0, begin = at + first * stride;
    int64_t n = begin < p->x[2] ? (p->x[2] - begin + stride - 1) / stride : 0;
    n = n < piece->n - first ? n : piece->n - first;
    return (struct pass){first, n > 0 ? n : 0, begin, stride};
}

/* `row` is the place in x of the row's first element. */
typedef void pass_function(struct job *job, struct piece *piece, const struct pass *pass, int64_t row);

/* Along one row of x, of which the windows of the piece see parts. */
static void row_passes(struct job *job, struct piece *piece, pass_function *body, int64_t row) {
    if (job->p.adaptive) { /* windows have lengths of their own */
        for (int64_t k = 0; k < piece->n; k++) {
            struct pooling_window x = pooling_window(&job->p, 2, piece->x + k);
            for (int64_t tap = 0; tap < x.count; tap++) {
                body(job, piece, &(struct pass){k, 1, x.begin + tap, 1}, row);
            }
        }
        return;
    }
    for (int64_t tap = 0; tap < job->p.kernel[2]; tap++) {
        struct pass pass = pass_make(job, piece, tap);
        if (pass.n > 0) {
            body(job, piece, &pass, row);
        }
    }
}

static void piece_passes(struct job *job, struct piece *piece, pass_function *body) {
    const struct pooling *p = &job->p;
    struct pooling_window z = pooling_window(p, 0, piece->z), y = pooling_window(p, 1, piece->y);
    for (int64_t i = 0; i < z.count; i++) {
        for (int64_t j = 0; j < y.count; j++) {
            row_passes(job, piece, body, ((z.begin + i * z.step) * p->x[1] + y.begin + j * y.step) * p->x[2]);
        }
    }
}

static void pass_greatest(struct job *job, struct piece *piece, const struct pass *pass, int64_t row) {
    const char *x = job->from + (piece->plane * job->x_places + row + pass->begin) * job->size;
    job->functions->greatest(pass->n, x, pass->stride, (int32_t)(row + pass->begin), (int32_t)pass->stride,
                             piece->values + pass->first * job->size, piece->positions + pass->first);
}

static void pass_sum(struct job *job, struct piece *piece, const struct pass *pass, int64_t row) {
    const char *x = job->from + (piece->plane * job->x_places + row + pass->begin) * job->size;
    job->functions->add(pass->n, x, pass->stride, piece->values + pass->first * job->size, 1);
}

static void pass_spread(struct job *job, struct piece *piece, const struct pass *pass, int64_t row) {
    char *x = job->to + (piece->plane * job->x_places + row + pass->begin) * job->size;
    job->functions->add(pass->n, piece->values + pass->first * job->size, 1, x, pass->stride);
}

/* ---- pieces ---- */

/* Divides each element of the piece by the number of places that its mean is over. */
static void piece_divide(const struct job *job, struct piece *piece) {
    int64_t rows = pooling_window(&job->p, 0, piece->z).divisor * pooling_window(&job->p, 1, piece->y).divisor;
    for (int64_t i = 0; i < piece->n; i++) {
        int64_t by = rows * pooling_window(&job->p, 2, piece->x + i).divisor;
        if (job->is_f64) {
            ((double *)(void *)piece->values)[i] /= (double)by;
        } else {
            ((float *)(void *)piece->values)[i] /= (float)by;
        }
    }
}

static void piece_greatest(struct job *job, struct piece *piece, int64_t at) {
    for (int64_t i = 0; i < piece->n; i++) {
        piece->positions[i] = -1;
        if (job->is_f64) {
            ((double *)(void *)piece->values)[i] = -INFINITY;
        } else {
            ((float *)(void *)piece->values)[i] = -INFINITY;
        }
    }
    piece_passes(job, piece, pass_greatest);
    memcpy(job->to + at * job->size, piece->values, (size_t)(piece->n * job->size));
    for (int64_t i = 0; i < piece->n; i++) {
        job->positions[at + i] = piece->positions[i];
    }
}

static void piece_run(struct job *job, struct piece *piece, int64_t at) {
    switch (job->opcode) {
    case OP_MAX_POOL:
        piece_greatest(job, piece, at);
        break;
    case OP_MAX_POOL_GRAD:
        job->functions->scatter(piece->n, job->from + at * job->size, job->indices + at, job->x_places,
                                job->to + piece->plane * job->x_places * job->size);
        break;
    case OP_AVG_POOL:
    case OP_ADAPTIVE_AVG_POOL:
        memset(piece->values, 0, (size_t)(piece->n * job->size));
        piece_passes(job, piece, pass_sum);
        piece_divide(job, piece);
        memcpy(job->to + at * job->size, piece->values, (size_t)(piece->n * job->size));
        break;
    default:
        memcpy(piece->values, job->from + at * job->size, (size_t)(piece->n * job->size));
        piece_divide(job, piece);
        piece_passes(job, piece, pass_spread);
    }
}

/* The whole row at once; false if there is a NaN in it. */
static bool row_pairs(struct job *job, const struct piece *piece) {
    const struct pooling *p = &job->p;
    int64_t from = (piece->z * p->x[1] + 2 * piece->y) * p->x[2];
    int64_t at = (piece->plane * job->y_rows + piece->z * p->y[1] + piece->y) * p->y[2];
    return job->functions->pairs(p->y[2], job->from + (piece->plane * job->x_places + from) * job->size, p->x[2],
                                 (int32_t)from, job->to + at * job->size, job->positions + at);
}

/* Row number `row` of a channel of y. */
static void row_run(struct job *job, struct piece *piece, int64_t plane, int64_t row) {
    const struct pooling *p = &job->p;
    piece->plane = plane;
    piece->z = row / p->y[1];
    piece->y = row % p->y[1];
    if (job->pairs && row_pairs(job, piece)) {
        return;
    }
    for (piece->x = 0; piece->x < p->y[2]; piece->x += PIECE) {
        int64_t left = p->y[2] - piece->x;
        piece->n = left < PIECE ? left : PIECE;
        piece_run(job, piece, (plane * job->y_rows + row) * p->y[2] + piece->x);
    }
}

/* ---- parts: of rows forward, of channels for gradients ---- */

static bool forward_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct piece piece;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts);
    for (int64_t unit = begin + lane->position; unit < end; unit++) {
        row_run(job, &piece, unit / job->y_rows, unit % job->y_rows);
        if (unit % 16 == 0 && unit + 1 < end && cpu_job_stops(base)) {
            lane->position = unit + 1 - begin;
            return false;
        }
    }
    return true;
}

static bool back_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct piece piece;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts) * job->y_rows;
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts) * job->y_rows;
    for (int64_t at = begin + lane->position; at < end; at++) {
        int64_t plane = at / job->y_rows, row = at % job->y_rows;
        if (row == 0) {
            memset(job->to + plane * job->x_places * job->size, 0, (size_t)(job->x_places * job->size));
        }
        row_run(job, &piece, plane, row);
        if (at % 16 == 0 && at + 1 < end && cpu_job_stops(base)) {
            lane->position = at + 1 - begin;
            return false;
        }
    }
    return true;
}

/* Most networks have these windows. None of them may see less than four places. */
static bool is_pairs(const struct job *job) {
    const struct pooling *p = &job->p;
    bool pairs = job->opcode == OP_MAX_POOL && p->kernel[0] == 1 && p->stride[0] == 1 && p->padding[0] == 0;
    for (int i = 1; i < POOLING_AXES; i++) {
        pairs = pairs && p->kernel[i] == 2 && p->stride[i] == 2 && p->dilation[i] == 1 && p->padding[i] == 0 &&
                2 * p->y[i] <= p->x[i];
    }
    return pairs;
}

static int pooling_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *in = &launch->inputs[0], *out = &launch->output;
    bool back = launch->opcode == OP_MAX_POOL_GRAD || launch->opcode == OP_AVG_POOL_GRAD ||
                launch->opcode == OP_ADAPTIVE_AVG_POOL_GRAD;
    struct job job = {.base = {.cpu = cpu, .run = back ? back_part : forward_part},
                      .opcode = launch->opcode,
                      .is_f64 = out->dtype == DTYPE_F64,
                      .from = in->data,
                      .to = out->data};
    (void)fault;
    pooling_make(&job.p, launch->opcode, &launch->attributes, in->rank, (back ? out : in)->shape,
                 (back ? in : out)->shape, false);
    job.functions = &cpu->kernels->pooling[job.is_f64];
    job.pairs = is_pairs(&job);
    job.size = job.is_f64 ? 8 : 4;
    job.positions = launch->opcode == OP_MAX_POOL ? launch_further(launch, 1)->data : NULL;
    job.indices = launch->opcode == OP_MAX_POOL_GRAD ? launch->inputs[1].data : NULL;
    job.x_places = pooling_volume(job.p.x);
    job.y_rows = job.p.y[0] * job.p.y[1];
    job.units = back ? job.p.planes : job.p.planes * job.y_rows;
    double seen =
        job.p.adaptive ? (double)job.x_places : (double)pooling_volume(job.p.y) * (double)pooling_volume(job.p.kernel);
    double work = (double)job.p.planes * (seen * 8 + (double)job.x_places * 4 + (double)pooling_volume(job.p.y) * 16);
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = job.units < job.base.parts ? (unsigned)job.units : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define POOLING                                                                                                        \
    { .driver = pooling_run }
const struct cpu_kernel cpu_kernel_max_pool = POOLING;
const struct cpu_kernel cpu_kernel_max_pool_grad = POOLING;
const struct cpu_kernel cpu_kernel_avg_pool = POOLING;
const struct cpu_kernel cpu_kernel_avg_pool_grad = POOLING;
const struct cpu_kernel cpu_kernel_adaptive_avg_pool = POOLING;
const struct cpu_kernel cpu_kernel_adaptive_avg_pool_grad = POOLING;
