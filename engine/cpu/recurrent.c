/* Recurrent layers. The products of all steps with x are one, cut into strips of rows; then each step is a round: blocks of units, each of which
 * multiplies the state before by its rows of the weights and computes its cells. Backward a round is a step, too, from the last to the
 * first: the gradients by the sums of the gates of all steps stay in the workspace, and the gradients by x and the weights are products of them.
 *
 * Strips and blocks depend on shapes alone, so the sums come out the same with any number of threads. */
#include "engine/device/recurrent.h"

#include "engine/cpu/cpu.h"

#include <limits.h>

enum {
    BLOCK_ROWS = 64,      /* of the batch, in a block of units */
    BLOCKS = 8,           /* of units, at most */
    BLOCK_UNITS = 32,     /* at least, and a multiple of these */
    STRIP_ROWS = 32,      /* at least, and a multiple of these */
    STRIP_WORK = 1 << 27, /* multiplications of a strip, some ms; of a wide layer's strip, in one product */
    BLOCK_WORK = 1 << 29, /* of a block's products in a step */
    SLICE = 32,           /* rows of the weights' gradients in a part */
    DEPTH = 1024,         /* steps and images in one product of these, at most */
    SUMMED = 1 << 15,     /* steps and images whose slopes are added up between two looks whether to stop */
    COPIED = 1 << 20,     /* bytes that are copied between two looks */
    COPIES = 6,
};

enum round { ROUND_INPUT, ROUND_STEP, ROUND_GRAD_X, ROUND_GRAD_WEIGHTS, ROUND_COPIES };

/* What becomes a copy, or zeros if `from` is NULL. */
struct copy {
    void *to;
    const void *from;
    int64_t bytes;
};

