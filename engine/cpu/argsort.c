/* sort and argsort where sort_keys.c does not sort with vectors: radix sort by digits of eight bits, the lowest first, which is stable.
 * What is moved are the elements themselves, and with them their positions if these are wanted; keys are computed as elements are read.
 *
 * Short rows are sorted one by one, by one thread each. A long row is sorted by all threads: it is cut into chunks, and for each digit
 * there is a round in which the digits of each chunk are counted, and one in which the chunks are moved. What is in which chunk does not
 * depend on the number of threads, and the result does not depend on the chunks. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/key.h"
#include "engine/cpu/sort.h"
#include "engine/cpu/sort_rows.h"

#include <string.h>

enum {
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS,
    ROW_MOST = 1 << 15,  /* a row of more elements is sorted by all threads, unless there are many rows */
    ROWS_MOST = 1 << 17, /* a row of more elements is sorted by all threads */
    CHUNK = 1 << 14,     /* elements of a chunk, at least */
    CHUNKS = 64,         /* of a row, at most, unless they would have more elements than */
    CHUNK_MOST = 1 << 20,
    INSERTION_MOST = 48, /* a row of so many elements is sorted by insertion */
    LINE = 64,
};
static const int64_t axis_most = UINT32_MAX;

/* Elements and their positions on the axis; `positions` is NULL if they are not wanted. */
struct run {
    void *values;
    uint32_t *positions;
};

struct order {
    uint64_t infinity, flip;
};

struct functions {
    /* Counts each digit of n elements; `digits` of them, from the lowest one on. */
    void (*count)(const struct order *order, const void *values, int64_t n, int digit, int digits, uint32_t *counts);
    /* Moves each element to the place that its digit has. */
    void (*move)(const struct order *order, const struct run *from, int64_t n, int digit, const struct run *to,
                 uint32_t *places);
    void (*insert)(const struct order *order, const struct run *run, int64_t n);
    void (*gather)(const void *x, int64_t stride, int64_t n, void *values);
};

