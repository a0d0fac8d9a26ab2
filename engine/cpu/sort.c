/* The greatest or least elements of rows, in order, and their positions. All is by keys (key.h): the less the key, the better the element.
 *
 * Where keys are sorted with vectors and there are no more than some results, those of a row are selected: elements that are better than the
 * worst one kept so far are collected with their positions, and when there are many, the best ones stay. No branch depends on a single
 * element. A key of 32 bits is sorted together with its position. Keys of 64 bits are sorted alone, and pairs of them and their positions
 * stay in the order of positions until the end.
 *
 * Else, while a row is read, the memory of the resulting positions is a heap: its root is the worst element kept so far, so that most
 * elements cost one comparison. Then the heap is taken apart from its root, which gives the order. The state of a row that is left is in
 * the output alone. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/key.h"

#include <string.h>

enum {
    READ_PIECE = 1 << 15, /* elements between two looks whether to stop */
    SORT_PIECE = 1 << 9,
    OFTEN = 16,            /* as many elements for each result: among them are many that are good enough */
    BLOCK = 256,           /* elements whose keys are made at a time */
    SELECT_MOST = 1 << 16, /* results that are selected: more would take too long to be put in order at once */
    SELECT_FEW = 1024,     /* so many on the stack; more in the workspace */
    WIDE_LEAST = 128,      /* elements of a row with keys of 64 bits that are selected */
    COLLECT_LEAST = 64,    /* elements that are collected before they are sorted */
};

/* The key of an element. */
typedef uint64_t key_function(const char *element, uint64_t infinity);

struct job {
    struct cpu_job base;
    const struct topk_functions *functions;
    cpu_find_function *find;
    cpu_row_function *copy;      /* of elements that do not follow one another */
    const struct cpu_sort *sort; /* of keys with positions; NULL: results are not selected so */
    const struct cpu_sort *wide; /* of keys alone; the same */
    char *workspace;             /* `room` bytes for each lane; of few results, none */
    int64_t room;
    const char *x;
    char *values;
    int64_t *positions;
    int64_t outer, n, k, inner; /* x [outer, n, inner], results [outer, k, inner] */
    int64_t size;
    uint64_t infinity; /* for keys */
    uint64_t flip;     /* what reverses the order of keys if the greatest elements are wanted; else 0 */
};

/* One row: addresses of its first elements. */
struct row {
    const struct job *job;
    const char *x;
    char *values;
    int64_t *heap;
};

struct topk_functions {
    void (*read)(const struct row *row, int64_t begin, int64_t end);
    void (*sort)(const struct row *row, int64_t begin, int64_t end);
};

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t row_key(const struct row *row, key_function *key, int64_t position) {
    return key(row->x + position * row->job->inner * row->job->size, row->job->infinity) ^ row->job->flip;
}

/* Whether element a, of key `a_key`, comes after element b. */
INLINE bool row_worse(const struct row *row, key_function *key, uint64_t a_key, int64_t a, int64_t b) {
    uint64_t b_key = row_key(row, key, b);
    return a_key > b_key || (a_key == b_key && a > b);
}

/* Puts a position into the heap of `size` from its root on. */
INLINE void row_sift_down(const struct row *row, key_function *key, int64_t size, int64_t position) {
    int64_t *heap = row->heap, inner = row->job->inner, at = 0;
    uint64_t own = row_key(row, key, position);
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        int64_t left = heap[child * inner];
        if (child + 1 < size) {
            int64_t right = heap[(child + 1) * inner];
            if (row_worse(row, key, row_key(row, key, right), right, left)) {
                left = right;
                child++;
            }
        }
        if (row_worse(row, key, own, position, left)) {
            break;
        }
        heap[at * inner] = left;
    }
    heap[at * inner] = position;
}

INLINE void row_sift_up(const struct row *row, key_function *key, int64_t at, int64_t position) {
    int64_t *heap = row->heap, inner = row->job->inner;
    uint64_t own = row_key(row, key, position);
    while (at > 0) {
        int64_t parent = (at - 1) / 2, above = heap[parent * inner];
        if (!row_worse(row, key, own, position, above)) {
            break;
        }
        heap[at * inner] = above;
        at = parent;
    }
    heap[at * inner] = position;
}

