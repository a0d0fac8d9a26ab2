/* cublasLt: products of one shape are described and their algorithm chosen once, then found by their key.
 *
 * Not cublas itself: cublasLt has the same kernels, takes the workspace that it is given, and creates no memory of its
 * own. Only the submitter's thread calls these, with the device current. */
#pragma once

#include "engine/cuda/cuda.h"

/* A matrix as it is stored, column after column. */
struct blas_matrix {
    int64_t leading;      /* elements from one column to the next, at least as many as a column has */
    int64_t batch_stride; /* elements from one batch to the next; may be 0 */
    uint16_t dtype, transposed;
    uint32_t alignment; /* of all addresses that it will have, in bytes: see blas_alignment() */
};

/* D [m, n] = activation(op(A) [m, k] · op(B) [k, n] + bias [m]), for each batch with the same bias; D is not transposed.
 * A and B have one dtype, or are two kinds of fp8. Compared as bytes: start from zeros. */
struct blas_product {
    int64_t m, n, k, batches;
    struct blas_matrix a, b, d;
    uint16_t tf32, activation; /* enum op_activation */
    uint32_t bias_alignment;   /* as of matrices; 0: there is no bias. It has D's dtype */
};

struct blas_operands {
    const void *a, *b, *bias;
    void *d;
};

struct blas_plan;

enum { BLAS_ALIGNMENT = 16 };

/* The largest power of two that divides all of some addresses and distances, whose bits have been put together. More than 16
 * bytes make no difference to any kernel, but would make a plan for each of a shape's alignments, and choosing an algorithm
 * takes 30 to 100 µs. */
static inline uint32_t blas_alignment(uint64_t bits) {
    bits |= BLAS_ALIGNMENT;
    return (uint32_t)(bits & -bits);
}

/* NULL: no memory. cublasLt itself is opened when it is first asked for a plan. */
struct cuda_blas *blas_create(const struct cuda *cuda);
/* NULL is fine. What has been enqueued must have ended. */
void blas_destroy(struct cuda_blas *blas);

/* The most workspace that a plan asks for. */
size_t blas_workspace_max(const struct cuda_blas *blas);

/* The plan of a product, which stays the blas' and is good until the next call. *plan is NULL where cublasLt has no
 * algorithm for it, or cannot be had; errors are the device's. */
int blas_plan_find(struct cuda_blas *blas, const struct blas_product *product, struct blas_plan **plan,
                   struct fault *fault);
size_t blas_plan_workspace(const struct blas_plan *plan);

/* `workspace` is as large as the plan wants, aligned to 256 bytes. *refused: cublasLt turned the product down after all,
 * or failed without the device having failed, with every algorithm that it had offered; D may have been written to, and
 * the plan will not be found again. */
int blas_multiply(struct cuda_blas *blas, struct blas_plan *plan, const struct blas_operands *operands, void *workspace,
                  cudaStream_t stream, bool *refused, struct fault *fault);
