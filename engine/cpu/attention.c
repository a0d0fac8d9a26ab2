/* Attention in blocks: of up to ROWS rows of q and KEYS keys the scores are in a thread's workspace, and nothing else of the n by m numbers is in memory.
 *
 * Forward: a row's maximum so far is subtracted in exponentials; where a block raises it, what has been summed is scaled down. Backward: from
 * logsumexp follow the parts of each block, and from these its share of the three gradients, which are added to in memory. A unit has a head
 * of k and v with all that share it; where there are few heads there are two rounds: units of keys for the gradients by k and v, and units of
 * rows for that by q.
 *
 * Of halves the blocks' rows and keys are converted to f32 in the workspace, and so are results and gradients, until all has been added to them.
 *
 * Keys that no row of a block sees are left out of its products, and those that a row does not see out of its exponentials.
 *
 * OpenBLAS multiplies small matrices fast where the right one lies row by row, and does not pack them; with AVX-512 that takes two thirds of the
 * time. So then, forward, the keys of a block are turned over, once for all row blocks that follow one another, and products are cut into such small
 * ones.
 *
 * Blocks and units depend on shapes alone, so the sums come out the same with any number of threads. */
#include "engine/device/attention.h"

#include "engine/cpu/cpu.h"

#include <limits.h>
#include <string.h>

enum {
    ROWS = 64, /* of a block, at most */
    KEYS = 256,
    BLOCK_WORK = 1 << 26, /* multiplications of one of its products, up to 2 ms: wide heads have smaller blocks */
    ZEROS = 1 << 20,      /* bytes between two looks whether to stop */
    UNITS_FEW = 16,       /* with fewer units a gradient takes two rounds */
    SMALL_WORK = 1000000, /* most multiplications of a product that OpenBLAS does not pack */
    PIECE = 16,           /* keys of a piece of a product, or a multiple */
    TURNED_WIDTH =
        256, /* most elements of a key that is turned over: of wider ones not even a piece is small enough to be worth it, */
    TURNED_ROWS = 16, /* nor of fewer rows */
};

enum round { ROUND_FORWARD, ROUND_WHOLE, ROUND_KEYS, ROUND_ROWS };

struct job {
    struct cpu_job base;
    const struct blas *blas;
    const struct cpu_attention *functions;
    struct attention a;
    enum round round;
    bool is_f64;
    int64_t size;                     /* of an element as it is computed with, */
    int64_t own_size;                 /* and of all operands but logsumexp and the mask */
    cpu_row_function *widen, *narrow; /* of halves, to f32 and back; else NULL */
    cpu_turn_function *turn;          /* of elements as they are computed with; NULL: this level has none */
    int64_t rows, keys;               /* of a block */
    int64_t row_blocks, key_blocks;
    int64_t units, blocks; /* of this round, and in a unit */
    bool turned;           /* forward: the keys are */
    unsigned threads;
    int64_t lane; /* bytes of a thread's workspace */
    char *workspace;
    double work;
};

/* A thread's workspace. */
struct room {
    double *maxima, *sums; /* of a unit's rows so far */
    char *parts, *slopes;  /* [ROWS][KEYS] each */
    int64_t *keys_number;  /* of the block of keys that is in `keys`, among those of all heads; -1: none */
    char *keys;            /* [d][KEYS], if they are turned over */
    char *more;            /* of halves: struct operands */
};

