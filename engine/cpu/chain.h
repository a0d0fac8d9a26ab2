/* Chains: elementwise operations one after another, each on the result of the one before it, which stays in registers. An operation takes an instruction
 * or two then, beside which a row function's loads and stores would take longer. They are operations that IEEE 754 defines, or choices: their results are
 * those of the row functions, bit for bit. */
#pragma once

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

enum cpu_chain_operation {
    CPU_CHAIN_NONE,
    CPU_CHAIN_LOAD,
#define CPU_CHAIN_NUMBER(NAME) CPU_CHAIN_##NAME,
    CPU_CHAIN_BINARY(CPU_CHAIN_NUMBER) CPU_CHAIN_SQUARE,
    CPU_CHAIN_UNARY(CPU_CHAIN_NUMBER)
#undef CPU_CHAIN_NUMBER
};

/* What a step does: LOAD (of elements or of one) begins a chain, without a result so far; a square is a product by itself. */
#define CPU_CHAIN_WHAT(operation, form) ((uint8_t)((operation)*8 + (form)))
#define CPU_CHAIN_FORM(what) ((what) % 8)

struct cpu_chain_step {
    const void *with; /* the other operand */
    void *out;        /* where the result is written; NULL: nowhere */
    uint8_t what;
};

/* n elements of each step's operands and results. A step may read what an earlier one has written; what one writes lies where others' operands do, or
 * apart from them. */
typedef void cpu_chain_function(int64_t n, const struct cpu_chain_step *steps, unsigned count);