struct job {
    struct cpu_job base;
    const struct blas *blas;
    const struct cpu_recurrent *functions;
    struct recurrent r;
    bool is_f64;
    int64_t size;
    enum round round;
    int64_t step;                           /* in the order of computation; backward it falls */
    int64_t units, row_blocks, unit_blocks; /* units of a block */
    int64_t strip, strips;
    int64_t gates, in; /* columns that one product of a strip computes: of the gates, or of x's gradient */
    int64_t depth;     /* steps and images in one product of a slice */
    int64_t things;    /* that the round's parts share out */
    int64_t pieces;    /* of a thing, one after another */
    int n_copies;
    struct copy copies[COPIES];
    char *slopes; /* workspace: [n][batch][4h] */
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

static char *at(const struct job *job, const void *from, int64_t element) {
    return (char *)(uintptr_t)from + element * job->size;
}

/* c (m, n) = a · b, or it is added to c. Rows of a transposed a are its columns; so of b. */
static void multiply(const struct job *job, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row,
                     bool a_across, const void *b, int64_t b_row, bool b_across, void *c, int64_t c_row, bool add) {
    CBLAS_TRANSPOSE left = a_across ? CblasTrans : CblasNoTrans, right = b_across ? CblasTrans : CblasNoTrans;
    if (m == 0 || n == 0) {
        return;
    }
    if (job->is_f64) {
        job->blas->dgemm(CblasRowMajor, left, right, (int)m, (int)n, (int)k, 1, a, (int)a_row, b, (int)b_row,
                         add ? 1 : 0, c, (int)c_row);
    } else {
        job->blas->sgemm(CblasRowMajor, left, right, (int)m, (int)n, (int)k, 1, a, (int)a_row, b, (int)b_row,
                         add ? 1 : 0, c, (int)c_row);
    }
}

/* ---- a step's states ---- */

/* The state before a step: h, or c of an LSTM. */
static const void *before(const struct job *job, const void *first, const void *all, int64_t step) {
    int64_t size = job->r.batch * job->r.hidden;
    return step == 0 ? first : at(job, all, recurrent_at(&job->r, step - 1) * size);
}

static const char *h_before(const struct job *job, int64_t step) {
    return before(job, job->r.h0, job->r.result, step);
}

static const char *c_before(const struct job *job, int64_t step) {
    return before(job, job->r.c0, job->r.cells, step);
}

/* Where a block's first unit is in an array of `width` for each image, of a step or of a state. */
static int64_t unit_at(const struct job *job, int64_t step, int64_t row, int64_t width, int64_t unit) {
    int64_t place = step < 0 ? 0 : recurrent_at(&job->r, step);
    return (place * job->r.batch + row) * width + unit;
}

struct block {
    int64_t row, rows, unit, units;
};

static struct block block_of(const struct job *job, int64_t number) {
    struct block block = {.row = number % job->row_blocks * BLOCK_ROWS, .unit = number / job->row_blocks * job->units};
    block.rows = least(BLOCK_ROWS, job->r.batch - block.row);
    block.units = least(job->units, job->r.hidden - block.unit);
    return block;
}

/* ---- forward ---- */

/* The biases in each row of a strip: those of a GRU's q apart from those of n. */
static void fill_biases(const struct job *job, int64_t row, int64_t rows) {
    const struct recurrent *r = &job->r;
    int64_t hidden = r->hidden, width = RECURRENT_KEPT * hidden, own = r->gru ? 2 * hidden : width;
    char *first = at(job, r->kept, row * width);
    memset(first, 0, (size_t)(width * job->size));
    if (r->b_ih && rows > 0) {
        memcpy(first, r->b_ih, (size_t)(r->gates * hidden * job->size));
        job->functions->add(own, first, r->b_hh);
    }
    if (r->b_ih && r->gru && rows > 0) {
        memcpy(at(job, first, 3 * hidden), at(job, r->b_hh, 2 * hidden), (size_t)(hidden * job->size));
    }
    for (int64_t i = 1; i < rows; i++) {
        memcpy(at(job, first, i * width), first, (size_t)(width * job->size));
    }
}

static void input_strip(const struct job *job, int64_t number, int64_t piece) {
    const struct recurrent *r = &job->r;
    int64_t row = number * job->strip, rows = least(job->strip, r->n * r->batch - row);
    int64_t width = RECURRENT_KEPT * r->hidden, gate = piece * job->gates;
    if (piece == 0) {
        fill_biases(job, row, rows);
    }
    multiply(job, rows, least(job->gates, r->gates * r->hidden - gate), r->in, at(job, r->x, row * r->in), r->in, false,
             at(job, r->w_ih, gate * r->in), r->in, true, at(job, r->kept, row * width + gate), width, true);
}

static void step_block(const struct job *job, int64_t number) {
    const struct recurrent *r = &job->r;
    const struct block block = block_of(job, number);
    int64_t hidden = r->hidden, width = RECURRENT_KEPT * hidden;
    const char *h = at(job, h_before(job, job->step), block.row * hidden);
    char *kept = at(job, r->kept, unit_at(job, job->step, block.row, width, block.unit));
    for (int64_t gate = 0; gate < r->gates; gate++) {
        int64_t to = r->gru && gate == 2 ? 3 : gate;
        multiply(job, block.rows, block.units, hidden, h, hidden, false,
                 at(job, r->w_hh, (gate * hidden + block.unit) * hidden), hidden, true, at(job, kept, to * hidden),
                 width, true);
    }
    for (int64_t i = 0; i < block.rows; i++) {
        int64_t state = (block.row + i) * hidden + block.unit;
        int64_t to = unit_at(job, job->step, block.row + i, hidden, block.unit);
        char *line = at(job, kept, i * width);
        if (r->gru) {
            job->functions->gru(block.units, line, hidden, at(job, h_before(job, job->step), state),
                                at(job, r->result, to));
        } else {
            job->functions->lstm(block.units, line, hidden, at(job, c_before(job, job->step), state),
                                 at(job, r->cells, to), at(job, r->result, to));
        }
    }
}

static void copy_add(struct job *job, void *to, const void *from, int64_t elements) {
    job->copies[job->n_copies++] = (struct copy){to, from, elements * job->size};
}

static int64_t copies_pieces(const struct job *job) {
    int64_t pieces = 0;
    for (int i = 0; i < job->n_copies; i++) {
        pieces += divided_up(job->copies[i].bytes, COPIED);
    }
    return pieces;
}

static void copies_piece(const struct job *job, int64_t piece) {
    const struct copy *copy = job->copies;
    for (; piece >= divided_up(copy->bytes, COPIED); copy++) {
        piece -= divided_up(copy->bytes, COPIED);
    }
    int64_t from = piece * COPIED;
    size_t bytes = (size_t)least(COPIED, copy->bytes - from);
    if (copy->from) {
        memcpy((char *)copy->to + from, (const char *)copy->from + from, bytes);
    } else {
        memset((char *)copy->to + from, 0, bytes);
    }
}

/* The last states are results by themselves, too. */
static void forward_copies(struct job *job) {
    const struct recurrent *r = &job->r;
    copy_add(job, r->h_n, h_before(job, r->n), r->batch * r->hidden);
    if (!r->gru) {
        copy_add(job, r->c_n, c_before(job, r->n), r->batch * r->hidden);
    }
}

/* ---- backward ---- */

/* The gradient by the state after a step from the step behind it, which has computed its slopes; that of the last step is given. Of a GRU it comes
 * on top of what the step behind has left. */
static void state_gradient(const struct job *job, const struct block *block, int64_t step) {
    const struct recurrent *r = &job->r;
    int64_t hidden = r->hidden, width = RECURRENT_KEPT * hidden, state = block->row * hidden + block->unit;
    if (step == r->n - 1) {
        for (int64_t i = 0; i < block->rows; i++) {
            int64_t place = state + i * hidden;
            size_t bytes = (size_t)(block->units * job->size);
            memcpy(at(job, r->grad_h0, place), at(job, r->grad_h_n, place), bytes);
            if (!r->gru) {
                memcpy(at(job, r->grad_c0, place), at(job, r->grad_c_n, place), bytes);
            }
        }
        return;
    }
    const char *slopes = at(job, job->slopes, unit_at(job, step + 1, block->row, width, 0));
    const char *weights = at(job, r->w_hh, block->unit);
    char *to = at(job, r->grad_h0, state);
    if (!r->gru) {
        multiply(job, block->rows, block->units, width, slopes, width, false, weights, hidden, false, to, hidden,
                 false);
        return;
    }
    multiply(job, block->rows, block->units, 2 * hidden, slopes, width, false, weights, hidden, false, to, hidden,
             true);
    multiply(job, block->rows, block->units, hidden, at(job, slopes, 3 * hidden), width, false,
             at(job, weights, 2 * hidden * hidden), hidden, false, to, hidden, true);
}

static void step_back_block(const struct job *job, int64_t number) {
    const struct recurrent *r = &job->r;
    const struct block block = block_of(job, number);
    int64_t hidden = r->hidden, width = RECURRENT_KEPT * hidden;
    state_gradient(job, &block, job->step);
    for (int64_t i = 0; i < block.rows && job->step >= 0; i++) {
        int64_t state = (block.row + i) * hidden + block.unit;
        int64_t place = unit_at(job, job->step, block.row + i, hidden, block.unit);
        int64_t gates = unit_at(job, job->step, block.row + i, width, block.unit);
        char *by_h = at(job, r->grad_h0, state), *kept = at(job, r->kept, gates), *slopes = at(job, job->slopes, gates);
        job->functions->add(block.units, by_h, at(job, r->grad_result, place));
        if (r->gru) {
            job->functions->gru_back(block.units, kept, hidden, at(job, h_before(job, job->step), state), by_h, slopes);
        } else {
            job->functions->lstm_back(block.units, kept, hidden, at(job, c_before(job, job->step), state),
                                      at(job, r->cells, place), by_h, at(job, r->grad_c0, state), slopes);
        }
    }
}

static void grad_x_strip(const struct job *job, int64_t number, int64_t piece) {
    const struct recurrent *r = &job->r;
    int64_t column = piece * job->in;
    int64_t row = number * job->strip, rows = least(job->strip, r->n * r->batch - row);
    int64_t width = RECURRENT_KEPT * r->hidden;
    multiply(job, rows, least(job->in, r->in - column), r->gates * r->hidden, at(job, job->slopes, row * width), width,
             false, at(job, r->w_ih, column), r->in, false, at(job, r->grad_x, row * r->in + column), r->in, false);
}

/* Rows `row` on of the gradients by the weights; the sums so far are in the results. `slopes` is the column of the first of them. */
struct slice {
    int64_t row, rows, slopes, slopes_hh;
};

static struct slice slice_of(const struct job *job, int64_t number) {
    int64_t hidden = job->r.hidden, each = divided_up(hidden, SLICE), gate = number / each;
    int64_t unit = number % each * SLICE;
    return (struct slice){.row = gate * hidden + unit,
                          .rows = least(SLICE, hidden - unit),
                          .slopes = gate * hidden + unit,
                          .slopes_hh = (job->r.gru && gate == 2 ? 3 : gate) * hidden + unit};
}

/* The slopes of some steps and images more; `sums` keeps what has been added up. */
static void bias_sums(const struct job *job, int64_t piece, double *sums, int64_t rows, int64_t column, void *to,
                      int64_t at_row) {
    int64_t width = RECURRENT_KEPT * job->r.hidden, all = job->r.n * job->r.batch;
    int64_t begin = piece * SUMMED, end = least(begin + SUMMED, all);
    for (int64_t i = 0; i < rows && piece == 0; i++) {
        sums[i] = 0;
    }
    for (int64_t i = begin; i < end; i++) {
        job->functions->collect(rows, sums, at(job, job->slopes, i * width + column));
    }
    for (int64_t i = 0; i < rows && end == all; i++) {
        if (job->is_f64) {
            *(double *)(void *)at(job, to, at_row + i) = sums[i];
        } else {
            *(float *)(void *)at(job, to, at_row + i) = (float)sums[i];
        }
    }
}

/* Pieces of a slice: products of slopes with x, with h0, with the states behind it, and sums. */
static int64_t weights_pieces(const struct job *job) {
    int64_t all = job->r.n * job->r.batch, depth = job->depth;
    return divided_up(all, depth) + divided_up(job->r.batch, depth) + divided_up(all - job->r.batch, depth) +
           divided_up(all, SUMMED);
}

/* Products of slopes with x, or with the states before, job->depth of them, or sums of slopes. The first states before are h0, with
 * which the first step's slopes are multiplied; all others are results. */
static void weights_piece(const struct job *job, const struct slice *slice, int64_t piece, double *sums) {
    const struct recurrent *r = &job->r;
    int64_t all = r->n * r->batch, pieces = divided_up(all, job->depth), rest = all - r->batch,
            width = RECURRENT_KEPT * r->hidden;
    if (piece < pieces) {
        int64_t first = piece * job->depth, depth = least(job->depth, all - first);
        multiply(job, slice->rows, r->in, depth, at(job, job->slopes, first * width + slice->slopes), width, true,
                 at(job, r->x, first * r->in), r->in, false, at(job, r->grad_w_ih, slice->row * r->in), r->in,
                 piece > 0);
        return;
    }
    piece -= pieces;
    char *to = at(job, r->grad_w_hh, slice->row * r->hidden);
    pieces = divided_up(r->batch, job->depth);
    if (piece < pieces) {
        int64_t image = piece * job->depth, first = recurrent_at(r, 0) * r->batch + image;
        multiply(job, slice->rows, r->hidden, least(job->depth, r->batch - image),
                 at(job, job->slopes, first * width + slice->slopes_hh), width, true, at(job, r->h0, image * r->hidden),
                 r->hidden, false, to, r->hidden, piece > 0);
        return;
    }
    piece -= pieces;
    pieces = divided_up(rest, job->depth);
    if (piece >= pieces) {
        bias_sums(job, piece - pieces, sums, slice->rows, slice->slopes, r->grad_b_ih, slice->row);
        if (r->gru) {
            bias_sums(job, piece - pieces, sums + SLICE, slice->rows, slice->slopes_hh, r->grad_b_hh, slice->row);
        }
        return;
    }
    int64_t first = piece * job->depth, depth = least(job->depth, rest - first);
    int64_t slopes = r->reverse ? first : first + r->batch, states = r->reverse ? first + r->batch : first;
    multiply(job, slice->rows, r->hidden, depth, at(job, job->slopes, slopes * width + slice->slopes_hh), width, true,
             at(job, r->result, states * r->hidden), r->hidden, false, to, r->hidden, true);
}

/* ---- rounds ---- */

static void thing_piece(const struct job *job, int64_t number, int64_t piece, double *sums) {
    switch (job->round) {
    case ROUND_INPUT:
        input_strip(job, number, piece);
        break;
    case ROUND_GRAD_X:
        grad_x_strip(job, number, piece);
        break;
    case ROUND_GRAD_WEIGHTS: {
        const struct slice slice = slice_of(job, number);
        weights_piece(job, &slice, piece, sums);
        break;
    }
    case ROUND_COPIES:
        copies_piece(job, number);
        break;
    default:
        (job->r.back ? step_back_block : step_block)(job, number);
        break;
    }
}

/* lane->position counts the pieces of all things of the part. */
static bool things_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    double own[2 * SLICE], *sums = lane->state ? lane->state : own;
    int64_t first = cpu_part_begin(job->things, lane->part, base->parts);
    int64_t end = (cpu_part_begin(job->things, lane->part + 1, base->parts) - first) * job->pieces;
    for (int64_t i = lane->position; i < end; i++) {
        thing_piece(job, first + i / job->pieces, i % job->pieces, sums);
        if (i + 1 < end && cpu_job_stops(base)) {
            lane->position = i + 1;
            return false;
        }
    }
    return true;
}

