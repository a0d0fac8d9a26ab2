/* OpenBLAS, loaded when the first product that needs it is bound.
 *
 * Why not at start: loading takes 3 to 15 ms and 3 MiB of memory (measured with 0.3.21; the first product adds 0.6 MiB), which a worker
 * without products need not pay, and blas_prepare() must come before. Each call runs on the calling thread alone: the device's own
 * team shares products out, so that there are not two teams of threads that spin against each other. */
#pragma once

#include <cblas.h>
#include <stdbool.h>

#include "proto/ops/dtype.h"
#include "proto/ops/status.h"

/* Functions of LAPACK, which OpenBLAS contains: Fortran's conventions, so matrices lie column by column, numbers are passed by address, and
 * the length of each string comes at the end. The same types for f32 and f64. */
typedef void lapack_getrf(const int *m, const int *n, void *a, const int *lda, int *pivots, int *info);
typedef void lapack_laswp(const int *n, void *a, const int *lda, const int *first, const int *last, const int *pivots,
                          const int *step);
typedef void lapack_potrf(const char *part, const int *n, void *a, const int *lda, int *info, size_t part_length);
typedef void lapack_geqrf(const int *m, const int *n, void *a, const int *lda, void *tau, void *work, const int *lwork,
                          int *info);
typedef void lapack_ormqr(const char *side, const char *transposed, const int *m, const int *n, const int *k,
                          const void *a, const int *lda, const void *tau, void *c, const int *ldc, void *work,
                          const int *lwork, int *info, size_t side_length, size_t transposed_length);

typedef void lapack_latrd(const char *part, const int *n, const int *columns, void *a, const int *lda, void *e,
                          void *tau, void *w, const int *ldw, size_t part_length);
typedef void lapack_labrd(const int *m, const int *n, const int *columns, void *a, const int *lda, void *d, void *e,
                          void *tau_q, void *tau_p, void *x, const int *ldx, void *y, const int *ldy);

/* X(type, member, name in the library) */
#define BLAS_FUNCTIONS(X)                                                                                              \
    X(__typeof__(&cblas_sgemm), sgemm, "cblas_sgemm")                                                                  \
    X(__typeof__(&cblas_dgemm), dgemm, "cblas_dgemm")                                                                  \
    X(__typeof__(&cblas_sgemv), sgemv, "cblas_sgemv")                                                                  \
    X(__typeof__(&cblas_dgemv), dgemv, "cblas_dgemv")                                                                  \
    X(__typeof__(&cblas_cgemm), cgemm, "cblas_cgemm")                                                                  \
    X(__typeof__(&cblas_zgemm), zgemm, "cblas_zgemm")                                                                  \
    X(__typeof__(&cblas_cgemv), cgemv, "cblas_cgemv")                                                                  \
    X(__typeof__(&cblas_zgemv), zgemv, "cblas_zgemv")                                                                  \
    X(__typeof__(&cblas_strsm), strsm, "cblas_strsm")                                                                  \
    X(__typeof__(&cblas_dtrsm), dtrsm, "cblas_dtrsm")                                                                  \
    X(__typeof__(&cblas_ssyrk), ssyrk, "cblas_ssyrk")                                                                  \
    X(__typeof__(&cblas_dsyrk), dsyrk, "cblas_dsyrk")                                                                  \
    X(lapack_getrf *, sgetrf, "sgetrf_")                                                                               \
    X(lapack_getrf *, dgetrf, "dgetrf_")                                                                               \
    X(lapack_laswp *, slaswp, "slaswp_")                                                                               \
    X(lapack_laswp *, dlaswp, "dlaswp_")                                                                               \
    X(lapack_potrf *, spotrf, "spotrf_")                                                                               \
    X(lapack_potrf *, dpotrf, "dpotrf_")                                                                               \
    X(lapack_geqrf *, sgeqrf, "sgeqrf_")                                                                               \
    X(lapack_geqrf *, dgeqrf, "dgeqrf_")                                                                               \
    X(lapack_ormqr *, sormqr, "sormqr_")                                                                               \
    X(lapack_ormqr *, dormqr, "dormqr_")                                                                               \
    X(lapack_ormqr *, sormlq, "sormlq_")                                                                               \
    X(lapack_ormqr *, dormlq, "dormlq_")                                                                               \
    X(__typeof__(&cblas_ssyr2k), ssyr2k, "cblas_ssyr2k")                                                               \
    X(__typeof__(&cblas_dsyr2k), dsyr2k, "cblas_dsyr2k")                                                               \
    X(lapack_latrd *, slatrd, "slatrd_")                                                                               \
    X(lapack_latrd *, dlatrd, "dlatrd_")                                                                               \
    X(lapack_labrd *, slabrd, "slabrd_")                                                                               \
    X(lapack_labrd *, dlabrd, "dlabrd_")

struct blas {
    void *library;
#define X(type, member, name) type member;
    BLAS_FUNCTIONS(X)
#undef X
};

/* c = a · b, or c += a · b. `dtype` is f32, f64, c64 or c128. Strides are those of row-major matrices as they are stored. */
struct blas_product {
    enum dtype dtype;
    bool add;
    CBLAS_TRANSPOSE a_transpose, b_transpose;
    int m, n, k;
    int a_stride, b_stride, c_stride;
    const void *a, *b;
    void *c;
};
void blas_multiply_matrices(const struct blas *blas, const struct blas_product *product);
/* y = a · x, or y += a · x. x and y have the strides of b and c; m rows and n columns are those of `a` as it is stored. */
void blas_multiply_vector(const struct blas *blas, const struct blas_product *product);

/* Sets the environment variables that OpenBLAS reads when it is loaded, unless the user has set them. To be called before there are other
 * threads, since it changes the environment. */
void blas_prepare(void);
/* The first call loads OpenBLAS, later calls return at once. STATUS_UNSUPPORTED with the loader's words if it cannot be loaded. On the
 * engine's owner thread, before a launch that needs OpenBLAS is enqueued. */
int blas_load(struct blas *blas, struct fault *fault);
