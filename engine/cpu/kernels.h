/* The inner loops of the CPU backend: the sources that are compiled once for each vector level, and their tables of functions.
 *
 * rows_*.c and kernels.c hold the loops and are compiled several times with different CPU_LEVEL (engine/cpu/meson.build);
 * the drivers (elementwise.c, reduce.c, …) walk over axes, share the work out among threads, and are compiled once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/cpu/chain.h"
#include "engine/cpu/sort.h"
#include "proto/ops/op.h"

/* An element of 16 bytes, of which only the size counts. */
struct cpu_pair {
    uint64_t first, second;
};

/* One run along the innermost axis: n elements of the output and up to three arguments, which are inputs and then attributes. An attribute
 * is one element of the row's dtype, or of f32 in a row of halves. */
struct cpu_row {
    int64_t n;
    char *data[4];     /* output, inputs… */
    int64_t stride[4]; /* in elements; the output's is 1, except of COPY and CAST. The stride of an attribute is 0 */
};
typedef void cpu_row_function(const struct cpu_row *row);

/* Accumulators of a reduction or scan, one for each of up to CPU_REDUCE_WIDTH outputs. Each reduction has its own format for them. */
enum { CPU_REDUCE_WIDTH = 256 };
struct cpu_accumulators {
    _Alignas(64) char value[CPU_REDUCE_WIDTH * 8];
    _Alignas(64) char extra[CPU_REDUCE_WIDTH * 8]; /* compensation of a sum, position of an extreme */
    double parameter; /* the attribute: a variance's correction, a norm's order; the caller sets it before start() */
    int64_t taken;    /* of a variance: the elements in each accumulator */
};

/* A reduction of one dtype. `position` counts the reduced elements before this call's. */
struct cpu_reduction {
    void (*start)(int64_t n, struct cpu_accumulators *accumulators);
    /* Takes n elements into accumulator 0. */
    void (*row)(int64_t n, const void *x, int64_t stride, int64_t position, struct cpu_accumulators *accumulators);
    /* Takes `steps` elements, `step` apart, into each of n accumulators. */
    void (*columns)(int64_t n, const void *x, int64_t stride, int64_t steps, int64_t step, int64_t position,
                    struct cpu_accumulators *accumulators);
    /* Merges the accumulators `from`, which have taken later elements, into n accumulators. */
    void (*merge)(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from);
    void (*finish)(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out);
};

/* X(NAME, name): the reductions. vector_norm is one for each kind of its order. */
#define CPU_REDUCTIONS(X)                                                                                              \
    X(SUM, sum)                                                                                                        \
    X(PROD, prod)                                                                                                      \
    X(MEAN, mean)                                                                                                      \
    X(MAX, max)                                                                                                        \
    X(MIN, min)                                                                                                        \
    X(ANY, any)                                                                                                        \
    X(ALL, all)                                                                                                        \
    X(ARGMAX, argmax)                                                                                                  \
    X(ARGMIN, argmin)                                                                                                  \
    X(VAR, var)                                                                                                        \
    X(STD, std)                                                                                                        \
    X(COUNT_NONZERO, count_nonzero)                                                                                    \
    X(LOGSUMEXP, logsumexp)                                                                                            \
    X(NORM_0, norm_0)                                                                                                  \
    X(NORM_1, norm_1)                                                                                                  \
    X(NORM_2, norm_2)                                                                                                  \
    X(NORM_POWER, norm_power)                                                                                          \
    X(NORM_MAX, norm_max)                                                                                              \
    X(NORM_MIN, norm_min)
enum cpu_reduction_kind {
#define X(NAME, name) CPU_REDUCE_##NAME,
    CPU_REDUCTIONS(X)
#undef X
        CPU_REDUCE_COUNT,
};

