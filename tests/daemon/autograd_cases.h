/* Functions whose derivatives are tested: at least one for each operation that has a rule. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/tensord.h"

enum { AUTOGRAD_INPUTS = 11 };

/* A function of f64 inputs, which are random numbers between `low` and `high`. */
struct autograd_case {
    unsigned opcode;  /* the operation whose rule it is about */
    const char *what; /* the expression */
    td_tensor *(*function)(td_tensor **x);
    double low, high;
    bool smooth; /* the second derivative is tested, too */
    int n_inputs;
    int rank[AUTOGRAD_INPUTS];
    int64_t shape[AUTOGRAD_INPUTS][TD_RANK_MAX];
};

/* A list ends with NULL; there is one in a file for each kind of rules. */
#define AUTOGRAD_LISTS(X)                                                                                              \
    X(attention)                                                                                                       \
    X(complex)                                                                                                         \
    X(complex_matrices)                                                                                                \
    X(convolution)                                                                                                     \
    X(decompose)                                                                                                       \
    X(elementwise)                                                                                                     \
    X(index)                                                                                                           \
    X(linear_algebra)                                                                                                  \
    X(loss)                                                                                                            \
    X(movement)                                                                                                        \
    X(neural_networks)                                                                                                 \
    X(normalisation)                                                                                                   \
    X(pooling)                                                                                                         \
    X(random)                                                                                                          \
    X(recurrent)                                                                                                       \
    X(reduce)                                                                                                          \
    X(scan)                                                                                                            \
    X(sort)                                                                                                            \
    X(spectral)
#define X(kind) extern const struct autograd_case *const autograd_##kind##_cases[];
AUTOGRAD_LISTS(X)
#undef X

/* A list of cases is made of rows ROW(name, opcode, low, high, smooth, expression of x[0], x[1], …). */
#define AUTOGRAD_FUNCTION(name, opcode, low, high, smooth, expression)                                                 \
    static td_tensor *function_##name(td_tensor **x) {                                                                 \
        return expression;                                                                                             \
    }
/* Of one input of shape (2, 3), and of two, the second one of shape (3), which broadcasts. */
#define AUTOGRAD_ONE(name, opcode, low, high, smooth, expression)                                                      \
    static const struct autograd_case name##_case = {OP_##opcode, #expression, function_##name, low, high, smooth,     \
                                                     1,           {2},         {{2, 3}}};
#define AUTOGRAD_TWO(name, opcode, low, high, smooth, expression)                                                      \
    static const struct autograd_case name##_case = {OP_##opcode, #expression, function_##name, low,          high,    \
                                                     smooth,      2,           {2, 1},          {{2, 3}, {3}}};
#define AUTOGRAD_ROW(name, opcode, low, high, smooth, expression) &name##_case,
/* Of inputs of any shapes; ranks and shapes are in parentheses, as (2, 1) and ({2, 3}, {3}). */
#define AUTOGRAD_UNWRAP(...) __VA_ARGS__
#define AUTOGRAD_SHAPED(name, opcode, low, high, smooth, n_inputs, ranks, shapes, expression)                          \
    AUTOGRAD_FUNCTION(name, opcode, low, high, smooth, expression)                                                     \
    static const struct autograd_case name##_case = {OP_##opcode,                                                      \
                                                     #expression,                                                      \
                                                     function_##name,                                                  \
                                                     low,                                                              \
                                                     high,                                                             \
                                                     smooth,                                                           \
                                                     n_inputs,                                                         \
                                                     {AUTOGRAD_UNWRAP ranks},                                          \
                                                     {AUTOGRAD_UNWRAP shapes}};
#define AUTOGRAD_SHAPED_ROW(name, opcode, low, high, smooth, n_inputs, ranks, shapes, expression) &name##_case,
