/* The stand-in for cuSOLVER: LAPACK, on the host. */
#include <cusolverDn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/libraries/stand_in.h"

#define EXPECT(condition) stand_in_expect(condition, "what does not fulfil: " #condition)

enum { DEVICE_BYTES = 2048, HOST_BYTES = 64 };

struct cusolverDnContext {
    cudaStream_t stream;
};
struct cusolverDnParams {
    int unused;
};

#ifndef FAKECUDA
/* LAPACK's, by Fortran's rules. */
#define LAPACK(prefix, T)                                                                                              \
    void prefix##potrf_(const char *uplo, const int *n, T *a, const int *lda, int *info);                              \
    void prefix##getrf_(const int *m, const int *n, T *a, const int *lda, int *pivots, int *info);                     \
    void prefix##getrs_(const char *trans, const int *n, const int *k, const T *a, const int *lda, const int *pivots,  \
                        T *b, const int *ldb, int *info);                                                              \
    void prefix##geqrf_(const int *m, const int *n, T *a, const int *lda, T *tau, T *work, const int *lwork,           \
                        int *info);                                                                                    \
    void prefix##orgqr_(const int *m, const int *n, const int *k, T *a, const int *lda, const T *tau, T *work,         \
                        const int *lwork, int *info);                                                                  \
    void prefix##syevd_(const char *jobz, const char *uplo, const int *n, T *a, const int *lda, T *w, T *work,         \
                        const int *lwork, int *iwork, const int *liwork, int *info);                                   \
    void prefix##gesvd_(const char *jobu, const char *jobvt, const int *m, const int *n, T *a, const int *lda, T *s,   \
                        T *u, const int *ldu, T *vt, const int *ldvt, T *work, const int *lwork, int *info);
LAPACK(s, float)
LAPACK(d, double)
#endif

static cusolverStatus_t outcome(const char *function) {
    switch (stand_in_call(function)) {
    case STAND_IN_WORKS:
        return CUSOLVER_STATUS_SUCCESS;
    case STAND_IN_NO_MEMORY:
        return CUSOLVER_STATUS_ALLOC_FAILED;
    case STAND_IN_REFUSES:
        return CUSOLVER_STATUS_INVALID_VALUE;
    default:
        return CUSOLVER_STATUS_EXECUTION_FAILED;
    }
}
#define BEGIN                                                                                                          \
    do {                                                                                                               \
        cusolverStatus_t begin_status = outcome(__func__);                                                             \
        if (begin_status != CUSOLVER_STATUS_SUCCESS)                                                                   \
            return begin_status;                                                                                       \
    } while (0)

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle) {
    BEGIN;
    *handle = calloc(1, sizeof **handle);
    stand_in_objects(1);
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
    free(handle);
    stand_in_objects(-1);
    return outcome(__func__);
}
cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t *params) {
    BEGIN;
    *params = calloc(1, sizeof **params);
    stand_in_objects(1);
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params) {
    free(params);
    stand_in_objects(-1);
    return outcome(__func__);
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
    BEGIN;
    handle->stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- tasks ---- */

struct task {
    enum { POTRF, GETRF, GETRS, GEQRF, ORGQR, SYEVD, GESVD } kind;
    bool wide;
    char uplo, left, right;
    int m, n, k;
    void *a, *b, *values, *u, *vt;
    int64_t *order;
    int *info;
};

#ifndef FAKECUDA
#define COMPUTE(prefix, T)                                                                                             \
    static void compute_##prefix(const struct task *t, int *pivots, void *work, int length, int *whole) {              \
        int n = t->n, m = t->m, k = t->k, whole_length = length;                                                       \
        switch (t->kind) {                                                                                             \
        case POTRF:                                                                                                    \
            prefix##potrf_(&t->uplo, &n, t->a, &n, t->info);                                                           \
            break;                                                                                                     \
        case GETRF:                                                                                                    \
            prefix##getrf_(&m, &n, t->a, &m, pivots, t->info);                                                         \
            break;                                                                                                     \
        case GETRS:                                                                                                    \
            prefix##getrs_("N", &n, &k, t->a, &n, pivots, t->b, &n, t->info);                                          \
            break;                                                                                                     \
        case GEQRF:                                                                                                    \
            prefix##geqrf_(&m, &n, t->a, &m, t->values, work, &length, t->info);                                       \
            break;                                                                                                     \
        case ORGQR:                                                                                                    \
            prefix##orgqr_(&m, &n, &k, t->a, &m, t->values, work, &length, t->info);                                   \
            break;                                                                                                     \
        case SYEVD:                                                                                                    \
            prefix##syevd_(&t->left, &t->uplo, &n, t->a, &n, t->values, work, &length, whole, &whole_length, t->info); \
            break;                                                                                                     \
        default:                                                                                                       \
            prefix##gesvd_(&t->left, &t->right, &m, &n, t->a, &m, t->values, t->u, &m, t->vt, &n, work, &length,       \
                           t->info);                                                                                   \
        }                                                                                                              \
    }
