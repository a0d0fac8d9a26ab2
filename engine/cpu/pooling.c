/* Pooling, of rows of places along the last axis. Forward each row of y is a unit of its own; a gradient is added up for each channel of an
 * image in the order of y's places, so that it comes out the same with any number of threads. */
#include "proto/ops/pooling.h"

#include <string.h>

#include "engine/cpu/indices.h"

enum {
    PIECE = 256,          /* places of a row that are computed at a time */
    PASSES = 32,          /* passes that are kept; a wider kernel makes them anew for each row */
    LOOK = 1 << 16,       /* elements between two looks whether to stop */
    CLEAR_BYTES = 1 << 18 /* of a gradient that are cleared at a time */
};

struct job {
    struct cpu_job base;
    const struct cpu_pooling *functions;
    struct pooling p;
    unsigned opcode;
    bool is_f64;
    bool runs; /* windows are taken place by place: adaptive ones have lengths of their own, others are wide and few */
    int64_t size;
    const char *from;           /* x, or the gradient */
    char *to;                   /* y, or x's gradient */
    int64_t *positions;         /* of max_pool: its result, */
    struct cpu_indices indices; /* of max_pool_grad: its input */
    int64_t x_places, y_rows;   /* places of x; rows of y, in one channel */
    int64_t row_pieces, clears; /* pieces of a row of y; clears of a channel of x, of a gradient */
    int64_t units;              /* rows of y, or channels */
    int64_t window;             /* places of x that a place of y sees, about */
};

/* A pass over the places of the piece whose windows have one place of the kernel inside x, or two neighbours: for each, its place in x. */
struct pass {
    int64_t first, n; /* places of the piece */
    int64_t begin;    /* the place of x; the others follow with the stride */
    bool pair;
};

/* A piece of a row of y, and what follows from its place in the row, which stays for the rows that come next. */
struct piece {
    int64_t plane, z, y, x, n;
    int64_t made; /* x of what follows; -1: nothing has been made yet */
    int n_passes;
    struct pass passes[PASSES];
    int32_t begins[PIECE], counts[PIECE];               /* of windows that are runs */
    _Alignas(64) char divisors[PIECE * sizeof(double)]; /* in the elements' dtype */
    _Alignas(64) char values[PIECE * sizeof(double)];
    int32_t positions[PIECE];
};

static struct pass pass_make(const struct job *job, const struct piece *piece, int64_t tap) {
    const struct pooling *p = &job->p;
    int64_t stride = p->stride[2], at = piece->x * stride - p->padding[2] + tap * p->dilation[2];
    int64_t first = at < 0 ? (-at + stride - 1) / stride : 0, begin = at + first * stride;
    int64_t n = begin < p->x[2] ? (p->x[2] - begin + stride - 1) / stride : 0;
    n = n < piece->n - first ? n : piece->n - first;
    return (struct pass){first, n > 0 ? n : 0, begin, false};
}

/* As many passes as there is room for, from *tap on. */
static void passes_make(const struct job *job, struct piece *piece, int64_t *tap) {
    bool pairs = job->p.stride[2] == 2 && job->p.dilation[2] == 1;
    piece->n_passes = 0;
    for (; *tap < job->p.kernel[2]; ++*tap) {
        struct pass pass = pass_make(job, piece, *tap);
        struct pass *last = piece->n_passes > 0 ? &piece->passes[piece->n_passes - 1] : NULL;
        if (pairs && last && !last->pair && last->first == pass.first && last->n == pass.n) {
            last->pair = true;
        } else if (pass.n > 0) {
            if (piece->n_passes == PASSES) {
                return;
            }
            piece->passes[piece->n_passes++] = pass;
        }
    }
}

/* What follows from the place in the row. */
static void piece_make(const struct job *job, struct piece *piece) {
    for (int64_t i = 0; i < piece->n; i++) {
        struct pooling_window window = pooling_window(&job->p, 2, piece->x + i);
        piece->begins[i] = (int32_t)window.begin;
        piece->counts[i] = (int32_t)window.count;
        if (job->is_f64) {
            ((double *)(void *)piece->divisors)[i] = (double)window.divisor;
        } else {
            ((float *)(void *)piece->divisors)[i] = (float)window.divisor;
        }
    }
    if (!job->runs) {
        int64_t tap = 0;
        passes_make(job, piece, &tap);
        piece->made = tap == job->p.kernel[2] ? piece->x : -1;
    } else {
        piece->made = piece->x;
    }
}

/* `row` is the place in x of the row's first element. */
typedef void pass_function(struct job *job, struct piece *piece, const struct pass *pass, int64_t row, bool first);

/* Along one row of x, of which the windows of the piece see parts. */
static void row_passes(struct job *job, struct piece *piece, pass_function *body, int64_t row, bool first) {
    int64_t tap = 0;
    do {
        if (piece->made < 0) {
            passes_make(job, piece, &tap);
        }
        for (int i = 0; i < piece->n_passes; i++) {
            body(job, piece, &piece->passes[i], row, first);
            first = false;
        }
    } while (piece->made < 0 && tap < job->p.kernel[2]);
}

