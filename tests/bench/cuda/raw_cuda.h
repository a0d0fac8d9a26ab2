/* Inside the process that calls CUDA directly (raw.h). Includable from C and from CUDA C++. */
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- raw_product.c ---- */

/* Cublas lays matrices out column after column; all are square here, and of random numbers. */
struct raw_product {
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t factor, result; /* both factors have one layout */
    cublasLtMatmulAlgo_t algorithm;
    void *a, *b, *c, *d, *workspace; /* d: the next product's, in a chain */
};
/* NULL, or what went wrong. */
const char *raw_product_open(struct raw_product *product, int type, int64_t n, cudaStream_t stream);
const char *raw_product_run(struct raw_product *product, int64_t count, cudaStream_t stream);
const char *raw_product_chain(struct raw_product *product, int64_t count, cudaStream_t stream);
void raw_product_close(struct raw_product *product);

/* ---- raw_kernels.cu ---- */

/* x = x + b of 16 floats, `count` times. */
cudaError_t raw_adds(float *x, const float *b, int64_t count, cudaStream_t stream);
/* Uniform numbers from [-1, 1) of an enum raw_type, which depend on the seed. */
cudaError_t raw_fill(void *data, int type, int64_t count, uint32_t seed, cudaStream_t stream);
/* CUB's sum of n floats, `count` times. `memory` has room for the sum and for what CUB needs. */
cudaError_t raw_sums(const void *x, int64_t n, void *memory, uint64_t bytes, int64_t count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
