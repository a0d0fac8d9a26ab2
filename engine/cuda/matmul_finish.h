/* The last pass of a linear operation, as far as cublasLt has not done it: bias, activation, and rounding to the result's dtype. */
#pragma once

#include "engine/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to [batches, rows, columns] = activation(from + bias [columns]); strides in elements, those of columns are 1. `from` may be `to`. It has
 * the result's dtype, or is f32 for a result of f16 or bf16, or i32 for a result of i8. For other integers, `from` is zeros. */
struct matmul_finish {
    const void *from, *bias; /* bias: NULL: none; of `to`'s dtype */
    void *to;
    enum dtype from_dtype, dtype;
    unsigned activation; /* enum op_activation */
    int64_t rows, columns, batches;
    int64_t from_row, from_batch, to_row, to_batch;
};

int matmul_finish_run(struct cuda *cuda, struct cuda_stream *stream, const struct matmul_finish *finish,
                      struct fault *fault);

cuda_kernel_walk matmul_finish_walk;

#ifdef __cplusplus
}
#endif
