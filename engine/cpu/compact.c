/* nonzero, masked_select and unique_runs: elements that are chosen, one after another, and their number.
 *
 * Two rounds: each chunk counts the elements that it chooses; then it writes them behind those of the chunks before. What is behind the
 * last one is filled with zeros, a share by each chunk. */
#include "engine/cpu/indices.h"
#include "engine/cpu/key.h"

#include <string.h>

enum {
    CHUNK = 1 << 15, /* elements of a chunk, at least */
    CHUNKS = 1024,   /* at most */
    BLOCK = 4096,    /* elements that are marked at a time */
    LINE = 64,       /* bytes that are written past the caches together */
};

struct job;
/* Writes which of elements begin … end - 1 are chosen into `marks`, one byte for each. */
typedef void mark_function(const struct job *job, int64_t begin, int64_t end, bool *marks);

struct job {
    struct cpu_job base;
    const struct launch *launch;
    mark_function *mark;
    const char *x;
    const uint8_t *mask;
    struct cpu_indices positions; /* of unique_runs */
    int64_t n, size;
    uint64_t infinity; /* for keys */
    bool floating;
    bool streamed;   /* the outputs are larger than what the caches keep */
    int64_t *counts; /* [base.parts] of the chunks, then the places where they begin */
    int64_t *
        firsts; /* [base.parts] the first element that is chosen in a chunk, then in it or behind it; n: there is none */
    int64_t total;
};

#define MARK_NONZERO(T)                                                                                                \
    static void mark_nonzero_##T(const struct job *job, int64_t begin, int64_t end, bool *marks) {                     \
        const T *x = (const T *)(const void *)job->x;                                                                  \
        const T bits = job->floating ? (T)((T) ~(T)0 >> 1) : (T) ~(T)0;                                                \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            marks[i - begin] = (x[i] & bits) != 0;                                                                     \
        }                                                                                                              \
    }
MARK_NONZERO(uint8_t)
MARK_NONZERO(uint16_t)
MARK_NONZERO(uint32_t)
MARK_NONZERO(uint64_t)

static mark_function *const mark_nonzero[] = {mark_nonzero_uint8_t, mark_nonzero_uint16_t, mark_nonzero_uint32_t,
                                              mark_nonzero_uint64_t};

static void mark_mask(const struct job *job, int64_t begin, int64_t end, bool *marks) {
    for (int64_t i = begin; i < end; i++) {
        marks[i - begin] = job->mask[i] != 0;
    }
}

/* The first element of a run is chosen. A NaN, whose key is the greatest, is a run of its own. Where some elements are the same bits as the one before
 * them, which takes least to find out, none is chosen. */
enum { SAME = 64 };
#define MARK_RUNS(name, T, kind)                                                                                       \
    static void mark_runs_##name(const struct job *job, int64_t begin, int64_t end, bool *marks) {                     \
        const T *x = (const T *)(const void *)job->x;                                                                  \
        const T infinity = (T)job->infinity;                                                                           \
        (void)infinity;                                                                                                \
        marks[0] = true;                                                                                               \
        for (int64_t i = begin > 0 ? begin : 1; i < end;) {                                                            \
            const T last = x[i - 1];                                                                                   \
            const int64_t stop = end - i < SAME ? end : i + SAME;                                                      \
            T apart = 0;                                                                                               \
            for (int64_t k = i; k < stop; k++) {                                                                       \
                apart |= x[k] ^ last;                                                                                  \
            }                                                                                                          \
            if (apart == 0 && !((kind) == KEY_FLOAT && KEY(T, kind, last, infinity) == (T) ~(T)0)) {                   \
                memset(marks + (i - begin), 0, (size_t)(stop - i));                                                    \
                i = stop;                                                                                              \
            }                                                                                                          \
            for (; i < stop; i++) {                                                                                    \
                const T key = KEY(T, kind, x[i], infinity), before = KEY(T, kind, x[i - 1], infinity);                 \
                marks[i - begin] = (key != before) | ((kind) == KEY_FLOAT && key == (T) ~(T)0);                        \
            }                                                                                                          \
        }                                                                                                              \
    }