static void round_begin(struct job *job, enum round round) {
    const struct recurrent *r = &job->r;
    double gates = (double)(r->gates * r->hidden), steps = (double)r->n * (double)r->batch, work;
    job->round = round;
    job->pieces = 1;
    if (round == ROUND_COPIES) {
        job->things = copies_pieces(job);
        work = (double)job->things * COPIED * 16 / (double)job->size;
    } else if (round == ROUND_INPUT || round == ROUND_GRAD_X) {
        job->things = job->strips;
        job->pieces = round == ROUND_INPUT ? divided_up(r->gates * r->hidden, job->gates) : divided_up(r->in, job->in);
        job->pieces = job->pieces > 0 ? job->pieces : 1;
        work = steps * gates * (double)r->in;
    } else if (round == ROUND_GRAD_WEIGHTS) {
        job->things = r->gates * divided_up(r->hidden, SLICE);
        job->pieces = weights_pieces(job);
        work = steps * gates * (double)(r->in + r->hidden);
    } else {
        job->things = job->row_blocks * job->unit_blocks;
        work = (double)r->batch * (gates * (double)r->hidden + (double)r->hidden * 256);
    }
    /* As bytes of memory traffic: some 4 multiplications take as long as moving a byte. */
    job->base.parts = cpu_parts(job->base.cpu, work * (double)job->size / 16);
    job->base.parts = job->things < job->base.parts ? (unsigned)job->things : job->base.parts;
}