/* Along one row of x, window by window. */
static void row_runs(struct job *job, struct piece *piece, char *out, int64_t row) {
    int64_t plane = piece->plane * job->x_places + row;
    bool back = job->opcode == OP_AVG_POOL_GRAD || job->opcode == OP_ADAPTIVE_AVG_POOL_GRAD;
    for (int64_t i = 0; i < piece->n; i++) {
        int64_t at = (plane + piece->begins[i]) * job->size, n = piece->counts[i];
        if (back) {
            job->functions->spread_run(n, piece->values + i * job->size, job->to + at);
        } else {
            job->functions->add_run(n, job->from + at, out + i * job->size);
        }
    }
}

/* The window of a place along an axis; most are inside x, which takes no division. */
static struct pooling_window window_of(const struct pooling *p, int axis, int64_t place) {
    int64_t begin = place * p->stride[axis] - p->padding[axis], kernel = p->kernel[axis], step = p->dilation[axis];
    if (!p->adaptive && begin >= 0 && begin + (kernel - 1) * step < p->x[axis]) {
        return (struct pooling_window){.begin = begin, .count = kernel, .step = step, .divisor = kernel};
    }
    return pooling_window(p, axis, place);
}

static void pass_greatest(struct job *job, struct piece *piece, const struct pass *pass, int64_t row, bool first) {
    const char *x = job->from + (piece->plane * job->x_places + row + pass->begin) * job->size;
    bool whole = first && pass->n == piece->n;
    if (first && !whole) {
        job->functions->none(piece->n, piece->values, piece->positions);
    }
    job->functions->greatest(pass->n, x, job->p.stride[2], pass->pair, whole, (int32_t)(row + pass->begin),
                             piece->values + pass->first * job->size, piece->positions + pass->first);
}

static void pass_sum(struct job *job, struct piece *piece, const struct pass *pass, int64_t row, bool first) {
    const char *x = job->from + (piece->plane * job->x_places + row + pass->begin) * job->size;
    (void)first;
    job->functions->add(pass->n, x, job->p.stride[2], pass->pair, piece->values + pass->first * job->size);
}

static void pass_spread(struct job *job, struct piece *piece, const struct pass *pass, int64_t row, bool first) {
    char *x = job->to + (piece->plane * job->x_places + row + pass->begin) * job->size;
    (void)first;
    job->functions->spread(pass->n, piece->values + pass->first * job->size, job->p.stride[2], pass->pair, x);
}

/* ---- pieces ---- */

static void piece_passes(struct job *job, struct piece *piece, pass_function *body, const struct pooling_window *z,
                         const struct pooling_window *y) {
    bool first = true;
    for (int64_t i = 0; i < z->count; i++) {
        for (int64_t j = 0; j < y->count; j++) {
            int64_t row = ((z->begin + i * z->step) * job->p.x[1] + y->begin + j * y->step) * job->p.x[2];
            if (job->runs) {
                row_runs(job, piece, piece->values, row);
            } else {
                row_passes(job, piece, body, row, first);
            }
            first = false;
        }
    }
}

/* `at`: the piece's first place in y. */
static void piece_run(struct job *job, struct piece *piece, int64_t at) {
    const struct cpu_pooling *f = job->functions;
    struct pooling_window z = window_of(&job->p, 0, piece->z), y = window_of(&job->p, 1, piece->y);
    double rows = (double)(z.divisor * y.divisor);
    size_t bytes = (size_t)(piece->n * job->size);
    if (piece->made != piece->x && job->opcode != OP_MAX_POOL_GRAD) {
        piece_make(job, piece);
    }
    switch (job->opcode) {
    case OP_MAX_POOL:
        if (z.count == 0 || y.count == 0 || piece->n_passes == 0) {
            f->none(piece->n, piece->values, piece->positions);
        }
        piece_passes(job, piece, pass_greatest, &z, &y);
        memcpy(job->to + at * job->size, piece->values, bytes);
        f->widen(piece->n, piece->positions, job->positions + at);
        break;
    case OP_MAX_POOL_GRAD:
        for (int64_t i = 0, n; i < piece->n; i += n) {
            int64_t block[CPU_INDICES_BLOCK];
            n = piece->n - i < CPU_INDICES_BLOCK ? piece->n - i : CPU_INDICES_BLOCK;
            f->scatter(n, job->from + (at + i) * job->size, cpu_indices_read(&job->indices, at + i, 1, n, block),
                       job->x_places, job->to + piece->plane * job->x_places * job->size);
        }
        break;
    case OP_AVG_POOL:
    case OP_ADAPTIVE_AVG_POOL:
        memset(piece->values, 0, bytes);
        piece_passes(job, piece, pass_sum, &z, &y);
        f->divide(piece->n, piece->values, rows, piece->divisors, job->to + at * job->size);
        break;
    default:
        f->divide(piece->n, job->from + at * job->size, rows, piece->divisors, piece->values);
        piece_passes(job, piece, pass_spread, &z, &y);
    }
}

