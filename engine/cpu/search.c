/* searchsorted: a binary search for each value. Values of another dtype are converted block by block; what is sorted has the common dtype. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/key.h"

enum {
    PIECE = 4096, /* values between two looks whether to stop */
    BLOCK = 512,  /* values that are converted at a time */
    GROUP = 64,   /* values that are looked at together: are they in order? */
    FEW = 8,      /* of so few values each one's place is found at once */
    MERGED = 4,   /* sorted elements for each value, at most, where the two are merged */
};

/* The last value of the group before, if that was in order: its key, and a place that it is not behind. */
struct before {
    bool known;
    uint64_t key;
    int64_t place;
};

struct job {
    struct cpu_job base;
    cpu_search_function *search;
    void (*group)(const struct job *job, const void *values, int64_t n, struct before *before, int64_t *out);
    struct cpu_search in;
    cpu_row_function *convert; /* of values; NULL: they have the dtype */
    const char *values;
    int64_t *out;
    int64_t count, size; /* of a value as it is in memory, */
    int64_t sorted_size; /* and as it is sorted */
};

/* Of a group of values in order the places of the first and the last one are found first: the others are between these two. If they are
 * close to each other, the group is merged with what is sorted there. A group that goes on where the one before ends begins there, and most often ends
 * close by. Of keys that follow one another, as those of arange do, it is enough to count what is sorted between each two: count gives the end of
 * what is sorted below the last one, or -1 if that is too much.
 *
 * find: `at` elements are known to be below; the `left` elements behind them are halved. Neither this nor merge has a branch that depends on the
 * elements. */
#define BELOW(T, kind, key, place)                                                                                     \
    __extension__({                                                                                                    \
        const T other = KEY(T, kind, sorted[place], infinity);                                                         \
        (other < (key)) | ((other == (key)) & job->in.right);                                                          \
    })
#define SEARCH(name, T, kind)                                                                                          \
    static inline int64_t find_##name(const struct job *job, T key, int64_t at, int64_t left) {                        \
        const T *sorted = job->in.sorted, infinity = (T)job->in.infinity;                                              \
        (void)infinity;                                                                                                \
        while (left > 0) {                                                                                             \
            int64_t half = left - left / 2;                                                                            \
            at += BELOW(T, kind, key, at + half - 1) ? half : 0;                                                       \
            left -= half;                                                                                              \
        }                                                                                                              \
        return at;                                                                                                     \
    }                                                                                                                  \
    static void merge_##name(const struct job *job, const T *keys, int64_t n, int64_t at, int64_t end, int64_t *out) { \
        const T *sorted = job->in.sorted, infinity = (T)job->in.infinity;                                              \
        int64_t i = 0;                                                                                                 \
        (void)infinity;                                                                                                \
        while (i < n && at < end) {                                                                                    \
            const bool below = BELOW(T, kind, keys[i], at);                                                            \
            out[i] = at;                                                                                               \
            at += below;                                                                                               \
            i += !below;                                                                                               \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            out[i] = end;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static int64_t count_##name(const struct job *job, T first, int64_t n, int64_t begin, int64_t *out) {              \
        const T *sorted = job->in.sorted, infinity = (T)job->in.infinity, next = !job->in.right;                       \
        const T beyond = (T)(n - next);                                                                                \
        const int64_t left = job->in.n - begin, most = begin + (left < MERGED * n ? left : MERGED * n);                \
        uint16_t counts[GROUP] = {0};                                                                                  \
        int64_t end = begin, at = begin;                                                                               \
        (void)infinity;                                                                                                \
        for (; end < most; end++) {                                                                                    \
            const T key = KEY(T, kind, sorted[end], infinity), place = key < first ? 0 : (T)(key - first);             \
            if (place >= beyond) {                                                                                     \
                break;                                                                                                 \
            }                                                                                                          \
            counts[key < first ? 0 : place + next]++;                                                                  \
        }                                                                                                              \
        if (end == most && left > MERGED * n) {                                                                        \
            return -1;                                                                                                 \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            at += counts[i];                                                                                           \
            out[i] = at;                                                                                               \
        }                                                                                                              \
        return end;                                                                                                    \
    }                                                                                                                  \
    static void group_##name(const struct job *job, const void *values, int64_t n, struct before *before,              \
                             int64_t *out) {                                                                           \
        const T *value = values, *sorted = job->in.sorted, infinity = (T)job->in.infinity;                             \
        T keys[GROUP], apart = 0;                                                                                      \
        (void)infinity;                                                                                                \
        if (n <= FEW) {                                                                                                \
            job->search(&job->in, values, n, out);                                                                     \
            before->known = false;                                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        const T first = KEY(T, kind, value[0], infinity), last = KEY(T, kind, value[n - 1], infinity);                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            keys[i] = KEY(T, kind, value[i], infinity);                                                                \
            apart |= (T)(keys[i] - (T)i) ^ first;                                                                      \
        }                                                                                                              \
        const bool follows = apart == 0 && last >= first;                                                              \
        bool rises = true;                                                                                             \
        for (int64_t i = 1; i < n && rises && !follows; i++) {                                                         \
            rises = keys[i] >= keys[i - 1];                                                                            \
        }                                                                                                              \
        if (!rises) {                                                                                                  \
            job->search(&job->in, values, n, out);                                                                     \
            before->known = false;                                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        const bool goes_on = before->known && first >= (T)before->key;                                                 \
        const int64_t begin = goes_on ? before->place : find_##name(job, first, 0, job->in.n);                         \
        int64_t left = job->in.n - begin, end = follows ? count_##name(job, first, n, begin, out) : -1;                \
        if (end >= 0) {                                                                                                \
            *before = (struct before){true, last, end};                                                                \
            return;                                                                                                    \
        }                                                                                                              \
        if (left > MERGED * n && !BELOW(T, kind, last, begin + MERGED * n)) {                                          \
            left = MERGED * n;                                                                                         \
        }                                                                                                              \
        end = find_##name(job, last, begin, left);                                                                     \
        *before = (struct before){true, last, end};                                                                    \
        if (end - begin <= MERGED * n) {                                                                               \
            merge_##name(job, keys, n, begin, end, out);                                                               \
            return;                                                                                                    \
        }                                                                                                              \
        struct cpu_search between = job->in;                                                                           \
        between.sorted = sorted + begin;                                                                               \
        between.n = end - begin;                                                                                       \
        job->search(&between, values, n, out);                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i] += begin;                                                                                           \
        }                                                                                                              \
    }