static bool rounds_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    const struct recurrent *r = &job->r;
    if (!r->back) {
        job->step += job->round == ROUND_STEP;
        bool copied = job->round == ROUND_COPIES;
        if (job->step < r->n) {
            round_begin(job, ROUND_STEP);
        } else if (!copied) {
            round_begin(job, ROUND_COPIES);
        }
        return !copied;
    }
    if (job->round == ROUND_STEP) { /* step -1 is the state before the first one */
        job->step--;
        round_begin(job, job->step >= -1 ? ROUND_STEP : ROUND_GRAD_X);
        return true;
    }
    if (job->round == ROUND_GRAD_X) {
        round_begin(job, ROUND_GRAD_WEIGHTS);
        return true;
    }
    return false;
}

/* Backward through no steps, or of no images: the gradients by the states are those that are given, and all others 0. */
static int empty_run(struct job *job, struct cpu_job **begun) {
    const struct recurrent *r = &job->r;
    int64_t gates = r->gates * r->hidden, state = r->batch * r->hidden;
    copy_add(job, r->grad_w_ih, NULL, gates * r->in);
    copy_add(job, r->grad_w_hh, NULL, gates * r->hidden);
    copy_add(job, r->grad_b_ih, NULL, gates);
    if (r->gru) {
        copy_add(job, r->grad_b_hh, NULL, gates);
    }
    copy_add(job, r->grad_h0, r->grad_h_n, state);
    if (!r->gru) {
        copy_add(job, r->grad_c0, r->grad_c_n, state);
    }
    job->base.again = NULL;
    round_begin(job, ROUND_COPIES);
    cpu_job_begin(&job->base, sizeof *job, (double)job->things * COPIED, begun);
    return STATUS_OK;
}

