/* The operation table: what there is, how many inputs and attributes each takes, and the rule that gives the result's
 * dtype and shape. The client applies it to know a result before it exists; the server applies it again and trusts
 * nobody. Adding an operation is one row here, one rule in op_infer.c (or an existing one), one kernel per device, and
 * one typed function in the client; the compiler names a row without its rule, the conformance suite one without its
 * kernel.
 *
 * Attributes travel as two columns, integers and floats, in the order given in each row's comment. Axes may count from
 * the end (shape_axis). The rule `arithmetic` takes bool (add is or, multiply is and), the `numeric` ones and matmul
 * do not. f8 tensors are taken by what makes, moves and casts elements, and by matmul and linear, which give f32 for them. */
#pragma once

#include "proto/shape.h"

enum {
    OP_INPUTS_MAX = 255, /* concat and stack; a count is a byte on the wire */
    OP_INTS_MAX = 32,    /* slice of rank 8 takes 24 */
    OP_FLOATS_MAX = 4,
    OP_VARIES = -1, /* a count that the rule itself checks */
};

/* How the engine binds an operation; each family has one normal form of launch (engine/launch.h). */
enum op_family {
    OP_FAMILY_NONE,
    OP_FAMILY_FREE,        /* releases its inputs, no output */
    OP_FAMILY_CREATE,      /* no inputs */
    OP_FAMILY_VIEW,        /* shares the input's storage */
    OP_FAMILY_ELEMENTWISE, /* inputs broadcast to the output's shape */
    OP_FAMILY_REDUCE,
    OP_FAMILY_SOFTMAX,
    OP_FAMILY_MATMUL,
    OP_FAMILY_JOIN, /* concat, stack */
    OP_FAMILY_TAKE, /* reads positions out of an index tensor, checked on the device */
};

/* X(NAME, value, "name", family, rule, inputs min, inputs max, ints, floats)
 * Values are wire values and never change. `ints` and `floats` are exact counts or OP_VARIES. */
