/* cuDNN: convolutions. Each kind of convolution is described, and its algorithm chosen, only once; later it is found by its key. The
 * thread that launches, with the device current; cudnn_workspace() calls nothing, and cudnn_ready() is the submitter's.
 *
 * By cuDNN's graph interface (cudnnBackend…), since the functions of version 7 (cudnnConvolutionForward and its kin) are marked as
 * deprecated in cuDNN 9, know no f32 algorithms that are deterministic and tell their precision, and do not reach the kernels that
 * Hopper has for halves with channels last. What an engine does is told by notes, by which engines are left out here:
 *   NONDETERMINISTIC: results have to be the same in each run;
 *   TENSOR_CORE with f32: that is TF32, which the session has to allow. Sums are in f32 in any case;
 *   DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION: less precision than the operation promises;
 *   WINOGRAD, FFT: their errors grow with the greatest element near a result, not with the terms of its own sum, which is what the
 *   tolerance of convolutions is made of.
 * Of what is left, cuDNN's own order holds (heuristics A, then those for the rest); nothing is measured, so that the choice is the same in
 * each run. An algorithm that fails makes room for the next one. */
#pragma once

#include "engine/cuda/library.h"
#include "proto/ops/convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cudnn_way { CUDNN_WAY_FORWARD, CUDNN_WAY_BACK, CUDNN_WAY_WEIGHT };

/* Compared as bytes: start from zeros. Operands are contiguous; with the channels last, the weight is (y's channels, kernel, x's channels of
 * a group), as cuDNN wants it. */
struct cudnn_convolution {
    struct convolution convolution;
    uint16_t way, dtype;
    uint16_t tf32; /* of f32: may be computed so */
    uint16_t bias; /* forward: y has a bias added before it is rounded */
    uint16_t x_alignment, weight_alignment, y_alignment, bias_alignment; /* in bytes: cudnn_alignment() */
};

struct cudnn_operands {
    void *x, *weight, *y, *bias; /* of way's result, too */
    void *workspace;             /* cudnn_workspace() bytes, aligned to 256 */
};

/* The largest power of two, 16 at most, that divides the address: cuDNN has no kernel that wants more. */
static inline uint16_t cudnn_alignment(const void *address) {
    const uintptr_t bits = (uintptr_t)address | 16;
    return (uint16_t)(bits & -bits);
}

/* The most that an algorithm may need. */
uint64_t cudnn_workspace(const struct cudnn_convolution *convolution);
/* Puts the convolution on the stream. *refused: own kernels have to compute it; the result may have been written to. Errors are failures of the
 * device. */
int cudnn_convolve(struct cuda *cuda, const struct cudnn_convolution *convolution,
                   const struct cudnn_operands *operands, cudaStream_t stream, bool *refused, struct fault *fault);
/* Whether cudnn_convolve() would return soon: no other thread is in the library, and it has a plan for this convolution, or has refused it. */
bool cudnn_ready(const struct cuda *cuda, const struct cudnn_convolution *convolution);
/* When all launches have ended. */
void cudnn_finish(struct cuda *cuda);

#ifdef __cplusplus
}
#endif