KEY_TYPES(MARK_RUNS)
#undef MARK_RUNS

/* Complex numbers have no keys. */
#define MARK_COMPLEX_RUNS(name, T)                                                                                     \
    static void mark_runs_##name(const struct job *job, int64_t begin, int64_t end, bool *marks) {                     \
        const T *x = (const T *)(const void *)job->x;                                                                  \
        marks[0] = true;                                                                                               \
        for (int64_t i = begin > 0 ? begin : 1; i < end; i++) {                                                        \
            marks[i - begin] = (x[2 * i] != x[2 * i - 2]) | (x[2 * i + 1] != x[2 * i - 1]);                            \
        }                                                                                                              \
    }
MARK_COMPLEX_RUNS(c64, float)
MARK_COMPLEX_RUNS(c128, double)

static mark_function *const mark_runs[] = {
#define MARK_RUNS(name, T, kind) mark_runs_##name,
    KEY_TYPES(MARK_RUNS)
#undef MARK_RUNS
};

/* Marks elements begin … end - 1, BLOCK at most. Marks behind them, up to the next multiple of 64, are false. */
static void block_mark(const struct job *job, int64_t begin, int64_t end, bool *marks) {
    job->mark(job, begin, end, marks);
    for (int64_t i = end - begin; i % 64 != 0; i++) {
        marks[i] = false;
    }
}

/* How many of n marks are true; n is a multiple of 8 or followed by false ones. */
static int64_t marks_count(int64_t n, const bool *marks) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i += 8) {
        uint64_t eight;
        memcpy(&eight, marks + i, sizeof eight);
        count += (int64_t)(eight * ones >> 56);
    }
    return count;
}

/* 64 marks as bits. */
static uint64_t marks_bits(const bool *marks) {
    const uint64_t gather = UINT64_C(0x0102040810204080); /* byte k to bit 56 + k */
    uint64_t bits = 0;
    for (int k = 0; k < 8; k++) {
        uint64_t eight;
        memcpy(&eight, marks + 8 * k, sizeof eight);
        bits |= (eight * gather >> 56) << 8 * k;
    }
    return bits;
}

static bool count_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t begin = cpu_part_begin(job->n, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->n, lane->part + 1, base->parts), count = 0;
    int64_t first = job->n;
    bool marks[BLOCK];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t stop = end - at < BLOCK ? end : at + BLOCK;
        block_mark(job, at, stop, marks);
        count += marks_count(stop - at, marks);
        if (count > 0 && first == job->n) {
            const bool *mark = memchr(marks, true, (size_t)(stop - at));
            first = at + (mark - marks);
        }
    }
    job->counts[lane->part] = count;
    job->firsts[lane->part] = first;
    return true;
}

/* ---- what is written for a chosen element ---- */

static int64_t *output_ints(const struct job *job, unsigned i) {
    return i ? launch_further(job->launch, i)->data : job->launch->output.data;
}

/* The indices of elements begin + chosen[…], which ascend: of the last axis the element itself, less where its row begins. */
static void write_nonzero(const struct job *job, int64_t begin, const uint16_t *chosen, int64_t count, int64_t place) {
    const struct operand *x = &job->launch->inputs[0];
    int64_t *indices = output_ints(job, 0) + place, at[SHAPE_RANK_MAX] = {0}, row, width;
    int last = x->rank - 1;
    if (last < 1) {
        for (int64_t i = 0; last == 0 && i < count; i++) {
            indices[i] = begin + chosen[i];
        }
        return;
    }
    width = x->shape[last];
    row = begin / width * width;
    for (int64_t axis = last - 1, line = begin / width; axis >= 0; axis--) {
        at[axis] = axis ? line % x->shape[axis] : line;
        line /= x->shape[axis];
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t element = begin + chosen[i];
        for (; element - row >= width; row += width) {
            int axis = last - 1;
            while (++at[axis] == x->shape[axis] && axis > 0) {
                at[axis--] = 0;
            }
        }
        for (int axis = 0; axis < last; axis++) {
            indices[axis * job->n + i] = at[axis];
        }
        indices[last * job->n + i] = element - row;
    }
}

