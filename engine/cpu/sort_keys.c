/* sort and argsort with vectors, where the processor has them (rows_sort.c): elements become keys, which are sorted by value alone, for
 * equal keys do not differ. An argsort's keys contain the positions. Equal elements that differ are zeros and NaN: where there may be
 * some, they are at last written again in their order, which makes the sort stable.
 *
 * Short rows are sorted one by one, by one thread each. A long row is cut into chunks, which are sorted; then there are rounds in which
 * neighbours are merged, each piece of the result by itself. A set of keys has one order, so it does not matter how the row is cut. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/key.h"
#include "engine/cpu/sort.h"
#include "engine/cpu/sort_rows.h"

enum {
    ROW_MOST = 1 << 14,    /* a row of more elements is sorted by all threads, unless there are many rows */
    ROWS_MOST = 1 << 17,   /* a row of more elements is sorted by all threads */
    CHUNK = 1 << 13,       /* elements of a chunk, at least */
    CHUNK_MOST = 1 << 21,  /* bytes of its keys, at most: that takes some two milliseconds */
    ELEMENT_WORK = 1 << 5, /* an element of a short row, as bytes of memory traffic */
    LINE = 64,
};

/* Of a chunk: whether elements must be restored, and then how many zeros and NaN it has or, afterwards, where they go. */
struct special {
    bool any;
    int64_t zero, nan;
};

struct job {
    struct cpu_job base;
    const struct cpu_sort *sort;
    uint64_t infinity, flip, zero; /* zero: its key */
    const char *x;
    char *out;
    int64_t rows, n, inner, size, out_size;
    char *workspace; /* NULL: keys are sorted in `out` */
    /* of a long row */
    int64_t row, chunks;
    int64_t width; /* chunks in each run that is in order */
    char *keys[2];
    bool second;             /* the runs are in keys[1] */
    struct special *special; /* of each chunk */
};

static size_t rounded(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

static int64_t row_begin(const struct job *job, int64_t row) {
    return row / job->inner * job->n * job->inner + row % job->inner;
}

static const char *row_x(const struct job *job, int64_t row, int64_t at) {
    return job->x + (row_begin(job, row) + at * job->inner) * job->size;
}

static char *row_out(const struct job *job, int64_t row, int64_t at) {
    return job->out + (row_begin(job, row) + at * job->inner) * job->out_size;
}

/* Where zeros and NaN begin in a row of the result. */
static struct special row_special(const struct job *job, int64_t row) {
    int64_t begin[2];
    for (int i = 0; i < 2; i++) {
        begin[i] = job->sort->below(job->infinity, job->flip, row_out(job, row, 0), job->inner, job->n,
                                    i ? UINT64_MAX : job->zero);
    }
    return (struct special){true, begin[0], begin[1]};
}

/* ---- short rows ---- */

static void row_sort(const struct cpu_job *base, int64_t row, char *keys) {
    const struct job *job = (const struct job *)base;
    const struct cpu_sort *sort = job->sort;
    const char *x = row_x(job, row, 0);
    char *out = row_out(job, row, 0);
    keys = keys ? keys : out;
    bool special = sort->load(job->infinity, job->flip, x, job->inner, 0, job->n, keys);
    sort->sort(keys, job->n);
    sort->store(job->flip, keys, job->n, out, job->inner);
    if (special) {
        struct special at = row_special(job, row);
        sort->restore(job->infinity, x, job->inner, job->n, out, job->inner, &at.zero, &at.nan);
    }
}

static bool rows_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    char *keys =
        job->workspace ? job->workspace + (size_t)lane->part * rounded((size_t)(job->n * job->sort->size)) : NULL;
    return sort_rows(base, lane, job->rows, job->n, ROW_MOST, row_sort, keys);
}

/* ---- long rows: rounds of all threads ---- */

static int64_t chunk_begin(const struct job *job, int64_t chunk) {
    return cpu_part_begin(job->n, chunk, (unsigned)job->chunks);
}

