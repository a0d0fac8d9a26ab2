/* The stand-in for cublasLt: it takes every product, wants a workspace for it, and computes nothing. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/fakecuda/fakecuda.h"

static cublasStatus_t blas_call(const char *function) {
    cudaError_t error = fakecuda_call_of_library(function);
    return error == cudaSuccess                 ? CUBLAS_STATUS_SUCCESS
           : error == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED
                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS        ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_ALLOC_FAILED ? "CUBLAS_STATUS_ALLOC_FAILED"
                                                  : "CUBLAS_STATUS_EXECUTION_FAILED";
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS        ? "success"
           : status == CUBLAS_STATUS_ALLOC_FAILED ? "the resource allocation failed"
                                                  : "the GPU program failed to execute";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    cublasStatus_t status = blas_call(__func__);
    if (status == CUBLAS_STATUS_SUCCESS)
        *handle = malloc(1);
    return status;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return blas_call(__func__);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
    (void)compute, (void)scale;
    memset(description, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t size) {
    (void)description, (void)attribute, (void)value, (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t leading) {
    (void)type, (void)rows, (void)columns, (void)leading;
    memset(layout, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t size) {
    (void)layout, (void)attribute, (void)value, (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
    memset(preference, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t size) {
    (void)preference, (void)attribute, (void)value, (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
    cublasStatus_t status = blas_call(__func__);
    (void)handle, (void)description, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    memset(results, 0, sizeof *results);
    results->state = CUBLAS_STATUS_SUCCESS;
    results->workspaceSize = 1 << 20;
    *found = 1;
    return status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    cublasStatus_t status = blas_call(__func__);
    (void)handle, (void)description, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)beta, (void)c;
    (void)c_layout, (void)d, (void)d_layout, (void)algorithm, (void)workspace, (void)workspace_bytes;
    if (status == CUBLAS_STATUS_SUCCESS && fakecuda_put(stream, &(struct fakecuda_item){.kind = ITEM_KERNEL}))
        status = CUBLAS_STATUS_EXECUTION_FAILED;
    return status;
}
