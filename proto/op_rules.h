/* The rules that op_infer() applies, one for each name in the `rule` column of OP_TABLE. Private to proto/.
 *
 * A rule sees an operation whose counts fit its row and whose inputs have valid dtypes and ranks. It checks the rest
 * and fills `out`; op_infer() then checks `out` as a whole, so a rule need not look for negative extents or overflow
 * where it only copies extents. Pure functions: any thread. */
#pragma once

#include "proto/op.h"

struct op_call {
    unsigned opcode;
    unsigned n_inputs;
    const struct tensor_type *const *inputs;
    const int64_t *ints;
    const double *floats;
    unsigned n_ints, n_floats;
};

typedef int op_rule(const struct op_call *call, struct tensor_type *out, struct fault *fault);

/* The dtype in which a kernel wants an input, for op_operand_dtype(). */
enum op_operand {
    OP_OPERAND_OWN,      /* as it is */
    OP_OPERAND_RESULT,   /* the result's; f8, of which products give f32, as it is */
    OP_OPERAND_BOOL,     /* bool */
    OP_OPERAND_PROMOTED, /* what the first two inputs promote to */
    OP_OPERAND_INDEX,    /* i64 */
    OP_OPERAND_WHERE,    /* first: bool; others: the result's */
    OP_OPERAND_TAKE,     /* first: the result's; others: i64 */
};

/* What both promote to. The failure names them, where there is no such dtype. */
int op_promote(enum dtype a, enum dtype b, enum dtype *out, struct fault *fault);

/* X(rule, operands). A row of OP_TABLE whose rule is missing here does not compile, one without its function does not
 * link. */
#define OP_RULE_TABLE(X)                                                                                               \
    X(none, OWN)                                                                                                       \
    X(full, OWN)                                                                                                       \
    X(arange, OWN)                                                                                                     \
    X(eye, OWN)                                                                                                        \
    X(random, OWN)                                                                                                     \
    X(cast, OWN)                                                                                                       \
    X(same, OWN)                                                                                                       \
    X(reshape, OWN)                                                                                                    \
    X(permute_dims, OWN)                                                                                               \
    X(matrix_transpose, OWN)                                                                                           \
    X(slice, OWN)                                                                                                      \
    X(broadcast_to, OWN)                                                                                               \
    X(squeeze, OWN)                                                                                                    \
    X(expand_dims, OWN)                                                                                                \
    X(arithmetic, RESULT)                                                                                              \
    X(numeric2, RESULT)                                                                                                \
    X(numeric1, RESULT)                                                                                                \
    X(floating2, RESULT)                                                                                               \
    X(floating1, RESULT)                                                                                               \
    X(compare, PROMOTED)                                                                                               \
    X(logical, BOOL)                                                                                                   \
    X(where, WHERE)                                                                                                    \
    X(reduce_sum, RESULT)                                                                                              \
    X(reduce_mean, RESULT)                                                                                             \
    X(reduce_same, OWN)                                                                                                \
    X(reduce_bool, BOOL)                                                                                               \
    X(reduce_arg, OWN)                                                                                                 \
    X(softmax, RESULT)                                                                                                 \
    X(matmul, RESULT)                                                                                                  \
    X(linear, RESULT)                                                                                                  \
    X(concat, RESULT)                                                                                                  \
    X(stack, RESULT)                                                                                                   \
    X(take, TAKE)                                                                                                      \
    X(take_along_axis, TAKE)                                                                                           \
    X(one_hot, INDEX)

#define X(rule, operands) op_rule op_rule_##rule;
OP_RULE_TABLE(X)
#undef X
