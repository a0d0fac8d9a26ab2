/* Chains: elementwise operations one after another, each on the result of the one before it, which stays in registers. An operation takes an instruction
 * or two then, beside which a row function's loads and stores would take longer. They are operations that IEEE 754 defines, or choices, or computed by the
 * row functions' own instructions: their results are those of the row functions, bit for bit.
 *
 * Chains of tiles have more operations than those of few elements. Memory is read and written between the instructions of slow functions there, and not in one
 * burst before and another one behind them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How an operation takes its operands: the result so far is the first one, the second one, or both; the other one has an element for each place,
 * or is one number. */
enum cpu_chain_form {
    CPU_CHAIN_ELEMENTS,
    CPU_CHAIN_ONE,
    CPU_CHAIN_OF_ELEMENTS,
    CPU_CHAIN_OF_ONE,
    CPU_CHAIN_SELF,
};

/* X(NAME): operations of two operands, and of one. */
#define CPU_CHAIN_BINARY(X) X(ADD) X(SUBTRACT) X(MULTIPLY) X(DIVIDE) X(MAXIMUM) X(MINIMUM)
#define CPU_CHAIN_UNARY(X) X(NEGATIVE) X(ABS) X(SQRT) X(RELU) X(RECIPROCAL)
/* X(NAME, name): functions of one operand, of f32, in chains of tiles. */
#define CPU_CHAIN_FUNCTIONS(X)                                                                                         \
    X(EXP, exp)                                                                                                        \
    X(EXP2, exp2)                                                                                                      \
    X(EXPM1, expm1)                                                                                                    \
    X(LOG, log)                                                                                                        \
    X(LOG2, log2)                                                                                                      \
    X(LOG1P, log1p)                                                                                                    \
    X(TANH, tanh)                                                                                                      \
    X(SIGMOID, sigmoid)                                                                                                \
    X(ERF, erf)                                                                                                        \
    X(RSQRT, rsqrt)                                                                                                    \
    X(SILU, silu)                                                                                                      \
    X(GELU, gelu)                                                                                                      \
    X(GELU_TANH, gelu_tanh)

enum cpu_chain_operation {
    CPU_CHAIN_NONE,
    CPU_CHAIN_LOAD,
#define CPU_CHAIN_NUMBER(NAME) CPU_CHAIN_##NAME,
    CPU_CHAIN_BINARY(CPU_CHAIN_NUMBER) CPU_CHAIN_SQUARE,
    CPU_CHAIN_UNARY(CPU_CHAIN_NUMBER)
#undef CPU_CHAIN_NUMBER
#define CPU_CHAIN_NUMBER(NAME, name) CPU_CHAIN_##NAME,
        CPU_CHAIN_FUNCTIONS(CPU_CHAIN_NUMBER)
#undef CPU_CHAIN_NUMBER
    /* In chains of tiles: with each block, 2^form lines of memory come into the second-level cache. Results stay as they are. */
    CPU_CHAIN_FETCH,
    CPU_CHAIN_QUOTIENT, /* by one number, of f32, in chains of tiles: its `with` is a struct cpu_chain_divisor */
    CPU_CHAIN_COUNT,
};
_Static_assert(CPU_CHAIN_COUNT <= 32, "an operation and a form are a byte");

enum {
    CPU_CHAIN_BLOCK = 128,    /* elements of a tile that go through all steps before the next ones */
    CPU_CHAIN_FETCH_MOST = 4, /* the greatest form of CPU_CHAIN_FETCH */
};

/* What a step does: LOAD (of elements or of one) begins a chain, without a result so far; a square is a product by itself. */
#define CPU_CHAIN_WHAT(operation, form) ((uint8_t)((operation)*8 + (form)))
#define CPU_CHAIN_FORM(what) ((what) % 8)

struct cpu_chain_step {
    const void *with; /* the other operand */
    void *out;        /* where the result is written; NULL: nowhere */
    uint8_t what;
    bool streams; /* in chains of tiles: the result is written past the caches; `out` is aligned to 64 */
};

/* A divisor and its inverse, high + low. Quotients by it are rounded as those of divisions. */
struct cpu_chain_divisor {
    float d, high, low;
};

/* False: d is too small or too great for that. */
static inline bool cpu_chain_divisor_init(struct cpu_chain_divisor *divisor, float d) {
    const double inverse = 1 / (double)d;
    divisor->d = d;
    divisor->high = (float)inverse;
    divisor->low = (float)(inverse - (double)divisor->high);
    return __builtin_fabsf(d) >= 0x1p-50f && __builtin_fabsf(d) <= 0x1p50f;
}

/* n elements of each step's operands and results. A step may read what an earlier one has written; what one writes lies where others' operands do, or
 * apart from them. */
typedef void cpu_chain_function(int64_t n, const struct cpu_chain_step *steps, unsigned count);
