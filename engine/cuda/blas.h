/* cublasLt: each kind of product is described, and its algorithm chosen, only once; later it is found by its key.
 *
 * Why not cublas: cublasLt has the same kernels, uses the workspace that it is given, and allocates no memory of its own. Only the
 * submitter's thread calls these functions, with the device current. */
#pragma once

#include "engine/cuda/cuda.h"

/* A matrix in memory, column after column. */
struct blas_matrix {
    int64_t leading;      /* elements from one column to the next, at least as many as a column has */
    int64_t batch_stride; /* elements from one batch to the next; may be 0 */
    uint16_t dtype, transposed;
    uint32_t alignment; /* in bytes, of all addresses where it will lie: see blas_alignment() */
};

/* D [m, n] = activation(op(A) [m, k] · op(B) [k, n] + bias [m]), for each batch with the same bias; D is not transposed.
 * A and B have one dtype, or are two kinds of fp8. Compared as bytes: start from zeros. */
struct blas_product {
    int64_t m, n, k, batches;
    struct blas_matrix a, b, d;
    uint16_t tf32, activation; /* enum op_activation */
    uint32_t bias_alignment;   /* as of matrices; 0: there is no bias. The bias has D's dtype */
};

struct blas_operands {
    const void *a, *b, *bias;
    void *d;
};

struct blas_plan;

enum { BLAS_ALIGNMENT = 16 };

/* The largest power of two, 16 at most, that divides several addresses and distances; `bits` is all of them, joined by "or". No kernel
 * needs more than 16 bytes, and larger alignments would make more plans for one shape, each of which takes 30 to 100 µs. */
static inline uint32_t blas_alignment(uint64_t bits) {
    bits |= BLAS_ALIGNMENT;
    return (uint32_t)(bits & -bits);
}

/* NULL: no memory. cublasLt itself is opened when it is first asked for a plan. */
struct cuda_blas *blas_create(const struct cuda *cuda);
/* Takes NULL. All products that were enqueued must have ended. */
void blas_destroy(struct cuda_blas *blas);

/* How often cublasLt has refused a call so far. Takes NULL. */
uint64_t blas_refusals(const struct cuda_blas *blas);

/* The most workspace that a plan asks for. */
size_t blas_workspace_max(const struct cuda_blas *blas);

/* The plan of a product, which belongs to `blas` and is valid until the next call. *plan is NULL if cublasLt has no algorithm for the
 * product or cannot be loaded. Errors are failures of the device. */
int blas_plan_find(struct cuda_blas *blas, const struct blas_product *product, struct blas_plan **plan,
                   struct fault *fault);
size_t blas_plan_workspace(const struct blas_plan *plan);

/* `workspace` is as large as the plan wants, aligned to 256 bytes. *refused: with every algorithm that it had offered, cublasLt refused
 * the product, or failed although the device has not. Then D may have been written to, and the plan will not be found again. */
int blas_multiply(struct cuda_blas *blas, struct blas_plan *plan, const struct blas_operands *operands, void *workspace,
                  cudaStream_t stream, bool *refused, struct fault *fault);
