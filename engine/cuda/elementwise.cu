/* Elementwise operations: one kernel (elementwise.cuh) for each formula and dtype, found in a table. What is computed stands
 * in engine/formula.h, shared with the CPU; the functions of real numbers are CUDA's own. Without -use_fast_math these
 * keep subnormal numbers, and division and square root are rounded correctly. */
#include "engine/cuda/elementwise.cuh"

namespace {

#define OPERATION static __device__ __forceinline__

/* ---- operations: one function for each type that is computed in ---- */

#define BINARY_WRAPPING(operation)                                                                                     \
    OPERATION auto of(uint8_t a, uint8_t b) {                                                                          \
        return formula_##operation##_u8(a, b);                                                                         \
    }                                                                                                                  \
    OPERATION auto of(int16_t a, int16_t b) {                                                                          \
        return formula_##operation##_i16(a, b);                                                                        \
    }                                                                                                                  \
    OPERATION auto of(int32_t a, int32_t b) {                                                                          \
        return formula_##operation##_i32(a, b);                                                                        \
    }                                                                                                                  \
    OPERATION auto of(int64_t a, int64_t b) {                                                                          \
        return formula_##operation##_i64(a, b);                                                                        \
    }
#define BINARY_INTEGERS(operation)                                                                                     \
    BINARY_WRAPPING(operation)                                                                                         \
    OPERATION auto of(int8_t a, int8_t b) {                                                                            \
        return formula_##operation##_i8(a, b);                                                                         \
    }
#define BINARY_FLOATS(operation)                                                                                       \
    OPERATION auto of(float a, float b) {                                                                              \
        return formula_##operation##_f32(a, b);                                                                        \
    }                                                                                                                  \
    OPERATION auto of(double a, double b) {                                                                            \
        return formula_##operation##_f64(a, b);                                                                        \
    }
#define WRAPPED(operation)                                                                                             \
    struct operation##_of {                                                                                            \
        BINARY_WRAPPING(operation)                                                                                     \
        BINARY_FLOATS(operation)                                                                                       \
    };
#define BINARY(operation)                                                                                              \
    struct operation##_of {                                                                                            \
        BINARY_INTEGERS(operation)                                                                                     \
        BINARY_FLOATS(operation)                                                                                       \
    };
WRAPPED(add)
WRAPPED(subtract)
WRAPPED(multiply)
BINARY(maximum)
BINARY(minimum)
BINARY(equal)
BINARY(not_equal)
BINARY(less)
BINARY(less_equal)
BINARY(greater)
BINARY(greater_equal)
struct divide_of {
    BINARY_FLOATS(divide)
};

/* CUDA's powf may be 4 units off. Squares are by far the most common powers, and a product is their correct value. */
struct pow_of {
    BINARY_INTEGERS(pow)
    OPERATION float of(float a, float b) {
        return b == 2 ? a * a : (float)pow((double)a, (double)b);
    }
    OPERATION double of(double a, double b) {
        return b == 2 ? a * a : pow(a, b);
    }
};

struct or_of {
    OPERATION uint8_t of(uint8_t a, uint8_t b) {
        return formula_or_truth(a, b);
    }
};
struct and_of {
    OPERATION uint8_t of(uint8_t a, uint8_t b) {
        return formula_and_truth(a, b);
    }
};
struct not_of {
    OPERATION uint8_t of(uint8_t a) {
        return formula_not_truth(a);
    }
};

#define UNARY_SIGNED(operation)                                                                                        \
    OPERATION int8_t of(int8_t a) {                                                                                    \
        return formula_##operation##_i8(a);                                                                            \
    }                                                                                                                  \
    OPERATION int16_t of(int16_t a) {                                                                                  \
        return formula_##operation##_i16(a);                                                                           \
    }                                                                                                                  \
    OPERATION int32_t of(int32_t a) {                                                                                  \
        return formula_##operation##_i32(a);                                                                           \
    }                                                                                                                  \
    OPERATION int64_t of(int64_t a) {                                                                                  \
        return formula_##operation##_i64(a);                                                                           \
    }
#define UNARY_FLOATS(f32, f64)                                                                                         \
    OPERATION float of(float a) {                                                                                      \
        return f32;                                                                                                    \
    }                                                                                                                  \
    OPERATION double of(double a) {                                                                                    \
        return f64;                                                                                                    \
    }