/* Keys `begin` to `end` - 1 of the row are where they stay. */
static void piece_store(const struct job *job, const char *keys, int64_t begin, int64_t end) {
    job->sort->store(job->flip, keys + begin * job->sort->size, end - begin, row_out(job, job->row, begin), job->inner);
}

static bool sort_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t begin = chunk_begin(job, lane->part), end = chunk_begin(job, lane->part + 1);
    char *keys = job->keys[job->second];
    char *at = keys + begin * job->sort->size;
    job->special[lane->part] =
        (struct special){.any = job->sort->load(job->infinity, job->flip, row_x(job, job->row, begin), job->inner,
                                                begin, end - begin, at)};
    job->sort->sort(at, end - begin);
    if (job->chunks == 1) {
        piece_store(job, keys, begin, end);
    }
    return true;
}

/* As much of the merged runs as a chunk. */
static bool merge_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t first = lane->part / (2 * job->width) * 2 * job->width, size = job->sort->size;
    int64_t a = chunk_begin(job, first), b = chunk_begin(job, first + job->width),
            end = chunk_begin(job, first + 2 * job->width);
    int64_t piece = chunk_begin(job, lane->part), piece_end = chunk_begin(job, lane->part + 1);
    const char *from = job->keys[job->second];
    char *to = job->keys[!job->second];
    job->sort->merge(from + a * size, b - a, from + b * size, end - b, piece - a, piece_end - a, to + piece * size);
    if (2 * job->width == job->chunks) {
        piece_store(job, to, piece, piece_end);
    }
    return true;
}

static bool count_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t begin = chunk_begin(job, lane->part), end = chunk_begin(job, lane->part + 1);
    struct special *special = &job->special[lane->part];
    job->sort->restore(job->infinity, row_x(job, job->row, begin), job->inner, end - begin, NULL, job->inner,
                       &special->zero, &special->nan);
    return true;
}

static bool restore_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t begin = chunk_begin(job, lane->part), end = chunk_begin(job, lane->part + 1);
    struct special *special = &job->special[lane->part];
    job->sort->restore(job->infinity, row_x(job, job->row, begin), job->inner, end - begin, row_out(job, job->row, 0),
                       job->inner, &special->zero, &special->nan);
    return true;
}

static bool special_any(const struct job *job) {
    bool any = false;
    for (int64_t chunk = 0; chunk < job->chunks; chunk++) {
        any |= job->special[chunk].any;
    }
    return any;
}

/* Counts of chunks become the places of their first zeros and NaN. */
static void special_place(const struct job *job) {
    struct special next = row_special(job, job->row);
    for (int64_t chunk = 0; chunk < job->chunks; chunk++) {
        struct special counted = job->special[chunk];
        job->special[chunk] = next;
        next.zero += counted.zero;
        next.nan += counted.nan;
    }
}

/* The first round of a row. The last round but those of special elements must end in keys[1]. */
static void long_first(struct job *job) {
    job->base.run = sort_part;
    job->width = 1;
    job->second = __builtin_ctzll((unsigned long long)job->chunks) % 2 == 0;
}

/* The round after the one that has ended. */
static bool long_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    if (base->run == merge_part) {
        job->width *= 2;
        job->second = !job->second;
    }
    if (base->run == count_part) {
        special_place(job);
        base->run = restore_part;
    } else if (base->run != restore_part && job->width < job->chunks) {
        base->run = merge_part;
    } else if (base->run != restore_part && special_any(job)) {
        base->run = count_part;
    } else if (++job->row < job->rows) {
        long_first(job);
    } else {
        return false;
    }
    return true;
}

/* ---- launches ---- */

const struct cpu_sort *cpu_sort_find(const struct cpu *cpu, const struct launch *launch) {
    const struct cpu_sort *sorts = launch->opcode == OP_ARGSORT ? cpu->kernels->argsort : cpu->kernels->sort;
    const struct cpu_sort *sort = &sorts[key_place((enum dtype)launch->inputs[0].dtype)];
    return sort->sort ? sort : NULL;
}

