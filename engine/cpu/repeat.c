/* repeat_each: elements of an axis, each as often as its count says.
 *
 * Two rounds: the counts of each chunk are added up; then each part writes a range of the output, for which it finds the element to begin with in the
 * chunk that has it. So it does not matter how often single elements are repeated. */
#include "engine/cpu/indices.h"

#include <string.h>

enum {
    CHUNK = 4096,          /* counts */
    PIECE_BYTES = 1 << 18, /* of the output, and as many counts, between two looks whether to stop */
    AT_ONCE = 4,           /* copies of a short element that are written without a question how many they are */
};

struct job;
/* Writes counts[i] times element i of n to `out`, `room` elements at most. Returns how many have been written. */
typedef int64_t fill_function(const struct job *job, const char *x, const int64_t *counts, int64_t n, char *out,
                              int64_t room);

struct job {
    struct cpu_job base;
    fill_function *fill;
    struct cpu_indices counts;
    const char *x;
    char *out;
    int64_t outer, n, length, row; /* bytes of an element with what is behind it */
    int64_t chunks;
    int64_t *places;  /* workspace, [chunks + 1]: where a chunk begins in the output; `length` at most */
    uint64_t *totals; /* workspace, [chunks]: the sum of its counts */
    int64_t *total;
};

/* ---- the sums of chunks ---- */

static inline int64_t count_of(int64_t given) {
    return given < 0 ? 0 : given;
}

/* a + b for numbers that are not negative, and `most` where that is less. */
static inline int64_t add_up_to(int64_t a, int64_t b, int64_t most) {
    return b > most - a ? most : a + b;
}

/* The place behind n counts that begin at `place`; *total, if it is wanted, grows by their sum. */
static int64_t place_behind(const int64_t *counts, int64_t n, int64_t place, int64_t most, uint64_t *total) {
    uint64_t sum = 0, all = 0, given = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (uint64_t)count_of(counts[i]);
        all |= (uint64_t)count_of(counts[i]);
        given += (uint64_t)counts[i];
    }
    if (total) {
        *total += given;
    }
    if (all >> 54 == 0) { /* the sum of a block has not wrapped */
        return add_up_to(place, (int64_t)sum, most);
    }
    for (int64_t i = 0; i < n; i++) {
        place = add_up_to(place, count_of(counts[i]), most);
    }
    return place;
}

/* The first count of a chunk, and the one behind its last one. */
static int64_t chunk_begin(const struct job *job, int64_t chunk) {
    return chunk < job->chunks ? chunk * CHUNK : job->n;
}

static bool count_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t end = cpu_part_begin(job->chunks, lane->part + 1, base->parts), block[CPU_INDICES_BLOCK];
    for (int64_t chunk = cpu_part_begin(job->chunks, lane->part, base->parts); chunk < end; chunk++) {
        uint64_t total = 0;
        int64_t place = 0;
        for (int64_t at = chunk_begin(job, chunk), stop = chunk_begin(job, chunk + 1), n; at < stop; at += n) {
            n = stop - at < CPU_INDICES_BLOCK ? stop - at : CPU_INDICES_BLOCK;
            place = place_behind(cpu_indices_read(&job->counts, at, 1, n, block), n, place, job->length, &total);
        }
        job->places[chunk] = place;
        job->totals[chunk] = total;
    }
    return true;
}

/* ---- the output ---- */

/* Elements of so many bytes. Most counts are small: so many copies are written whatever the count is, if the range has room for them, and the
 * next element's come over those that are too many. */
typedef uint8_t element1;
typedef uint16_t element2 __attribute__((aligned(1), may_alias));
typedef uint32_t element4 __attribute__((aligned(1), may_alias));
typedef uint64_t element8 __attribute__((aligned(1), may_alias));
typedef struct {
    element8 half[2];
} element16;
#define FILL(name, T)                                                                                                  \
    static int64_t fill_##name(const struct job *job, const char *x, const int64_t *counts, int64_t n, char *out,      \
                               int64_t room) {                                                                         \
        const T *from = (const T *)(const void *)x;                                                                    \
        T *to = (T *)(void *)out;                                                                                      \
        int64_t at = 0;                                                                                                \
        (void)job;                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T value = from[i];                                                                                   \
            const int64_t count = count_of(counts[i]);                                                                 \
            if (__builtin_expect(count <= AT_ONCE && at + AT_ONCE <= room, 1)) {                                       \
                for (int64_t k = 0; k < AT_ONCE; k++) {                                                                \
                    to[at + k] = value;                                                                                \
                }                                                                                                      \
                at += count;                                                                                           \
                continue;                                                                                              \
            }                                                                                                          \
            const int64_t end = add_up_to(at, count, room);                                                            \
            for (; at < end; at++) {                                                                                   \
                to[at] = value;                                                                                        \
            }                                                                                                          \
        }                                                                                                              \
        return at;                                                                                                     \
    }
FILL(1, element1)
FILL(2, element2)
FILL(4, element4)
FILL(8, element8)
FILL(16, element16)

static int64_t fill_rows(const struct job *job, const char *x, const int64_t *counts, int64_t n, char *out,
                         int64_t room) {
    const struct cpu_kernels *kernels = job->base.cpu->kernels;
    int64_t at = 0;
    for (int64_t i = 0; i < n && at < room; i++) {
        const int64_t end = add_up_to(at, count_of(counts[i]), room);
        for (; at < end; at++) {
            kernels->move(out + at * job->row, x + i * job->row, (size_t)job->row);
        }
    }
    return at;
}

