/* Elements of f16, bf16, f32 and f64, for drivers whose loops compute on f32 and f64 alone: halves go through buffers of f32, block by block,
 * and are rounded once, when a result is written. Other elements stay where they are. */
#pragma once

#include "engine/cpu/cpu.h"

/* Elements in a buffer: a few buffers stay in the first-level cache. It is a multiple of the blocks that rows_normalisation.c adds up, so that
 * sums of halves are the sums of the same numbers in f32. */
enum { CPU_FLOATS_BLOCK = 1024 };

struct cpu_floats {
    int64_t size;                     /* bytes of an element */
    bool is_f64;                      /* they are computed as f64; else as f32 */
    cpu_row_function *widen, *narrow; /* of halves; else NULL */
};

/* Of one thread. The block that it holds is not converted again: nothing else may write there meanwhile. */
struct cpu_floats_buffer {
    const void *from; /* it holds the n elements from here on; NULL: none */
    int64_t n;
    _Alignas(64) float values[CPU_FLOATS_BLOCK];
};

static inline struct cpu_floats cpu_floats_of(const struct cpu *cpu, enum dtype dtype) {
    bool halves = dtype == DTYPE_F16 || dtype == DTYPE_BF16;
    return (struct cpu_floats){.size = (int64_t)dtype_size(dtype),
                               .is_f64 = dtype == DTYPE_F64,
                               .widen = halves ? cpu->kernels->cast[dtype][DTYPE_F32] : NULL,
                               .narrow = halves ? cpu->kernels->cast[DTYPE_F32][dtype] : NULL};
}

/* ---- blocks ---- */

/* The buffers hold nothing yet. */
static inline void cpu_floats_begin(struct cpu_floats_buffer *buffers, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        buffers[i].from = NULL;
    }
}

/* How many of n elements are computed at a time: those that need no buffer all at once. */
static inline int64_t cpu_floats_block(const struct cpu_floats *floats, int64_t n) {
    return floats->widen && n > CPU_FLOATS_BLOCK ? CPU_FLOATS_BLOCK : n;
}

/* The stride between elements that are computed, if that in memory is `stride`. */
static inline int64_t cpu_floats_stride(const struct cpu_floats *floats, int64_t stride) {
    return floats->widen ? 1 : stride;
}

/* A block to compute on: in the buffer, or where it is. */
static inline const void *cpu_floats_read(const struct cpu_floats *floats, int64_t n, const void *from, int64_t stride,
                                          struct cpu_floats_buffer *buffer) {
    if (!floats->widen) {
        return from;
    }
    if (buffer->from != from || buffer->n != n) {
        floats->widen(&(struct cpu_row){n, {(char *)buffer->values, (char *)(uintptr_t)from}, {1, stride}});
        buffer->from = from;
        buffer->n = n;
    }
    return buffer->values;
}

/* Where to put the results for `to`, until cpu_floats_write(): the buffer may be one that has been read, for results that take the places of the
 * elements that they are computed from. */
static inline void *cpu_floats_results(const struct cpu_floats *floats, void *to, struct cpu_floats_buffer *buffer) {
    buffer->from = NULL;
    return floats->narrow ? buffer->values : to;
}

static inline void cpu_floats_write(const struct cpu_floats *floats, int64_t n, void *to, int64_t stride,
                                    struct cpu_floats_buffer *buffer) {
    if (floats->narrow) {
        floats->narrow(&(struct cpu_row){n, {to, (char *)buffer->values}, {stride, 1}});
    }
}

/* ---- single elements ---- */

/* One of a block. `is_f64` apart from the rest, for loops that know it. */
static inline double cpu_floats_at(bool is_f64, const void *block, int64_t at) {
    return is_f64 ? ((const double *)block)[at] : (double)((const float *)block)[at];
}

static inline void cpu_floats_put(bool is_f64, void *block, int64_t at, double value) {
    if (is_f64) {
        ((double *)block)[at] = value;
    } else {
        ((float *)block)[at] = (float)value;
    }
}

/* One in memory. */
static inline double cpu_floats_get(const struct cpu_floats *floats, const void *from, int64_t at) {
    if (!floats->widen) {
        return cpu_floats_at(floats->is_f64, from, at);
    }
    float value;
    char *half = (char *)(uintptr_t)from + at * floats->size;
    floats->widen(&(struct cpu_row){1, {(char *)&value, half}, {1, 1}});
    return (double)value;
}

static inline void cpu_floats_set(const struct cpu_floats *floats, void *to, int64_t at, double value) {
    if (!floats->narrow) {
        cpu_floats_put(floats->is_f64, to, at, value);
        return;
    }
    float narrower = (float)value;
    floats->narrow(&(struct cpu_row){1, {(char *)to + at * floats->size, (char *)&narrower}, {1, 1}});
}
