/* Copies of views, as work on a stream: what a kernel wants in another form, and what goes to the host or comes from it. What a
 * copy needs of memory is charged to the ledger. Owner thread. */
#pragma once

#include "engine/memory/ledger.h"
#include "engine/values/view.h"

/* Enqueues one pass over both: COPY, or CAST where the dtypes differ. */
int view_copy(struct ledger *ledger, struct stream *stream, struct view out, struct view in, struct fault *fault);
/* Replaces a view by a contiguous temporary of `dtype`, charged to the ledger. */
int view_convert(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype,
                 struct fault *fault);
/* Replaces a view by a temporary of `dtype` that has as many elements as the view has places in memory: axes along which it
 * is broadcast stay so. */
int view_cast(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype, struct fault *fault);
/* The first where it is not of that form already. */
int view_make_contiguous(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype,
                         struct fault *fault);
/* A contiguous copy of `tensor` in storage of its own (one reference, charged), as work on `stream`. */
int view_materialise(struct ledger *ledger, struct stream *stream, const struct tensor *tensor,
                     struct storage **storage, struct fault *fault);
/* Enqueues a copy of bytes between storage of the device and of the host: `bytes` from `source` + offset on. */
int view_copy_bytes(struct ledger *ledger, struct stream *stream, struct storage *target, int64_t target_offset,
                    struct storage *source, int64_t source_offset, int64_t bytes, struct fault *fault);