/* Reads elements `begin` to `end` - 1. Earlier elements are in the heap, or were not good enough. */
INLINE void row_read(const struct row *row, key_function *key, int64_t begin, int64_t end) {
    const struct job *job = row->job;
    _Alignas(8) char block[BLOCK * sizeof(uint64_t)];
    int64_t k = job->k, often = OFTEN * k < end ? OFTEN * k : end, i = begin, n;
    for (; i < k && i < end; i++) {
        row_sift_up(row, key, i, i);
    }
    uint64_t worst = row_key(row, key, row->heap[0]); /* of equal elements the earlier stays */
    for (; i < often; i++) {
        if (row_key(row, key, i) < worst) {
            row_sift_down(row, key, k, i);
            worst = row_key(row, key, row->heap[0]);
        }
    }
    for (; i < end; i += n) {
        char *x = (char *)(uintptr_t)row->x + i * job->inner * job->size;
        n = end - i;
        if (job->inner > 1) {
            n = n < BLOCK ? n : BLOCK;
            job->copy(&(struct cpu_row){n, {block, x}, {1, job->inner}});
            x = block;
        }
        for (int64_t at = 0; (at += job->find(job->infinity, job->flip, x + at * job->size, n - at, worst)) < n; at++) {
            row_sift_down(row, key, k, i + at);
            worst = row_key(row, key, row->heap[0]);
        }
    }
}

/* Fills places `begin` to `end` - 1 of the result, counted from its end. */
INLINE void row_sort(const struct row *row, key_function *key, int64_t begin, int64_t end) {
    int64_t inner = row->job->inner, size = row->job->size;
    for (int64_t done = begin; done < end; done++) {
        int64_t last = row->job->k - 1 - done, worst = row->heap[0], moved = row->heap[last * inner];
        if (last > 0) {
            row_sift_down(row, key, last, moved);
        }
        row->heap[last * inner] = worst;
        memcpy(row->values + last * inner * size, row->x + worst * inner * size, (size_t)size);
    }
}

#define FUNCTIONS(name, T, kind)                                                                                       \
    static inline uint64_t key_##name(const char *element, uint64_t all_infinity) {                                    \
        const T infinity = (T)all_infinity;                                                                            \
        T bits;                                                                                                        \
        memcpy(&bits, element, sizeof bits);                                                                           \
        (void)infinity;                                                                                                \
        return KEY(T, kind, bits, infinity);                                                                           \
    }                                                                                                                  \
    static void read_##name(const struct row *row, int64_t begin, int64_t end) {                                       \
        row_read(row, key_##name, begin, end);                                                                         \
    }                                                                                                                  \
    static void sort_##name(const struct row *row, int64_t begin, int64_t end) {                                       \
        row_sort(row, key_##name, begin, end);                                                                         \
    }
KEY_TYPES(FUNCTIONS)
#undef FUNCTIONS

static const struct topk_functions functions[KEY_PLACES] = {
#define FUNCTIONS(name, T, kind) {read_##name, sort_##name},
    KEY_TYPES(FUNCTIONS)
#undef FUNCTIONS
};

/* ---- selection ---- */

/* What is collected before it is sorted, at most. */
static int64_t collected_most(int64_t k) {
    return 2 * k < COLLECT_LEAST ? COLLECT_LEAST : 2 * k;
}

/* The places that this takes, */
static int64_t collected_places(int64_t k) {
    return collected_most(k) + BLOCK + CPU_SELECT_MORE;
}

/* and all that selection needs for a row, of 8 bytes each. */
static int64_t select_places(int64_t k, bool pairs) {
    return pairs ? 3 * collected_places(k) + (k + 1) / 2 : collected_places(k);
}
enum { FEW_PLACES = 3 * (2 * SELECT_FEW + BLOCK + CPU_SELECT_MORE) + SELECT_FEW / 2 };