/* Whether rows are sorted by all threads together. */
static bool is_long(const struct cpu *cpu, const struct operand *x) {
    int64_t n = x->shape[1], rows = x->shape[0] * x->shape[2];
    return n > ROWS_MOST || (n > ROW_MOST && rows < (int64_t)cpu->team.threads);
}

/* A power of two. */
static int64_t chunks_of(const struct cpu *cpu, int64_t n, int64_t size) {
    int64_t chunks = 1;
    while (n / chunks * size > CHUNK_MOST || (chunks < (int64_t)cpu->team.threads && n / (2 * chunks) >= CHUNK)) {
        chunks *= 2;
    }
    return chunks;
}

/* Rows that are sorted one by one, at a time. */
static unsigned row_parts(const struct cpu *cpu, const struct operand *x) {
    int64_t rows = x->shape[0] * x->shape[2];
    unsigned parts = cpu_parts(cpu, (double)rows * (double)x->shape[1] * ELEMENT_WORK);
    parts = parts < cpu->team.threads ? parts : cpu->team.threads;
    return rows < (int64_t)parts ? (unsigned)rows : parts;
}

/* Whether keys have the places of the elements that they become. */
static bool is_direct(const struct cpu_sort *sort, const struct launch *launch) {
    return launch->inputs[0].shape[2] == 1 && (int64_t)dtype_size((enum dtype)launch->output.dtype) == sort->size;
}

uint64_t cpu_sort_workspace(const struct cpu *cpu, const struct cpu_sort *sort, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    size_t keys = rounded((size_t)(x->shape[1] * sort->size));
    bool direct = is_direct(sort, launch);
    if (!is_long(cpu, x)) {
        return direct ? 0 : keys * row_parts(cpu, x);
    }
    return (size_t)chunks_of(cpu, x->shape[1], sort->size) * sizeof(struct special) + (direct ? 1 : 2) * keys;
}

void cpu_sort_begin(struct cpu *cpu, const struct cpu_sort *sort, const struct launch *launch, struct cpu_job **begun) {
    const struct operand *x = &launch->inputs[0];
    enum dtype dtype = (enum dtype)x->dtype;
    struct sort_attributes attributes; /* argsort has the same */
    sort_attributes_read(&launch->attributes, &attributes);
    struct job job = {.base = {.cpu = cpu, .run = rows_part, .parts = row_parts(cpu, x)},
                      .sort = sort,
                      .infinity = key_infinity(dtype),
                      .flip = attributes.descending ? ~UINT64_C(0) : 0,
                      .zero = UINT64_C(1) << (8 * dtype_size(dtype) - 1),
                      .x = x->data,
                      .out = launch->output.data,
                      .rows = x->shape[0] * x->shape[2],
                      .n = x->shape[1],
                      .inner = x->shape[2],
                      .size = (int64_t)dtype_size(dtype),
                      .out_size = (int64_t)dtype_size((enum dtype)launch->output.dtype),
                      .workspace = launch->workspace};
    bool direct = is_direct(job.sort, launch);
    if (is_long(cpu, x)) {
        size_t keys = rounded((size_t)(job.n * job.sort->size));
        job.chunks = chunks_of(cpu, job.n, job.sort->size);
        job.keys[0] = job.workspace;
        job.keys[1] = direct ? job.out : job.workspace + keys;
        job.special = (struct special *)(void *)(job.workspace + (direct ? 1 : 2) * keys);
        job.base.parts = (unsigned)job.chunks;
        job.base.again = long_again;
        long_first(&job);
    } else if (direct) {
        job.workspace = NULL;
    }
    cpu_job_begin(&job.base, sizeof job, (double)job.rows * (double)job.n * ELEMENT_WORK, begun);
}