#define FUNCTIONS(name, T, kind)                                                                                       \
    static void count_##name(const struct order *order, const void *values, int64_t n, int digit, int digits,          \
                             uint32_t *counts) {                                                                       \
        const T *x = values, flip = (T)order->flip, infinity = (T)order->infinity;                                     \
        (void)infinity;                                                                                                \
        memset(counts, 0, (size_t)digits *DIGITS * sizeof *counts);                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T key = (T)((T)(KEY(T, kind, x[i], infinity) ^ flip) >> (digit * DIGIT_BITS));                             \
            for (int d = 0; d < digits; d++) {                                                                         \
                counts[d * DIGITS + (int)(key & (DIGITS - 1))]++;                                                      \
                key = (T)((uint64_t)key >> DIGIT_BITS);                                                                \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void move_##name(const struct order *order, const struct run *from, int64_t n, int digit,                   \
                            const struct run *to, uint32_t *places) {                                                  \
        const T *x = from->values, flip = (T)order->flip, infinity = (T)order->infinity;                               \
        T *out = to->values;                                                                                           \
        int shift = digit * DIGIT_BITS;                                                                                \
        (void)infinity;                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T value = x[i], key = (T)(KEY(T, kind, value, infinity) ^ flip);                                           \
            uint32_t place = places[(int)(key >> shift) & (DIGITS - 1)]++;                                             \
            out[place] = value;                                                                                        \
            if (to->positions) {                                                                                       \
                to->positions[place] = from->positions[i];                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void insert_##name(const struct order *order, const struct run *run, int64_t n) {                           \
        const T flip = (T)order->flip, infinity = (T)order->infinity;                                                  \
        T *x = run->values;                                                                                            \
        (void)infinity;                                                                                                \
        for (int64_t i = 1; i < n; i++) {                                                                              \
            T value = x[i], key = (T)(KEY(T, kind, value, infinity) ^ flip);                                           \
            uint32_t position = run->positions ? run->positions[i] : 0;                                                \
            int64_t at = i;                                                                                            \
            for (; at > 0 && (T)(KEY(T, kind, x[at - 1], infinity) ^ flip) > key; at--) {                              \
                x[at] = x[at - 1];                                                                                     \
                if (run->positions) {                                                                                  \
                    run->positions[at] = run->positions[at - 1];                                                       \
                }                                                                                                      \
            }                                                                                                          \
            x[at] = value;                                                                                             \
            if (run->positions) {                                                                                      \
                run->positions[at] = position;                                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void gather_##name(const void *x, int64_t stride, int64_t n, void *values) {                                \
        const T *from = x;                                                                                             \
        T *to = values;                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            to[i] = from[i * stride];                                                                                  \
        }                                                                                                              \
    }
KEY_TYPES(FUNCTIONS)
#undef FUNCTIONS

static const struct functions functions[] = {
#define FUNCTIONS(name, T, kind) {count_##name, move_##name, insert_##name, gather_##name},
    KEY_TYPES(FUNCTIONS)
#undef FUNCTIONS
};

struct job {
    struct cpu_job base;
    const struct functions *functions;
    struct order order;
    const char *x;
    char *values;       /* of sort; else NULL */
    int64_t *positions; /* of argsort; else NULL */
    int64_t rows, n, inner, size;
    int digits;
    char *workspace;
    size_t room; /* of it for one row, or for one part's */
    /* of a long row */
    int64_t row;
    int64_t chunks;
    int digit;
    bool sorted_in_second; /* the elements are in the second run of the workspace */
    uint32_t *counts;      /* [chunks][DIGITS] */
};

static size_t rounded(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Two runs of n elements. */
static size_t room_of(int64_t n, int64_t size, bool positions) {
    return 2 * (rounded((size_t)(n * size)) + (positions ? rounded((size_t)n * sizeof(uint32_t)) : 0));
}

static struct run run_of(const struct job *job, char *room, bool second) {
    size_t values = rounded((size_t)(job->n * job->size)), positions = rounded((size_t)job->n * sizeof(uint32_t));
    char *behind = room + 2 * values;
    return (struct run){room + (second ? values : 0),
                        job->positions ? (uint32_t *)(void *)(behind + (second ? positions : 0)) : NULL};
}

static struct run run_from(const struct job *job, const struct run *run, int64_t at) {
    return (struct run){(char *)run->values + at * job->size, run->positions ? run->positions + at : NULL};
}

/* Where row number `row` begins, in elements. */
static int64_t row_begin(const struct job *job, int64_t row) {
    return row / job->inner * job->n * job->inner + row % job->inner;
}

/* Elements `begin` to `end` - 1 of a row, and their positions. */
static void row_load(const struct job *job, int64_t row, int64_t begin, int64_t end, const struct run *run) {
    struct run to = run_from(job, run, begin);
    const char *x = job->x + (row_begin(job, row) + begin * job->inner) * job->size;
    if (job->inner == 1) {
        memcpy(to.values, x, (size_t)((end - begin) * job->size));
    } else {
        job->functions->gather(x, job->inner, end - begin, to.values);
    }
    for (int64_t i = begin; to.positions && i < end; i++) {
        to.positions[i - begin] = (uint32_t)i;
    }
}

static void row_store(const struct job *job, int64_t row, int64_t begin, int64_t end, const struct run *run) {
    int64_t first = row_begin(job, row), inner = job->inner, size = job->size;
    struct run from = run_from(job, run, begin);
    for (int64_t i = begin; job->positions && i < end; i++) {
        job->positions[first + i * inner] = from.positions[i - begin];
    }
    char *values = job->values ? job->values + first * size : NULL;
    if (values && inner == 1) {
        memcpy(values + begin * size, from.values, (size_t)((end - begin) * size));
        return;
    }
    for (int64_t i = begin; values && i < end; i++) {
        memcpy(values + i * inner * size, (char *)from.values + (i - begin) * size, (size_t)size);
    }
}

/* The counts of a digit become the places of its first elements; false if all elements have one digit. */
static bool places_make(uint32_t *counts, int64_t chunks, int64_t n) {
    uint32_t place = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t before = place;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            uint32_t count = counts[chunk * DIGITS + digit];
            counts[chunk * DIGITS + digit] = place;
            place += count;
        }
        if ((int64_t)(place - before) == n) {
            return false;
        }
    }
    return true;
}

/* ---- short rows ---- */

static void row_sort(const struct cpu_job *base, int64_t row, char *room) {
    const struct job *job = (const struct job *)base;
    uint32_t counts[sizeof(uint64_t) * DIGITS];
    struct run run = run_of(job, room, false), other = run_of(job, room, true);
    row_load(job, row, 0, job->n, &run);
    if (job->n <= INSERTION_MOST) {
        job->functions->insert(&job->order, &run, job->n);
        row_store(job, row, 0, job->n, &run);
        return;
    }
    job->functions->count(&job->order, run.values, job->n, 0, job->digits, counts);
    for (int digit = 0; digit < job->digits; digit++) {
        if (!places_make(counts + digit * DIGITS, 1, job->n)) {
            continue;
        }
        job->functions->move(&job->order, &run, job->n, digit, &other, counts + digit * DIGITS);
        struct run from = run;
        run = other;
        other = from;
    }
    row_store(job, row, 0, job->n, &run);
}

static bool rows_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    return sort_rows(base, lane, job->rows, job->n, ROW_MOST, row_sort,
                     job->workspace + (size_t)lane->part * job->room);
}

/* ---- long rows: rounds of all threads ---- */

static int64_t chunks_of(int64_t n) {
    int64_t chunks = n / CHUNK < CHUNKS ? n / CHUNK : CHUNKS, least = n / CHUNK_MOST + (n % CHUNK_MOST != 0);
    return chunks > least ? chunks : least;
}

static int64_t chunk_begin(const struct job *job, int64_t chunk) {
    return cpu_part_begin(job->n, chunk, (unsigned)job->chunks);
}

static bool load_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    struct run run = run_of(job, job->workspace, false);
    row_load(job, job->row, chunk_begin(job, lane->part), chunk_begin(job, lane->part + 1), &run);
    return true;
}