/* Keys with positions (argsort's), of which the first `kept` are in order. */
struct collected {
    int64_t count, kept;
    uint64_t limit; /* keys of this or above are not wanted; of equal elements the earlier stays */
    uint64_t *keys; /* [collected_places(k)] */
};

static void collected_sort(const struct job *job, struct collected *all) {
    job->sort->sort(all->keys, all->count);
    all->count = all->kept = all->count < job->k ? all->count : job->k;
    all->limit = all->kept == job->k ? all->keys[all->kept - 1] >> 32 << 32 : UINT64_MAX;
}

static void collected_load(const struct row *row, int64_t position, int64_t n, void *keys) {
    const struct job *job = row->job;
    job->sort->load(job->infinity, job->flip, row->x + position * job->inner * job->size, job->inner, position, n,
                    keys);
}

/* The best elements so far, from the result, where the row was left. */
static void collected_resume(const struct row *row, int64_t position, struct collected *all) {
    int64_t k = row->job->k < position ? row->job->k : position;
    for (int64_t i = 0; i < k; i++) {
        collected_load(row, row->heap[i * row->job->inner], 1, &all->keys[i]);
    }
    all->count = k;
    collected_sort(row->job, all);
}

static void collected_write(const struct row *row, struct collected *all, bool values) {
    const struct job *job = row->job;
    int64_t inner = job->inner, size = job->size;
    if (all->count > all->kept) {
        collected_sort(job, all);
    }
    job->sort->store(job->flip, all->keys, all->count, row->heap, inner);
    for (int64_t i = 0; values && i < all->count; i++) {
        memcpy(row->values + i * inner * size, row->x + row->heap[i * inner] * inner * size, (size_t)size);
    }
}

/* Reads elements from *position on, to the end of the row or of a piece that is the last one for now. False: it is left. */
static bool row_select(struct job *job, const struct row *row, uint64_t *room, int64_t *position) {
    const int64_t many = collected_most(job->k);
    struct collected all = {.keys = room};
    uint64_t keys[BLOCK];
    int64_t at = *position, since = 0, n;
    if (at > 0) {
        collected_resume(row, at, &all);
    } else {
        at = many < job->n ? many : job->n;
        collected_load(row, 0, at, all.keys);
        all.count = at;
        collected_sort(job, &all);
    }
    for (; at < job->n; at += n, since += n) {
        if (since >= READ_PIECE && cpu_job_stops(&job->base)) {
            collected_write(row, &all, false);
            *position = at;
            return false;
        }
        since = since >= READ_PIECE ? 0 : since;
        n = job->n - at < BLOCK ? job->n - at : BLOCK;
        collected_load(row, at, n, keys);
        all.count += job->base.cpu->kernels->select->keys(keys, n, all.limit, all.keys + all.count);
        if (all.count > many) {
            collected_sort(job, &all);
        }
    }
    collected_write(row, &all, true);
    return true;
}

/* Pairs, in the order of positions. */
struct pairs {
    int64_t count;
    uint64_t limit;
    uint64_t *keys, *sorted; /* [collected_places(k)] each */
    int64_t *positions;      /* the same */
    uint32_t *used;          /* [k] */
};

static void pairs_load(const struct row *row, int64_t position, int64_t n, void *keys) {
    const struct job *job = row->job;
    job->wide->load(job->infinity, job->flip, row->x + position * job->inner * job->size, job->inner, position, n,
                    keys);
}

/* How many of n sorted keys are below `key`. */
static int64_t pairs_below(const uint64_t *sorted, int64_t n, uint64_t key) {
    int64_t least = 0;
    while (n > 0) {
        int64_t half = n - n / 2;
        least += sorted[least + half - 1] < key ? half : 0;
        n -= half;
    }
    return least;
}

/* The k best pairs stay: of those with the worst key the first ones. At least k pairs are there. */
static void pairs_sort(const struct job *job, struct pairs *all) {
    memcpy(all->sorted, all->keys, (size_t)all->count * sizeof *all->keys);
    job->wide->sort(all->sorted, all->count);
    all->limit = all->sorted[job->k - 1];
    int64_t equal = job->k - pairs_below(all->sorted, job->k, all->limit), count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        const uint64_t key = all->keys[i];
        const bool last = key == all->limit && equal > 0;
        all->keys[count] = key;
        all->positions[count] = all->positions[i];
        count += key < all->limit || last;
        equal -= last;
    }
    all->count = count;
}

