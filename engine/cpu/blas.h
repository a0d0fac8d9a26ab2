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

/* Functions of BLAS and LAPACK by Fortran's conventions: matrices lie column by column, numbers are passed by address, and the length of each
 * string comes at the end. The same types for f32, f64, c64 and c128; of complex matrices the transpose is the conjugate one, and
 * diagonals, values and the factors of herk are real. */
typedef void lapack_gemm(const char *a_transposed, const char *b_transposed, const int *m, const int *n, const int *k,
                         const void *alpha, const void *a, const int *lda, const void *b, const int *ldb,
                         const void *beta, void *c, const int *ldc, size_t a_length, size_t b_length);
typedef void lapack_trsm(const char *side, const char *part, const char *transposed, const char *diagonal, const int *m,
                         const int *n, const void *alpha, const void *a, const int *lda, void *b, const int *ldb,
                         size_t side_length, size_t part_length, size_t transposed_length, size_t diagonal_length);
typedef void lapack_syrk(const char *part, const char *transposed, const int *n, const int *k, const void *alpha,
                         const void *a, const int *lda, const void *beta, void *c, const int *ldc, size_t part_length,
                         size_t transposed_length);
typedef void lapack_syr2k(const char *part, const char *transposed, const int *n, const int *k, const void *alpha,
                          const void *a, const int *lda, const void *b, const int *ldb, const void *beta, void *c,
                          const int *ldc, size_t part_length, size_t transposed_length);
typedef void lapack_getrf(const int *m, const int *n, void *a, const int *lda, int *pivots, int *info);
typedef void lapack_laswp(const int *n, void *a, const int *lda, const int *first, const int *last, const int *pivots,
                          const int *step);
typedef void lapack_potrf(const char *part, const int *n, void *a, const int *lda, int *info, size_t part_length);
typedef void lapack_geqrt3(const int *m, const int *n, void *a, const int *lda, void *t, const int *ldt, int *info);
typedef void lapack_gemv(const char *transposed, const int *m, const int *n, const void *alpha, const void *a,
                         const int *lda, const void *x, const int *x_step, const void *beta, void *y, const int *y_step,
                         size_t transposed_length);
typedef void lapack_symv(const char *part, const int *n, const void *alpha, const void *a, const int *lda,
                         const void *x, const int *x_step, const void *beta, void *y, const int *y_step,
                         size_t part_length);
typedef void lapack_scal(const int *n, const void *alpha, void *x, const int *x_step);
typedef void lapack_larfg(const int *n, void *first, void *rest, const int *step, void *tau);
typedef void lapack_latrd(const char *part, const int *n, const int *columns, void *a, const int *lda, void *e,
                          void *tau, void *w, const int *ldw, size_t part_length);
typedef void lapack_labrd(const int *m, const int *n, const int *columns, void *a, const int *lda, void *d, void *e,
                          void *tau_q, void *tau_p, void *x, const int *ldx, void *y, const int *ldy);

/* X(member, its name in the library without the letter of the dtype: of real and of complex numbers) */
#define LAPACK_FUNCTIONS(X)                                                                                            \
    X(gemm, "gemm_", "gemm_")                                                                                          \
    X(trsm, "trsm_", "trsm_")                                                                                          \
    X(syrk, "syrk_", "herk_")                                                                                          \
    X(syr2k, "syr2k_", "her2k_")                                                                                       \
    X(getrf, "getrf_", "getrf_")                                                                                       \
    X(laswp, "laswp_", "laswp_")                                                                                       \
    X(potrf, "potrf_", "potrf_")                                                                                       \
    X(geqrt3, "geqrt3_", "geqrt3_")                                                                                    \
    X(gemv, "gemv_", "gemv_")                                                                                          \
    X(symv, "symv_", "hemv_")                                                                                          \
    X(scal, "scal_", "scal_")                                                                                          \
    X(larfg, "larfg_", "larfg_")                                                                                       \
    X(latrd, "latrd_", "latrd_")                                                                                       \
    X(labrd, "labrd_", "labrd_")

/* The functions for one dtype. */
struct lapack {
#define X(member, real, complex) lapack_##member *member;
    LAPACK_FUNCTIONS(X)
#undef X
    const char *transposed;           /* "T", of complex numbers "C" */
    const void *one, *less, *nothing; /* 1, -1 and 0 as elements, and as their real parts */
};
enum { LAPACK_F32, LAPACK_F64, LAPACK_C64, LAPACK_C128, LAPACK_DTYPES };

/* X(type, member, name in the library) */
#define BLAS_FUNCTIONS(X)                                                                                              \
    X(__typeof__(&cblas_sgemm), sgemm, "cblas_sgemm")                                                                  \
    X(__typeof__(&cblas_dgemm), dgemm, "cblas_dgemm")                                                                  \
    X(__typeof__(&cblas_sgemv), sgemv, "cblas_sgemv")                                                                  \
    X(__typeof__(&cblas_dgemv), dgemv, "cblas_dgemv")                                                                  \
    X(__typeof__(&cblas_cgemm), cgemm, "cblas_cgemm")                                                                  \
    X(__typeof__(&cblas_zgemm), zgemm, "cblas_zgemm")                                                                  \
    X(__typeof__(&cblas_cgemv), cgemv, "cblas_cgemv")                                                                  \
    X(__typeof__(&cblas_zgemv), zgemv, "cblas_zgemv")

struct blas {
    void *library;
#define X(type, member, name) type member;
    BLAS_FUNCTIONS(X)
#undef X
    struct lapack lapack[LAPACK_DTYPES];
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