/* As many of `most` as have the work if one has `each`, a multiple of `step` unless it is all. */
static int64_t extent(double work, double each, int64_t step, int64_t most) {
    double all = each * (double)most;
    if (all <= work) {
        return most > 0 ? most : 1;
    }
    int64_t some = (int64_t)(work / each) / step * step;
    return least(some > step ? some : step, most);
}

static void job_blocks(struct job *job) {
    const struct recurrent *r = &job->r;
    job->units = divided_up(divided_up(r->hidden, BLOCKS), BLOCK_UNITS) * BLOCK_UNITS;
    job->units = extent(BLOCK_WORK, (double)BLOCK_ROWS * (double)(r->gates * r->hidden), BLOCK_UNITS, job->units);
    job->unit_blocks = divided_up(r->hidden, job->units);
    job->row_blocks = divided_up(r->batch, BLOCK_ROWS);
    double rows = (double)STRIP_WORK / ((double)(r->gates * r->hidden) * (double)r->in);
    int64_t all = r->n * r->batch;
    job->strip = rows < (double)all ? (int64_t)rows / STRIP_ROWS * STRIP_ROWS : all;
    job->strip = job->strip > STRIP_ROWS ? job->strip : STRIP_ROWS;
    int64_t most = divided_up(divided_up(all, BLOCKS), STRIP_ROWS) * STRIP_ROWS; /* so that threads can share */
    job->strip = job->strip < most || most == 0 ? job->strip : most;
    job->strips = divided_up(all, job->strip);
    /* A strip with the least rows may have more work: then it is computed in pieces. */
    int64_t gates = r->gates * r->hidden, widest = r->in > r->hidden ? r->in : r->hidden;
    job->gates = extent(2.0 * STRIP_WORK, (double)job->strip * (double)r->in, SLICE, gates);
    job->in = extent(2.0 * STRIP_WORK, (double)job->strip * (double)gates, SLICE, r->in);
    job->depth = extent(2.0 * STRIP_WORK, (double)SLICE * (double)widest, SLICE, DEPTH);
}

