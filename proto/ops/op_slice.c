#include "proto/ops/op.h"

#include <inttypes.h>

/* A bound of a slice as an index from `low` to `high`; negative ones count from the end, as in Python. */
static int64_t slice_bound(int64_t bound, int64_t extent, int64_t low, int64_t high) {
    if (bound < 0) {
        bound += extent; /* no overflow: the signs differ */
    }
    return bound < low ? low : bound > high ? high : bound;
}

int op_slice(int64_t extent, int64_t start, int64_t stop, int64_t step, struct op_slice *out, struct fault *fault) {
    if (extent < 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "extent %" PRId64 " is negative", extent);
    }
    if (step == 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the step of a slice is 0");
    }
    if (step == OP_SLICE_NONE) {
        step = 1;
    }
    int64_t count;
    if (step > 0) {
        start = start == OP_SLICE_NONE ? 0 : slice_bound(start, extent, 0, extent);
        stop = stop == OP_SLICE_NONE ? extent : slice_bound(stop, extent, 0, extent);
        count = start < stop ? (stop - start - 1) / step + 1 : 0;
    } else {
        start = start == OP_SLICE_NONE ? extent - 1 : slice_bound(start, extent, -1, extent - 1);
        stop = stop == OP_SLICE_NONE ? -1 : slice_bound(stop, extent, -1, extent - 1);
        count = stop < start ? (start - stop - 1) / -step + 1 : 0;
    }
    *out = (struct op_slice){.start = count > 0 ? start : 0, .step = count > 1 ? step : 1, .count = count};
    return STATUS_OK;
}