COMPUTE(s, float)
COMPUTE(d, double)

static void compute(void *argument) {
    const struct task *t = argument;
    int most = t->m > t->n ? t->m : t->n, length = 8 * (most + 8) * (most + 8);
    int *pivots = calloc((size_t)most + 1, sizeof *pivots), *whole = malloc((size_t)length * sizeof *whole);
    void *work = malloc((size_t)length * sizeof(double));
    for (int i = 0; i < t->n && t->kind == GETRS; i++)
        pivots[i] = (int)t->order[i];
    (t->wide ? compute_d : compute_s)(t, pivots, work, length, whole);
    for (int i = 0; i < (t->m < t->n ? t->m : t->n) && t->kind == GETRF; i++)
        t->order[i] = pivots[i];
    free(pivots);
    free(whole);
    free(work);
}
#else
#define compute NULL
#endif

static cusolverStatus_t run(cusolverDnHandle_t handle, struct task task, void *device, size_t device_bytes) {
    EXPECT(task.info && (task.kind == GETRS || (device && device_bytes >= DEVICE_BYTES)));
#ifndef FAKECUDA
    if (device)
        memset(device, 0xab, DEVICE_BYTES);
#endif
    return stand_in_put(handle->stream, compute, &task) ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_EXECUTION_FAILED;
}

static bool is_wide(cudaDataType type) {
    EXPECT(type == CUDA_R_32F || type == CUDA_R_64F);
    return type == CUDA_R_64F;
}
static char letter(cublasFillMode_t fill) {
    return fill == CUBLAS_FILL_MODE_UPPER ? 'U' : 'L';
}
static void sizes(size_t *device_bytes, size_t *host_bytes) {
    *device_bytes = DEVICE_BYTES;
    *host_bytes = HOST_BYTES;
}
static void touch_host(void *host, size_t bytes) {
    EXPECT(host && bytes >= HOST_BYTES);
    memset(host, 0xab, HOST_BYTES);
}

