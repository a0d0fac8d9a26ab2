#include "engine/cuda/blas.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 256, WAYS = 4, ALGORITHMS = 4 };

/* The description of a product for cublasLt, ready for the call. The plan owns all of it. */
struct blas_plan {
    struct blas_product product;
    uint64_t used; /* when it was used last; 0: the place is free */
    size_t workspace;
    const struct blas_type *type;
    /* The algorithms that cublasLt offers, the best first; `algorithms` 0: none. An algorithm that fails for this product is dropped, and the
     * next takes its place. */
    int algorithms, algorithm;
    unsigned put_off; /* products since cublasLt offered none for a reason that may pass; 0: it has answered */
    cublasLtMatmulAlgo_t offered[ALGORITHMS];
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

struct cuda_blas {
    cublasLtHandle_t handle; /* NULL: cublasLt could not be opened */
    uint64_t wanted;         /* how often it was needed since then */
    uint64_t refused;        /* how often it has refused a call */
    size_t workspace;
    uint64_t clock;
    struct blas_plan plans[SETS][WAYS];
};

/* How products of a dtype are computed. Half precision is accumulated in float32 and rounded once: partial sums are not added up in the
 * output's type. The same holds for bias and activation (linear): they come before the rounding, and for sums that are split after the
 * parts have been added up in float32. */
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
    [DTYPE_I8] = {CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32I, CUBLASLT_REDUCTION_SCHEME_MASK},
    [DTYPE_I32] = {CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32I, CUBLASLT_REDUCTION_SCHEME_MASK},
    [DTYPE_F64] = {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F, CUBLASLT_REDUCTION_SCHEME_MASK},
    [DTYPE_C64] = {CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F, CUBLASLT_REDUCTION_SCHEME_MASK},
    [DTYPE_C128] = {CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F, CUBLASLT_REDUCTION_SCHEME_MASK},
};

