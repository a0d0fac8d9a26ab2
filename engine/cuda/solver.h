/* Decompositions by cuSOLVER: its tasks for a launch, and the kernels around them, which bring matrices into its order and back. */
#pragma once

#include "engine/cuda/cuda.h"

/* Bytes of workspace; 0: the launch is not for cuSOLVER. Owner thread. */
uint64_t solver_workspace(const struct cuda *cuda, const struct launch *launch);
/* Whether cuSOLVER's calls for the launch may wait for the device. The submitter. */
bool solver_waits(const struct cuda *cuda, const struct launch *launch);
/* *refused: own kernels have to compute it. */
int solver_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, bool *refused,
               struct fault *fault);
/* Of these kernels: a part of decompose.cu's walk. */
bool solver_walk(cuda_kernel_seen *seen, void *context);
