/* The geometry of normalisations, the same for all of them. A row is what has a mean and a variance of its own; it is made of segments, whose
 * elements follow one another with a stride. Weight and bias have a factor for each element of a segment (`along`), or one for the segment. */
#pragma once

#include <string.h>

#include "engine/device/launch.h"

struct normalisation {
    int64_t rows, segments, length;
    int64_t row_step, segment_step, stride; /* elements to the next row, segment, element */
    int64_t factor_rows, factor_row_step, factor_segment_step;
    int64_t factors;
    double epsilon, momentum;
    bool along, back;
    bool centred; /* the mean is subtracted; not of RMS norm */
    bool given;   /* mean and variance are inputs */
};

static inline int64_t normalisation_volume(const struct operand *x, int first, int end) {
    int64_t volume = 1;
    for (int i = first; i < end; i++)
        volume *= x->shape[i];
    return volume;
}

static inline void normalisation_channels(struct normalisation *n, const struct operand *x, int64_t axis) {
    const int at = (int)(axis < 0 ? axis + x->rank : axis);
    const int64_t outer = normalisation_volume(x, 0, at), inner = normalisation_volume(x, at + 1, x->rank);
    const int64_t channels = x->shape[at];
    n->rows = n->factors = n->factor_rows = channels;
    n->factor_row_step = 1;
    n->row_step = inner;
    n->segments = inner == 1 ? 1 : outer;
    n->segment_step = channels * inner;
    n->length = inner == 1 ? outer : inner;
    n->stride = inner == 1 ? channels : 1;
}

static inline void normalisation_rows(struct normalisation *n, const struct operand *x, int64_t axes) {
    const int first = x->rank - (int)axes;
    n->rows = normalisation_volume(x, 0, first);
    n->length = n->row_step = n->factors = normalisation_volume(x, first, x->rank);
    n->segments = n->stride = n->factor_rows = 1;
    n->along = true;
}

static inline void normalisation_groups(struct normalisation *n, const struct operand *x, int64_t groups) {
    const int64_t channels = x->shape[1];
    n->rows = x->shape[0] * groups;
    n->segments = n->factor_row_step = channels / groups;
    n->length = n->segment_step = normalisation_volume(x, 2, x->rank);
    n->row_step = n->segments * n->length;
    n->stride = n->factor_segment_step = 1;
    n->factors = channels;
    n->factor_rows = groups;
}

/* x is the first input, or for a gradient the second. */
static inline void normalisation_make(struct normalisation *n, const struct launch *launch) {
    memset(n, 0, sizeof *n);
    n->centred = launch->opcode != OP_RMS_NORM && launch->opcode != OP_RMS_NORM_GRAD;
    n->back = launch->opcode == OP_BATCH_NORM_GRAD || launch->opcode == OP_LAYER_NORM_GRAD ||
              launch->opcode == OP_GROUP_NORM_GRAD || launch->opcode == OP_RMS_NORM_GRAD;
    n->given = launch->opcode == OP_BATCH_NORM_INFERENCE;
    const struct operand *x = &launch->inputs[n->back ? 1 : 0];
    if (launch->opcode == OP_BATCH_NORM) {
        struct batch_norm_attributes given;
        batch_norm_attributes_read(&launch->attributes, &given);
        normalisation_channels(n, x, given.axis);
        n->epsilon = given.epsilon;
        n->momentum = given.momentum;
    } else if (launch->opcode == OP_BATCH_NORM_INFERENCE || launch->opcode == OP_BATCH_NORM_GRAD) {
        struct channel_norm_attributes given;
        channel_norm_attributes_read(&launch->attributes, &given);
        normalisation_channels(n, x, given.axis);
        n->epsilon = given.epsilon;
    } else if (launch->opcode == OP_GROUP_NORM || launch->opcode == OP_GROUP_NORM_GRAD) {
        struct group_norm_attributes given;
        group_norm_attributes_read(&launch->attributes, &given);
        normalisation_groups(n, x, given.groups);
        n->epsilon = given.epsilon;
    } else {
        struct row_norm_attributes given;
        row_norm_attributes_read(&launch->attributes, &given);
        normalisation_rows(n, x, given.axes);
        n->epsilon = given.epsilon;
    }
}

/* The inputs by their roles; NULL: there is none. */
struct normalisation_operands {
    const void *x, *gradient, *mean, *variance, *weight, *bias;
    void *out[3];
};

static inline struct normalisation_operands normalisation_operands(const struct launch *launch) {
    const struct operand *in = launch->inputs;
    const unsigned n = launch->n_inputs;
    struct normalisation_operands of;
    memset(&of, 0, sizeof of);
    unsigned weight = 1;
    if (launch->opcode == OP_BATCH_NORM || launch->opcode == OP_BATCH_NORM_INFERENCE) {
        of.x = in[0].data;
        of.mean = in[1].data;
        of.variance = in[2].data;
        weight = 3;
    } else if (launch->further) {
        of.gradient = in[0].data;
        of.x = in[1].data;
        weight = 2;
    } else {
        of.x = in[0].data;
    }
    of.weight = n > weight ? in[weight].data : NULL;
    of.bias = n > weight + 1 ? in[weight + 1].data : NULL;
    of.out[0] = launch->output.data;
    for (unsigned i = 1; i <= launch->further; i++)
        of.out[i] = launch_further(launch, i)->data;
    return of;
}