#define OP_TABLE(X)                                                                                                    \
    X(FREE, 1, "free", FREE, none, 1, OP_INPUTS_MAX, 0, 0)                                                             \
    /* ints: dtype, value as an integer, extents…; floats: value. Integer dtypes and bool take the integer. */         \
    X(FULL, 2, "full", CREATE, full, 0, 0, OP_VARIES, 1)                                                               \
    /* ints: dtype, start, stop, step; floats: start, stop, step. Integer dtypes take the integers. */                 \
    X(ARANGE, 3, "arange", CREATE, arange, 0, 0, 4, 3)                                                                 \
    /* ints: dtype, rows, columns, diagonal */                                                                         \
    X(EYE, 4, "eye", CREATE, eye, 0, 0, 4, 0)                                                                          \
    /* ints: dtype (floating), seed, offset, extents…; floats: low, high. Philox4x32-10, see engine/philox.h. */       \
    X(UNIFORM, 5, "uniform", CREATE, random, 0, 0, OP_VARIES, 2)                                                       \
    /* the same; floats: mean, standard deviation */                                                                   \
    X(NORMAL, 6, "normal", CREATE, random, 0, 0, OP_VARIES, 2)                                                         \
    /* ints: dtype. Float to integer truncates and saturates, NaN gives 0; anything to bool is `!= 0`.                 \
     * To floats it rounds once, to nearest, ties to even; in f8e4m3, what is then beyond 448 becomes NaN. */          \
    X(CAST, 16, "cast", ELEMENTWISE, cast, 1, 1, 1, 0)                                                                 \
    X(COPY, 17, "copy", ELEMENTWISE, same, 1, 1, 0, 0)                                                                 \
    /* ints: extents…, one of them may be -1 */                                                                        \
    X(RESHAPE, 32, "reshape", VIEW, reshape, 1, 1, OP_VARIES, 0)                                                       \
    /* ints: axes… , a permutation of all */                                                                           \
    X(PERMUTE_DIMS, 33, "permute_dims", VIEW, permute_dims, 1, 1, OP_VARIES, 0)                                        \
    X(MATRIX_TRANSPOSE, 34, "matrix_transpose", VIEW, matrix_transpose, 1, 1, 0, 0)                                    \
    /* ints: start, stop, step for each axis, Python's meaning; OP_SLICE_NONE stands for None */                       \
    X(SLICE, 35, "slice", VIEW, slice, 1, 1, OP_VARIES, 0)                                                             \
    /* ints: extents… */                                                                                               \
    X(BROADCAST_TO, 36, "broadcast_to", VIEW, broadcast_to, 1, 1, OP_VARIES, 0)                                        \
    /* ints: axes…, each of extent 1; none: x */                                                                       \
    X(SQUEEZE, 37, "squeeze", VIEW, squeeze, 1, 1, OP_VARIES, 0)                                                       \
    /* ints: axis in the result */                                                                                     \
    X(EXPAND_DIMS, 38, "expand_dims", VIEW, expand_dims, 1, 1, 1, 0)                                                   \
    X(ADD, 48, "add", ELEMENTWISE, arithmetic, 2, 2, 0, 0)                                                             \
    X(SUBTRACT, 49, "subtract", ELEMENTWISE, numeric2, 2, 2, 0, 0)                                                     \
    X(MULTIPLY, 50, "multiply", ELEMENTWISE, arithmetic, 2, 2, 0, 0)                                                   \
    X(DIVIDE, 51, "divide", ELEMENTWISE, floating2, 2, 2, 0, 0)                                                        \
    X(POW, 52, "pow", ELEMENTWISE, numeric2, 2, 2, 0, 0)                                                               \
    X(MAXIMUM, 53, "maximum", ELEMENTWISE, arithmetic, 2, 2, 0, 0)                                                     \
    X(MINIMUM, 54, "minimum", ELEMENTWISE, arithmetic, 2, 2, 0, 0)                                                     \
    X(EQUAL, 55, "equal", ELEMENTWISE, compare, 2, 2, 0, 0)                                                            \
    X(NOT_EQUAL, 56, "not_equal", ELEMENTWISE, compare, 2, 2, 0, 0)                                                    \
    X(LESS, 57, "less", ELEMENTWISE, compare, 2, 2, 0, 0)                                                              \
    X(LESS_EQUAL, 58, "less_equal", ELEMENTWISE, compare, 2, 2, 0, 0)                                                  \
    X(GREATER, 59, "greater", ELEMENTWISE, compare, 2, 2, 0, 0)                                                        \
    X(GREATER_EQUAL, 60, "greater_equal", ELEMENTWISE, compare, 2, 2, 0, 0)                                            \
    X(LOGICAL_AND, 61, "logical_and", ELEMENTWISE, logical, 2, 2, 0, 0)                                                \
    X(LOGICAL_OR, 62, "logical_or", ELEMENTWISE, logical, 2, 2, 0, 0)                                                  \
    X(LOGICAL_NOT, 63, "logical_not", ELEMENTWISE, logical, 1, 1, 0, 0)                                                \
    X(NEGATIVE, 64, "negative", ELEMENTWISE, numeric1, 1, 1, 0, 0)                                                     \
    X(ABS, 65, "abs", ELEMENTWISE, numeric1, 1, 1, 0, 0)                                                               \
    X(EXP, 66, "exp", ELEMENTWISE, floating1, 1, 1, 0, 0)                                                              \
    X(LOG, 67, "log", ELEMENTWISE, floating1, 1, 1, 0, 0)                                                              \
    X(SQRT, 68, "sqrt", ELEMENTWISE, floating1, 1, 1, 0, 0)                                                            \
    X(TANH, 69, "tanh", ELEMENTWISE, floating1, 1, 1, 0, 0)                                                            \
    X(SIGMOID, 70, "sigmoid", ELEMENTWISE, floating1, 1, 1, 0, 0)                                                      \
    X(RELU, 71, "relu", ELEMENTWISE, numeric1, 1, 1, 0, 0)                                                             \
    /* inputs: condition (bool), value where true, value where false */                                                \
    X(WHERE, 72, "where", ELEMENTWISE, where, 3, 3, 0, 0)                                                              \
    /* reductions: ints: keepdims (0 or 1), axes…; no axes: all of them. Integers and bool sum and multiply in i64. */ \
    X(SUM, 96, "sum", REDUCE, reduce_sum, 1, 1, OP_VARIES, 0)                                                          \
    X(PROD, 97, "prod", REDUCE, reduce_sum, 1, 1, OP_VARIES, 0)                                                        \
    X(MEAN, 98, "mean", REDUCE, reduce_mean, 1, 1, OP_VARIES, 0)                                                       \
    X(MAX, 99, "max", REDUCE, reduce_same, 1, 1, OP_VARIES, 0)                                                         \
    X(MIN, 100, "min", REDUCE, reduce_same, 1, 1, OP_VARIES, 0)                                                        \
    X(ANY, 101, "any", REDUCE, reduce_bool, 1, 1, OP_VARIES, 0)                                                        \
    X(ALL, 102, "all", REDUCE, reduce_bool, 1, 1, OP_VARIES, 0)                                                        \
    /* ints: keepdims, axis; no axis: position in the flattened tensor. The first of equals; a NaN wins. i64. */       \
    X(ARGMAX, 103, "argmax", REDUCE, reduce_arg, 1, 1, OP_VARIES, 0)                                                   \
    X(ARGMIN, 104, "argmin", REDUCE, reduce_arg, 1, 1, OP_VARIES, 0)                                                   \
    /* ints: axis */                                                                                                   \
    X(SOFTMAX, 112, "softmax", SOFTMAX, softmax, 1, 1, 1, 0)                                                           \
    X(LOG_SOFTMAX, 113, "log_softmax", SOFTMAX, softmax, 1, 1, 1, 0)                                                   \
    X(MATMUL, 128, "matmul", MATMUL, matmul, 2, 2, 0, 0)                                                               \
    /* inputs: x (…, k), weight (n, k) or (k), and perhaps bias (n) or (); ints: activation (enum op_activation).      \
     * activation(x · weightᵀ + bias), computed in one go: halves in f32, with one rounding. */                        \
    X(LINEAR, 129, "linear", MATMUL, linear, 2, 3, 1, 0)                                                               \
    /* ints: axis */                                                                                                   \
    X(CONCAT, 144, "concat", JOIN, concat, 1, OP_INPUTS_MAX, 1, 0)                                                     \
    X(STACK, 145, "stack", JOIN, stack, 1, OP_INPUTS_MAX, 1, 0)                                                        \
    /* inputs: x, indices (integer, rank 1); ints: axis. Negative indices are out of range. An empty axis is refused   \
     * (OUT_OF_RANGE) unless the result is empty too. */                                                               \
    X(TAKE, 146, "take", TAKE, take, 2, 2, 1, 0)                                                                       \
    /* inputs: x, indices (integer, x's rank, broadcast against x off the axis); ints: axis */                         \
    X(TAKE_ALONG_AXIS, 147, "take_along_axis", TAKE, take_along_axis, 2, 2, 1, 0)                                      \
    /* inputs: indices (integer); ints: classes, dtype */                                                              \
    X(ONE_HOT, 148, "one_hot", TAKE, one_hot, 1, 1, 2, 0)