/* Where a block is: rows and keys from the first ones on. */
struct block {
    int64_t batch, head, kv_head;
    int64_t row, rows, key, keys;
    int64_t seen; /* by some of its rows: the first ones of its keys */
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

static struct room room_of(const struct job *job, const struct cpu_lane *lane) {
    char *at = job->workspace + (int64_t)lane->number * job->lane;
    struct room room = {.maxima = (double *)(void *)at};
    room.sums = room.maxima + ROWS;
    room.parts = (char *)(room.sums + ROWS);
    room.slopes = room.parts + ROWS * KEYS * job->size;
    room.keys_number = (int64_t *)(void *)(room.slopes + ROWS * KEYS * job->size);
    room.keys = (char *)room.keys_number + 64;
    room.more = room.keys + (job->turned ? job->a.d * KEYS * job->size : 0);
    return room;
}

/* ---- where things are ---- */

static char *at_row(const struct job *job, const void *from, const struct block *block, int64_t width) {
    int64_t row = (block->batch * job->a.heads + block->head) * job->a.n + block->row;
    return (char *)(uintptr_t)from + row * width * job->own_size;
}

static char *at_key(const struct job *job, const void *from, const struct block *block, int64_t width) {
    int64_t key = (block->batch * job->a.kv_heads + block->kv_head) * job->a.m + block->key;
    return (char *)(uintptr_t)from + key * width * job->own_size;
}

static char *at_logsumexp(const struct job *job, const void *from, const struct block *block) {
    int64_t row = (block->batch * job->a.heads + block->head) * job->a.n + block->row;
    return (char *)(uintptr_t)from + row * job->size;
}

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

/* How many of the block's keys a row sees: the first ones. */
static int64_t row_seen(const struct job *job, const struct block *block, int64_t row) {
    int64_t seen = job->a.causal ? block->row + row + 1 - block->key : block->seen;
    return seen < 0 ? 0 : least(seen, block->seen);
}

static int64_t keys_number(const struct job *job, const struct block *block) {
    return (block->batch * job->a.kv_heads + block->kv_head) * job->key_blocks + block->key / job->keys;
}

/* Whether the block is the first one of its keys, or the last one, backward; and the last one of its rows. */
static bool block_first(const struct job *job, const struct block *block) {
    return block->head == block->kv_head * job->a.group && block->row == 0;
}

static bool block_ends_keys(const struct job *job, const struct block *block) {
    return block->head == (block->kv_head + 1) * job->a.group - 1 && block->row + block->rows == job->a.n;
}

static bool block_ends_rows(const struct job *job, const struct block *block) {
    return block->key + block->keys == job->a.m;
}

/* A block's rows and keys of all operands, as they are computed with. */
struct operands {
    char *q, *k, *v, *gradient, *result; /* forward `result` is written */
    char *by_q, *by_k, *by_v;
};

/* Their places in a thread's workspace, of halves, which takes *bytes. */
static struct operands operands_place(const struct job *job, char *at, int64_t *bytes) {
    const struct attention *a = &job->a;
    bool back = a->back, whole = job->round == ROUND_WHOLE;
    struct operands o;
    const struct {
        char **place;
        int64_t elements;
    } all[] = {{&o.q, job->rows * a->d},
               {&o.k, job->keys * a->d},
               {&o.v, job->keys * a->e},
               {&o.result, job->rows * a->e},
               {&o.gradient, back ? job->rows * a->e : 0},
               {&o.by_k, back ? job->keys * a->d : 0},
               {&o.by_v, back ? job->keys * a->e : 0},
               {&o.by_q, !back   ? 0
                         : whole ? a->group * a->n * a->d
                                 : job->rows * a->d}};
    *bytes = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].place = at ? at + *bytes : NULL;
        *bytes += (all[i].elements * job->size + 63) & ~INT64_C(63);
    }
    return o;
}

static void convert(cpu_row_function *cast, int64_t n, const char *from, char *to) {
    cast(&(struct cpu_row){n, {to, (char *)(uintptr_t)from}, {1, 1}});
}

/* The rows stay for all blocks of a unit, or the keys for all that follow one another. */
static struct operands operands_halves(const struct job *job, const struct block *block, const struct room *room,
                                       bool none) {
    const struct attention *a = &job->a;
    int64_t bytes;
    struct operands o = operands_place(job, room->more, &bytes);
    bool by_rows = job->round == ROUND_FORWARD || job->round == ROUND_ROWS;
    if (by_rows ? block->key == 0 : !none) {
        convert(job->widen, block->rows * a->d, at_row(job, a->q, block, a->d), o.q);
        if (a->back) {
            convert(job->widen, block->rows * a->e, at_row(job, a->gradient, block, a->e), o.gradient);
            convert(job->widen, block->rows * a->e, at_row(job, a->result, block, a->e), o.result);
        }
    }
    if (by_rows ? !none : block_first(job, block)) {
        if (!job->turned || *room->keys_number != keys_number(job, block)) {
            convert(job->widen, block->keys * a->d, at_key(job, a->k, block, a->d), o.k);
        }
        convert(job->widen, block->keys * a->e, at_key(job, a->v, block, a->e), o.v);
    }
    if (job->round == ROUND_WHOLE) {
        o.by_q += ((block->head - block->kv_head * a->group) * a->n + block->row) * a->d * job->size;
    }
    return o;
}