/* The next n elements of one line of a scan, or the next element of each of n lines. */
struct cpu_scan_row {
    int64_t n;
    const void *x;
    void *out;
    int64_t *positions; /* with the stride of `out`; of cummax and cummin alone */
    int64_t x_stride, out_stride;
    int64_t position; /* on the axis, of the (first) element */
};
/* A scan of one dtype. The accumulators keep what has been taken so far. */
struct cpu_scan {
    void (*start)(int64_t n, struct cpu_accumulators *accumulators);
    void (*along)(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators);
    void (*down)(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators);
};
enum cpu_scan_kind { CPU_SCAN_SUM, CPU_SCAN_PROD, CPU_SCAN_MAX, CPU_SCAN_MIN, CPU_SCAN_LOGSUMEXP, CPU_SCAN_COUNT };

/* Softmax or its logarithm of n elements with the given strides; `out` may be x. `row` computes a whole row. A long row is computed piece
 * by piece in three steps: the greatest element, the sum of exponentials, the results. */
struct cpu_softmax {
    void (*row)(int64_t n, const void *x, int64_t x_stride, void *out, int64_t out_stride);
    double (*maximum)(int64_t n, const void *x, int64_t x_stride);
    double (*sum)(int64_t n, const void *x, int64_t x_stride, double maximum);
    void (*write)(int64_t n, const void *x, int64_t x_stride, void *out, int64_t out_stride, double maximum,
                  double sum);
};

struct cpu_random {
    uint64_t seed, offset;
    double first, second; /* low and high, or mean and deviation, or the scale */
    double least, last;   /* the least and the greatest value that uniform may give; both values of the dtype */
    int64_t low;          /* of randint: the lowest integer, */
    uint64_t range;       /* and how many there are */
    uint64_t threshold;   /* lanes below it are chosen by bernoulli and dropped by dropout */
    const struct philox_permutation *permutation;
    const void *x; /* the input of dropout and bernoulli_like */
};
/* Writes elements begin … end - 1 of a random tensor; `out` is the tensor's first element. */
typedef void cpu_random_function(const struct cpu_random *random, int64_t begin, int64_t end, void *out);
enum cpu_random_kind {
    CPU_RANDOM_UNIFORM,
    CPU_RANDOM_NORMAL,
    CPU_RANDOM_EXPONENTIAL,
    CPU_RANDOM_RANDINT,
    CPU_RANDOM_BERNOULLI,
    CPU_RANDOM_PERMUTATION,
    CPU_RANDOM_DROPOUT,
    CPU_RANDOM_BERNOULLI_LIKE,
    CPU_RANDOM_COUNT,
};

/* Pooling of n places of a row. Windows are `stride` apart in x; where `pair` is true, two neighbours of each are taken, the one at x and the next.
 * greatest: keeps the greatest elements so far and their positions, negative where there is none yet; `first`: there is none yet anywhere. add: to
 * sums. spread: adds values to windows. add_run, spread_run: the same of one place and a window of n neighbours. divide: by `rows` times the
 * numbers `by`. scatter: adds each to an element of its own, unless its position is not below `extent`. */
struct cpu_pooling {
    void (*greatest)(int64_t n, const void *x, int64_t stride, bool pair, bool first, int32_t position, void *values,
                     int32_t *positions);
    void (*none)(int64_t n, void *values, int32_t *positions);
    void (*widen)(int64_t n, const int32_t *positions, int64_t *out);
    void (*add)(int64_t n, const void *x, int64_t stride, bool pair, void *sums);
    void (*spread)(int64_t n, const void *values, int64_t stride, bool pair, void *x);
    void (*add_run)(int64_t n, const void *x, void *sum);
    void (*spread_run)(int64_t n, const void *value, void *x);
    void (*divide)(int64_t n, const void *x, double rows, const void *by, void *out);
    void (*scatter)(int64_t n, const void *x, const int64_t *positions, int64_t extent, void *out);
};

/* Of the elements of a row so far: the mean, and the sum of the squares of their distances from it. */
struct cpu_moments {
    double count, mean, squares;
};

struct cpu_normalised { /* how whole rows are computed */
    bool centred;       /* the mean is subtracted */
    bool streamed;      /* the output is written past the caches; it is not x */
    double epsilon;
    const void *weight, *bias;
};

