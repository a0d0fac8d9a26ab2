/* How softmax is shared out, for those who compute it together with other operations (fused_text.h). */
#pragma once

#include "engine/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many threads hold a row in the kernel of such a launch, a power of two (softmax_ops.cuh). 0: the kernel goes another way. Owner thread. */
unsigned softmax_lanes(const struct cuda *cuda, const struct launch *launch);

#ifdef __cplusplus
}
#endif