enum opcode {
    OP_INVALID = 0,
#define X(name, value, ...) OP_##name = (value),
    OP_TABLE(X)
#undef X
        OP_CODE_MAX = 256
};

#define OP_SLICE_NONE INT64_MIN

/* What linear does to each element at its end. Wire values. */
enum op_activation {
    OP_ACTIVATION_NONE = 0,
    OP_ACTIVATION_RELU = 1,      /* max(x, 0) */
    OP_ACTIVATION_GELU_TANH = 2, /* x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))); of floats only */
    OP_ACTIVATION_COUNT
};

struct op_attributes {
    const int64_t *ints;
    const double *floats;
    unsigned n_ints, n_floats;
};

struct op_info {
    const char *name;
    enum op_family family;
    int inputs_min, inputs_max;
    int ints, floats;
};

/* NULL for a number that is no operation. */
const struct op_info *op_info(unsigned opcode);

/* Checks counts, attributes and inputs of an operation and gives its result's type. Nothing is assumed of the
 * arguments but that the pointers are readable. FREE has no result and leaves `out` alone. */
int op_infer(unsigned opcode, const struct tensor_type *const inputs[], unsigned n_inputs,
             const struct op_attributes *attributes, struct tensor_type *out, struct fault *fault);

/* The dtype in which input `i` must be presented to a kernel, given the checked result: the engine casts where the
 * input's own dtype differs. Comparisons promote their inputs; take's indices are i64; logical operations take bool. */
enum dtype op_operand_dtype(unsigned opcode, const struct tensor_type *const inputs[], unsigned i,
                            const struct tensor_type *out);

/* The dtypes that a kernel of this operation may find presented (bit DTYPE_F32 set: f32): those of its last input as
 * op_operand_dtype() gives it, or the result's where there is none. 0 for what needs no kernel of its own on any device:
 * free, views, and joins, which are copies. Found by trying op_infer() on small inputs: some 10 µs. */
uint32_t op_presented(unsigned opcode);
/* And the dtypes of inputs (of the result, where there are none) that it takes, from which those are made: all of them for
 * views and joins. */
uint32_t op_taken(unsigned opcode);

/* Python's slice.indices(): gives the first index, the step and the number of elements along one axis. Where there is
 * no first element `start` is 0, where there is no second one `step` is 1, so that both may be multiplied with strides.
 */
struct op_slice {
    int64_t start, step, count;
};
int op_slice(int64_t extent, int64_t start, int64_t stop, int64_t step, struct op_slice *out, struct fault *fault);

/* Bit i set: axis i is reduced. `ints` are a reduction's attributes (keepdims first). */
int op_reduced_axes(const struct op_attributes *attributes, int rank, uint32_t *mask, struct fault *fault);
