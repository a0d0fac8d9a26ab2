/* cuSOLVER: decompositions of one large matrix at a time. Matrices lie column after column. Any thread that launches, with the device current, one
 * stream in one thread; cusolver_workspace() and cusolver_suits() call nothing.
 *
 * Eigenvalues by divide and conquer (Xsyevd), singular values by the QR iteration (Xgesvd), as LAPACK has them: they converge for every
 * matrix, which Jacobi's (gesvdj) need not within its sweeps, and only the device would know. Both may have the calling thread wait for the
 * device within the call, and so may the others where they are many kernels (op_kernel.waits says so of them). cuSOLVER's results are the same
 * in each run unless it is told otherwise (cusolverDnSetDeterministicMode), which it is not here. */
#pragma once

#include "engine/cuda/library.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cusolver_task {
    CUSOLVER_CHOLESKY, /* a: n by n; its triangle in a's place */
    CUSOLVER_LU,       /* a: m by n; factors in a's place, exchanges in `order`, counted from 1 */
    CUSOLVER_SOLVE,    /* a, order: what LU has made of n by n; b: n by k; the solution in b's place */
    CUSOLVER_QR,       /* a: m by n; R and the reflections in a's place, their factors in tau */
    CUSOLVER_Q,        /* a, tau: what QR has made, of k reflections; the m by n matrix Q in a's place */
    CUSOLVER_EIGEN,    /* a: n by n; values, and with `vectors` the vectors in a's place */
    CUSOLVER_SINGULAR, /* a: m by n, m >= n, which is lost; values; with `vectors` u: m by k, vt: n by n */
};

struct cusolver_matrix {
    enum cusolver_task task;
    bool wide; /* f64 */
    bool upper, vectors;
    int64_t m, n, k;
    void *a, *b, *values, *tau, *u, *vt;
    int64_t *order;
    int *info; /* device memory: 0, or LAPACK's number for what is wrong, when the stream has passed the task */
};

/* Whether a decomposition of `batch` matrices is faster so than by blocks, each of which takes a matrix. */
bool cusolver_suits(const struct cuda *cuda, int64_t batch, int64_t m, int64_t n);
/* The most that a task may need. */
uint64_t cusolver_workspace(enum cusolver_task task, bool wide, int64_t m, int64_t n);
/* Puts the task on the stream. *refused: cuSOLVER has not taken it; then all that it would have written may have been. Errors are failures of
 * the device. */
int cusolver_run(struct cuda *cuda, const struct cusolver_matrix *matrix, void *workspace, uint64_t workspace_bytes,
                 cudaStream_t stream, bool *refused, struct fault *fault);
/* When all launches have ended. */
void cusolver_finish(struct cuda *cuda);

#ifdef __cplusplus
}
#endif