/* Whether a refusal depends on the product alone. Other reasons, such as lack of memory, may be gone the next time. */
static bool blas_lasts(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

/* Every error of cublasLt is a refusal, since there is another way to compute every product; unless the device has failed. */
static int blas_refused(cublasStatus_t status, const char *call, bool *refused, struct fault *fault) {
    *refused = status != CUBLAS_STATUS_SUCCESS;
    return *refused && status != CUBLAS_STATUS_NOT_SUPPORTED ? cuda_survives(call, fault) : STATUS_OK;
}

#define BLAS_TRY(call)                                                                                                 \
    do {                                                                                                               \
        cublasStatus_t blas_try_status = (call);                                                                       \
        if (blas_try_status != CUBLAS_STATUS_SUCCESS)                                                                  \
            return blas_try_status;                                                                                    \
    } while (0)

struct cuda_blas *blas_create(const struct cuda *cuda) {
    struct cuda_blas *blas = calloc(1, sizeof *blas);
    if (blas) /* as much as NVIDIA advises: on Hopper, kernels with split sums need more */
        blas->workspace = (size_t)(cuda->capability >= 90 ? 32 : 8) << 20;
    return blas;
}

/* If cublasLt could not be opened, it is tried again, but not for each product: a failure may take long. */
enum { EVERY = 64 };

static int blas_open(struct cuda_blas *blas, bool *refused, struct fault *fault) {
    *refused = blas->wanted++ % EVERY != 0;
    return *refused ? STATUS_OK : blas_refused(cublasLtCreate(&blas->handle), "cublasLtCreate", refused, fault);
}

void blas_destroy(struct cuda_blas *blas) {
    if (!blas)
        return;
    if (blas->handle)
        cublasLtDestroy(blas->handle);
    free(blas);
}

uint64_t blas_refusals(const struct cuda_blas *blas) {
    return blas ? blas->refused : 0;
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

/* The activations that cublasLt applies. Its GELU is the approximation with tanh. */
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

static cublasStatus_t plan_set(struct blas_plan *plan, const struct attribute *attribute) {
    return cublasLtMatmulDescSetAttribute(&plan->description, (cublasLtMatmulDescAttributes_t)attribute->name,
                                          attribute->value, attribute->size);
}

/* When cublasLt chooses an algorithm, it takes the alignment of the bias from its address. There is no bias yet, so cublasLt is given an
 * address that is aligned no better than promised. */
static cublasStatus_t plan_describe_epilogue(struct blas_plan *plan) {
    const struct blas_product *product = &plan->product;
    const void *bias = (const void *)(uintptr_t)product->bias_alignment;
    uint32_t epilogue = (bias ? epilogues_bias : epilogues)[product->activation];
    const struct attribute attributes[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
    };
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        BLAS_TRY(plan_set(plan, &attributes[0]));
    return bias ? plan_set(plan, &attributes[1]) : CUBLAS_STATUS_SUCCESS;
}

/* Tensor cores of Ada and Hopper add products of fp8 up in fewer bits than float32 has. With fast accumulation a whole sum
 * is made so; without, which is slower (by how much has to be measured), it goes on in float32 every few instructions.
 * Scales are left out: they are 1. */
static cublasStatus_t plan_describe_fp8(struct blas_plan *plan) {
    int8_t fast = 0;
    const struct attribute attribute = ATTRIBUTE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    return dtype_is_f8((enum dtype)plan->product.a.dtype) ? plan_set(plan, &attribute) : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t plan_describe_product(struct blas_plan *plan) {
    const struct blas_product *product = &plan->product;
    cublasOperation_t a = product->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = product->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const struct attribute attributes[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, a),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, b),
    };
    cublasComputeType_t compute = product->tf32 ? plan->type->compute_tf32 : plan->type->compute;
    BLAS_TRY(cublasLtMatmulDescInit(&plan->description, compute, plan->type->scale));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        BLAS_TRY(plan_set(plan, &attributes[i]));
    BLAS_TRY(plan_describe_fp8(plan));
    return plan_describe_epilogue(plan);
}

/* `rows` and `columns` after op(). */
static cublasStatus_t plan_describe_matrix(const struct blas_plan *plan, const struct blas_matrix *matrix, int64_t rows,
                                           int64_t columns, cublasLtMatrixLayoutOpaque_t *layout) {
    uint64_t stored_rows = (uint64_t)(matrix->transposed ? columns : rows);
    uint64_t stored_columns = (uint64_t)(matrix->transposed ? rows : columns);
    int32_t batches = (int32_t)plan->product.batches;
    const struct attribute attributes[] = {
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix->batch_stride),
    };
    BLAS_TRY(
        cublasLtMatrixLayoutInit(layout, types[matrix->dtype].element, stored_rows, stored_columns, matrix->leading));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        BLAS_TRY(cublasLtMatrixLayoutSetAttribute(layout, (cublasLtMatrixLayoutAttribute_t)attributes[i].name,
                                                  attributes[i].value, attributes[i].size));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t plan_describe(struct blas_plan *plan) {
    const struct blas_product *product = &plan->product;
    BLAS_TRY(plan_describe_product(plan));
    BLAS_TRY(plan_describe_matrix(plan, &product->a, product->m, product->k, &plan->a));
    BLAS_TRY(plan_describe_matrix(plan, &product->b, product->k, product->n, &plan->b));
    return plan_describe_matrix(plan, &product->d, product->m, product->n, &plan->d);
}

/* ---- algorithms ---- */

/* Keeps the offered algorithms that work; after the best one, only those that need no more memory than it does. */
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

/* cublasLt assumes addresses aligned to 256 bytes unless it is told their alignment. */
static cublasStatus_t plan_choose(struct cuda_blas *blas, struct blas_plan *plan) {
    const struct blas_product *product = &plan->product;
    uint64_t workspace = blas->workspace;
    /* Not the complex product of three real products, whose smaller part has errors as large as the larger part's; and TF32 only where it is
     * asked for. */
    uint64_t ways = ~(CUBLASLT_NUMERICAL_IMPL_FLAGS_GAUSSIAN |
                      (product->tf32 ? UINT64_C(0) : CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32));
    const struct attribute attributes[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_IMPL_MASK, ways),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, plan->type->reductions),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product->a.alignment),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product->b.alignment),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product->d.alignment),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product->d.alignment),
    };
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS];
    int found = 0;
    BLAS_TRY(cublasLtMatmulPreferenceInit(&preference));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(&preference,
                                                      (cublasLtMatmulPreferenceAttributes_t)attributes[i].name,
                                                      attributes[i].value, attributes[i].size));
    memset(results, 0, sizeof results);
    BLAS_TRY(cublasLtMatmulAlgoGetHeuristic(blas->handle, &plan->description, &plan->a, &plan->b, &plan->d, &plan->d,
                                            &preference, ALGORITHMS, results, &found));
    plan_keep(plan, results, found);
    return CUBLAS_STATUS_SUCCESS;
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
    bool refused = false;
    int code = blas->handle ? STATUS_OK : blas_open(blas, &refused, fault);
    *out = NULL;
    if (code != STATUS_OK || refused)
        return code;
    for (int i = 0; i < WAYS; i++) {
        if (set[i].used && memcmp(&set[i].product, product, sizeof *product) == 0) {
            set[i].used = ++blas->clock;
            *out = set[i].algorithms ? &set[i] : NULL;
            if (!set[i].put_off || set[i].put_off++ % EVERY != 0)
                return STATUS_OK;
            plan = &set[i]; /* a plan that is put off is asked for again */
            break;
        }
        plan = set[i].used < plan->used ? &set[i] : plan;
    }
    memset(plan, 0, sizeof *plan);
    plan->product = *product;
    plan->type = &types[product->a.dtype];
    cublasStatus_t status = plan_describe(plan);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = plan_choose(blas, plan);
    code = blas_refused(status, "cublasLtMatmulAlgoGetHeuristic", &refused, fault);
    if (code != STATUS_OK)
        return code;
    blas->refused += refused;
    plan->used = ++blas->clock;
    plan->put_off = refused && !blas_lasts(status);
    *out = plan->algorithms ? plan : NULL;
    return STATUS_OK;
}