/* Puts the piece at a place: piece number `number` of a channel. */
static void piece_place(const struct job *job, struct piece *piece, int64_t plane, int64_t number) {
    int64_t row = number / job->row_pieces;
    *piece = (struct piece){.plane = plane,
                            .z = row / job->p.y[1],
                            .y = row % job->p.y[1],
                            .x = number % job->row_pieces * PIECE,
                            .made = -1};
}

/* To the next piece of the channels. */
static void piece_next(const struct job *job, struct piece *piece) {
    piece->x += PIECE;
    if (piece->x >= job->p.y[2]) {
        piece->x = 0;
        piece->y++;
    }
    if (piece->y == job->p.y[1]) {
        piece->y = 0;
        piece->z++;
    }
    if (piece->z == job->p.y[0]) {
        piece->z = 0;
        piece->plane++;
    }
}

static void piece_here(struct job *job, struct piece *piece) {
    int64_t row = (piece->plane * job->p.y[0] + piece->z) * job->p.y[1] + piece->y, left = job->p.y[2] - piece->x;
    piece->n = left < PIECE ? left : PIECE;
    piece_run(job, piece, row * job->p.y[2] + piece->x);
}

/* ---- parts: of rows forward, of channels for gradients; lane->position counts pieces ---- */

static bool forward_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct piece piece;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts) * job->row_pieces;
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts) * job->row_pieces;
    int64_t plane_pieces = job->y_rows * job->row_pieces, at = begin + lane->position, seen = 0;
    piece_place(job, &piece, at / plane_pieces, at % plane_pieces);
    for (; at < end; at++, piece_next(job, &piece)) {
        if (seen >= LOOK && cpu_job_stops(base)) {
            lane->position = at - begin;
            return false;
        }
        seen = seen >= LOOK ? 0 : seen;
        piece_here(job, &piece);
        seen += piece.n * job->window;
    }
    return true;
}

/* Clears the channel, in steps, before the pieces of y add to it. */
static bool back_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct piece piece;
    int64_t steps = job->clears + job->y_rows * job->row_pieces, seen = 0;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts) * steps;
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts) * steps, at = begin + lane->position;
    int64_t plane = at / steps, step = at % steps;
    piece_place(job, &piece, plane, step < job->clears ? 0 : step - job->clears);
    for (; at < end; at++) {
        if (seen >= LOOK && cpu_job_stops(base)) {
            lane->position = at - begin;
            return false;
        }
        seen = seen >= LOOK ? 0 : seen;
        if (step < job->clears) {
            int64_t bytes = job->x_places * job->size, left = bytes - step * CLEAR_BYTES;
            memset(job->to + plane * bytes + step * CLEAR_BYTES, 0, (size_t)(left < CLEAR_BYTES ? left : CLEAR_BYTES));
            seen += CLEAR_BYTES / 16;
        } else {
            piece_here(job, &piece);
            seen += piece.n * job->window;
            piece_next(job, &piece);
        }
        if (++step == steps) {
            step = 0;
            plane++;
        }
    }
    return true;
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
    job.size = job.is_f64 ? 8 : 4;
    job.positions = launch->opcode == OP_MAX_POOL ? launch_further(launch, 1)->data : NULL;
    if (launch->opcode == OP_MAX_POOL_GRAD) {
        job.indices = cpu_indices_of(cpu, &launch->inputs[1]);
    }
    job.x_places = pooling_volume(job.p.x);
    job.y_rows = job.p.y[0] * job.p.y[1];
    job.row_pieces = (job.p.y[2] + PIECE - 1) / PIECE;
    job.clears = (job.x_places * job.size + CLEAR_BYTES - 1) / CLEAR_BYTES;
    job.runs = (job.p.adaptive || (job.p.y[2] < job.p.kernel[2] && job.p.dilation[2] == 1)) &&
               launch->opcode != OP_MAX_POOL && launch->opcode != OP_MAX_POOL_GRAD;
    job.window = job.p.adaptive ? job.x_places / pooling_volume(job.p.y) + 1 : pooling_volume(job.p.kernel);
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
    { {.index_dtypes = CPU_INDEX_DTYPES}, pooling_run }
const struct cpu_kernel cpu_kernel_max_pool = POOLING;
const struct cpu_kernel cpu_kernel_max_pool_grad = POOLING;
const struct cpu_kernel cpu_kernel_avg_pool = POOLING;
const struct cpu_kernel cpu_kernel_avg_pool_grad = POOLING;
const struct cpu_kernel cpu_kernel_adaptive_avg_pool = POOLING;
const struct cpu_kernel cpu_kernel_adaptive_avg_pool_grad = POOLING;