static int recurrent_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job = {
        .base = {.cpu = cpu, .run = things_part, .again = rounds_again, .lane_bytes = 2 * SLICE * sizeof(double)},
        .blas = &cpu->blas,
        .r = recurrent_make(launch)};
    const struct recurrent *r = &job.r;
    (void)fault;
    job.is_f64 = launch->output.dtype == DTYPE_F64;
    job.size = job.is_f64 ? 8 : 4;
    job.functions = &cpu->kernels->recurrent[job.is_f64];
    job.slopes = launch->workspace;
    job_blocks(&job);
    if (r->back && (r->n == 0 || r->batch == 0)) {
        return empty_run(&job, begun);
    }
    job.step = r->back ? r->n - 1 : 0;
    if (!r->back) {
        forward_copies(&job);
    }
    round_begin(&job, r->back ? ROUND_STEP : ROUND_INPUT);
    double work = (double)r->n * (double)r->batch * (double)(r->gates * r->hidden) * (double)(r->in + r->hidden);
    work *= (double)job.size / 16 * (r->back ? 2 : 1);
    work += (double)copies_pieces(&job) * COPIED;
    /* A job has no more lanes than parts at its beginning, and other rounds have more to do. */
    unsigned parts = cpu_parts(cpu, work);
    parts = parts < cpu->team.threads ? parts : cpu->team.threads;
    job.base.parts = job.base.parts > parts ? job.base.parts : parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

static uint64_t recurrent_workspace(struct device *device, const struct launch *launch) {
    struct recurrent r = recurrent_make(launch);
    uint64_t size = launch->output.dtype == DTYPE_F64 ? 8 : 4;
    (void)device;
    return r.back ? (uint64_t)(r.n * r.batch * RECURRENT_KEPT * r.hidden) * size : 0;
}

static int recurrent_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    struct recurrent r = recurrent_make(launch);
    (void)device;
    return r.in <= INT_MAX && r.hidden <= INT_MAX / RECURRENT_KEPT
               ? STATUS_OK
               : fault_set(fault, STATUS_UNSUPPORTED,
                           "a cpu device's recurrent layers have less than 2^31 gates and inputs");
}

static int recurrent_needs(struct device *device, enum dtype dtype, struct fault *fault) {
    (void)dtype;
    return cpu_needs_blas((struct cpu *)device, fault);
}

#define RECURRENT                                                                                                      \
    { {.needs = recurrent_needs, .accepts = recurrent_accepts, .workspace = recurrent_workspace}, recurrent_run }
const struct cpu_kernel cpu_kernel_lstm = RECURRENT;
const struct cpu_kernel cpu_kernel_lstm_grad = RECURRENT;
const struct cpu_kernel cpu_kernel_gru = RECURRENT;
const struct cpu_kernel cpu_kernel_gru_grad = RECURRENT;
