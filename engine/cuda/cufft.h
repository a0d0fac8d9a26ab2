/* cuFFT: transforms of many lines at once. Plans are kept, each found by its key. The thread that launches, with the device current;
 * cufft_workspace() calls nothing, and cufft_ready() is the submitter's. */
#pragma once

#include "engine/cuda/library.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cufft_type { CUFFT_TYPE_C2C, CUFFT_TYPE_R2C, CUFFT_TYPE_C2R };

/* Compared as bytes: start from zeros. Strides are elements from one number of a line to the next, distances those from one line
 * to the next. */
struct cufft_lines {
    int64_t n, batch;
    int64_t in_stride, in_distance, out_stride, out_distance;
    int32_t type;
    int32_t wide; /* f64 */
};

/* The most that a plan may need. */
uint64_t cufft_workspace(const struct cufft_lines *lines);
/* Puts the transform on the stream, without any scale; `workspace` has cufft_workspace() bytes, aligned to 256. Addresses are aligned to a complex number, or cuFFT is not asked. It may write
 * to the numbers of a C2R transform's input. *refused: own kernels have to compute it. Errors are failures of the device. */
int cufft_transform(struct cuda *cuda, const struct cufft_lines *lines, void *in, void *out, bool inverse,
                    void *workspace, cudaStream_t stream, bool *refused, struct fault *fault);
/* Whether cufft_transform() would return soon: no other thread is in the library, and it has a plan for these lines, or has refused them. */
bool cufft_ready(const struct cuda *cuda, const struct cufft_lines *lines);
/* When all launches have ended. */
void cufft_finish(struct cuda *cuda);

#ifdef __cplusplus
}
#endif
