/* Products that cuBLAS does not compute: of integers and truth values, and of operands that are too large or whose layout it refuses. */
#pragma once

#include "engine/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MATMUL_BATCH_RANK_MAX = SHAPE_RANK_MAX - 2 };

/* c [batch…, m, n] = activation(a [batch…, m, k] · b [batch…, k, n] + bias [n]), all of one dtype, or a and b
 * of fp8 and the rest f32; any strides (in elements); k >= 1. */
struct matmul_tiled {
    const void *a, *b, *bias; /* bias: NULL: none; contiguous */
    void *c;
    enum dtype a_dtype, b_dtype;
    unsigned activation; /* enum op_activation */
    int batch_rank;
    int64_t batch_shape[MATMUL_BATCH_RANK_MAX];
    int64_t a_batch[MATMUL_BATCH_RANK_MAX], b_batch[MATMUL_BATCH_RANK_MAX], c_batch[MATMUL_BATCH_RANK_MAX];
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column, c_row, c_column;
};

bool matmul_tiled_has(enum dtype a, enum dtype b);
/* Bytes for the partial sums, if long sums of few results are cut; 0: they are not cut. */
size_t matmul_tiled_bytes(const struct cuda *cuda, const struct matmul_tiled *product);
/* `partials`: memory of that size; NULL: sums are not cut, which may be slower. There must be a kernel for these dtypes. */
int matmul_tiled_run(struct cuda *cuda, struct cuda_stream *stream, const struct matmul_tiled *product, void *partials,
                     struct fault *fault);

cuda_kernel_walk matmul_tiled_walk;

#ifdef __cplusplus
}
#endif