/* The last chunk that begins at `place` or before: it has the element there, if any has. */
static int64_t chunk_find(const struct job *job, int64_t place) {
    int64_t low = 0, high = job->chunks - 1;
    while (low < high) {
        int64_t middle = high - (high - low) / 2;
        if (job->places[middle] <= place) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Writes places begin … end - 1 of a line, or as many of them as come from the chunk that has the first. Returns the next place. Chunks without elements
 * between two are passed over by the search for the next one. */
static int64_t chunk_run(const struct job *job, const char *x, char *line, int64_t begin, int64_t end) {
    int64_t block[CPU_INDICES_BLOCK], own[CPU_INDICES_BLOCK];
    const int64_t chunk = chunk_find(job, begin), stop = chunk_begin(job, chunk + 1);
    int64_t place = job->places[chunk];
    for (int64_t at = chunk_begin(job, chunk), n; at < stop && begin < end; at += n) {
        n = stop - at < CPU_INDICES_BLOCK ? stop - at : CPU_INDICES_BLOCK;
        const int64_t *counts = cpu_indices_read(&job->counts, at, 1, n, block);
        int64_t first = 0;
        if (place <= begin) { /* some are before the range */
            const int64_t behind = place_behind(counts, n, place, job->length, NULL);
            if (behind <= begin) {
                place = behind;
                continue;
            }
        }
        for (; place <= begin; first++) { /* up to the one with which the range begins */
            place = add_up_to(place, count_of(counts[first]), job->length);
        }
        if (first > 0) { /* of that one so many as are left */
            memcpy(own, counts, (size_t)n * sizeof *own);
            own[--first] = place - begin;
            counts = own;
        }
        begin += job->fill(job, x + (at + first) * job->row, counts + first, n - first, line + begin * job->row,
                           end - begin);
        place = begin + 1; /* nothing is before the range any more */
    }
    if (begin < end && stop == job->n) { /* behind the last element */
        memset(line + begin * job->row, 0, (size_t)((end - begin) * job->row));
        begin = end;
    }
    return begin;
}

static bool write_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    const int64_t all = job->outer * job->length, piece = PIECE_BYTES / job->row + 1;
    int64_t at = cpu_part_begin(all, lane->part, base->parts) + lane->position;
    int64_t end = cpu_part_begin(all, lane->part + 1, base->parts), since = 0;
    while (at < end) {
        int64_t line = at / job->length, begin = at % job->length, n = job->length - begin;
        n = n < end - at ? n : end - at;
        n = n < piece ? n : piece;
        n = chunk_run(job, job->x + line * job->n * job->row, job->out + line * job->length * job->row, begin,
                      begin + n) -
            begin;
        at += n;
        lane->position += n;
        since += n * job->row + CHUNK;
        if (since >= PIECE_BYTES && at < end) {
            since = 0;
            if (cpu_job_stops(base)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- the job ---- */

/* What the output takes to write, as bytes of memory traffic. Each line reads all counts again, but at most a chunk of them for each of its places. */
static double output_work(const struct job *job) {
    const double length = (double)job->length, most = length * CHUNK, n = (double)job->n;
    return (double)job->outer * (length * (double)(job->row + 8) + (n < most ? n : most) * 4);
}

/* After the sums: where chunks begin. */
static bool repeat_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    int64_t place = 0;
    uint64_t total = 0;
    if (base->run == write_part) {
        return false;
    }
    for (int64_t chunk = 0; chunk < job->chunks; chunk++) {
        int64_t own = job->places[chunk];
        job->places[chunk] = place;
        place = add_up_to(place, own, job->length);
        total += job->totals[chunk];
    }
    *job->total = (int64_t)total;
    base->run = write_part;
    return true;
}

static uint64_t repeat_workspace(struct device *device, const struct launch *launch) {
    (void)device;
    return (uint64_t)((launch->inputs[1].shape[0] - 1) / CHUNK + 1) * (sizeof(int64_t) + sizeof(uint64_t));
}

static int repeat_each_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    struct job job = {.base = {.cpu = cpu, .run = count_part, .again = repeat_again},
                      .counts = cpu_indices_of(cpu, &launch->inputs[1]),
                      .x = x->data,
                      .out = out->data,
                      .outer = out->shape[0],
                      .n = x->shape[1],
                      .length = out->shape[1],
                      .row = out->shape[2] * (int64_t)dtype_size((enum dtype)out->dtype),
                      .total = launch_further(launch, 1)->data};
    (void)fault;
    job.chunks = (job.n - 1) / CHUNK + 1;
    job.places = launch->workspace;
    job.totals = (uint64_t *)launch->workspace + job.chunks;
    job.fill = job.row == 1    ? fill_1
               : job.row == 2  ? fill_2
               : job.row == 4  ? fill_4
               : job.row == 8  ? fill_8
               : job.row == 16 ? fill_16
                               : fill_rows;
    double work = (double)job.n * (double)(job.counts.size + 4) + output_work(&job);
    job.base.parts = cpu_parts(cpu, work); /* of both rounds; some may have no chunk */
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_repeat_each = {{.index_dtypes = CPU_INDEX_DTYPES, .workspace = repeat_workspace},
                                                  repeat_each_run};