struct negative_of {
    UNARY_SIGNED(negative)
    UNARY_FLOATS(formula_negative_f32(a), formula_negative_f64(a))
};
struct abs_of {
    UNARY_SIGNED(abs)
    UNARY_FLOATS(fabsf(a), fabs(a))
};
struct relu_of {
    UNARY_SIGNED(relu)
    UNARY_FLOATS(formula_relu_f32(a), formula_relu_f64(a))
};
struct exp_of {
    UNARY_FLOATS(expf(a), exp(a))
};
struct log_of {
    UNARY_FLOATS(logf(a), log(a))
};
struct sqrt_of {
    UNARY_FLOATS(sqrtf(a), sqrt(a))
};
/* The sign is that of the argument for -0 as well. */
struct tanh_of {
    UNARY_FLOATS(copysignf(tanhf(a), a), copysign(tanh(a), a))
};
/* 1 / (1 + e^-x), from e^-|x|, which cannot overflow. */
struct sigmoid_of {
    OPERATION float of(float a) {
        float e = expf(-fabsf(a));
        return (a >= 0 ? 1.0f : e) / (1.0f + e);
    }
    OPERATION double of(double a) {
        double e = exp(-fabs(a));
        return (a >= 0 ? 1.0 : e) / (1.0 + e);
    }
};

/* abs and relu of u8 */
struct identity_of {
    OPERATION uint8_t of(uint8_t a) {
        return a;
    }
};

/* ---- what the kernel is a template over ---- */

template <class O, typename T, typename R> struct unary {
    enum { inputs = 1 };
    typedef T first, second, third;
    typedef R result;
    OPERATION R apply(T a, T, T) {
        return number_store<R>::from(O::of(number_widen(a)));
    }
};

template <class O, typename T, typename R> struct binary {
    enum { inputs = 2 };
    typedef T first, second, third;
    typedef R result;
    OPERATION R apply(T a, T b, T) {
        return number_store<R>::from(O::of(number_widen(a), number_widen(b)));
    }
};

/* Moves elements as they are, so that their size is all that counts. */
template <typename T> struct where {
    enum { inputs = 3 };
    typedef uint8_t first;
    typedef T second, third, result;
    OPERATION T apply(uint8_t condition, T a, T b) {
        return condition ? a : b;
    }
};

} // namespace

/* ---- the table: rows by opcode, in its order; columns by dtype; most rows end before f8, which is not computed in ---- */

static_assert(DTYPE_BOOL == 1 && DTYPE_U8 == 2 && DTYPE_I8 == 3 && DTYPE_I16 == 4 && DTYPE_I32 == 5 && DTYPE_I64 == 6 &&
                  DTYPE_F16 == 7 && DTYPE_BF16 == 8 && DTYPE_F32 == 9 && DTYPE_F64 == 10 && DTYPE_F8E4M3 == 11 &&
                  DTYPE_F8E5M2 == 12 && DTYPE_COUNT == 13,
              "columns are in the order of dtypes");

#define NONE space_kernels()
#define K(F, O, T, R) (elementwise_kernels<F<O, T, R>>())
#define FLOATS(F, O)                                                                                                   \
    K(F, O, __half, __half), K(F, O, __nv_bfloat16, __nv_bfloat16), K(F, O, float, float), K(F, O, double, double)
#define COMPARED(O, T) K(binary, O, T, uint8_t)
#define COMPARISON(O)                                                                                                  \
    {                                                                                                                  \
        NONE, COMPARED(O, uint8_t), COMPARED(O, uint8_t), COMPARED(O, int8_t), COMPARED(O, int16_t),                   \
            COMPARED(O, int32_t), COMPARED(O, int64_t), COMPARED(O, __half), COMPARED(O, __nv_bfloat16),               \
            COMPARED(O, float), COMPARED(O, double)                                                                    \
    }
/* `i8`: the type in which signed bytes are computed: a result that wraps has the same bits with and without a sign. */
#define NUMBERS(F, O, truth, u8, i8)                                                                                   \
    {                                                                                                                  \
        NONE, truth, u8, K(F, O, i8, i8), K(F, O, int16_t, int16_t), K(F, O, int32_t, int32_t),                        \
            K(F, O, int64_t, int64_t), FLOATS(F, O)                                                                    \
    }
#define WRAPPING(O, truth) NUMBERS(binary, O, truth, K(binary, O, uint8_t, uint8_t), uint8_t)
#define ORDERED(O, truth) NUMBERS(binary, O, truth, K(binary, O, uint8_t, uint8_t), int8_t)
#define FLOATING(F, O)                                                                                                 \
    { NONE, NONE, NONE, NONE, NONE, NONE, NONE, FLOATS(F, O) }