static struct operands operands_of(const struct job *job, const struct block *block, const struct room *room,
                                   bool none) {
    const struct attention *a = &job->a;
    if (job->widen) {
        return operands_halves(job, block, room, none);
    }
    struct operands o = {.q = at_row(job, a->q, block, a->d),
                         .k = at_key(job, a->k, block, a->d),
                         .v = at_key(job, a->v, block, a->e),
                         .result = at_row(job, a->back ? a->result : a->out[0], block, a->e)};
    if (a->back) {
        o.gradient = at_row(job, a->gradient, block, a->e);
        o.by_q = at_row(job, a->out[0], block, a->d);
        o.by_k = at_key(job, a->out[1], block, a->d);
        o.by_v = at_key(job, a->out[2], block, a->e);
    }
    return o;
}

/* ---- products ---- */

/* c (m, n) = factor · a · b, or it is added to c. Rows of a transposed a are its columns; so of b. */
static void multiply(const struct job *job, int64_t m, int64_t n, int64_t k, double factor, const void *a,
                     int64_t a_row, bool a_across, const void *b, int64_t b_row, bool b_across, void *c, int64_t c_row,
                     bool add) {
    CBLAS_TRANSPOSE left = a_across ? CblasTrans : CblasNoTrans, right = b_across ? CblasTrans : CblasNoTrans;
    if (job->is_f64) {
        job->blas->dgemm(CblasRowMajor, left, right, (int)m, (int)n, (int)k, factor, a, (int)a_row, b, (int)b_row,
                         add ? 1 : 0, c, (int)c_row);
    } else {
        job->blas->sgemm(CblasRowMajor, left, right, (int)m, (int)n, (int)k, (float)factor, a, (int)a_row, b,
                         (int)b_row, add ? 1 : 0, c, (int)c_row);
    }
}

/* Keys of a piece of a product with so many multiplications for each of them. */
static int64_t piece_keys(const struct job *job, int64_t each, int64_t keys) {
    int64_t piece = job->turned && each > 0 ? SMALL_WORK / each / PIECE * PIECE : 0;
    return piece > 0 ? piece : keys;
}

#define TURN(name, T)                                                                                                  \
    static void name(const char *in, int64_t rows, int64_t columns, char *out) {                                       \
        for (int64_t row = 0; row < rows; row++) {                                                                     \
            for (int64_t column = 0; column < columns; column++) {                                                     \
                ((T *)(void *)out)[column * KEYS + row] = ((const T *)(const void *)in)[row * columns + column];       \
            }                                                                                                          \
        }                                                                                                              \
    }
TURN(turn_f32, float)
TURN(turn_f64, double)

/* The block's keys into room->keys, if they are not there yet. */
static void keys_turn(const struct job *job, const struct block *block, const char *k, const struct room *room) {
    int64_t number = keys_number(job, block), d = job->a.d, vector = 64 / job->size;
    if (*room->keys_number == number) {
        return;
    }
    *room->keys_number = number;
    if (block->keys % vector != 0 || d % vector != 0) {
        (job->is_f64 ? turn_f64 : turn_f32)(k, block->keys, d, room->keys);
        return;
    }
    for (int64_t key = 0; key < block->keys; key += vector) {
        for (int64_t at = 0; at < d; at += vector) {
            job->turn(k + (key * d + at) * job->size, d * job->size, room->keys + (at * KEYS + key) * job->size,
                      KEYS * job->size);
        }
    }
}

/* ---- scores ---- */

static void mask_row(const struct job *job, const struct block *block, int64_t row, int64_t n, char *scores) {
    const struct operand *mask = job->a.mask;
    int64_t at = block->batch * mask->strides[0] + block->head * mask->strides[1] +
                 (block->row + row) * mask->strides[2] + block->key * mask->strides[3];
    if (mask->dtype == DTYPE_BOOL) {
        job->functions->hide(n, scores, (const uint8_t *)mask->data + at, mask->strides[3]);
    } else if (dtype_size((enum dtype)mask->dtype) < (size_t)job->size) {
        float values[KEYS];
        char *halves = (char *)mask->data + at * (int64_t)dtype_size((enum dtype)mask->dtype);
        job->widen(&(struct cpu_row){n, {(char *)values, halves}, {1, mask->strides[3]}});
        job->functions->add(n, scores, values, 1);
    } else {
        job->functions->add(n, scores, (const char *)mask->data + at * job->size, mask->strides[3]);
    }
}

