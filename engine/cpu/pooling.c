/* Pooling, of rows of places along the last axis. Forward each row of y is a unit of its own; a gradient is added up for each channel of an
 * image in the order of y's places, so that it comes out the same with any number of threads.
 *
 * Of halves what a piece sees of x is converted to f32 beside it, with some more of what the next pieces see, and its places are converted
 * back. A channel's gradient is added up in f32 in a thread's workspace. */
#include "proto/ops/pooling.h"

#include <string.h>

#include "engine/cpu/indices.h"

enum {
    PIECE = 256,          /* places of a row that are computed at a time */
    PASSES = 32,          /* passes that are kept; a wider kernel makes them anew for each row */
    LINE = 1 << 12,       /* halves of x that are converted at a time */
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
    int64_t size;                     /* of an element as it is computed with, */
    int64_t own_size;                 /* and of x and y */
    cpu_row_function *widen, *narrow; /* of halves, to f32 and back; else NULL */
    const char *from;                 /* x, or the gradient */
    char *to;                         /* y, or x's gradient */
    char *sums;                       /* of halves, where x's gradient is added up: a channel for each thread */
    int64_t *positions;               /* of max_pool: its result, */
    struct cpu_indices indices;       /* of max_pool_grad: its input */
    int64_t x_places, y_rows;         /* places of x; rows of y, in one channel */
    int64_t row_pieces, clears;       /* pieces of a row of y; clears of a channel of x, of a gradient */
    int64_t units;                    /* rows of y, or channels */
    int64_t window;                   /* places of x that a place of y sees, about */
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
    char *to;     /* of a gradient: where x's channel is added up */
    int64_t made; /* x of what follows; -1: nothing has been made yet */
    int n_passes;
    struct pass passes[PASSES];
    int32_t begins[PIECE], counts[PIECE];               /* of windows that are runs */
    _Alignas(64) char divisors[PIECE * sizeof(double)]; /* in the elements' dtype */
    _Alignas(64) char values[PIECE * sizeof(double)];
    int32_t positions[PIECE];
    /* Of halves: elements `begin` … `end` - 1 of x, and what may be converted at once, up to element `until`. */
    int64_t begin, end, until;
    /* Of the row of x that is being read, from its place `row_begin` on, in the dtype that is computed with. NULL: it is of halves, and does not
     * fit. */
    const char *row;
    int64_t row_begin;
    _Alignas(64) float line[LINE];
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

/* ---- rows of x ---- */

static void convert(cpu_row_function *cast, int64_t n, const char *from, char *to) {
    cast(&(struct cpu_row){n, {to, (char *)(uintptr_t)from}, {1, 1}});
}

/* From a row of halves of x the windows of the piece see places `begin` … `end` - 1: they are converted, if so many fit. `row` is the place in x of
 * the row's first element. */
static void line_read(const struct job *job, struct piece *piece, int64_t row, int64_t begin, int64_t end) {
    begin = begin > 0 ? begin : 0;
    end = end < job->p.x[2] ? end : job->p.x[2];
    int64_t at = piece->plane * job->x_places + row + begin, n = end - begin;
    piece->row = NULL;
    if (n <= 0 || n > LINE) {
        return;
    }
    if (at < piece->begin || at + n > piece->end) {
        bool more = piece->until > at + n && 2 * n >= job->p.x[2];
        n = !more ? n : piece->until - at < LINE ? piece->until - at : LINE;
        convert(job->widen, n, job->from + at * job->own_size, (char *)piece->line);
        piece->begin = at;
        piece->end = at + n;
    }
    piece->row = (const char *)(piece->line + (at - piece->begin));
    piece->row_begin = begin;
}

static inline const char *row_place(const struct job *job, const struct piece *piece, int64_t place) {
    return piece->row + (place - piece->row_begin) * job->size;
}

/* Of a row that does not fit, place `place` and those n - 1 that follow with a stride, and a neighbour of the last one if `pair`, which fit. */
static const char *line_part(const struct job *job, struct piece *piece, int64_t row, int64_t place, int64_t n,
                             int64_t stride, bool pair) {
    const char *from = job->from + (piece->plane * job->x_places + row + place) * job->own_size;
    piece->begin = piece->end = 0;
    if (stride > 2) {
        job->widen(&(struct cpu_row){n, {(char *)piece->line, (char *)(uintptr_t)from}, {stride, stride}});
    } else {
        convert(job->widen, (n - 1) * stride + 1 + pair, from, (char *)piece->line);
    }
    return (const char *)piece->line;
}

/* `row` is the place in x of the row's first element. */
typedef void pass_function(struct job *job, struct piece *piece, const struct pass *pass, int64_t row, bool first);

/* Along one row of x, of which the windows of the piece see parts. */
static void row_passes(struct job *job, struct piece *piece, pass_function *body, int64_t row, bool first) {
    int64_t tap = 0;
    if (job->widen && !piece->to) {
        int64_t begin = piece->x * job->p.stride[2] - job->p.padding[2];
        line_read(job, piece, row, begin,
                  begin + (piece->n - 1) * job->p.stride[2] + (job->p.kernel[2] - 1) * job->p.dilation[2] + 1);
    }
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

/* A window of halves of a row that does not fit. */
static void run_add(const struct job *job, struct piece *piece, int64_t row, int64_t begin, int64_t n, char *out) {
    for (int64_t at = 0; at < n; at += LINE) {
        int64_t some = n - at < LINE ? n - at : LINE;
        job->functions->add_run(some, line_part(job, piece, row, begin + at, some, 1, false), out);
    }
}

/* Along one row of x, window by window. */
static void row_runs(struct job *job, struct piece *piece, char *out, int64_t row) {
    int64_t last = piece->n - 1, size = job->size, from_begin = 0;
    bool back = piece->to;
    char *to = back ? piece->to + row * size : NULL;
    const char *from = back ? NULL : job->from + (piece->plane * job->x_places + row) * job->own_size;
    if (job->widen && !back) {
        line_read(job, piece, row, piece->begins[0], piece->begins[last] + piece->counts[last]);
        from = piece->row;
        from_begin = piece->row_begin;
    }
    for (int64_t i = 0; i < piece->n; i++) {
        int64_t begin = piece->begins[i], n = piece->counts[i];
        if (back) {
            job->functions->spread_run(n, piece->values + i * size, to + begin * size);
        } else if (from) {
            job->functions->add_run(n, from + (begin - from_begin) * size, out + i * size);
        } else {
            run_add(job, piece, row, begin, n, out + i * size);
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

/* How many places of the pass are read at a time. */
static inline int64_t pass_step(const struct job *job, const struct piece *piece, const struct pass *pass) {
    return piece->row ? pass->n : (LINE - 2) / job->p.stride[2] + 1;
}

/* What the windows of the pass see from its place number i on, n places. */
static inline const char *pass_from(const struct job *job, struct piece *piece, const struct pass *pass, int64_t row,
                                    int64_t i, int64_t n) {
    int64_t stride = job->p.stride[2], place = pass->begin + i * stride;
    return piece->row ? row_place(job, piece, place) : line_part(job, piece, row, place, n, stride, pass->pair);
}

static void pass_greatest(struct job *job, struct piece *piece, const struct pass *pass, int64_t row, bool first) {
    bool whole = first && pass->n == piece->n;
    if (first && !whole) {
        job->functions->none(piece->n, piece->values, piece->positions);
    }
    if (!job->widen) { /* nothing but this: passes are short */
        const char *x = job->from + (piece->plane * job->x_places + row + pass->begin) * job->size;
        job->functions->greatest(pass->n, x, job->p.stride[2], pass->pair, whole, (int32_t)(row + pass->begin),
                                 piece->values + pass->first * job->size, piece->positions + pass->first);
        return;
    }
    int64_t stride = job->p.stride[2], step = pass_step(job, piece, pass);
    for (int64_t i = 0; i < pass->n; i += step) {
        int64_t n = pass->n - i < step ? pass->n - i : step, at = pass->first + i;
        job->functions->greatest(n, pass_from(job, piece, pass, row, i, n), stride, pass->pair, whole,
                                 (int32_t)(row + pass->begin + i * stride), piece->values + at * job->size,
                                 piece->positions + at);
    }
}

static void pass_sum(struct job *job, struct piece *piece, const struct pass *pass, int64_t row, bool first) {
    (void)first;
    if (!job->widen) {
        const char *x = job->from + (piece->plane * job->x_places + row + pass->begin) * job->size;
        job->functions->add(pass->n, x, job->p.stride[2], pass->pair, piece->values + pass->first * job->size);
        return;
    }
    int64_t stride = job->p.stride[2], step = pass_step(job, piece, pass);
    for (int64_t i = 0; i < pass->n; i += step) {
        int64_t n = pass->n - i < step ? pass->n - i : step;
        job->functions->add(n, pass_from(job, piece, pass, row, i, n), stride, pass->pair,
                            piece->values + (pass->first + i) * job->size);
    }
}

static void pass_spread(struct job *job, struct piece *piece, const struct pass *pass, int64_t row, bool first) {
    char *x = piece->to + (row + pass->begin) * job->size;
    (void)first;
    job->functions->spread(pass->n, piece->values + pass->first * job->size, job->p.stride[2], pass->pair, x);
}

/* ---- pieces ---- */

/* How far the pieces that follow see x, or this one where it sees several planes of it in turn. */
static int64_t until_of(const struct job *job, const struct piece *piece, int64_t z, const struct pooling_window *y) {
    if (job->row_pieces > 1 || y->count == 0 || y->step > 2) {
        return 0;
    }
    int64_t last = z * job->p.x[1] + y->begin + (y->count - 1) * y->step;
    return job->p.x[0] == 1 ? job->p.planes * job->x_places : piece->plane * job->x_places + (last + 1) * job->p.x[2];
}

static void piece_passes(struct job *job, struct piece *piece, pass_function *body, const struct pooling_window *z,
                         const struct pooling_window *y) {
    bool first = true;
    for (int64_t i = 0; i < z->count; i++) {
        if (job->widen) {
            piece->until = until_of(job, piece, z->begin + i * z->step, y);
        }
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

/* The gradient's places from `at` on. */
static const char *piece_gradient(const struct job *job, struct piece *piece, int64_t at) {
    const char *from = job->from + at * job->own_size;
    if (!job->widen) {
        return from;
    }
    convert(job->widen, piece->n, from, piece->values);
    return piece->values;
}

/* `at`: the piece's first place in y. */
static void piece_run(struct job *job, struct piece *piece, int64_t at) {
    const struct cpu_pooling *f = job->functions;
    struct pooling_window z = window_of(&job->p, 0, piece->z), y = window_of(&job->p, 1, piece->y);
    double rows = (double)(z.divisor * y.divisor);
    size_t bytes = (size_t)(piece->n * job->size);
    char *to = job->to + at * job->own_size, *out = job->narrow ? piece->values : to;
    int64_t places[PIECE];
    if (piece->made != piece->x && job->opcode != OP_MAX_POOL_GRAD) {
        piece_make(job, piece);
    }
    switch (job->opcode) {
    case OP_MAX_POOL:
        if (z.count == 0 || y.count == 0 || piece->n_passes == 0) {
            f->none(piece->n, piece->values, piece->positions);
        }
        piece_passes(job, piece, pass_greatest, &z, &y);
        if (!job->narrow) {
            memcpy(to, piece->values, bytes);
        }
        f->widen(piece->n, piece->positions, job->positions + at);
        break;
    case OP_MAX_POOL_GRAD:
        f->scatter(piece->n, piece_gradient(job, piece, at), cpu_indices_read(&job->indices, at, 1, piece->n, places),
                   job->x_places, piece->to);
        break;
    case OP_AVG_POOL:
    case OP_ADAPTIVE_AVG_POOL:
        memset(piece->values, 0, bytes);
        piece_passes(job, piece, pass_sum, &z, &y);
        f->divide(piece->n, piece->values, rows, piece->divisors, out);
        break;
    default:
        f->divide(piece->n, piece_gradient(job, piece, at), rows, piece->divisors, piece->values);
        piece_passes(job, piece, pass_spread, &z, &y);
    }
    if (job->narrow && !piece->to) {
        convert(job->narrow, piece->n, piece->values, to);
    }
}

/* Puts the piece at a place: piece number `number` of a channel. */
static void piece_place(const struct job *job, struct piece *piece, int64_t plane, int64_t number) {
    int64_t row = number / job->row_pieces;
    memset(piece, 0, offsetof(struct piece, line));
    piece->plane = plane;
    piece->z = row / job->p.y[1];
    piece->y = row % job->p.y[1];
    piece->x = number % job->row_pieces * PIECE;
    piece->made = -1;
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

/* Step number `step` of a channel: clears it; behind the pieces of y, converts what has been added up of halves. */
static void back_clear(const struct job *job, const struct piece *piece, int64_t step) {
    int64_t bytes = job->x_places * job->size, left = bytes - step * CLEAR_BYTES;
    memset(piece->to + step * CLEAR_BYTES, 0, (size_t)(left < CLEAR_BYTES ? left : CLEAR_BYTES));
}

static void back_narrow(const struct job *job, const struct piece *piece, int64_t plane, int64_t step) {
    int64_t each = CLEAR_BYTES / job->size, first = step * each, left = job->x_places - first;
    convert(job->narrow, left < each ? left : each, piece->to + first * job->size,
            job->to + (plane * job->x_places + first) * job->own_size);
}

/* Where a channel is added up. */
static char *back_to(const struct job *job, const struct cpu_lane *lane, int64_t plane) {
    return job->narrow ? job->sums + lane->number * job->x_places * job->size
                       : job->to + plane * job->x_places * job->size;
}

/* Clears the channel, in steps, before the pieces of y add to it. */
static bool back_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct piece piece;
    int64_t added = job->clears + job->y_rows * job->row_pieces, steps = added + (job->narrow ? job->clears : 0);
    int64_t seen = 0;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts) * steps;
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts) * steps, at = begin + lane->position;
    int64_t plane = at / steps, step = at % steps;
    piece_place(job, &piece, step < added ? plane : plane + 1,
                step < job->clears || step >= added ? 0 : step - job->clears);
    piece.to = back_to(job, lane, plane);
    for (; at < end; at++) {
        if (seen >= LOOK && cpu_job_stops(base)) {
            lane->position = at - begin;
            return false;
        }
        seen = seen >= LOOK ? 0 : seen;
        if (step < job->clears || step >= added) {
            (step < job->clears) ? back_clear(job, &piece, step) : back_narrow(job, &piece, plane, step - added);
            seen += CLEAR_BYTES / 16;
        } else {
            piece_here(job, &piece);
            seen += piece.n * job->window;
            piece_next(job, &piece);
        }
        if (++step == steps) {
            step = 0;
            piece.to = back_to(job, lane, ++plane);
        }
    }
    return true;
}

static bool is_back(unsigned opcode) {
    return opcode == OP_MAX_POOL_GRAD || opcode == OP_AVG_POOL_GRAD || opcode == OP_ADAPTIVE_AVG_POOL_GRAD;
}

static void job_dtypes(struct job *job, enum dtype dtype) {
    const struct cpu_kernels *kernels = job->base.cpu->kernels;
    job->is_f64 = dtype == DTYPE_F64;
    job->size = job->is_f64 ? 8 : 4;
    job->own_size = (int64_t)dtype_size(dtype);
    job->functions = &kernels->pooling[job->is_f64];
    if (job->own_size < job->size) {
        job->widen = kernels->cast[dtype][DTYPE_F32];
        job->narrow = kernels->cast[DTYPE_F32][dtype];
    }
}

/* Returns the work, as bytes of memory traffic. */
static double job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    const struct operand *in = &launch->inputs[0], *out = &launch->output;
    bool back = is_back(launch->opcode);
    *job = (struct job){.base = {.cpu = cpu, .run = back ? back_part : forward_part},
                        .opcode = launch->opcode,
                        .from = in->data,
                        .to = out->data,
                        .sums = launch->workspace};
    pooling_make(&job->p, launch->opcode, &launch->attributes, in->rank, (back ? out : in)->shape,
                 (back ? in : out)->shape, false);
    job_dtypes(job, (enum dtype)out->dtype);
    job->positions = launch->opcode == OP_MAX_POOL ? launch_further(launch, 1)->data : NULL;
    if (launch->opcode == OP_MAX_POOL_GRAD) {
        job->indices = cpu_indices_of(cpu, &launch->inputs[1]);
    }
    job->x_places = pooling_volume(job->p.x);
    job->y_rows = job->p.y[0] * job->p.y[1];
    job->clears = (job->x_places * job->size + CLEAR_BYTES - 1) / CLEAR_BYTES;
    job->runs = (job->p.adaptive || (job->p.y[2] < job->p.kernel[2] && job->p.dilation[2] == 1)) &&
                launch->opcode != OP_MAX_POOL && launch->opcode != OP_MAX_POOL_GRAD;
    job->row_pieces = (job->p.y[2] + PIECE - 1) / PIECE;
    job->window = job->p.adaptive ? job->x_places / pooling_volume(job->p.y) + 1 : pooling_volume(job->p.kernel);
    job->units = back ? job->p.planes : job->p.planes * job->y_rows;
    double seen = job->p.adaptive ? (double)job->x_places
                                  : (double)pooling_volume(job->p.y) * (double)pooling_volume(job->p.kernel);
    double work =
        (double)job->p.planes * (seen * 8 + (double)job->x_places * 4 + (double)pooling_volume(job->p.y) * 16);
    job->base.parts = cpu_parts(cpu, work);
    job->base.parts = job->units < job->base.parts ? (unsigned)job->units : job->base.parts;
    return work;
}

/* Threads that have a channel of sums in the workspace; 0: all write to the result. */
static unsigned sums_threads(const struct job *job) {
    unsigned threads = job->base.cpu->team.threads;
    return !job->widen || !is_back(job->opcode) ? 0 : job->base.parts < threads ? job->base.parts : threads;
}

static uint64_t pooling_workspace(struct device *device, const struct launch *launch) {
    struct job job;
    job_init(&job, (struct cpu *)device, launch);
    return (uint64_t)(job.x_places * job.size) * sums_threads(&job);
}

static int pooling_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    double work = job_init(&job, cpu, launch);
    (void)fault;
    job.base.lanes_most = sums_threads(&job);
    if (cpu_job_keep(&job.base, sizeof job, work, begun)) {
        return STATUS_OK;
    }
    /* Each part has the sums of one thread. */
    job.base.parts = job.base.lanes_most ? job.base.lanes_most : job.base.parts;
    cpu_job_run(&job.base);
    return STATUS_OK;
}

#define POOLING                                                                                                        \
    { {.index_dtypes = CPU_INDEX_DTYPES, .workspace = pooling_workspace, .halves = true}, pooling_run }
const struct cpu_kernel cpu_kernel_max_pool = POOLING;
const struct cpu_kernel cpu_kernel_max_pool_grad = POOLING;
const struct cpu_kernel cpu_kernel_avg_pool = POOLING;
const struct cpu_kernel cpu_kernel_avg_pool_grad = POOLING;
const struct cpu_kernel cpu_kernel_adaptive_avg_pool = POOLING;
const struct cpu_kernel cpu_kernel_adaptive_avg_pool_grad = POOLING;