size_t blas_plan_workspace(const struct blas_plan *plan) {
    return plan->workspace;
}

/* Tries one algorithm. */
static cublasStatus_t plan_multiply(const struct cuda_blas *blas, struct blas_plan *plan, int algorithm,
                                    const struct blas_operands *operands, void *workspace, cudaStream_t stream) {
    /* With a second number, for complex scales. */
    static const float one[] = {1, 0}, zero[] = {0, 0};
    static const double wide_one[] = {1, 0}, wide_zero[] = {0, 0};
    static const int32_t integer_one = 1, integer_zero = 0;
    bool wide = plan->type->scale == CUDA_R_64F || plan->type->scale == CUDA_C_64F;
    bool integer = plan->type->scale == CUDA_R_32I;
    const void *alpha = wide ? (const void *)wide_one : integer ? (const void *)&integer_one : one;
    const void *beta = wide ? (const void *)wide_zero : integer ? (const void *)&integer_zero : zero;
    const struct attribute bias = ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands->bias);
    if (plan->product.bias_alignment)
        BLAS_TRY(plan_set(plan, &bias));
    return cublasLtMatmul(blas->handle, &plan->description, alpha, operands->a, &plan->a, operands->b, &plan->b, beta,
                          operands->d, &plan->d, operands->d, &plan->d, &plan->offered[algorithm], workspace,
                          plan->workspace, stream);
}

int blas_multiply(struct cuda_blas *blas, struct blas_plan *plan, const struct blas_operands *operands, void *workspace,
                  cudaStream_t stream, bool *refused, struct fault *fault) {
    *refused = true;
    for (int i = plan->algorithm; i < plan->algorithms; i++) {
        cublasStatus_t status = plan_multiply(blas, plan, i, operands, workspace, stream);
        int code = blas_refused(status, "cublasLtMatmul", refused, fault);
        if (code != STATUS_OK || !*refused)
            return code;
        blas->refused++;
        plan->algorithm += blas_lasts(status) && i == plan->algorithm;
    }
    if (plan->algorithm == plan->algorithms)
        plan->algorithms = 0;
    return STATUS_OK;
}