/* Most of what these take says what is known already. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             cublasFillMode_t fill, int64_t n, cudaDataType type, const void *a,
                                             int64_t lda, cudaDataType compute_type, size_t *device_bytes,
                                             size_t *host_bytes) {
    BEGIN;
    sizes(device_bytes, host_bytes);
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnXpotrf(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t fill,
                                  int64_t n, cudaDataType type, void *a, int64_t lda, cudaDataType compute_type,
                                  void *device, size_t device_bytes, void *host, size_t host_bytes, int *info) {
    BEGIN;
    EXPECT(params && lda == n && compute_type == type);
    touch_host(host, host_bytes);
    return run(
        handle,
        (struct task){POTRF, is_wide(type), .uplo = letter(fill), .m = (int)n, .n = (int)n, .a = a, .info = info},
        device, device_bytes);
}

cusolverStatus_t cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                             cudaDataType type, const void *a, int64_t lda, cudaDataType compute_type,
                                             size_t *device_bytes, size_t *host_bytes) {
    BEGIN;
    sizes(device_bytes, host_bytes);
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnXgetrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                  cudaDataType type, void *a, int64_t lda, int64_t *order, cudaDataType compute_type,
                                  void *device, size_t device_bytes, void *host, size_t host_bytes, int *info) {
    BEGIN;
    EXPECT(params && lda == m && order && compute_type == type);
    touch_host(host, host_bytes);
    return run(handle,
               (struct task){GETRF, is_wide(type), .m = (int)m, .n = (int)n, .a = a, .order = order, .info = info},
               device, device_bytes);
}
cusolverStatus_t cusolverDnXgetrs(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasOperation_t operation,
                                  int64_t n, int64_t k, cudaDataType type, const void *a, int64_t lda,
                                  const int64_t *order, cudaDataType b_type, void *b, int64_t ldb, int *info) {
    BEGIN;
    EXPECT(params && operation == CUBLAS_OP_N && lda == n && ldb == n && b_type == type && order);
    return run(handle,
               (struct task){GETRS, is_wide(type), .m = (int)n, .n = (int)n, .k = (int)k, .a = (void *)(uintptr_t)a,
                             .b = b, .order = (int64_t *)(uintptr_t)order, .info = info},
               NULL, 0);
}

cusolverStatus_t cusolverDnXgeqrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                             cudaDataType type, const void *a, int64_t lda, cudaDataType tau_type,
                                             const void *tau, cudaDataType compute_type, size_t *device_bytes,
                                             size_t *host_bytes) {
    BEGIN;
    sizes(device_bytes, host_bytes);
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnXgeqrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                  cudaDataType type, void *a, int64_t lda, cudaDataType tau_type, void *tau,
                                  cudaDataType compute_type, void *device, size_t device_bytes, void *host,
                                  size_t host_bytes, int *info) {
    BEGIN;
    EXPECT(params && lda == m && tau && tau_type == type && compute_type == type);
    touch_host(host, host_bytes);
    return run(handle,
               (struct task){GEQRF, is_wide(type), .m = (int)m, .n = (int)n, .a = a, .values = tau, .info = info},
               device, device_bytes);
}

#define ORGQR_OF(name, T, is_double)                                                                                   \
    cusolverStatus_t cusolverDn##name##_bufferSize(cusolverDnHandle_t handle, int m, int n, int k, const T *a,         \
                                                   int lda, const T *tau, int *length) {                               \
        BEGIN;                                                                                                         \
        *length = DEVICE_BYTES / (int)sizeof(T);                                                                       \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##name(cusolverDnHandle_t handle, int m, int n, int k, T *a, int lda, const T *tau,     \
                                      T *work, int length, int *info) {                                                \
        BEGIN;                                                                                                         \
        EXPECT(lda == m && n <= m && k <= n);                                                                          \
        return run(handle,                                                                                             \
                   (struct task){ORGQR, is_double, .m = m, .n = n, .k = k, .a = a, .values = (void *)(uintptr_t)tau,   \
                                 .info = info},                                                                        \
                   work, (size_t)length * sizeof(T));                                                                  \
    }
ORGQR_OF(Sorgqr, float, false)
ORGQR_OF(Dorgqr, double, true)

cusolverStatus_t cusolverDnXsyevd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             cusolverEigMode_t mode, cublasFillMode_t fill, int64_t n,
                                             cudaDataType type, const void *a, int64_t lda, cudaDataType w_type,
                                             const void *w, cudaDataType compute_type, size_t *device_bytes,
                                             size_t *host_bytes) {
    BEGIN;
    sizes(device_bytes, host_bytes);
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t mode,
                                  cublasFillMode_t fill, int64_t n, cudaDataType type, void *a, int64_t lda,
                                  cudaDataType w_type, void *w, cudaDataType compute_type, void *device,
                                  size_t device_bytes, void *host, size_t host_bytes, int *info) {
    BEGIN;
    EXPECT(params && lda == n && w_type == type && compute_type == type);
    touch_host(host, host_bytes);
    return run(handle,
               (struct task){SYEVD, is_wide(type), .uplo = letter(fill),
                             .left = mode == CUSOLVER_EIG_MODE_VECTOR ? 'V' : 'N', .m = (int)n, .n = (int)n, .a = a,
                             .values = w, .info = info},
               device, device_bytes);
}

cusolverStatus_t cusolverDnXgesvd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char left,
                                             signed char right, int64_t m, int64_t n, cudaDataType type, const void *a,
                                             int64_t lda, cudaDataType s_type, const void *s, cudaDataType u_type,
                                             const void *u, int64_t ldu, cudaDataType vt_type, const void *vt,
                                             int64_t ldvt, cudaDataType compute_type, size_t *device_bytes,
                                             size_t *host_bytes) {
    BEGIN;
    sizes(device_bytes, host_bytes);
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnXgesvd(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char left,
                                  signed char right, int64_t m, int64_t n, cudaDataType type, void *a, int64_t lda,
                                  cudaDataType s_type, void *s, cudaDataType u_type, void *u, int64_t ldu,
                                  cudaDataType vt_type, void *vt, int64_t ldvt, cudaDataType compute_type, void *device,
                                  size_t device_bytes, void *host, size_t host_bytes, int *info) {
    BEGIN;
    EXPECT(params && m >= n && lda == m && ldu == m && ldvt == n && s_type == type && compute_type == type);
    EXPECT(left == 'N' || (u && vt && u_type == type && vt_type == type));
    touch_host(host, host_bytes);
    return run(handle,
               (struct task){GESVD, is_wide(type), .left = (char)left, .right = (char)right, .m = (int)m, .n = (int)n,
                             .a = a, .values = s, .u = u, .vt = vt, .info = info},
               device, device_bytes);
}