static void pairs_write(const struct row *row, struct pairs *all) {
    const struct job *job = row->job;
    int64_t inner = job->inner, size = job->size;
    uint32_t *used = all->used; /* by the first place of equal keys: so many of them have been written */
    pairs_sort(job, all);
    memset(used, 0, (size_t)all->count * sizeof *used);
    for (int64_t i = 0; i < all->count; i++) {
        int64_t first = pairs_below(all->sorted, all->count, all->keys[i]), place = first + used[first]++;
        row->heap[place * inner] = all->positions[i];
        memcpy(row->values + place * inner * size, row->x + all->positions[i] * inner * size, (size_t)size);
    }
}

/* As row_select(). A row that is left keeps the positions of the best elements in the result, as they ascend. */
static bool row_select_wide(struct job *job, const struct row *row, uint64_t *room, int64_t *position) {
    const int64_t many = collected_most(job->k), places = collected_places(job->k);
    struct pairs all = {.keys = room,
                        .sorted = room + places,
                        .positions = (int64_t *)room + 2 * places,
                        .used = (uint32_t *)(room + 3 * places)};
    uint64_t keys[BLOCK];
    int64_t at = *position, since = 0, n;
    all.count = at > 0 ? job->k : many < job->n ? many : job->n;
    for (int64_t i = 0; i < all.count; i++) {
        all.positions[i] = at > 0 ? row->heap[i * job->inner] : i;
    }
    if (at > 0) {
        for (int64_t i = 0; i < all.count; i++) {
            pairs_load(row, all.positions[i], 1, &all.keys[i]);
        }
    } else {
        at = all.count;
        pairs_load(row, 0, at, all.keys);
    }
    pairs_sort(job, &all);
    for (; at < job->n; at += n, since += n) {
        if (since >= READ_PIECE && cpu_job_stops(&job->base)) {
            pairs_sort(job, &all);
            for (int64_t i = 0; i < all.count; i++) {
                row->heap[i * job->inner] = all.positions[i];
            }
            *position = at;
            return false;
        }
        since = since >= READ_PIECE ? 0 : since;
        n = job->n - at < BLOCK ? job->n - at : BLOCK;
        pairs_load(row, at, n, keys);
        all.count += job->base.cpu->kernels->select->pairs(keys, n, all.limit, at, all.keys + all.count,
                                                           all.positions + all.count);
        if (all.count > many) {
            pairs_sort(job, &all);
        }
    }
    pairs_write(row, &all);
    return true;
}

/* ---- rows ---- */

static struct row job_row(const struct job *job, int64_t number) {
    int64_t outer = number / job->inner, inner = number % job->inner, first = outer * job->k * job->inner + inner;
    return (struct row){.job = job,
                        .x = job->x + (outer * job->n * job->inner + inner) * job->size,
                        .values = job->values + first * job->size,
                        .heap = job->positions + first};
}

/* On the stack there is room for few results. */
static __attribute__((noinline)) bool row_select_few(struct job *job, const struct row *row, int64_t *position) {
    _Alignas(64) uint64_t room[FEW_PLACES];
    return (job->sort ? row_select : row_select_wide)(job, row, room, position);
}

/* One row, from *position on, which counts elements that were read and then places that were filled. False: it is left. */
static bool row_run(struct job *job, const struct row *row, unsigned lane, int64_t *position) {
    if (job->sort || job->wide) {
        uint64_t *room = (uint64_t *)(void *)(job->workspace + lane * job->room);
        bool ended = job->room == 0 ? row_select_few(job, row, position)
                                    : (job->sort ? row_select : row_select_wide)(job, row, room, position);
        *position = ended ? 0 : *position;
        return ended;
    }
    while (*position < job->n + job->k) {
        bool reads = *position < job->n;
        int64_t begin = reads ? *position : *position - job->n, left = (reads ? job->n : job->k) - begin;
        int64_t piece = reads ? READ_PIECE : SORT_PIECE, count = left < piece ? left : piece;
        (reads ? job->functions->read : job->functions->sort)(row, begin, begin + count);
        *position += count;
        if (*position < job->n + job->k && cpu_job_stops(&job->base)) {
            return false;
        }
    }
    *position = 0;
    return true;
}

