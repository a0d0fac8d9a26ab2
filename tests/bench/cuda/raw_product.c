/* cublasLt called directly: the first algorithm that it names, with the workspace that NVIDIA advises for Hopper. */
#include <stdio.h>
#include <string.h>

#include "tests/bench/cuda/raw.h"
#include "tests/bench/cuda/raw_cuda.h"

static const size_t workspace_bytes = (size_t)32 << 20;

static const struct {
    cudaDataType factor, result;
    size_t factor_size, result_size;
    cublasComputeType_t compute;
    cublasOperation_t first; /* of cublasLt's A */
} types[RAW_TYPES] = {
    [RAW_F32] = {CUDA_R_32F, CUDA_R_32F, 4, 4, CUBLAS_COMPUTE_32F, CUBLAS_OP_N},
    [RAW_TF32] = {CUDA_R_32F, CUDA_R_32F, 4, 4, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_OP_N},
    [RAW_BF16] = {CUDA_R_16BF, CUDA_R_16BF, 2, 2, CUBLAS_COMPUTE_32F, CUBLAS_OP_N},
    [RAW_F16] = {CUDA_R_16F, CUDA_R_16F, 2, 2, CUBLAS_COMPUTE_32F, CUBLAS_OP_N},
    [RAW_FP8] = {CUDA_R_8F_E4M3, CUDA_R_32F, 1, 4, CUBLAS_COMPUTE_32F, CUBLAS_OP_T},
};

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t try_error = (call);                                                                                \
        if (try_error != cudaSuccess)                                                                                  \
            return cudaGetErrorString(try_error);                                                                      \
    } while (0)
#define TRY_BLAS(call)                                                                                                 \
    do {                                                                                                               \
        cublasStatus_t try_status = (call);                                                                            \
        if (try_status != CUBLAS_STATUS_SUCCESS)                                                                       \
            return cublasLtGetStatusString(try_status);                                                                \
    } while (0)

static const char *product_describe(struct raw_product *product, int type, int64_t n) {
    const cublasOperation_t first = types[type].first;
    const uint64_t extent = (uint64_t)n;
    TRY_BLAS(cublasLtMatmulDescInit(&product->description, types[type].compute, CUDA_R_32F));
    TRY_BLAS(cublasLtMatmulDescSetAttribute(&product->description, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    TRY_BLAS(cublasLtMatrixLayoutInit(&product->factor, types[type].factor, extent, extent, n));
    TRY_BLAS(cublasLtMatrixLayoutInit(&product->result, types[type].result, extent, extent, n));
    return NULL;
}

static const char *product_choose(struct raw_product *product) {
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    memset(&result, 0, sizeof result);
    TRY_BLAS(cublasLtMatmulPreferenceInit(&preference));
    TRY_BLAS(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace_bytes, sizeof workspace_bytes));
    TRY_BLAS(cublasLtMatmulAlgoGetHeuristic(product->handle, &product->description, &product->factor, &product->factor,
                                            &product->result, &product->result, &preference, 1, &result, &found));
    if (found == 0)
        return "cublasLt has no algorithm for this";
    product->algorithm = result.algo;
    return NULL;
}

const char *raw_product_open(struct raw_product *product, int type, int64_t n, cudaStream_t stream) {
    const size_t elements = (size_t)n * (size_t)n, result_bytes = elements * types[type].result_size;
    TRY_BLAS(cublasLtCreate(&product->handle));
    TRY(cudaMalloc(&product->a, elements * types[type].factor_size));
    TRY(cudaMalloc(&product->b, elements * types[type].factor_size));
    TRY(cudaMalloc(&product->c, result_bytes));
    TRY(cudaMalloc(&product->d, result_bytes));
    TRY(cudaMalloc(&product->workspace, workspace_bytes));
    TRY(raw_fill(product->a, type, (int64_t)elements, 1, stream));
    TRY(raw_fill(product->b, type, (int64_t)elements, 2, stream));
    const char *error = product_describe(product, type, n);
    return error ? error : product_choose(product);
}

static const char *product_multiply(struct raw_product *product, const void *a, const void *b, void *result,
                                    cudaStream_t stream) {
    static const float one = 1, zero = 0;
    TRY_BLAS(cublasLtMatmul(product->handle, &product->description, &one, a, &product->factor, b, &product->factor,
                            &zero, result, &product->result, result, &product->result, &product->algorithm,
                            product->workspace, workspace_bytes, stream));
    return NULL;
}

const char *raw_product_run(struct raw_product *product, int64_t count, cudaStream_t stream) {
    const char *error = NULL;
    for (int64_t i = 0; i < count && !error; i++)
        error = product_multiply(product, product->a, product->b, product->c, stream);
    return error;
}

const char *raw_product_chain(struct raw_product *product, int64_t count, cudaStream_t stream) {
    void *last = product->b, *next = product->c, *other = product->d;
    const char *error = NULL;
    for (int64_t i = 0; i < count && !error; i++) {
        /* Rows of one are columns of the other: what a program calls the left factor is cublasLt's B. */
        error = product_multiply(product, product->a, last, next, stream);
        last = next;
        next = other;
        other = last;
    }
    return error;
}

void raw_product_close(struct raw_product *product) {
    void *const blocks[] = {product->a, product->b, product->c, product->d, product->workspace};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        cudaFree(blocks[i]);
    if (product->handle)
        cublasLtDestroy(product->handle);
    memset(product, 0, sizeof *product);
}
