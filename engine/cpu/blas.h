/* OpenBLAS, loaded when the first product that wants it is bound.
 *
 * Why not at start: loading takes 3 to 15 ms and 3 MiB resident (measured with 0.3.21; the first product adds 0.6 MiB), which a
 * worker that never multiplies need not pay, and blas_prepare() must come before. Each call runs on the calling thread
 * alone: the device's own team shares products out, so that there is one pool of threads and not two which spin against
 * each other. */
#pragma once

#include <cblas.h>
#include <stdbool.h>

#include "proto/ops/status.h"

struct blas {
    void *library;
    __typeof__(&cblas_sgemm) sgemm;
    __typeof__(&cblas_dgemm) dgemm;
    __typeof__(&cblas_sgemv) sgemv;
    __typeof__(&cblas_dgemv) dgemv;
};

/* Sets what OpenBLAS reads from the environment when it is loaded, where the user has not. Changes the environment: to be
 * called before there are other threads. */
void blas_prepare(void);
/* The first call loads, later ones return at once. STATUS_UNSUPPORTED with the loader's words where that fails. On the
 * engine's owner thread, before a launch that needs it is enqueued. */
int blas_load(struct blas *blas, struct fault *fault);
