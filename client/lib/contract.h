/* Sums of products of tensors over named axes: what einsum, tensordot and vecdot have in common. The client plans the order and enqueues
 * views, products of pairs, and sums.
 *
 * An axis has a label, 0 to CONTRACT_LABELS - 1. Axes of extent 1 are dropped from their operand when it is added: so they broadcast, and
 * an operand has a label only if it really varies along it. */
#pragma once

#include "client/tensord.h"
#include "proto/ops/shape.h"

enum { CONTRACT_LABELS = 64 };

/* An operand or intermediate result, with the labels of its axes, which are all different. */
struct labelled {
    td_tensor *x;
    bool own; /* x is to be released */
    int rank;
    uint8_t labels[TD_RANK_MAX];
};

struct contraction {
    const char *function; /* that failures name */
    enum dtype dtype;     /* of the result: all operands are cast to it */
    int n;
    struct labelled operands[TD_EINSUM_MAX];
    int64_t extents[CONTRACT_LABELS];
    int rank; /* of the result */
    uint8_t labels[TD_RANK_MAX];
};

/* For these operands, which are not NULL and are to be added in this order; finds the dtype. The result's rank and labels are the caller's
 * to set. False with the error set: they do not promote, or not to a number. */
bool contract_init(struct contraction *contraction, const char *function, int count, td_tensor *const *operands);
/* Adds the next operand; labels[i] is that of its axis i, and one that occurs twice takes a diagonal. False with the error set. */
bool contract_add(struct contraction *contraction, td_tensor *x, const uint8_t *labels);
/* Contracts all operands and releases what was made of them; also after a failure of contract_add(). Not NULL: a new handle. */
td_tensor *contract_run(struct contraction *contraction);
/* Releases without running. Returns NULL. */
td_tensor *contract_abandon(struct contraction *contraction);
