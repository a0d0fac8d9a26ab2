/* formula.cuh and all that it includes, as text that comes before a kernel for NVRTC. Made by formula_text.py; whoever compiles kernels
 * of it builds formula_text.c in (engine/cuda/meson.build). */
#pragma once

extern const char formula_text[];
/* The device's part of number.cuh, with its formulas, and what reductions and softmax are made of (reduce_ops.cuh, softmax_ops.cuh). It includes headers of CUDA's. */
extern const char number_text[];