static bool job_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t rows = job->outer * job->inner, steps = job->n + job->k;
    int64_t begin = cpu_part_begin(rows, lane->part, base->parts),
            end = cpu_part_begin(rows, lane->part + 1, base->parts);
    int64_t position = lane->position % steps;
    for (int64_t number = begin + lane->position / steps; number < end; number++) {
        struct row row = job_row(job, number);
        if (!row_run(job, &row, lane->number, &position)) {
            lane->position = (number - begin) * steps + position;
            return false;
        }
    }
    return true;
}

/* How rows are selected; both NULL: they are not. */
static void select_find(const struct cpu *cpu, const struct launch *launch, struct job *job) {
    const struct operand *x = &launch->inputs[0];
    const int64_t n = x->shape[1], k = launch->output.shape[1];
    const int place = key_place((enum dtype)x->dtype);
    const bool wide = dtype_size((enum dtype)x->dtype) == sizeof(uint64_t);
    if (cpu->kernels->argsort[place].sort && k <= SELECT_MOST && n <= UINT32_MAX) {
        job->sort = &cpu->kernels->argsort[place];
    } else if (cpu->kernels->sort[place].sort && wide && n >= WIDE_LEAST && k <= SELECT_MOST) {
        job->wide = &cpu->kernels->sort[place];
    }
    if ((job->sort || job->wide) && k > SELECT_FEW) {
        job->room = select_places(k, job->wide) * (int64_t)sizeof(uint64_t);
    }
}

/* So many lanes have room. */
static unsigned select_lanes(const struct cpu *cpu, const struct launch *launch) {
    const double rows = (double)launch->inputs[0].shape[0] * (double)launch->inputs[0].shape[2];
    return rows < cpu->team.threads ? (unsigned)rows : cpu->team.threads;
}

static uint64_t topk_workspace(struct device *device, const struct launch *launch) {
    const struct cpu *cpu = (const struct cpu *)device;
    struct job job = {.room = 0};
    select_find(cpu, launch, &job);
    return (uint64_t)job.room * select_lanes(cpu, launch);
}

static int topk_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *x = &launch->inputs[0], *values = &launch->output;
    struct topk_attributes attributes;
    (void)fault;
    topk_attributes_read(&launch->attributes, &attributes);
    enum dtype dtype = (enum dtype)x->dtype;
    int place = key_place(dtype);
    struct job job = {.base = {.cpu = cpu, .run = job_part},
                      .functions = &functions[place],
                      .find = cpu->kernels->find[place],
                      .workspace = launch->workspace,
                      .x = x->data,
                      .values = values->data,
                      .positions = launch_further(launch, 1)->data,
                      .outer = x->shape[0],
                      .n = x->shape[1],
                      .k = values->shape[1],
                      .inner = x->shape[2],
                      .size = (int64_t)dtype_size(dtype),
                      .infinity = key_infinity(dtype)};
    job.flip = attributes.largest ? UINT64_MAX >> (64 - 8 * job.size) : 0;
    job.copy = cpu->kernels->elementwise[CPU_ROW_copy_1 + __builtin_ctzll((uint64_t)job.size)];
    select_find(cpu, launch, &job);
    double rows = (double)job.outer * (double)job.inner;
    double work = rows * ((double)job.n * 8 + (double)job.k * 256);
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = rows < job.base.parts ? (unsigned)rows : job.base.parts;
    if (job.room) {
        job.base.lanes_most = select_lanes(cpu, launch);
        job.base.parts = job.base.parts < job.base.lanes_most ? job.base.parts : job.base.lanes_most;
    }
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_topk = {{.workspace = topk_workspace}, topk_run};
