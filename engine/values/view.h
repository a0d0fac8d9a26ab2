/* Operands for launches: a tensor's elements as a kernel sees them, and their copies. Owner thread. */
#pragma once

#include <stdbool.h>

#include "engine/memory/ledger.h"
#include "engine/values/tensor.h"

/* An operand for a launch: a view of a tensor, or a temporary that is computed from one. */
struct view {
    struct storage *storage; /* NULL where empty */
    uint8_t *data;
    enum dtype dtype, as; /* of the elements in memory, and what the launch computes on */
    int rank;
    int64_t shape[SHAPE_RANK_MAX];
    int64_t strides[SHAPE_RANK_MAX];
    bool temporary; /* `storage` holds a reference of its own */
};

void view_init(struct view *view, const struct tensor *tensor);
/* Gives a temporary back. */
void view_finish(struct view *view);
int64_t view_elements(const struct view *view);

/* Merges the axes of views of one shape (strides broadcast already) wherever that is possible for all of them. */
void view_merge(struct view *const views[], int count);
void view_broadcast(struct view *view, int rank, const int64_t *shape);

/* Copies of views, as work on a stream: for a kernel that wants another form, and to and from the host. The memory that a copy takes
 * is charged to the ledger. */

/* Enqueues one pass over both: COPY, or CAST where the dtypes differ. */
int view_copy(struct ledger *ledger, struct stream *stream, struct view out, struct view in, struct fault *fault);
/* Replaces a view by a contiguous temporary of `dtype`, charged to the ledger. */
int view_convert(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype,
                 struct fault *fault);
/* Replaces a view by a temporary of `dtype` that has as many elements as the view has places in memory: axes along which it
 * is broadcast stay so. */
int view_cast(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype, struct fault *fault);
/* Replaces a view of complex numbers by a contiguous temporary of their magnitudes, which is as real as their parts. */
int view_magnitudes(struct ledger *ledger, struct stream *stream, struct view *view, struct fault *fault);
/* As view_convert(), unless the view is contiguous and has the dtype already. */
int view_make_contiguous(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype,
                         struct fault *fault);
/* A contiguous copy of `tensor` in storage of its own (one reference, charged), as work on `stream`. */
int view_materialise(struct ledger *ledger, struct stream *stream, const struct tensor *tensor,
                     struct storage **storage, struct fault *fault);
/* Enqueues a copy of bytes between storage of the device and of the host: `bytes` from `source` + offset on. */
int view_copy_bytes(struct ledger *ledger, struct stream *stream, struct storage *target, int64_t target_offset,
                    struct storage *source, int64_t source_offset, int64_t bytes, struct fault *fault);