/* Passes over n elements of a row of a normalisation, with a stride; those with a weight for each element (`along`, and where `weight` is not
 * NULL) without one. x̂ = (x - mean) · scale.
 * moments: takes the elements. squares: the sum of the squares. dots: Σ of gradient · weight; *with_x: of these times x̂. back: (gradient · weight -
 * shift - x̂ · slope) · scale; back_along also adds gradient · x̂ to `weights` and the gradient to `biases`. total: the sum of arrays, `parts` of
 * them and `step` elements apart.
 * rows: whole rows, one behind another, each with `weight` and `bias` (both may be NULL) for its elements. */
struct cpu_normalisation {
    void (*rows)(int64_t rows, int64_t n, const void *x, const struct cpu_normalised *how, void *out);
    void (*moments)(int64_t n, const void *x, int64_t stride, struct cpu_moments *moments);
    double (*squares)(int64_t n, const void *x, int64_t stride);
    double (*dots)(int64_t n, const void *gradient, const void *x, int64_t stride, double mean, double scale,
                   const void *weight, double *with_x);
    void (*write)(int64_t n, const void *x, int64_t stride, double mean, double scale, double weight, double bias,
                  void *out);
    void (*write_along)(int64_t n, const void *x, double mean, double scale, const void *weight, const void *bias,
                        void *out);
    void (*back)(int64_t n, const void *gradient, const void *x, int64_t stride, double mean, double scale,
                 double weight, double shift, double slope, void *out);
    void (*back_along)(int64_t n, const void *gradient, const void *x, double mean, double scale, const void *weight,
                       double shift, double slope, void *out, double *weights, double *biases);
    void (*total)(int64_t n, int64_t parts, int64_t step, const double *sums, void *out);
};

/* A step of an optimiser for n elements, which follow one another in all arrays; the factors are struct optimiser_f32 or optimiser_f64
 * (engine/device/optimiser.h). */
typedef void cpu_optimiser_function(int64_t n, const void *const *in, void *const *out, const void *factors);

/* A sweep of plane rotations: number i replaces columns x = first + i · step and y = x + step by c · x + s · y and c · y - s · x. */
struct cpu_sweep {
    int64_t first, count, step; /* step: 1 or -1 */
    const void *rotations;      /* c and s of each, in the columns' dtype */
};
/* Applies sweeps, one after another, to some rows of a matrix, which lie column by column, CPU_ROTATE_BYTES for each column. */
enum { CPU_ROTATE_BYTES = 128 };
typedef void cpu_rotate_function(void *columns, const struct cpu_sweep *sweeps, int64_t n);

/* n elements of a loss (engine/device/loss.h): the sum of the losses; each of them; the gradient by x, with a gradient by each loss, or where that is
 * NULL one factor for all. */
struct cpu_loss {
    double (*sum)(int64_t n, const void *const *in, double delta);
    void (*each)(int64_t n, const void *const *in, double delta, void *out);
    void (*back)(int64_t n, const void *const *in, double delta, const void *gradient, double factor, void *out);
};

/* Passes over n scores of a row of attention, in place. add: a mask that is added; hide: keys that are not seen become -inf. exponentials: of their
 * distances from `shift`, and their sum. scale: of any numbers. slopes: in place of the gradients by the parts of softmax those by the
 * scores, part · (gradient - shift) · factor. */
struct cpu_attention {
    void (*add)(int64_t n, void *scores, const void *mask, int64_t stride);
    void (*hide)(int64_t n, void *scores, const uint8_t *seen, int64_t stride);
    double (*maximum)(int64_t n, const void *scores);
    double (*exponentials)(int64_t n, void *scores, double shift);
    void (*scale)(int64_t n, void *values, double factor);
    double (*dot)(int64_t n, const void *a, const void *b);
    void (*slopes)(int64_t n, void *gradients, const void *parts, double shift, double factor);
};

