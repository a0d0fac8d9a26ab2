#include "engine/cuda/blas.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 256, WAYS = 4, ALGORITHMS = 4 };

/* What cublasLt wants to be told of a product, ready for the call; all of it is the plan's own memory. */
struct blas_plan {
    struct blas_product product;
    uint64_t used; /* when last; 0: free */
    size_t workspace;
    const struct blas_type *type;
    /* What cublasLt has to offer, the best first; `algorithms` 0: nothing. One that is refused when it is wanted makes
     * room for the next. */
    int algorithms, algorithm;
    cublasLtMatmulAlgo_t offered[ALGORITHMS];
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

struct cuda_blas {
    cublasLtHandle_t handle;
    size_t workspace;
    uint64_t clock;
    struct blas_plan plans[SETS][WAYS];
};

/* How products of a dtype are computed. Half precision accumulates in float32 and is rounded once: partial sums are not
 * added up in the output's type. With bias and activation (linear) it is so, too: these come before the rounding, which is
 * not said of sums that are split (plan_choose). */
struct blas_type {
    cudaDataType element, scale;
    cublasComputeType_t compute, compute_tf32;
    uint32_t reductions;
};

static const struct blas_type types[DTYPE_COUNT] = {
    [DTYPE_F16] = {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F,
                   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    [DTYPE_BF16] = {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F,
                    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    [DTYPE_F32] = {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
                   CUBLASLT_REDUCTION_SCHEME_MASK},
    [DTYPE_F8E4M3] = {CUDA_R_8F_E4M3, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F,
                      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    [DTYPE_F8E5M2] = {CUDA_R_8F_E5M2, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F,
                      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    [DTYPE_F64] = {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F, CUBLASLT_REDUCTION_SCHEME_MASK},
};

/* A CUDA error that lies behind it says more, and may be a sticky one. cublasLt has a runtime of its own: ours knows of a
 * sticky error when it is asked something. */
static int blas_fault(struct fault *fault, cublasStatus_t status, const char *call) {
    size_t unused, total;
    cudaError_t error = cudaPeekAtLastError();
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&unused, &total);
    if (error != cudaSuccess)
        return cuda_fault(fault, error, call);
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        return fault_set(fault, STATUS_OUT_OF_MEMORY, "%s: cublasLt has no memory", call);
    return fault_set(fault, STATUS_INTERNAL, "%s: %s, %s", call, cublasLtGetStatusName(status),
                     cublasLtGetStatusString(status));
}

/* It takes no such product, which is no failure: there is another way to compute it. */
static bool blas_refuses(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

#define BLAS_TRY(fault, call)                                                                                          \
    do {                                                                                                               \
        cublasStatus_t blas_try_status = (call);                                                                       \
        if (blas_try_status != CUBLAS_STATUS_SUCCESS)                                                                  \
            return blas_fault(fault, blas_try_status, #call);                                                          \
    } while (0)

int blas_create(const struct cuda *cuda, struct cuda_blas **out, struct fault *fault) {
    struct cuda_blas *blas = calloc(1, sizeof *blas);
    if (!blas)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to remember products in");
    /* As much as NVIDIA advises: split sums of Hopper's kernels want more. */
    blas->workspace = (size_t)(cuda->capability >= 90 ? 32 : 8) << 20;
    cublasStatus_t status = cublasLtCreate(&blas->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(blas);
        return blas_fault(fault, status, "cublasLtCreate");
    }
    *out = blas;
    return STATUS_OK;
}

void blas_destroy(struct cuda_blas *blas) {
    if (!blas)
        return;
    cublasLtDestroy(blas->handle);
    free(blas);
}

size_t blas_workspace_max(const struct cuda_blas *blas) {
    return blas->workspace;
}

/* ---- descriptions ---- */

struct attribute {
    int name;
    const void *value;
    size_t size;
};
#define ATTRIBUTE(name, value)                                                                                         \
    { (name), &(value), sizeof(value) }

/* The activations that cublasLt applies; its GELU is the one with tanh. */
static const uint32_t epilogues[OP_ACTIVATION_COUNT] = {
    [OP_ACTIVATION_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
    [OP_ACTIVATION_RELU] = CUBLASLT_EPILOGUE_RELU,
    [OP_ACTIVATION_GELU_TANH] = CUBLASLT_EPILOGUE_GELU,
};
static const uint32_t epilogues_bias[OP_ACTIVATION_COUNT] = {
    [OP_ACTIVATION_NONE] = CUBLASLT_EPILOGUE_BIAS,
    [OP_ACTIVATION_RELU] = CUBLASLT_EPILOGUE_RELU_BIAS,
    [OP_ACTIVATION_GELU_TANH] = CUBLASLT_EPILOGUE_GELU_BIAS,
};

static int plan_set(struct blas_plan *plan, const struct attribute *attribute, struct fault *fault) {
    BLAS_TRY(fault, cublasLtMatmulDescSetAttribute(&plan->description, (cublasLtMatmulDescAttributes_t)attribute->name,
                                                   attribute->value, attribute->size));
    return STATUS_OK;
}

/* cublasLt takes the bias' alignment from its address, when it chooses an algorithm: until there is a real one, it is given
 * one that is no more aligned than promised. */
static int plan_describe_epilogue(struct blas_plan *plan, struct fault *fault) {
    const struct blas_product *product = &plan->product;
    const void *bias = (const void *)(uintptr_t)product->bias_alignment;
    uint32_t epilogue = (bias ? epilogues_bias : epilogues)[product->activation];
    const struct attribute attributes[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
    };
    int code = epilogue == CUBLASLT_EPILOGUE_DEFAULT ? STATUS_OK : plan_set(plan, &attributes[0], fault);
    return code == STATUS_OK && bias ? plan_set(plan, &attributes[1], fault) : code;
}

/* Tensor cores of Ada and Hopper add products of fp8 up in fewer bits than float32 has. With fast accumulation a whole sum
 * is made so; without, which is slower (by how much has to be measured), it goes on in float32 every few instructions.
 * Scales are left out: they are 1. */
static int plan_describe_fp8(struct blas_plan *plan, struct fault *fault) {
    int8_t fast = 0;
    const struct attribute attribute = ATTRIBUTE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    return dtype_is_f8((enum dtype)plan->product.a.dtype) ? plan_set(plan, &attribute, fault) : STATUS_OK;
}

static int plan_describe_product(struct blas_plan *plan, struct fault *fault) {
    const struct blas_product *product = &plan->product;
    cublasOperation_t a = product->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = product->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const struct attribute attributes[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, a),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, b),
    };
    cublasComputeType_t compute = product->tf32 ? plan->type->compute_tf32 : plan->type->compute;
    BLAS_TRY(fault, cublasLtMatmulDescInit(&plan->description, compute, plan->type->scale));
    int code = STATUS_OK;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && code == STATUS_OK; i++)
        code = plan_set(plan, &attributes[i], fault);
    if (code == STATUS_OK)
        code = plan_describe_fp8(plan, fault);
    return code == STATUS_OK ? plan_describe_epilogue(plan, fault) : code;
}

/* `rows` and `columns` as op() presents them. */
static int plan_describe_matrix(const struct blas_plan *plan, const struct blas_matrix *matrix, int64_t rows,
                                int64_t columns, cublasLtMatrixLayoutOpaque_t *layout, struct fault *fault) {
    uint64_t stored_rows = (uint64_t)(matrix->transposed ? columns : rows);
    uint64_t stored_columns = (uint64_t)(matrix->transposed ? rows : columns);
    int32_t batches = (int32_t)plan->product.batches;
    const struct attribute attributes[] = {
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix->batch_stride),
    };
    BLAS_TRY(fault, cublasLtMatrixLayoutInit(layout, types[matrix->dtype].element, stored_rows, stored_columns,
                                             matrix->leading));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        BLAS_TRY(fault, cublasLtMatrixLayoutSetAttribute(layout, (cublasLtMatrixLayoutAttribute_t)attributes[i].name,
                                                         attributes[i].value, attributes[i].size));
    return STATUS_OK;
}

static int plan_describe(struct blas_plan *plan, struct fault *fault) {
    const struct blas_product *product = &plan->product;
    int code = plan_describe_product(plan, fault);
    if (code == STATUS_OK)
        code = plan_describe_matrix(plan, &product->a, product->m, product->k, &plan->a, fault);
    if (code == STATUS_OK)
        code = plan_describe_matrix(plan, &product->b, product->k, product->n, &plan->b, fault);
    if (code == STATUS_OK)
        code = plan_describe_matrix(plan, &product->d, product->m, product->n, &plan->d, fault);
    return code;
}

/* ---- algorithms ---- */

/* Of what is offered, what works, and besides the best one only what needs no more memory than that. */
static void plan_keep(struct blas_plan *plan, const cublasLtMatmulHeuristicResult_t *results, int found) {
    plan->algorithm = plan->algorithms = 0;
    plan->workspace = 0;
    for (int i = 0; i < found && i < ALGORITHMS; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS ||
            (plan->algorithms && results[i].workspaceSize > plan->workspace))
            continue;
        plan->workspace = plan->algorithms ? plan->workspace : results[i].workspaceSize;
        plan->offered[plan->algorithms++] = results[i].algo;
    }
}

/* cublasLt takes 256 bytes for granted where it is not told the addresses' alignment. */
static int plan_choose(struct cuda_blas *blas, struct blas_plan *plan, struct fault *fault) {
    const struct blas_product *product = &plan->product;
    uint64_t workspace = blas->workspace;
    bool half = plan->type->element == CUDA_R_16F || plan->type->element == CUDA_R_16BF;
    bool ends = product->bias_alignment || product->activation != OP_ACTIVATION_NONE;
    uint32_t reductions = half && ends ? CUBLASLT_REDUCTION_SCHEME_NONE : plan->type->reductions;
    const struct attribute attributes[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product->a.alignment),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product->b.alignment),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product->d.alignment),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product->d.alignment),
    };
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS];
    int found = 0;
    BLAS_TRY(fault, cublasLtMatmulPreferenceInit(&preference));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        BLAS_TRY(fault, cublasLtMatmulPreferenceSetAttribute(&preference,
                                                             (cublasLtMatmulPreferenceAttributes_t)attributes[i].name,
                                                             attributes[i].value, attributes[i].size));
    memset(results, 0, sizeof results);
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(blas->handle, &plan->description, &plan->a, &plan->b, &plan->d, &plan->d,
                                       &preference, ALGORITHMS, results, &found);
    if (blas_refuses(status))
        found = 0;
    else if (status != CUBLAS_STATUS_SUCCESS)
        return blas_fault(fault, status, "cublasLtMatmulAlgoGetHeuristic");
    plan_keep(plan, results, found);
    return STATUS_OK;
}