/* The values of elements x + chosen[…]. */
static void write_values(const struct job *job, const char *x, const uint16_t *chosen, int64_t count, int64_t place) {
    char *out = (char *)job->launch->output.data + place * job->size;
    switch (job->size) {
#define VALUES(size, T)                                                                                                \
    case size:                                                                                                         \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            ((T *)(void *)out)[i] = ((const T *)(const void *)x)[chosen[i]];                                           \
        }                                                                                                              \
        break;
        VALUES(1, uint8_t)
        VALUES(2, uint16_t)
        VALUES(4, uint32_t)
        VALUES(8, uint64_t)
        VALUES(16, struct cpu_pair)
#undef VALUES
    default:
        break;
    }
}

enum { LISTED = 8 }; /* numbers that are written at a time, of which the last ones may count for nothing */
typedef uint8_t numbers_narrow __attribute__((vector_size(LISTED)));
typedef uint16_t numbers __attribute__((vector_size(LISTED * sizeof(uint16_t))));

/* The numbers of the marked ones of n elements, one at least, listed without a branch that no processor could predict: eight at a time, by their marks as
 * bits. Of each half of a byte the numbers of its bits are known. Returns how many there are. */
static int64_t list_chosen(int64_t n, const bool *marks, uint16_t *chosen) {
    static const uint32_t low[16] = {0,   0x0,   0x1,   0x100,   0x2,   0x200,   0x201,   0x20100,
                                     0x3, 0x300, 0x301, 0x30100, 0x302, 0x30200, 0x30201, 0x3020100};
    static const uint8_t number[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
    int64_t count = 0, i = 0;
    do {
        uint64_t word = marks_bits(marks + i);
        for (int64_t at = i; word != 0; word >>= 8, at += 8) {
            const unsigned first = word & 15, second = word >> 4 & 15;
            const uint64_t list = low[first] | (uint64_t)(low[second] + UINT32_C(0x04040404)) << 8 * number[first];
            const numbers eight = __builtin_convertvector((numbers_narrow)list, numbers) + (uint16_t)at;
            memcpy(chosen + count, &eight, sizeof eight);
            count += number[first] + number[second];
        }
        i += 64;
    } while (i < n);
    return count;
}

/* Elements begin … end - 1, of which `marks` are chosen; *place counts those before. The list is apart from the output, since another part writes
 * behind this part's last element. */
static void write_block(const struct job *job, int64_t begin, int64_t end, const bool *marks, int64_t *place) {
    uint16_t chosen[BLOCK + LISTED];
    int64_t count = list_chosen(end - begin, marks, chosen);
    if (job->launch->opcode == OP_NONZERO) {
        write_nonzero(job, begin, chosen, count, *place);
    } else {
        write_values(job, job->x + begin * job->size, chosen, count, *place);
    }
    *place += count;
}

/* Whether n positions follow one another, from one that is in the tensor on: those of elements that were in order. */
static bool positions_follow(const struct job *job, const int64_t *positions, int64_t n) {
    const int64_t first = positions[0];
    uint64_t apart = 0;
    if (first < 0 || first > job->n - n) {
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        apart |= (uint64_t)positions[i] ^ (uint64_t)(first + i);
    }
    return apart == 0;
}

/* The same run for n elements. Equal elements may have come from anywhere, so each store may miss the caches: lines are fetched some stores ahead; but
 * not behind the `known` positions. */
static void write_run(const struct job *job, const int64_t *positions, int64_t n, int64_t known, int64_t run) {
    enum { AHEAD = 24 };
    int64_t *inverse = output_ints(job, 2);
    for (int64_t i = 0; i < n; i++) {
        int64_t position = positions[i], later = positions[i + AHEAD < known ? i + AHEAD : known - 1];
        if ((uint64_t)later < (uint64_t)job->n) {
            __builtin_prefetch(&inverse[later], 1);
        }
        if ((uint64_t)position < (uint64_t)job->n) {
            inverse[position] = run;
        }
    }
}

/* Which run each position of elements begin … end - 1 belongs to: runs begin at begin + chosen[…], and before them is run `run`. */
static void write_inverse(const struct job *job, int64_t begin, int64_t end, const uint16_t *chosen, int64_t count,
                          int64_t run) {
    int64_t *inverse = output_ints(job, 2), block[CPU_INDICES_BLOCK];
    for (int64_t at = begin, k = 0, n; at < end; at += n) {
        n = end - at < CPU_INDICES_BLOCK ? end - at : CPU_INDICES_BLOCK;
        const int64_t *positions = cpu_indices_read(&job->positions, at, 1, n, block);
        const bool follow = positions_follow(job, positions, n);
        for (int64_t i = 0, stop; i < n; i = stop) {
            for (; k < count && begin + chosen[k] - at == i; k++) {
                run++;
            }
            stop = k < count && begin + chosen[k] - at < n ? begin + chosen[k] - at : n;
            if (!follow) {
                write_run(job, positions + i, stop - i, n - i, run);
                continue;
            }
            for (int64_t *to = inverse + positions[0] + i, *last = to + (stop - i); to < last; to++) {
                *to = run;
            }
        }
    }
}

/* The same of runs. A run's length is written when the next one begins; *first is where the last one so far does. */
static void write_runs(const struct job *job, int64_t begin, int64_t end, const bool *marks, int64_t *place,
                       int64_t *first) {
    int64_t *indices = output_ints(job, 1) + *place, *counts = output_ints(job, 3) + *place;
    uint16_t chosen[BLOCK + LISTED];
    int64_t count = list_chosen(end - begin, marks, chosen);
    write_values(job, job->x + begin * job->size, chosen, count, *place);
    for (int64_t i = 0; i < count; i++) {
        indices[i] = cpu_index(&job->positions, begin + chosen[i]);
    }
    for (int64_t i = 0; i < count; i++) {
        if (*first >= 0) {
            counts[i - 1] = begin + chosen[i] - *first;
        }
        *first = begin + chosen[i];
    }
    write_inverse(job, begin, end, chosen, count, *place - 1);
    *place += count;
}

/* Writes zeros, to large outputs past the caches: what is not read from memory before takes half the time. */
static void write_zeros(const struct job *job, void *to, int64_t bytes) {
    static const _Alignas(LINE) char zeros[16 * LINE];
    char *at = to;
    if (job->streamed) {
        const int64_t before = (int64_t)(-(uintptr_t)at % LINE), head = before < bytes ? before : bytes;
        memset(at, 0, (size_t)head);
        at += head;
        bytes -= head;
        for (int64_t n; bytes >= LINE; at += n, bytes -= n) {
            n = bytes < (int64_t)sizeof zeros ? bytes / LINE * LINE : (int64_t)sizeof zeros;
            job->base.cpu->kernels->stream(at, zeros, (size_t)n);
        }
    }
    memset(at, 0, (size_t)bytes);
}

/* Zeros behind the last one: the part's share. */
static void write_rest(const struct job *job, int64_t part) {
    int64_t rest = job->n - job->total, begin = job->total + cpu_part_begin(rest, part, job->base.parts);
    int64_t count = job->total + cpu_part_begin(rest, part + 1, job->base.parts) - begin;
    if (count == 0) { /* of an empty output there is no address */
        return;
    }
    if (job->launch->opcode == OP_NONZERO) {
        for (int axis = 0; axis < job->launch->inputs[0].rank; axis++) {
            write_zeros(job, output_ints(job, 0) + axis * job->n + begin, count * (int64_t)sizeof(int64_t));
        }
        return;
    }
    write_zeros(job, (char *)job->launch->output.data + begin * job->size, count * job->size);
    if (job->launch->opcode == OP_UNIQUE_RUNS) {
        write_zeros(job, output_ints(job, 1) + begin, count * (int64_t)sizeof(int64_t));
        write_zeros(job, output_ints(job, 3) + begin, count * (int64_t)sizeof(int64_t));
    }
}

static bool write_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t begin = cpu_part_begin(job->n, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->n, lane->part + 1, base->parts), place = job->counts[lane->part];
    int64_t first = -1; /* where the last run begins that does so in this part */
    bool marks[BLOCK];
    const bool runs = job->launch->opcode == OP_UNIQUE_RUNS;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t stop = end - at < BLOCK ? end : at + BLOCK;
        block_mark(job, at, stop, marks);
        if (runs) {
            write_runs(job, at, stop, marks, &place, &first);
        } else {
            write_block(job, at, stop, marks, &place);
        }
    }
    if (first >= 0) {
        int64_t next = lane->part + 1 < base->parts ? job->firsts[lane->part + 1] : job->n;
        output_ints(job, 3)[place - 1] = next - first;
    }
    write_rest(job, lane->part);
    if (job->streamed) {
        base->cpu->kernels->stream_end();
    }
    return true;
}