/* scale · q · kᵀ of the keys of a block that are seen, with the mask. */
static void block_scores(const struct job *job, const struct block *block, const struct operands *o,
                         const struct room *room) {
    const struct attention *a = &job->a;
    char *scores = room->parts;
    if (job->turned) {
        int64_t piece = piece_keys(job, block->rows * a->d, block->seen);
        keys_turn(job, block, o->k, room);
        for (int64_t key = 0; key < block->seen; key += piece) {
            multiply(job, block->rows, least(piece, block->seen - key), a->d, a->scale, o->q, a->d, false,
                     room->keys + key * job->size, KEYS, false, scores + key * job->size, KEYS, false);
        }
    } else {
        multiply(job, block->rows, block->seen, a->d, a->scale, o->q, a->d, false, o->k, a->d, true, scores, KEYS,
                 false);
    }
    for (int64_t row = 0; row < block->rows && a->mask; row++) {
        mask_row(job, block, row, row_seen(job, block, row), scores + row * KEYS * job->size);
    }
}

/* The exponentials of a row's scores, less `shift`; of keys that it does not see 0. Returns their sum. */
static double row_exponentials(const struct job *job, const struct block *block, int64_t row, char *line,
                               double shift) {
    int64_t seen = row_seen(job, block, row);
    memset(line + seen * job->size, 0, (size_t)((block->seen - seen) * job->size));
    return job->functions->exponentials(seen, line, shift);
}

/* ---- forward ---- */

static void block_forward(const struct job *job, const struct block *block, const struct room *room) {
    const struct attention *a = &job->a;
    const struct cpu_attention *functions = job->functions;
    const struct operands o = operands_of(job, block, room, false);
    bool first = block->key == 0;
    block_scores(job, block, &o, room);
    for (int64_t row = 0; row < block->rows; row++) {
        char *line = room->parts + row * KEYS * job->size;
        double before = first ? -INFINITY : room->maxima[row],
               maximum = functions->maximum(row_seen(job, block, row), line);
        maximum = before > maximum ? before : maximum;
        /* Where a row has seen no key, exponentials of -inf are 0, and not of a difference of infinities. */
        double shift = maximum > -INFINITY ? maximum : 0;
        double sum = row_exponentials(job, block, row, line, shift), keep = first ? 0 : exp(before - shift);
        room->sums[row] = first ? sum : room->sums[row] * keep + sum;
        room->maxima[row] = maximum;
        if (!first && keep != 1) {
            functions->scale(a->e, o.result + row * a->e * job->size, keep);
        }
    }
    int64_t piece = piece_keys(job, block->rows * a->e, block->seen);
    for (int64_t key = 0; key < block->seen; key += piece) {
        multiply(job, block->rows, a->e, least(piece, block->seen - key), 1, room->parts + key * job->size, KEYS, false,
                 o.v + key * a->e * job->size, a->e, false, o.result, a->e, !first || key > 0);
    }
}

/* All keys have been seen. */
static void rows_finish(const struct job *job, const struct block *block, const struct room *room) {
    const struct attention *a = &job->a;
    int64_t bytes;
    char *own = at_row(job, a->out[0], block, a->e), *logsumexp = at_logsumexp(job, a->out[1], block);
    char *result = job->widen ? operands_place(job, room->more, &bytes).result : own;
    for (int64_t row = 0; row < block->rows; row++) {
        double sum = job->a.m > 0 ? room->sums[row] : 0;
        char *line = result + row * a->e * job->size;
        if (sum == 0) {
            memset(line, 0, (size_t)(a->e * job->size));
        } else {
            job->functions->scale(a->e, line, 1 / sum);
        }
        set(job, logsumexp, row, sum == 0 ? -INFINITY : room->maxima[row] + log(sum));
    }
    if (job->narrow) {
        convert(job->narrow, block->rows * a->e, result, own);
    }
}

/* ---- backward ---- */

