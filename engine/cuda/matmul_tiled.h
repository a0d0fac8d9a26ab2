/* Products that cuBLAS does not do: integers and truth values, and what is too large or too odd for it. */
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
/* Bytes for the parts into which long sums of few results are cut; 0: they are not. */
size_t matmul_tiled_bytes(const struct cuda *cuda, const struct matmul_tiled *product);
/* `partials`: so much memory; NULL: nothing is cut, which is slower where it would be. There is a kernel for these dtypes. */
int matmul_tiled_run(struct cuda *cuda, struct cuda_stream *stream, const struct matmul_tiled *product, void *partials,
                     struct fault *fault);

cuda_kernel_walk matmul_tiled_walk;

#ifdef __cplusplus
}
#endif
