/* The rules that give results their shapes, one for each name in the field `shape` of a description. Private to proto/.
 *
 * A rule sees an operation whose counts and attributes fit its row and whose inputs have valid dtypes and ranks, with `out->dtype`
 * found already. It fills rank and shape; op_infer() then checks `out` as a whole, so a rule need not look for negative extents
 * or overflow where it only copies extents. Pure functions: any thread. */
#pragma once

#include "proto/op.h"

struct op_call {
    unsigned opcode;
    unsigned n_inputs;
    const struct tensor_type *const *inputs;
    const struct op_attributes *attributes;
};

/* What both promote to. The failure names them, where there is no such dtype. */
int op_promote(enum dtype a, enum dtype b, enum dtype *out, struct fault *fault);
/* The extents of another type; its dtype stays. */
static inline void op_copy_shape(struct tensor_type *out, const struct tensor_type *from) {
    enum dtype dtype = out->dtype;
    *out = *from; /* all of it: a fixed count is a few vector moves */
    out->dtype = dtype;
}

#define OP_RULES(X)                                                                                                    \
    X(none)                                                                                                            \
    X(same)                                                                                                            \
    X(broadcast)                                                                                                       \
    X(full)                                                                                                            \
    X(arange)                                                                                                          \
    X(eye)                                                                                                             \
    X(random)                                                                                                          \
    X(reshape)                                                                                                         \
    X(permute_dims)                                                                                                    \
    X(matrix_transpose)                                                                                                \
    X(slice)                                                                                                           \
    X(broadcast_to)                                                                                                    \
    X(squeeze)                                                                                                         \
    X(expand_dims)                                                                                                     \
    X(concat)                                                                                                          \
    X(stack)                                                                                                           \
    X(reduce)                                                                                                          \
    X(reduce_something)                                                                                                \
    X(reduce_position)                                                                                                 \
    X(softmax)                                                                                                         \
    X(matmul)                                                                                                          \
    X(linear)                                                                                                          \
    X(take)                                                                                                            \
    X(take_along_axis)                                                                                                 \
    X(one_hot)

#define X(rule) op_rule op_rule_##rule;
OP_RULES(X)
#undef X