/* Cells of n units of a recurrent layer (engine/device/recurrent_formula.h); numbers of a gate are `step` elements apart. The back functions replace by_c
 * of an LSTM and by_h of a GRU. add: one array to another; collect: to sums. */
struct cpu_recurrent {
    void (*lstm)(int64_t n, void *kept, int64_t step, const void *c_before, void *c, void *h);
    void (*gru)(int64_t n, void *kept, int64_t step, const void *h_before, void *h);
    void (*lstm_back)(int64_t n, const void *kept, int64_t step, const void *c_before, const void *c, const void *by_h,
                      void *by_c, void *slopes);
    void (*gru_back)(int64_t n, const void *kept, int64_t step, const void *h_before, void *by_h, void *slopes);
    void (*add)(int64_t n, void *to, const void *from);
    void (*collect)(int64_t n, double *sums, const void *from);
};

/* c[rows][columns] += a[rows][depth] · b[depth][columns], packed, c with row length c_stride: modulo 2^32 or 2^64, or
 * as truth values in uint32_t. */
typedef void cpu_product_function(int64_t rows, int64_t columns, int64_t depth, const void *a, const void *b, void *c,
                                  int64_t c_stride);

/* The row functions of elementwise operations: CPU_ROW_add_f32 … */
enum cpu_row_number {
    CPU_ROW_NONE,
    CPU_ROW_where_1,
    CPU_ROW_where_2,
    CPU_ROW_where_4,
    CPU_ROW_where_8,
    CPU_ROW_where_16,
    CPU_ROW_copy_1,
    CPU_ROW_copy_2,
    CPU_ROW_copy_4,
    CPU_ROW_copy_8,
    CPU_ROW_copy_16,
#define CPU_ROW_NUMBER(name, inputs, parameters, dtype, result) CPU_ROW_##name##_##dtype,
    OP_FORMULAS(CPU_ROW_NUMBER) OP_FORMULAS_HALF(CPU_ROW_NUMBER)
#undef CPU_ROW_NUMBER
        CPU_ROW_COUNT
};

/* to[i · width + j] = from[i · row + j · column] for rows 0 … rows - 1, in elements; 2 to CPU_GATHER_MAX columns. The two have no byte in
 * common. */
enum { CPU_GATHER_MAX = 8 };
typedef void cpu_gather_function(void *to, const void *from, int64_t rows, int64_t width, int64_t row, int64_t column);

/* Of n vectors of three elements: out = a × b. The arrays are the output, a and b: `step` is from a vector to the next, `across` from an element of a
 * vector to the next, in elements. The output has no byte in common with the others. */
typedef void cpu_cross_function(int64_t n, void *out, const void *a, const void *b, const int64_t step[3],
                                const int64_t across[3]);
enum cpu_cross_kind { CPU_CROSS_F32, CPU_CROSS_F64, CPU_CROSS_32, CPU_CROSS_64, CPU_CROSS_COUNT };

/* Transposes a block of as many lines as a cache line has elements, which are a cache line long. Strides are bytes from one line to the next. */
typedef void cpu_turn_function(const char *in, int64_t in_stride, char *out, int64_t out_stride);

/* Solves n equations, CPU_TRIANGLE_MAX at most, for each of `sides` right sides, in place: those of side j are x[j], x[step + j], …, in elements;
 * `step` may be negative. Equation i has the factors rows[i · CPU_TRIANGLE_MAX + k], k < i, and diagonal[i]; diagonal NULL: 1. */
enum { CPU_TRIANGLE_MAX = 32 };
typedef void cpu_triangle_function(int64_t n, int64_t sides, const void *rows, const void *diagonal, void *x,
                                   int64_t step);

/* Of n columns of m >= n rows, CPU_REFLECT_MAX at most, which are a_step elements apart: R on and above the diagonal, and below it, of each
 * column j, the vector v of a reflection, whose first element is 1. The product of the reflections is 1 - v · t · vᵀ; t is an upper triangle,
 * whose columns are t_step elements apart. */