/* FNV-1a over words. */
static uint64_t product_hash(const struct blas_product *product) {
    uint64_t words[sizeof *product / sizeof(uint64_t)], hash = UINT64_C(0xcbf29ce484222325);
    _Static_assert(sizeof *product % sizeof(uint64_t) == 0, "a key is made of words");
    memcpy(words, product, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

int blas_plan_find(struct cuda_blas *blas, const struct blas_product *product, struct blas_plan **out,
                   struct fault *fault) {
    struct blas_plan *set = blas->plans[product_hash(product) % SETS], *plan = &set[0];
    for (int i = 0; i < WAYS; i++) {
        if (set[i].used && memcmp(&set[i].product, product, sizeof *product) == 0) {
            set[i].used = ++blas->clock;
            *out = set[i].algorithms ? &set[i] : NULL;
            return STATUS_OK;
        }
        plan = set[i].used < plan->used ? &set[i] : plan;
    }
    memset(plan, 0, sizeof *plan);
    plan->product = *product;
    plan->type = &types[product->a.dtype];
    int code = plan_describe(plan, fault);
    if (code == STATUS_OK)
        code = plan_choose(blas, plan, fault);
    if (code != STATUS_OK)
        return code;
    plan->used = ++blas->clock;
    *out = plan->algorithms ? plan : NULL;
    return STATUS_OK;
}

size_t blas_plan_workspace(const struct blas_plan *plan) {
    return plan->workspace;
}

/* One algorithm's turn. */
static cublasStatus_t plan_multiply(const struct cuda_blas *blas, struct blas_plan *plan,
                                    const struct blas_operands *operands, void *workspace, cudaStream_t stream) {
    static const float one = 1, zero = 0;
    static const double wide_one = 1, wide_zero = 0;
    bool wide = plan->type->scale == CUDA_R_64F;
    const void *alpha = wide ? (const void *)&wide_one : &one, *beta = wide ? (const void *)&wide_zero : &zero;
    return cublasLtMatmul(blas->handle, &plan->description, alpha, operands->a, &plan->a, operands->b, &plan->b, beta,
                          operands->d, &plan->d, operands->d, &plan->d, &plan->offered[plan->algorithm], workspace,
                          plan->workspace, stream);
}

int blas_multiply(struct cuda_blas *blas, struct blas_plan *plan, const struct blas_operands *operands, void *workspace,
                  cudaStream_t stream, bool *refused, struct fault *fault) {
    const struct attribute bias = ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands->bias);
    int code = plan->product.bias_alignment ? plan_set(plan, &bias, fault) : STATUS_OK;
    *refused = false;
    if (code != STATUS_OK)
        return code;
    for (; plan->algorithm < plan->algorithms; plan->algorithm++) {
        cublasStatus_t status = plan_multiply(blas, plan, operands, workspace, stream);
        if (status == CUBLAS_STATUS_SUCCESS)
            return STATUS_OK;
        if (!blas_refuses(status))
            return blas_fault(fault, status, "cublasLtMatmul");
    }
    plan->algorithms = 0;
    *refused = true;
    return STATUS_OK;
}
