/* Launches whose operands are whole and contiguous, each in a shape of its own. Kernels that do not take halves
 * (op_kernel.halves) see f32 and f64 alone: halves are cast to f32 before the launch, and results behind it. */
#pragma once

#include "engine/program/program_impl.h"

/* The operands of one launch. Between dense_begin() and dense_push() the views may be given other axes: inputs are then copied to be
 * contiguous, and results are copied back. */
struct dense {
    struct step *step;
    unsigned n_inputs, n_outputs;
    struct view in[PLAN_INPUTS_MAX], out[PLAN_OUTPUTS_MAX];
    bool own_dtypes;  /* of the inputs: they do not promote */
    bool halves;      /* the kernel takes f16 and bf16 */
    unsigned strided; /* bit i set: the kernel takes input i with any strides */
    /* Called when the inputs are contiguous, to merge axes; NULL: nothing is left to do. */
    void (*merge)(struct dense *dense);
};

/* The device's kernel for the step's operation. */
const struct op_kernel *dense_kernel(const struct step *step);
/* Views of all inputs and outputs of the step, as they are. */
void dense_begin(struct dense *dense, struct step *step);
/* Enqueues the launch, which is estimated to take `weight` ns, with the copies that it needs. The views are finished. */
int dense_push(struct dense *dense, uint64_t weight);
/* The same for operands as they are, with an estimate by their sizes. */
int dense_push_whole(struct dense *dense);
/* Moves the axis `from` of a view to `to`. */
void dense_move_axis(struct view *view, int from, int to);