static bool count_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t begin = chunk_begin(job, lane->part), end = chunk_begin(job, lane->part + 1);
    struct run run = run_of(job, job->workspace, job->sorted_in_second);
    job->functions->count(&job->order, run_from(job, &run, begin).values, end - begin, job->digit, 1,
                          job->counts + lane->part * DIGITS);
    return true;
}

static bool move_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t begin = chunk_begin(job, lane->part), end = chunk_begin(job, lane->part + 1);
    struct run run = run_of(job, job->workspace, job->sorted_in_second);
    struct run from = run_from(job, &run, begin), to = run_of(job, job->workspace, !job->sorted_in_second);
    job->functions->move(&job->order, &from, end - begin, job->digit, &to, job->counts + lane->part * DIGITS);
    return true;
}

static bool store_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    struct run run = run_of(job, job->workspace, job->sorted_in_second);
    row_store(job, job->row, chunk_begin(job, lane->part), chunk_begin(job, lane->part + 1), &run);
    return true;
}

/* The round after the one that has ended. */
static bool long_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    if (base->run == load_part) {
        base->run = count_part;
        return true;
    }
    if (base->run == count_part && places_make(job->counts, job->chunks, job->n)) {
        base->run = move_part;
        return true;
    }
    if (base->run == store_part) {
        base->run = load_part;
        job->digit = 0;
        job->sorted_in_second = false;
        return ++job->row < job->rows;
    }
    job->sorted_in_second ^= base->run == move_part;
    base->run = ++job->digit < job->digits ? count_part : store_part;
    return true;
}

/* ---- launches ---- */

/* Whether rows are sorted by all threads together. */
static bool is_long(const struct cpu *cpu, const struct operand *x) {
    int64_t n = x->shape[1], rows = x->shape[0] * x->shape[2];
    return n > ROWS_MOST || (n > ROW_MOST && rows < (int64_t)cpu->team.threads);
}

/* Rows that are sorted one by one, at a time. */
static unsigned row_parts(const struct cpu *cpu, const struct operand *x) {
    int64_t rows = x->shape[0] * x->shape[2];
    double work = (double)rows * (double)x->shape[1] * 64;
    unsigned parts = cpu_parts(cpu, work);
    parts = parts < cpu->team.threads ? parts : cpu->team.threads;
    return rows < (int64_t)parts ? (unsigned)rows : parts;
}

static uint64_t sort_workspace(struct device *device, const struct launch *launch) {
    const struct cpu *cpu = (const struct cpu *)device;
    const struct operand *x = &launch->inputs[0];
    const struct cpu_sort *vectors = cpu_sort_find(cpu, launch);
    if (vectors) {
        return cpu_sort_workspace(cpu, vectors, launch);
    }
    size_t room = room_of(x->shape[1], (int64_t)dtype_size((enum dtype)x->dtype), launch->opcode == OP_ARGSORT);
    return is_long(cpu, x) ? room + (size_t)chunks_of(x->shape[1]) * DIGITS * sizeof(uint32_t)
                           : room * row_parts(cpu, x);
}

static int sort_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    (void)device;
    return launch->inputs[0].shape[1] <= axis_most
               ? STATUS_OK
               : fault_set(fault, STATUS_UNSUPPORTED, "an axis of %lld elements is too long to sort",
                           (long long)launch->inputs[0].shape[1]);
}

static int sort_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *x = &launch->inputs[0];
    bool positions = launch->opcode == OP_ARGSORT;
    struct sort_attributes attributes; /* argsort has the same */
    (void)fault;
    const struct cpu_sort *vectors = cpu_sort_find(cpu, launch);
    if (vectors) {
        cpu_sort_begin(cpu, vectors, launch, begun);
        return STATUS_OK;
    }
    sort_attributes_read(&launch->attributes, &attributes);
    struct job job = {.base = {.cpu = cpu, .run = rows_part},
                      .functions = &functions[key_place((enum dtype)x->dtype)],
                      .order = {key_infinity((enum dtype)x->dtype), attributes.descending ? ~UINT64_C(0) : 0},
                      .x = x->data,
                      .values = positions ? NULL : launch->output.data,
                      .positions = positions ? launch->output.data : NULL,
                      .rows = x->shape[0] * x->shape[2],
                      .n = x->shape[1],
                      .inner = x->shape[2],
                      .size = (int64_t)dtype_size((enum dtype)x->dtype),
                      .workspace = launch->workspace};
    job.digits = (int)job.size;
    job.room = room_of(job.n, job.size, positions);
    job.base.parts = row_parts(cpu, x);
    if (is_long(cpu, x)) {
        job.chunks = chunks_of(job.n);
        job.counts = (uint32_t *)(void *)(job.workspace + job.room);
        job.base.run = load_part;
        job.base.again = long_again;
        job.base.parts = (unsigned)job.chunks;
    }
    double work = (double)job.rows * (double)job.n * (double)(job.digits * (job.size + (positions ? 4 : 0)) * 3);
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define SORT                                                                                                           \
    { {.accepts = sort_accepts, .workspace = sort_workspace}, sort_run }
const struct cpu_kernel cpu_kernel_sort = SORT;
const struct cpu_kernel cpu_kernel_argsort = SORT;