#define TRUTH(kernel)                                                                                                  \
    { NONE, kernel, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE }
#define WHERE(T) (elementwise_kernels<where<T>>())
#define OR K(binary, or_of, uint8_t, uint8_t)
#define AND K(binary, and_of, uint8_t, uint8_t)
#define IDENTITY K(unary, identity_of, uint8_t, uint8_t)

static const struct space_kernels table[][DTYPE_COUNT] = {
    WRAPPING(add_of, OR), /* of truth values, a sum is "or" and a product is "and" */
    WRAPPING(subtract_of, NONE),
    WRAPPING(multiply_of, AND),
    FLOATING(binary, divide_of),
    ORDERED(pow_of, NONE),
    ORDERED(maximum_of, OR),
    ORDERED(minimum_of, AND),
    COMPARISON(equal_of),
    COMPARISON(not_equal_of),
    COMPARISON(less_of),
    COMPARISON(less_equal_of),
    COMPARISON(greater_of),
    COMPARISON(greater_equal_of),
    TRUTH(AND),
    TRUTH(OR),
    TRUTH(K(unary, not_of, uint8_t, uint8_t)),
    NUMBERS(unary, negative_of, NONE, K(unary, negative_of, int8_t, int8_t), int8_t),
    NUMBERS(unary, abs_of, NONE, IDENTITY, int8_t),
    FLOATING(unary, exp_of),
    FLOATING(unary, log_of),
    FLOATING(unary, sqrt_of),
    FLOATING(unary, tanh_of),
    FLOATING(unary, sigmoid_of),
    NUMBERS(unary, relu_of, NONE, IDENTITY, int8_t),
    {NONE, WHERE(uint8_t), WHERE(uint8_t), WHERE(uint8_t), WHERE(uint16_t), WHERE(uint32_t), WHERE(uint64_t),
     WHERE(uint16_t), WHERE(uint16_t), WHERE(uint32_t), WHERE(uint64_t), WHERE(uint8_t), WHERE(uint8_t)},
};
static_assert(OP_SUBTRACT == OP_ADD + 1 && OP_MULTIPLY == OP_ADD + 2 && OP_DIVIDE == OP_ADD + 3 &&
                  OP_POW == OP_ADD + 4 && OP_MAXIMUM == OP_ADD + 5 && OP_MINIMUM == OP_ADD + 6 &&
                  OP_EQUAL == OP_ADD + 7 && OP_NOT_EQUAL == OP_ADD + 8 && OP_LESS == OP_ADD + 9 &&
                  OP_LESS_EQUAL == OP_ADD + 10 && OP_GREATER == OP_ADD + 11 && OP_GREATER_EQUAL == OP_ADD + 12 &&
                  OP_LOGICAL_AND == OP_ADD + 13 && OP_LOGICAL_OR == OP_ADD + 14 && OP_LOGICAL_NOT == OP_ADD + 15 &&
                  OP_NEGATIVE == OP_ADD + 16 && OP_ABS == OP_ADD + 17 && OP_EXP == OP_ADD + 18 &&
                  OP_LOG == OP_ADD + 19 && OP_SQRT == OP_ADD + 20 && OP_TANH == OP_ADD + 21 &&
                  OP_SIGMOID == OP_ADD + 22 && OP_RELU == OP_ADD + 23 && OP_WHERE == OP_ADD + 24 &&
                  sizeof table / sizeof *table == 25,
              "rows are in the order of opcodes");

static const struct space_kernels *table_find(unsigned opcode, enum dtype dtype) {
    if (opcode < OP_ADD || opcode > OP_WHERE || dtype <= DTYPE_INVALID || dtype >= DTYPE_COUNT) {
        return nullptr;
    }
    const struct space_kernels *kernels = &table[opcode - OP_ADD][dtype];
    return kernels->narrow ? kernels : nullptr;
}

bool cuda_elementwise_has(unsigned opcode, enum dtype dtype) {
    return table_find(opcode, dtype) != nullptr;
}

bool cuda_elementwise_walk(cuda_kernel_seen *seen, void *context) {
    for (const auto &row : table) {
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
            if (!space_walk(&row[dtype], cuda_dtype_common((enum dtype)dtype), seen, context)) {
                return false;
            }
        }
    }
    return true;
}

/* By the dtype of the last input: where's first one is its condition. */
int cuda_elementwise(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    enum dtype dtype = (enum dtype)launch->inputs[launch->n_inputs - 1].dtype;
    return space_launch(cuda, launch, table_find(launch->opcode, dtype), fault, stream->stream);
}