enum { CPU_REFLECT_MAX = 32 };
typedef void cpu_reflect_function(int64_t m, int64_t n, void *a, int64_t a_step, void *t, int64_t t_step);

/* NULL: no such kernel. Entries of the tables are indexed by a kind and the dtype presented (of the last input); those of `elementwise`
 * by the number of the row function, which cpu_row_find() finds: pointers are relocated when a process starts, so there is
 * one for each function and not one for each operation and dtype. */
struct cpu_kernels {
    const char *level; /* "avx512" */
    cpu_row_function *const *elementwise;
    cpu_row_function *(*cast)[DTYPE_COUNT];               /* [from][to] */
    const struct cpu_reduction *const *const *reductions; /* [enum cpu_reduction_kind][dtype] */
    const struct cpu_scan *const (*scans)[DTYPE_COUNT];   /* [enum cpu_scan_kind][dtype] */
    cpu_row_function *(*linear)[DTYPE_COUNT]; /* [activation][dtype]: of a product and a bias; halves as f32 */
    const struct cpu_softmax *const (*softmax)[DTYPE_COUNT]; /* [whether it is the logarithm][dtype] */
    cpu_random_function *const (*random)[DTYPE_COUNT];       /* [enum cpu_random_kind][dtype] */
    const struct cpu_pooling *pooling;                       /* f32, f64 */
    const struct cpu_normalisation *normalisation;
    cpu_optimiser_function *const *optimiser; /* by enum optimiser_way, of f32 and then of f64 */
    cpu_rotate_function *rotate_f32, *rotate_f64;
    const struct cpu_attention *attention;   /* f32, f64 */
    const struct cpu_recurrent *recurrent;   /* f32, f64 */
    const struct cpu_loss *loss;             /* by enum loss_way, of f32 and then of f64 */
    const struct cpu_fft *fft_f32, *fft_f64; /* engine/cpu/fft.h */
    const struct cpu_sort *sort, *argsort;   /* engine/cpu/sort.h; by key_place() */
    cpu_find_function *const *find;          /* the same */
    const struct cpu_select *select;
    cpu_search_function *const *search; /* by key_place() */
    cpu_product_function *product_u32, *product_u64, *product_bool;
    cpu_gather_function *const *gather;     /* by log2 of an element's bytes, 1 to 16 */
    cpu_turn_function *const *turn;         /* the same, 1 to 8 */
    cpu_cross_function *const *cross;       /* by enum cpu_cross_kind; of other dtypes rows of products do it */
    cpu_triangle_function *const *triangle; /* f32, f64 */
    cpu_reflect_function *const *reflect;   /* f32, f64 */
    const struct cpu_creation *creation;    /* engine/cpu/create.h */
    const struct cpu_symmetric *symmetric;  /* engine/cpu/symmetric.h */
    cpu_chain_function *const *chain;       /* f32, f64; NULL: rows are as quick. engine/cpu/chain.h */
    cpu_chain_function *const *chain_tile;  /* f32, one; the same */
    void (*move)(void *to, const void *from,
                 size_t bytes); /* cpu_move() with this level's vectors: half the time for rows of some KiB */
    /* Copies past the caches to an address aligned to 64; bytes are a multiple of 64. */
    void (*stream)(void *to, const void *from, size_t bytes);
    /* Later stores come after all that has been streamed. */
    void (*stream_end)(void);
};

/* The row function that computes an elementwise operation (not cast) in a dtype; CPU_ROW_NONE: none does. */
extern const uint16_t cpu_row_numbers[OP_PLACES_ELEMENTWISE][DTYPE_COUNT];
static inline cpu_row_function *cpu_row_find(const struct cpu_kernels *kernels, unsigned opcode, unsigned dtype) {
    return kernels->elementwise[cpu_row_numbers[op_place(opcode)][dtype]];
}

/* The levels that this processor has, the best one first; NULL behind the last one. */
const struct cpu_kernels *cpu_kernels_level(unsigned number);