static void block_parts(const struct job *job, const struct block *block, const struct operands *o,
                        const struct room *room) {
    const char *logsumexp = at_logsumexp(job, job->a.logsumexp, block);
    block_scores(job, block, o, room);
    for (int64_t row = 0; row < block->rows; row++) {
        char *line = room->parts + row * KEYS * job->size;
        double shift = element(job, logsumexp, row);
        if (shift > -INFINITY || isnan(shift)) {
            row_exponentials(job, block, row, line, shift);
        } else { /* it sees no key */
            memset(line, 0, (size_t)(block->seen * job->size));
        }
    }
}

static void block_slopes(const struct job *job, const struct block *block, const struct operands *o,
                         const struct room *room) {
    const struct attention *a = &job->a;
    multiply(job, block->rows, block->seen, a->e, 1, o->gradient, a->e, false, o->v, a->e, true, room->slopes, KEYS,
             false);
    for (int64_t row = 0; row < block->rows; row++) {
        int64_t at = row * a->e * job->size;
        double shift = job->functions->dot(a->e, o->gradient + at, o->result + at);
        job->functions->slopes(block->seen, room->slopes + row * KEYS * job->size, room->parts + row * KEYS * job->size,
                               shift, a->scale);
    }
}

/* by_q gets a block's share, as the first or one more. */
static void share_rows(const struct job *job, const struct block *block, const struct operands *o,
                       const struct room *room) {
    const struct attention *a = &job->a;
    bool first = block->key == 0;
    if (block->seen > 0) {
        multiply(job, block->rows, a->d, block->seen, 1, room->slopes, KEYS, false, o->k, a->d, false, o->by_q, a->d,
                 !first);
    } else if (first) {
        memset(o->by_q, 0, (size_t)(block->rows * a->d * job->size));
    }
}

/* So does c, by_k or by_v, of as many keys as are seen; as the first, the others get 0. */
static void share_keys(const struct job *job, const struct block *block, int64_t width, const char *parts,
                       const char *of_rows, char *c) {
    bool first = block_first(job, block);
    if (block->seen > 0) {
        multiply(job, block->seen, width, block->rows, 1, parts, KEYS, true, of_rows, width, false, c, width, !first);
    }
    if (first) {
        memset(c + block->seen * width * job->size, 0, (size_t)((block->keys - block->seen) * width * job->size));
    }
}

/* Gradients to which nothing more is added. */
static void block_narrow(const struct job *job, const struct block *block, const struct operands *o) {
    const struct attention *a = &job->a;
    if (job->round != ROUND_KEYS && block_ends_rows(job, block)) {
        convert(job->narrow, block->rows * a->d, o->by_q, at_row(job, a->out[0], block, a->d));
    }
    if (job->round != ROUND_ROWS && block_ends_keys(job, block)) {
        convert(job->narrow, block->keys * a->d, o->by_k, at_key(job, a->out[1], block, a->d));
        convert(job->narrow, block->keys * a->e, o->by_v, at_key(job, a->out[2], block, a->e));
    }
}

static void block_backward(const struct job *job, const struct block *block, const struct room *room) {
    const struct attention *a = &job->a;
    bool none = block->seen == 0;
    const struct operands o = operands_of(job, block, room, none);
    if (!none) {
        block_parts(job, block, &o, room);
        block_slopes(job, block, &o, room);
    }
    if (job->round != ROUND_KEYS) {
        share_rows(job, block, &o, room);
    }
    if (job->round != ROUND_ROWS) {
        share_keys(job, block, a->d, room->slopes, o.q, o.by_k);
        share_keys(job, block, a->e, room->parts, o.gradient, o.by_v);
    }
    if (job->narrow) {
        block_narrow(job, block, &o);
    }
}

/* ---- units ---- */

/* Block number `number` of a unit. */
static struct block block_of(const struct job *job, int64_t unit, int64_t number) {
    const struct attention *a = &job->a;
    struct block block = {.batch = 0};
    int64_t row, key, head;
    if (job->round == ROUND_FORWARD || job->round == ROUND_ROWS) { /* a unit: some rows of a head */
        row = unit % job->row_blocks;
        head = unit / job->row_blocks;
        key = number;
    } else { /* a unit: some keys, or all, of a head of k and v */
        int64_t keys = job->round == ROUND_KEYS ? job->key_blocks : 1;
        int64_t each = job->row_blocks * a->group, rest = number % each;
        key = unit % keys + number / each;
        head = unit / keys * a->group + rest / job->row_blocks;
        row = rest % job->row_blocks;
    }
    block.batch = head / a->heads;
    block.head = head % a->heads;
    block.kv_head = block.head / a->group;
    block.row = row * job->rows;
    block.rows = least(job->rows, a->n - block.row);
    block.key = key * job->keys;
    block.keys = least(job->keys, a->m - block.key);
    block.seen = a->causal ? least(block.keys, block.row + block.rows - block.key) : block.keys;
    block.seen = block.seen > 0 ? block.seen : 0;
    return block;
}