/* After the counts: the chunks' places, and the number of all. */
static bool compact_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    if (base->run == write_part) {
        return false;
    }
    for (unsigned part = 0; part < base->parts; part++) {
        int64_t count = job->counts[part];
        job->counts[part] = job->total;
        job->total += count;
    }
    int64_t next = job->n;
    for (unsigned part = base->parts; part-- > 0;) {
        next = job->firsts[part] < job->n ? job->firsts[part] : next;
        job->firsts[part] = next;
    }
    *output_ints(job, job->launch->further) = job->total;
    base->run = write_part;
    return true;
}

static int64_t elements_of(const struct launch *launch) {
    int64_t n = 1;
    for (int i = 0; i < launch->inputs[0].rank; i++) {
        n *= launch->inputs[0].shape[i];
    }
    return n;
}

static unsigned chunks_of(int64_t n) {
    const int64_t chunks = n / CHUNK < CHUNKS ? n / CHUNK : CHUNKS;
    return chunks < 1 ? 1 : (unsigned)chunks;
}

static uint64_t compact_workspace(struct device *device, const struct launch *launch) {
    (void)device;
    return 2 * (uint64_t)chunks_of(elements_of(launch)) * sizeof(int64_t);
}

static int compact_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *x = &launch->inputs[0];
    enum dtype dtype = (enum dtype)x->dtype;
    int place = key_place(dtype);
    (void)fault;
    struct job job = {.base = {.cpu = cpu, .run = count_part, .again = compact_again},
                      .launch = launch,
                      .mark = launch->opcode == OP_NONZERO         ? mark_nonzero[place / KEY_KINDS]
                              : launch->opcode == OP_MASKED_SELECT ? mark_mask
                              : dtype == DTYPE_C64                 ? mark_runs_c64
                              : dtype == DTYPE_C128                ? mark_runs_c128
                                                                   : mark_runs[place],
                      .x = x->data,
                      .mask = launch->opcode == OP_MASKED_SELECT ? launch->inputs[1].data : NULL,
                      .n = elements_of(launch),
                      .size = (int64_t)dtype_size(dtype),
                      .infinity = key_infinity(dtype),
                      .floating = dtype_kind(dtype) == DTYPE_KIND_FLOAT,
                      .counts = launch->workspace};
    job.base.parts = chunks_of(job.n);
    job.firsts = job.counts + job.base.parts;
    if (launch->opcode == OP_UNIQUE_RUNS) {
        job.positions = cpu_indices_of(cpu, &launch->inputs[1]);
    }
    const int64_t index = sizeof(int64_t), bytes = launch->opcode == OP_NONZERO         ? x->rank * index
                                                   : launch->opcode == OP_MASKED_SELECT ? job.size
                                                                                        : job.size + 3 * index;
    job.streamed = job.n >= CPU_STREAM_FROM / (bytes ? bytes : 1);
    cpu_job_begin(&job.base, sizeof job, (double)job.n * (double)(2 * job.size + 16), begun);
    return STATUS_OK;
}

#define COMPACT                                                                                                        \
    { {.index_dtypes = CPU_INDEX_DTYPES, .workspace = compact_workspace}, compact_run }
const struct cpu_kernel cpu_kernel_nonzero = COMPACT;
const struct cpu_kernel cpu_kernel_masked_select = COMPACT;
const struct cpu_kernel cpu_kernel_unique_runs = COMPACT;
