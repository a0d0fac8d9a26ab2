/* The rules that give results their shapes, one for each name in the field `shape` of a description. Private to proto/.
 *
 * A rule sees an operation whose counts and attributes fit its row and whose inputs have valid dtypes and ranks, with
 * the dtypes of `out` found already. It fills rank and shape of each output; op_infer() then checks them as a whole,
 * so a rule need not look for negative extents or overflow where it only copies extents. The rule of an operation whose outputs vary
 * fills the dtypes, too, and checks everything. Pure functions: any thread. */
#pragma once

#include "proto/ops/op.h"

struct op_call {
    unsigned opcode;
    unsigned n_inputs;
    const struct tensor_type *const *inputs;
    const struct op_attributes *attributes;
    unsigned n_outputs; /* where the row says that they vary */
};

/* The dtype to which both promote. If there is none, the failure names both. */
int op_promote(enum dtype a, enum dtype b, enum dtype *out, struct fault *fault);
/* The dtype in which kernels of dense operands compute. */
static inline enum dtype op_computed(enum dtype dtype) {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? DTYPE_F32 : dtype;
}
/* Copies the shape of another type; the dtype of `out` stays. */
static inline void op_copy_shape(struct tensor_type *out, const struct tensor_type *from) {
    enum dtype dtype = out->dtype;
    *out = *from; /* the whole struct: a fixed size is a few vector moves */
    out->dtype = dtype;
}

#define X(rule) op_rule op_rule_##rule;
OP_RULES(X)
#undef X