static void block_run(const struct job *job, const struct block *block, bool last, const struct room *room) {
    if (job->round != ROUND_FORWARD) {
        block_backward(job, block, room);
        return;
    }
    if (block->seen > 0) {
        block_forward(job, block, room);
    }
    if (last) {
        rows_finish(job, block, room);
    }
}

static bool units_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct room room = room_of(job, lane);
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts);
    int64_t number = lane->position % job->blocks;
    for (int64_t unit = begin + lane->position / job->blocks; unit < end; unit++) {
        for (; number < job->blocks; number++) {
            const struct block block = block_of(job, unit, number);
            bool last = number + 1 == job->blocks;
            block_run(job, &block, last, &room);
            if ((!last || unit + 1 < end) && cpu_job_stops(base)) {
                lane->position = (unit - begin) * job->blocks + number + 1;
                return false;
            }
        }
        number = 0;
    }
    return true;
}

/* ---- the job ---- */

static void job_round(struct job *job, enum round round) {
    const struct attention *a = &job->a;
    int64_t rows = a->batch * a->heads * job->row_blocks, heads = a->batch * a->kv_heads;
    job->round = round;
    job->units = round == ROUND_WHOLE ? heads : round == ROUND_KEYS ? heads * job->key_blocks : rows;
    job->blocks = round == ROUND_FORWARD || round == ROUND_ROWS ? job->key_blocks
                  : round == ROUND_KEYS                         ? job->row_blocks * a->group
                                                                : job->key_blocks * job->row_blocks * a->group;
    job->blocks = job->blocks > 0 ? job->blocks : 1;
    unsigned parts = cpu_parts(job->base.cpu, job->work), threads = job->base.cpu->team.threads;
    job->base.parts = job->units < parts ? (unsigned)job->units : parts;
    job->threads = job->base.parts < threads ? job->base.parts : threads;
    job->base.lanes_most = job->threads;
}

static bool rows_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    unsigned lanes = base->lanes_most, parts = base->parts;
    if (job->round != ROUND_KEYS) {
        return false;
    }
    job_round(job, ROUND_ROWS);
    base->lanes_most = lanes; /* which have their workspace */
    base->parts = job->base.turn ? base->parts : parts;
    return true;
}

static void job_blocks(struct job *job) {
    const struct attention *a = &job->a;
    double width = (double)(a->d > a->e ? a->d : a->e);
    job->rows = ROWS;
    job->keys = KEYS;
    while (width * (double)(job->rows * job->keys) > BLOCK_WORK && job->keys > 1) {
        int64_t *more = job->keys > job->rows ? &job->keys : &job->rows;
        *more /= 2;
    }
    job->row_blocks = divided_up(a->n, job->rows);
    job->key_blocks = divided_up(a->m, job->keys);
}

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    *job = (struct job){.base = {.cpu = cpu, .run = units_part}, .blas = &cpu->blas};
    struct attention *a = &job->a;
    *a = attention_make(launch);
    job->is_f64 = launch->output.dtype == DTYPE_F64;
    job->size = job->is_f64 ? 8 : 4;
    job->own_size = (int64_t)dtype_size((enum dtype)launch->output.dtype);
    if (job->own_size < job->size) {
        job->widen = cpu->kernels->cast[launch->output.dtype][DTYPE_F32];
        job->narrow = cpu->kernels->cast[DTYPE_F32][launch->output.dtype];
    }
    job->functions = &cpu->kernels->attention[job->is_f64];
    job_blocks(job);
    job->turn = cpu->kernels->turn[job->is_f64 ? 3 : 2];
    job->turned = job->turn && !a->back && a->n >= TURNED_ROWS && a->d <= TURNED_WIDTH;
    job->lane = 2 * ROWS * (int64_t)sizeof(double) + 2 * ROWS * KEYS * job->size + 64;
    job->lane += job->turned ? a->d * KEYS * job->size : 0;
    /* As bytes of memory traffic: some 4 multiplications take as long as moving a byte. */
    double scores = (double)(a->batch * a->heads) * (double)a->n * (double)a->m;
    job->work = scores * ((double)(a->d + a->e) * (double)job->size / 16 * (a->back ? 2.5 : 1) + 16);
    bool few = a->batch * a->kv_heads < UNITS_FEW && job->row_blocks > 1 && job->key_blocks > 1;
    job_round(job, !a->back ? ROUND_FORWARD : few ? ROUND_KEYS : ROUND_WHOLE);
    job->base.again = job->round == ROUND_KEYS ? rows_again : NULL;
    if (job->widen) {
        int64_t bytes;
        operands_place(job, NULL, &bytes);
        job->lane += bytes;
    }
}

