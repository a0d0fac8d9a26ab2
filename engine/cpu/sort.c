/* The greatest or least elements of rows, in order, and their positions.
 *
 * While a row is read, the memory of the resulting positions is a heap: its root is the worst element kept so far, so that most elements
 * cost one comparison. Then the heap is taken apart from its root, which gives the order. The state of a row that is left is in the
 * output alone. */
#include "engine/cpu/cpu.h"

#include <string.h>

enum {
    READ_PIECE = 1 << 15, /* elements between two looks whether to stop */
    SORT_PIECE = 1 << 9
};

/* An element as a number that has its order: NaN above all, -0 as +0. */
typedef int64_t key_function(const char *element);

struct job {
    struct cpu_job base;
    const struct topk_functions *functions;
    const char *x;
    char *values;
    int64_t *positions;
    int64_t outer, n, k, inner; /* x [outer, n, inner], results [outer, k, inner] */
    int64_t size;
    int64_t flip; /* 0, or -1 for the least elements: reverses the order of keys */
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

INLINE int64_t row_key(const struct row *row, key_function *key, int64_t position) {
    return key(row->x + position * row->job->inner * row->job->size) ^ row->job->flip;
}

/* Whether element a, of key `a_key`, comes after element b. */
INLINE bool row_worse(const struct row *row, key_function *key, int64_t a_key, int64_t a, int64_t b) {
    int64_t b_key = row_key(row, key, b);
    return a_key < b_key || (a_key == b_key && a > b);
}

/* Puts a position into the heap of `size` from its root on. */
INLINE void row_sift_down(const struct row *row, key_function *key, int64_t size, int64_t position) {
    int64_t *heap = row->heap, inner = row->job->inner, at = 0, own = row_key(row, key, position);
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
    int64_t *heap = row->heap, inner = row->job->inner, own = row_key(row, key, position);
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
    int64_t k = row->job->k, i = begin;
    for (; i < k && i < end; i++) {
        row_sift_up(row, key, i, i);
    }
    if (i == end) {
        return;
    }
    int64_t worst = row_key(row, key, row->heap[0]);
    for (; i < end; i++) {
        if (row_key(row, key, i) > worst) { /* of equal elements the earlier stays */
            row_sift_down(row, key, k, i);
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

/* ---- keys ---- */

/* The key of a float: its bits, reversed in order for negative numbers. */
#define KEY_FLOAT(name, T, infinity)                                                                                   \
    static inline int64_t key_##name(const char *element) {                                                            \
        T bits, magnitude;                                                                                             \
        memcpy(&bits, element, sizeof bits);                                                                           \
        magnitude = (T)(bits & (T) ~((T)1 << (8 * sizeof(T) - 1)));                                                    \
        return magnitude > (infinity) ? INT64_MAX : bits == magnitude ? (int64_t)magnitude : -(int64_t)magnitude;      \
    }
#define KEY_INTEGER(name, T)                                                                                           \
    static inline int64_t key_##name(const char *element) {                                                            \
        T value;                                                                                                       \
        memcpy(&value, element, sizeof value);                                                                         \
        return (int64_t)value;                                                                                         \
    }

KEY_FLOAT(f16, uint16_t, 0x7c00)
KEY_FLOAT(bf16, uint16_t, 0x7f80)
KEY_FLOAT(f32, uint32_t, UINT32_C(0x7f800000))
KEY_FLOAT(f64, uint64_t, UINT64_C(0x7ff0000000000000))
KEY_INTEGER(u8, uint8_t)
KEY_INTEGER(i8, int8_t)
KEY_INTEGER(i16, int16_t)
KEY_INTEGER(i32, int32_t)
KEY_INTEGER(i64, int64_t)
KEY_INTEGER(u16, uint16_t)
KEY_INTEGER(u32, uint32_t)
static inline int64_t key_u64(const char *element) {
    return (int64_t)((uint64_t)key_i64(element) ^ UINT64_C(1) << 63);
}

#define TOPK_DTYPES(X)                                                                                                 \
    X(f16, F16)                                                                                                        \
    X(bf16, BF16) X(f32, F32) X(f64, F64) X(u8, U8) X(i8, I8) X(i16, I16) X(i32, I32) X(i64, I64) X(u16, U16)          \
        X(u32, U32) X(u64, U64)

#define X(name, NAME)                                                                                                  \
    static void read_##name(const struct row *row, int64_t begin, int64_t end) {                                       \
        row_read(row, key_##name, begin, end);                                                                         \
    }                                                                                                                  \
    static void sort_##name(const struct row *row, int64_t begin, int64_t end) {                                       \
        row_sort(row, key_##name, begin, end);                                                                         \
    }
TOPK_DTYPES(X)
#undef X

static const struct topk_functions functions[DTYPE_COUNT] = {
#define X(name, NAME) [DTYPE_##NAME] = {read_##name, sort_##name},
    TOPK_DTYPES(X)
#undef X
};

/* ---- rows ---- */

static struct row job_row(const struct job *job, int64_t number) {
    int64_t outer = number / job->inner, inner = number % job->inner, first = outer * job->k * job->inner + inner;
    return (struct row){.job = job,
                        .x = job->x + (outer * job->n * job->inner + inner) * job->size,
                        .values = job->values + first * job->size,
                        .heap = job->positions + first};
}

/* One row, from *position on, which counts elements that were read and then places that were filled. False: it is left. */
static bool row_run(struct job *job, const struct row *row, int64_t *position) {
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
        if (!row_run(job, &row, &position)) {
            lane->position = (number - begin) * steps + position;
            return false;
        }
    }
    return true;
}

static int topk_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *x = &launch->inputs[0], *values = &launch->output;
    struct topk_attributes attributes;
    (void)fault;
    topk_attributes_read(&launch->attributes, &attributes);
    struct job job = {.base = {.cpu = cpu, .run = job_part},
                      .functions = &functions[x->dtype],
                      .x = x->data,
                      .values = values->data,
                      .positions = launch_further(launch, 1)->data,
                      .outer = x->shape[0],
                      .n = x->shape[1],
                      .k = values->shape[1],
                      .inner = x->shape[2],
                      .size = (int64_t)dtype_size((enum dtype)x->dtype),
                      .flip = attributes.largest ? 0 : -1};
    double rows = (double)job.outer * (double)job.inner;
    double work = rows * ((double)job.n * 8 + (double)job.k * 256);
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = rows < job.base.parts ? (unsigned)rows : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

const struct cpu_kernel cpu_kernel_topk = {.driver = topk_run};
