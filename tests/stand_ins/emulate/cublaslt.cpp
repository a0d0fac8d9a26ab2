/* As much of cublasLt as blas.c calls, slow and plain. It looks at what it is given as closely as the real one would have
 * to: sizes of attributes, shapes that fit, addresses as aligned as was promised, a workspace where it asked for one. Every
 * few products it refuses one, early or late, now and then several times on end, so that all ways around it are taken. Products of f64
 * are refused by their extents. */
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests/stand_ins/emulate/block.h"
#include "tests/stand_ins/emulate/graph.h"

enum { WORKSPACE_EVERY = 2, WORKSPACE = 1000, BATCHES_MAX = 65535 };

/* What the opaque structs of cublasLt hold here. */
struct layout {
    cudaDataType type;
    int32_t batches;
    uint64_t rows, columns;
    int64_t leading, batch_stride;
};
struct description {
    cublasComputeType_t compute;
    cudaDataType scale;
    int32_t a, b; /* cublasOperation_t */
    uint32_t epilogue;
    int8_t fast;
    const void *bias;
};
struct preference {
    uint64_t workspace, ways;
    uint32_t reductions, a, b, c, d; /* alignments in bytes */
};
struct algorithm {
    uint64_t workspace;
    uint32_t a, b, d, bias;
};
static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
static_assert(sizeof(struct description) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
static_assert(sizeof(struct algorithm) <= sizeof(((cublasLtMatmulAlgo_t *)nullptr)->data), "fits");

static unsigned asked, multiplied;

/* Counts products. One whose elements are wider than what sums are rounded to has a number of its own: another way around a refusal would add up
 * in another order, which shows in its bits, and equal products must have equal ones. */
static unsigned number_of(const struct layout *a, const struct layout *b, unsigned *count) {
    bool wide = a->type == CUDA_R_64F || a->type == CUDA_C_64F;
    ++*count;
    return wide ? (unsigned)(a->rows * 31 + a->columns * 7 + b->rows * 3 + b->columns) : *count;
}

/* One of seven, and every fifty times five of them. */
static bool refused_early(unsigned n) {
    return n % 7 == 0 || n % 50 / 5 == 4;
}
static bool refused_late(unsigned n) {
    return n % 11 == 0 || n % 60 / 6 == 5;
}

static void expect(bool condition, const char *what) {
    if (!condition) {
        block_die("cublasLt is given %s", what);
    }
}

template <class T> static cublasStatus_t set(T *field, const void *value, size_t size) {
    expect(size == sizeof *field, "an attribute of another size");
    memcpy(field, value, sizeof *field);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = (cublasLtHandle_t)&asked;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t) {
    return "a status";
}

const char *cublasLtGetStatusString(cublasStatus_t) {
    return "a status of the emulated cublasLt";
}

/* ---- descriptions ---- */

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t opaque, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t leading) {
    memset((void *)opaque, 0, size);
    *(struct layout *)opaque = {type, 1, rows, columns, leading, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque, cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t size) {
    struct layout *layout = (struct layout *)opaque;
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&layout->batches, value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&layout->batch_stride, value, size);
    default:
        return CUBLAS_STATUS_INTERNAL_ERROR;
    }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t opaque, size_t size, cublasComputeType_t compute,
                                               cudaDataType scale) {
    memset((void *)opaque, 0, size);
    *(struct description *)opaque = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, 0, nullptr};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t size) {
    struct description *description = (struct description *)opaque;
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&description->a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&description->b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&description->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&description->bias, value, size);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return set(&description->fast, value, size);
    default:
        return CUBLAS_STATUS_INTERNAL_ERROR;
    }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t opaque, size_t size) {
    memset((void *)opaque, 0, size);
    *(struct preference *)opaque = {0, ~UINT64_C(0), CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                    size_t size) {
    struct preference *preference = (struct preference *)opaque;
    switch (name) {
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
        return set(&preference->ways, value, size);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&preference->workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&preference->reductions, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(&preference->a, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(&preference->b, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(&preference->c, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&preference->d, value, size);
    default:
        return CUBLAS_STATUS_INTERNAL_ERROR;
    }
}

/* ---- algorithms: their workspace, and the alignment that they count on ---- */

static void expect_alignment(uint32_t bytes) {
    expect(bytes > 0 && bytes <= 16 && (bytes & (bytes - 1)) == 0,
           "an alignment that is no power of two up to 16, beyond which plans would differ in nothing");
}

static bool is_fp8(cudaDataType type) {
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/* What fp8 products must be, beyond what they are taken for. */
static bool fp8_takes(const struct layout *a, const struct layout *b, const struct layout *d,
                      const struct preference *preference) {
    return a->rows % 16 == 0 && a->columns % 16 == 0 && a->leading % 16 == 0 && b->leading % 16 == 0 &&
           preference->a % 16 == 0 && preference->b % 16 == 0 && d->leading % 4 == 0;
}

static uint32_t address_alignment(const void *address) {
    uintptr_t bits = (uintptr_t)address | 16;
    return (uint32_t)(bits & -bits);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t opaque_description,
                                              cublasLtMatrixLayout_t opaque_a, cublasLtMatrixLayout_t opaque_b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t opaque_d,
                                              cublasLtMatmulPreference_t opaque, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    const struct preference *preference = (const struct preference *)opaque;
    const struct description *description = (const struct description *)opaque_description;
    const struct layout *a = (const struct layout *)opaque_a, *b = (const struct layout *)opaque_b;
    const uint32_t alignments[] = {preference->a, preference->b, preference->c, preference->d};
    for (uint32_t bytes : alignments) {
        expect_alignment(bytes);
    }
    expect(wanted > 0, "room for no algorithm");
    expect(preference->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, "no way to split a long sum");
    expect(!(preference->ways & CUBLASLT_NUMERICAL_IMPL_FLAGS_GAUSSIAN), "complex products of three real ones");
    expect(!(description->epilogue & CUBLASLT_EPILOGUE_BIAS) || description->bias, "no address of a bias");
    *found = 0;
    bool ends = description->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    if (refused_early(number_of(a, b, &asked)) ||
        (ends &&
         (description->scale == CUDA_R_64F || description->scale == CUDA_C_32F || description->scale == CUDA_C_64F)) ||
        (is_fp8(a->type) && !fp8_takes(a, b, (const struct layout *)opaque_d, preference))) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (; *found < wanted && *found < 2; ++*found) {
        cublasLtMatmulHeuristicResult_t *result = &results[*found];
        struct algorithm algorithm = {0, preference->a, preference->b, preference->d,
                                      address_alignment(description->bias)};
        if ((asked + (unsigned)*found) % WORKSPACE_EVERY == 0 && preference->workspace >= WORKSPACE) {
            algorithm.workspace = WORKSPACE;
        }
        memset((void *)result, 0, sizeof *result);
        memcpy((void *)result->algo.data, &algorithm, sizeof algorithm);
        result->workspaceSize = algorithm.workspace;
        result->state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"

/* ---- products ---- */

static double widen(__half x) {
    return (double)__half2float(x);
}
static double widen(__nv_bfloat16 x) {
    return (double)__bfloat162float(x);
}
static double widen(__nv_fp8_e4m3 x) {
    return (double)(float)x;
}
static double widen(__nv_fp8_e5m2 x) {
    return (double)(float)x;
}
static double widen(int8_t x) {
    return x;
}
static double widen(int32_t x) {
    return x;
}
static double widen(double x) {
    return x;
}

static void narrow(double x, __half *out) {
    *out = __double2half(x);
}
static void narrow(double x, __nv_bfloat16 *out) {
    *out = __double2bfloat16(x);
}
static void narrow(double x, int32_t *out) {
    expect(x >= INT32_MIN && x <= INT32_MAX, "a sum that goes beyond 32 bits");
    *out = (int32_t)x;
}
static void narrow(double x, float *out) {
    *out = (float)x;
}
static void narrow(double x, double *out) {
    *out = x;
}

static double finish(uint32_t epilogue, double x) {
    if (epilogue & CUBLASLT_EPILOGUE_GELU) {
        double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        return 0.5 * x * (1 + tanh(u));
    }
    return epilogue & CUBLASLT_EPILOGUE_RELU && x < 0 ? 0 : x;
}

/* d = op(a) · op(b) of one batch, and what follows; matrices stored column after column. */
template <class A, class B, class D>
static void multiply(const struct description *description, const struct layout *la, const void *a,
                     const struct layout *lb, const void *b, const struct layout *ld, void *d) {
    bool a_turned = description->a == CUBLAS_OP_T, b_turned = description->b == CUBLAS_OP_T;
    int64_t a_row = a_turned ? la->leading : 1, a_column = a_turned ? 1 : la->leading;
    int64_t b_row = b_turned ? lb->leading : 1, b_column = b_turned ? 1 : lb->leading;
    int64_t depth = (int64_t)(a_turned ? la->rows : la->columns);
    const D *bias = description->epilogue & CUBLASLT_EPILOGUE_BIAS ? (const D *)description->bias : nullptr;
    for (int64_t j = 0; j < (int64_t)ld->columns; j++) {
        for (int64_t i = 0; i < (int64_t)ld->rows; i++) {
            double sum = bias ? widen(bias[i]) : 0;
            for (int64_t k = 0; k < depth; k++) {
                sum +=
                    widen(((const A *)a)[i * a_row + k * a_column]) * widen(((const B *)b)[k * b_row + j * b_column]);
            }
            narrow(finish(description->epilogue, sum), (D *)d + j * ld->leading + i);
        }
    }
}

/* The same of complex numbers, without an epilogue. */
template <class T>
static void multiply_complex(const struct description *description, const struct layout *la, const void *a,
                             const struct layout *lb, const void *b, const struct layout *ld, void *d) {
    bool a_turned = description->a == CUBLAS_OP_T, b_turned = description->b == CUBLAS_OP_T;
    int64_t a_row = a_turned ? la->leading : 1, a_column = a_turned ? 1 : la->leading;
    int64_t b_row = b_turned ? lb->leading : 1, b_column = b_turned ? 1 : lb->leading;
    int64_t depth = (int64_t)(a_turned ? la->rows : la->columns);
    expect(description->epilogue == CUBLASLT_EPILOGUE_DEFAULT, "complex matrices with an epilogue");
    for (int64_t j = 0; j < (int64_t)ld->columns; j++) {
        for (int64_t i = 0; i < (int64_t)ld->rows; i++) {
            double re = 0, im = 0;
            for (int64_t k = 0; k < depth; k++) {
                const T *x = (const T *)a + 2 * (i * a_row + k * a_column);
                const T *y = (const T *)b + 2 * (k * b_row + j * b_column);
                re += (double)x[0] * (double)y[0] - (double)x[1] * (double)y[1];
                im += (double)x[0] * (double)y[1] + (double)x[1] * (double)y[0];
            }
            T *to = (T *)d + 2 * (j * ld->leading + i);
            to[0] = (T)re;
            to[1] = (T)im;
        }
    }
}

typedef void multiply_function(const struct description *description, const struct layout *la, const void *a,
                               const struct layout *lb, const void *b, const struct layout *ld, void *d);

static const struct product_row {
    cudaDataType a, b, d, scale;
    multiply_function *multiply;
    int64_t size, d_size;
} rows[] = {
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, multiply<__half, __half, __half>, 2, 2},
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, multiply<__half, __half, float>, 2, 4},
    {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, multiply<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16>, 2, 2},
    {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, multiply<__nv_bfloat16, __nv_bfloat16, float>, 2, 4},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, multiply<float, float, float>, 4, 4},
    {CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, multiply<double, double, double>, 8, 8},
    {CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, multiply_complex<float>, 8, 8},
    {CUDA_C_64F, CUDA_C_64F, CUDA_C_64F, CUDA_C_64F, multiply_complex<double>, 16, 16},
    {CUDA_R_8I, CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, multiply<int8_t, int8_t, int32_t>, 1, 4},
    {CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_32F, multiply<__nv_fp8_e4m3, __nv_fp8_e4m3, float>, 1, 4},
    {CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_32F, CUDA_R_32F, multiply<__nv_fp8_e4m3, __nv_fp8_e5m2, float>, 1, 4},
    {CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_32F, multiply<__nv_fp8_e5m2, __nv_fp8_e4m3, float>, 1, 4},
};

static void expect_shapes(const struct description *description, const struct layout *a, const struct layout *b,
                          const struct layout *d) {
    bool a_turned = description->a == CUBLAS_OP_T, b_turned = description->b == CUBLAS_OP_T;
    expect((a_turned ? a->columns : a->rows) == d->rows, "another number of rows in a");
    expect((b_turned ? b->rows : b->columns) == d->columns, "another number of columns in b");
    expect((a_turned ? a->rows : a->columns) == (b_turned ? b->columns : b->rows), "two different depths");
    expect(a->batches == d->batches && b->batches == d->batches, "different numbers of batches");
    expect(d->batches > 0 && d->batches <= BATCHES_MAX, "too many batches, or none");
    expect(a->type != CUDA_R_8I || (a_turned && !b_turned && a->leading % 4 == 0 && b->leading % 4 == 0 &&
                                    d->leading % 4 == 0 && d->rows % 4 == 0),
           "i8 matrices in another form than TN, or not in fours");
    expect(!is_fp8(a->type) || (a_turned && !b_turned), "fp8 matrices in another form than TN");
    expect(!is_fp8(a->type) || !description->fast, "fp8 matrices whose products may be added up with less precision");
    expect(!is_fp8(a->type) || description->epilogue == CUBLASLT_EPILOGUE_DEFAULT, "fp8 matrices with an epilogue");
    for (const struct layout *layout : {a, b, d}) {
        expect(layout->leading >= (int64_t)layout->rows, "columns that overlap");
    }
}

static bool is_number(const void *x, cudaDataType type, double number) {
    const double *wide = (const double *)x;
    const float *narrow = (const float *)x;
    if ((type == CUDA_C_64F && wide[1] != 0) || (type == CUDA_C_32F && narrow[1] != 0)) {
        return false;
    }
    return number == (type == CUDA_R_64F || type == CUDA_C_64F ? *wide
                      : type == CUDA_R_32I                     ? (double)*(const int32_t *)x
                                                               : (double)*narrow);
}

static void multiply(const struct product_row *row, const struct description *description,
                     const struct algorithm &algorithm, const struct layout *la, const void *a, const struct layout *lb,
                     const void *b, const struct layout *ld, void *d) {
    for (int64_t batch = 0; batch < ld->batches; batch++) {
        const char *from_a = (const char *)a + batch * la->batch_stride * row->size;
        const char *from_b = (const char *)b + batch * lb->batch_stride * row->size;
        char *to = (char *)d + batch * ld->batch_stride * row->d_size;
        expect((uintptr_t)from_a % algorithm.a == 0 && (uintptr_t)from_b % algorithm.b == 0 &&
                   (uintptr_t)to % algorithm.d == 0,
               "an address that is less aligned than it was promised");
        row->multiply(description, la, from_a, lb, from_b, ld, to);
    }
}

extern "C" cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t opaque, const void *alpha,
                                         const void *a, cublasLtMatrixLayout_t a_opaque, const void *b,
                                         cublasLtMatrixLayout_t b_opaque, const void *beta, const void *c,
                                         cublasLtMatrixLayout_t c_opaque, void *d, cublasLtMatrixLayout_t d_opaque,
                                         const cublasLtMatmulAlgo_t *chosen, void *workspace, size_t workspace_bytes,
                                         cudaStream_t stream) {
    const struct description *description = (const struct description *)opaque;
    const struct layout *la = (const struct layout *)a_opaque, *lb = (const struct layout *)b_opaque;
    const struct layout *ld = (const struct layout *)d_opaque;
    const struct product_row *row = rows;
    struct algorithm algorithm;
    memcpy(&algorithm, chosen->data, sizeof algorithm);
    while (row->a != la->type || row->b != lb->type || row->d != ld->type) {
        row++;
        expect(row != rows + sizeof rows / sizeof *rows, "types that it has no product for");
    }
    expect_shapes(description, la, lb, ld);
    expect(c == d && c_opaque == d_opaque, "two results");
    expect(description->scale == row->scale, "another type of scale");
    expect(is_number(alpha, row->scale, 1) && is_number(beta, row->scale, 0), "a scale that is not one");
    expect(workspace_bytes >= algorithm.workspace, "too little workspace");
    expect((uintptr_t)description->bias % algorithm.bias == 0, "a bias that is less aligned than it was promised");
    if (refused_late(number_of(la, lb, &multiplied))) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    expect(!algorithm.workspace || (workspace && (uintptr_t)workspace % 256 == 0), "a workspace that is not aligned");
    const struct description described = *description;
    const struct layout layout_a = *la, layout_b = *lb, layout_d = *ld;
    emulated_work(stream, [=] {
        if (algorithm.workspace)
            memset(workspace, 0xab, algorithm.workspace);
        multiply(row, &described, algorithm, &layout_a, a, &layout_b, b, &layout_d, d);
    });
    return CUBLAS_STATUS_SUCCESS;
}
