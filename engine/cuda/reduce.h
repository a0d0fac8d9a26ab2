/* How reductions are shared out, for those who compute them together with other operations (fused_text.h). */
#pragma once

#include "engine/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many threads share a row in the kernel of such a launch, a power of two: one after another they take the loads of a contiguous row, as
 * reduce_elements() does (reduce_ops.cuh). 0: the kernel goes another way, or so few long rows leave most of the device without work unless each is
 * cut. Owner thread. */
unsigned reduce_lanes(const struct cuda *cuda, const struct launch *launch);

#ifdef __cplusplus
}
#endif