KEY_TYPES(SEARCH)
#undef SEARCH

static void (*const groups[KEY_PLACES])(const struct job *job, const void *values, int64_t n, struct before *before,
                                        int64_t *out) = {
#define SEARCH(name, T, kind) group_##name,
    KEY_TYPES(SEARCH)
#undef SEARCH
};

/* `size`: of a value. */
static void search_groups(const struct job *job, const char *values, int64_t size, int64_t n, struct before *before,
                          int64_t *out) {
    for (int64_t i = 0; i < n; i += GROUP) {
        job->group(job, values + i * size, n - i < GROUP ? n - i : GROUP, before, out + i);
    }
}

static void search_run(const struct job *job, int64_t begin, int64_t end) {
    struct before before = {.known = false};
    if (!job->convert) {
        search_groups(job, job->values + begin * job->size, job->size, end - begin, &before, job->out + begin);
        return;
    }
    _Alignas(8) char block[BLOCK * sizeof(int64_t)];
    for (int64_t n; begin < end; begin += n) {
        n = end - begin < BLOCK ? end - begin : BLOCK;
        char *from = (char *)(uintptr_t)job->values + begin * job->size;
        job->convert(&(struct cpu_row){n, {block, from}, {1, 1}});
        search_groups(job, block, job->sorted_size, n, &before, job->out + begin);
    }
}

static bool search_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->count, lane->part, base->parts) + lane->position;
    int64_t end = cpu_part_begin(job->count, lane->part + 1, base->parts);
    for (; begin < end; begin += PIECE) {
        search_run(job, begin, end - begin < PIECE ? end : begin + PIECE);
        lane->position += PIECE;
        if (begin + PIECE < end && cpu_job_stops(base)) {
            return false;
        }
    }
    return true;
}

static int searchsorted_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *sorted = &launch->inputs[0], *values = &launch->inputs[1];
    struct searchsorted_attributes attributes;
    (void)fault;
    searchsorted_attributes_read(&launch->attributes, &attributes);
    struct job job = {.base = {.cpu = cpu, .run = search_part},
                      .search = cpu->kernels->search[key_place((enum dtype)sorted->dtype)],
                      .group = groups[key_place((enum dtype)sorted->dtype)],
                      .in = {.sorted = sorted->data,
                             .n = sorted->shape[0],
                             .infinity = key_infinity((enum dtype)sorted->dtype),
                             .right = attributes.right},
                      .values = values->data,
                      .out = launch->output.data,
                      .count = values->shape[0],
                      .size = (int64_t)dtype_size((enum dtype)values->dtype),
                      .sorted_size = (int64_t)dtype_size((enum dtype)sorted->dtype)};
    if (values->dtype != sorted->dtype) {
        job.convert = cpu->kernels->cast[values->dtype][sorted->dtype];
    }
    double work = (double)job.count * (8 + 16 * (double)(64 - __builtin_clzll((uint64_t)job.in.n)));
    job.base.parts = cpu_parts(cpu, work);
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_searchsorted = {{.converts = cpu_converts_tiles}, searchsorted_run};
