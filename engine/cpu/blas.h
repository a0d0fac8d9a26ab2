/* OpenBLAS, loaded when the first product that needs it is bound.
 *
 * Why not at start: loading takes 3 to 15 ms and 3 MiB of memory (measured with 0.3.21; the first product adds 0.6 MiB), which a worker
 * without products need not pay, and blas_prepare() must come before. Each call runs on the calling thread alone: the device's own
 * team shares products out, so that there are not two teams of threads that spin against each other. */
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

/* Sets the environment variables that OpenBLAS reads when it is loaded, unless the user has set them. To be called before there are other
 * threads, since it changes the environment. */
void blas_prepare(void);
/* The first call loads OpenBLAS, later calls return at once. STATUS_UNSUPPORTED with the loader's words if it cannot be loaded. On the
 * engine's owner thread, before a launch that needs OpenBLAS is enqueued. */
int blas_load(struct blas *blas, struct fault *fault);