static uint64_t attention_workspace(struct device *device, const struct launch *launch) {
    struct job job;
    job_init(&job, (struct cpu *)device, launch);
    return (uint64_t)job.lane * (job.threads > 0 ? job.threads : 1);
}

/* Without queries or keys all gradients are zeros: they are written piece by piece, as they may be long. */
static bool zeros_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    const struct attention *a = &job->a;
    const int64_t rows = a->batch * a->heads * a->n, keys = a->batch * a->kv_heads * a->m;
    const int64_t size = job->own_size, bytes[3] = {rows * a->d * size, keys * a->d * size, keys * a->e * size};
    for (int i = 0; i < 3; i++) {
        int64_t begin = cpu_part_begin(bytes[i], lane->part, base->parts);
        int64_t end = cpu_part_begin(bytes[i], lane->part + 1, base->parts);
        for (int64_t at = begin; at < end; at += ZEROS) {
            int64_t before =
                (int64_t)i << 48 | (at - begin); /* in the order of outputs, so lane->position only grows */
            if (before < lane->position) {
                continue;
            }
            memset((char *)a->out[i] + at, 0, (size_t)(end - at < ZEROS ? end - at : ZEROS));
            lane->position = before + 1;
            if (cpu_job_stops(base)) {
                return false;
            }
        }
    }
    return true;
}

static int zeros_run(struct job *job, struct cpu_job **begun) {
    const struct attention *a = &job->a;
    double rows = (double)(a->batch * a->heads) * (double)a->n, keys = (double)(a->batch * a->kv_heads) * (double)a->m;
    double work = (rows * (double)a->d + keys * (double)(a->d + a->e)) * (double)job->own_size;
    job->base = (struct cpu_job){.cpu = job->base.cpu, .run = zeros_part, .parts = cpu_parts(job->base.cpu, work)};
    cpu_job_begin(&job->base, sizeof *job, work, begun);
    return STATUS_OK;
}

static int attention_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job.workspace = launch->workspace;
    if (job.a.back && (job.a.n == 0 || job.a.m == 0 || job.a.heads == 0)) {
        return zeros_run(&job, begun);
    }
    for (unsigned i = 0; i < job.threads; i++) {
        *room_of(&job, &(struct cpu_lane){.number = i}).keys_number = -1;
    }
    if (cpu_job_keep(&job.base, sizeof job, job.work, begun)) {
        return STATUS_OK;
    }
    /* Each part has the workspace of one thread. */
    job.base.parts = job.threads;
    cpu_job_run(&job.base);
    return STATUS_OK;
}

static int attention_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    struct attention a = attention_make(launch);
    (void)device;
    return a.d <= INT_MAX && a.e <= INT_MAX
               ? STATUS_OK
               : fault_set(fault, STATUS_UNSUPPORTED, "a cpu device's heads have less than 2^31 elements");
}

static int attention_needs(struct device *device, enum dtype dtype, struct fault *fault) {
    (void)dtype;
    return cpu_needs_blas((struct cpu *)device, fault);
}

#define ATTENTION                                                                                                      \
    {                                                                                                                  \
        {.needs = attention_needs, .accepts = attention_accepts, .workspace = attention_workspace, .halves = true},    \
            attention_run                                                                                              \
    }
const struct cpu_kernel cpu_kernel_attention = ATTENTION;
const struct cpu_kernel cpu_kernel_attention_grad = ATTENTION;
