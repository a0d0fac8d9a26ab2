#include "engine/cuda/cusolver.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* From this extent on a matrix is worth the calls. A block does about a hundredth of what the device can: so there is nothing to gain once
 * matrices take a quarter of the multiprocessors, unless they are large. Estimates: no device has measured them. */
#ifndef CUSOLVER_EXTENT_LEAST
#define CUSOLVER_EXTENT_LEAST 128
#endif
enum { EXTENT_LARGE = 512, CALLS_MOST = 64 };

bool cusolver_suits(const struct cuda *cuda, int64_t batch, int64_t m, int64_t n) {
    const int64_t least = m < n ? m : n, most = m < n ? n : m;
    return cuda_library_wanted(cuda, CUDA_CUSOLVER) && least >= CUSOLVER_EXTENT_LEAST && most <= INT_MAX / 2 &&
           batch > 0 && batch <= CALLS_MOST && (batch == 1 || 4 * batch <= cuda->processors || least >= EXTENT_LARGE);
}

uint64_t cusolver_workspace(enum cusolver_task task, bool wide, int64_t m, int64_t n) {
    const uint64_t least = (uint64_t)(m < n ? m : n), most = (uint64_t)(m < n ? n : m), size = wide ? 8 : 4;
    const uint64_t matrices = task == CUSOLVER_EIGEN || task == CUSOLVER_SINGULAR ? 6 : 1;
    return matrices * least * most * size + 256 * most * size + (UINT64_C(4) << 20);
}

#ifdef CUDA_HAS_CUSOLVER
#include <cusolverDn.h>

#define CUSOLVER_FUNCTIONS(X)                                                                                          \
    X(DnCreate)                                                                                                        \
    X(DnDestroy)                                                                                                       \
    X(DnSetStream)                                                                                                     \
    X(DnCreateParams)                                                                                                  \
    X(DnDestroyParams)                                                                                                 \
    X(DnXpotrf_bufferSize)                                                                                             \
    X(DnXpotrf)                                                                                                        \
    X(DnXgetrf_bufferSize)                                                                                             \
    X(DnXgetrf)                                                                                                        \
    X(DnXgetrs)                                                                                                        \
    X(DnXgeqrf_bufferSize)                                                                                             \
    X(DnXgeqrf)                                                                                                        \
    X(DnSorgqr_bufferSize)                                                                                             \
    X(DnSorgqr)                                                                                                        \
    X(DnDorgqr_bufferSize)                                                                                             \
    X(DnDorgqr)                                                                                                        \
    X(DnXsyevd_bufferSize)                                                                                             \
    X(DnXsyevd)                                                                                                        \
    X(DnXgesvd_bufferSize)                                                                                             \
    X(DnXgesvd)

struct cuda_cusolver {
    cusolverDnHandle_t handle;
    cusolverDnParams_t params;
    void *host; /* its workspace on this side: no call is under way when the next one begins */
    size_t host_bytes;
    const char *call; /* the last one, in words for a refusal */
#define CUSOLVER_MEMBER(name) __typeof__(&cusolver##name) name;
    CUSOLVER_FUNCTIONS(CUSOLVER_MEMBER)
#undef CUSOLVER_MEMBER
};

#define CUSOLVER_TRY(solver, name, ...)                                                                                \
    do {                                                                                                               \
        cusolverStatus_t cusolver_try_status = (solver)->name(__VA_ARGS__);                                            \
        if (cusolver_try_status != CUSOLVER_STATUS_SUCCESS) {                                                          \
            (solver)->call = "cusolver" #name;                                                                         \
            return cusolver_try_status;                                                                                \
        }                                                                                                              \
    } while (0)
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cusolverStatus_t try_status = (call);                                                                          \
        if (try_status != CUSOLVER_STATUS_SUCCESS)                                                                     \
            return try_status;                                                                                         \
    } while (0)

static void cusolver_open(struct cuda *cuda) {
    struct cuda_cusolver *solver = calloc(1, sizeof *solver);
    char text[64];
    if (!solver) {
        cuda_library_put_off(cuda, CUDA_CUSOLVER, "no host memory");
        return;
    }
#define CUSOLVER_SYMBOL(name) {"cusolver" #name, &solver->name},
    const struct cuda_symbol symbols[] = {CUSOLVER_FUNCTIONS(CUSOLVER_SYMBOL)};
#undef CUSOLVER_SYMBOL
    snprintf(text, sizeof text, "libcusolver.so.%d", CUSOLVER_VER_MAJOR);
    if (!cuda_library_load(cuda, CUDA_CUSOLVER, text, symbols, sizeof symbols / sizeof *symbols)) {
        free(solver);
        return;
    }
    cusolverStatus_t status = solver->DnCreate(&solver->handle);
    if (status == CUSOLVER_STATUS_SUCCESS) {
        status = solver->DnCreateParams(&solver->params);
        if (status != CUSOLVER_STATUS_SUCCESS)
            solver->DnDestroy(solver->handle);
    }
    if (status != CUSOLVER_STATUS_SUCCESS) {
        snprintf(text, sizeof text, "its handle: status %d", (int)status);
        cuda_library_put_off(cuda, CUDA_CUSOLVER, text);
        free(solver);
        return;
    }
    snprintf(text, sizeof text, "%d", CUSOLVER_VER_MAJOR); /* that of the file's name */
    cuda_library_loaded(cuda, CUDA_CUSOLVER, text);
    cuda->cusolver = solver;
}

void cusolver_finish(struct cuda *cuda) {
    struct cuda_cusolver *solver = cuda->cusolver;
    if (!solver)
        return;
    solver->DnDestroyParams(solver->params);
    solver->DnDestroy(solver->handle);
    free(solver->host);
    free(solver);
    cuda->cusolver = NULL;
}

/* What a call works with besides its operands. */
struct room {
    void *device, *host;
    size_t device_bytes, host_bytes; /* that it wants */
    uint64_t device_most;            /* that there are */
};

static cusolverStatus_t room_take(struct cuda_cusolver *solver, struct room *room) {
    solver->call = "the workspace";
    if (room->device_bytes > room->device_most)
        return CUSOLVER_STATUS_ALLOC_FAILED;
    if (room->host_bytes > solver->host_bytes) {
        void *host = realloc(solver->host, room->host_bytes);
        if (!host)
            return CUSOLVER_STATUS_ALLOC_FAILED;
        solver->host = host;
        solver->host_bytes = room->host_bytes;
    }
    room->host = solver->host;
    return CUSOLVER_STATUS_SUCCESS;
}

#define ROOM_ARGUMENTS room->device, room->device_bytes, room->host, room->host_bytes

static cusolverStatus_t run_factors(struct cuda_cusolver *solver, const struct cusolver_matrix *x, cudaDataType type,
                                    struct room *room) {
    const cublasFillMode_t fill = x->upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
    const int64_t m = x->m, n = x->n;
    switch (x->task) {
    case CUSOLVER_CHOLESKY:
        CUSOLVER_TRY(solver, DnXpotrf_bufferSize, solver->handle, solver->params, fill, n, type, x->a, n, type,
                     &room->device_bytes, &room->host_bytes);
        TRY(room_take(solver, room));
        CUSOLVER_TRY(solver, DnXpotrf, solver->handle, solver->params, fill, n, type, x->a, n, type, ROOM_ARGUMENTS,
                     x->info);
        break;
    case CUSOLVER_LU:
        CUSOLVER_TRY(solver, DnXgetrf_bufferSize, solver->handle, solver->params, m, n, type, x->a, m, type,
                     &room->device_bytes, &room->host_bytes);
        TRY(room_take(solver, room));
        CUSOLVER_TRY(solver, DnXgetrf, solver->handle, solver->params, m, n, type, x->a, m, x->order, type,
                     ROOM_ARGUMENTS, x->info);
        break;
    case CUSOLVER_SOLVE:
        CUSOLVER_TRY(solver, DnXgetrs, solver->handle, solver->params, CUBLAS_OP_N, n, x->k, type, x->a, n, x->order,
                     type, x->b, n, x->info);
        break;
    default:
        CUSOLVER_TRY(solver, DnXgeqrf_bufferSize, solver->handle, solver->params, m, n, type, x->a, m, type, x->tau,
                     type, &room->device_bytes, &room->host_bytes);
        TRY(room_take(solver, room));
        CUSOLVER_TRY(solver, DnXgeqrf, solver->handle, solver->params, m, n, type, x->a, m, type, x->tau, type,
                     ROOM_ARGUMENTS, x->info);
    }
    return CUSOLVER_STATUS_SUCCESS;
}

/* Sizes are in elements here. */
static cusolverStatus_t run_q(struct cuda_cusolver *solver, const struct cusolver_matrix *x, struct room *room) {
    const int m = (int)x->m, n = (int)x->n, k = (int)x->k;
    int length = 0;
    if (x->wide)
        CUSOLVER_TRY(solver, DnDorgqr_bufferSize, solver->handle, m, n, k, x->a, m, x->tau, &length);
    else
        CUSOLVER_TRY(solver, DnSorgqr_bufferSize, solver->handle, m, n, k, x->a, m, x->tau, &length);
    room->device_bytes = (size_t)length * (x->wide ? 8 : 4);
    TRY(room_take(solver, room));
    if (x->wide)
        CUSOLVER_TRY(solver, DnDorgqr, solver->handle, m, n, k, x->a, m, x->tau, room->device, length, x->info);
    else
        CUSOLVER_TRY(solver, DnSorgqr, solver->handle, m, n, k, x->a, m, x->tau, room->device, length, x->info);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t run_spectrum(struct cuda_cusolver *solver, const struct cusolver_matrix *x, cudaDataType type,
                                     struct room *room) {
    const int64_t m = x->m, n = x->n;
    if (x->task == CUSOLVER_EIGEN) {
        const cusolverEigMode_t mode = x->vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
        const cublasFillMode_t fill = x->upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
        CUSOLVER_TRY(solver, DnXsyevd_bufferSize, solver->handle, solver->params, mode, fill, n, type, x->a, n, type,
                     x->values, type, &room->device_bytes, &room->host_bytes);
        TRY(room_take(solver, room));
        CUSOLVER_TRY(solver, DnXsyevd, solver->handle, solver->params, mode, fill, n, type, x->a, n, type, x->values,
                     type, ROOM_ARGUMENTS, x->info);
        return CUSOLVER_STATUS_SUCCESS;
    }
    const signed char left = !x->vectors ? 'N' : x->k == n ? 'S' : 'A', right = x->vectors ? 'S' : 'N';
    CUSOLVER_TRY(solver, DnXgesvd_bufferSize, solver->handle, solver->params, left, right, m, n, type, x->a, m, type,
                 x->values, type, x->u, m, type, x->vt, n, type, &room->device_bytes, &room->host_bytes);
    TRY(room_take(solver, room));
    CUSOLVER_TRY(solver, DnXgesvd, solver->handle, solver->params, left, right, m, n, type, x->a, m, type, x->values,
                 type, x->u, m, type, x->vt, n, type, ROOM_ARGUMENTS, x->info);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t run_task(struct cuda_cusolver *solver, const struct cusolver_matrix *x, struct room *room,
                                 cudaStream_t stream) {
    const cudaDataType type = x->wide ? CUDA_R_64F : CUDA_R_32F;
    CUSOLVER_TRY(solver, DnSetStream, solver->handle, stream);
    return x->task == CUSOLVER_Q                                       ? run_q(solver, x, room)
           : x->task == CUSOLVER_EIGEN || x->task == CUSOLVER_SINGULAR ? run_spectrum(solver, x, type, room)
                                                                       : run_factors(solver, x, type, room);
}

int cusolver_run(struct cuda *cuda, const struct cusolver_matrix *matrix, void *workspace, uint64_t workspace_bytes,
                 cudaStream_t stream, bool *refused, struct fault *fault) {
    *refused = true;
    if (!cuda->cusolver && cuda_library_due(cuda, CUDA_CUSOLVER))
        cusolver_open(cuda);
    struct cuda_cusolver *solver = cuda->cusolver;
    if (!solver)
        return STATUS_OK;
    struct room room = {.device = workspace, .device_most = workspace_bytes};
    cusolverStatus_t status = run_task(solver, matrix, &room, stream);
    *refused = status != CUSOLVER_STATUS_SUCCESS;
    if (!*refused)
        return STATUS_OK;
    char text[32];
    snprintf(text, sizeof text, "status %d", (int)status);
    return cuda_library_refused(cuda, CUDA_CUSOLVER, solver->call, text, fault);
}

#else

int cusolver_run(struct cuda *cuda, const struct cusolver_matrix *matrix, void *workspace, uint64_t workspace_bytes,
                 cudaStream_t stream, bool *refused, struct fault *fault) {
    (void)matrix, (void)workspace, (void)workspace_bytes, (void)stream, (void)fault;
    if (cuda_library_due(cuda, CUDA_CUSOLVER))
        cuda_library_missing(cuda, CUDA_CUSOLVER, "this module was built without cuSOLVER's headers");
    *refused = true;
    return STATUS_OK;
}

void cusolver_finish(struct cuda *cuda) {
    (void)cuda;
}

#endif
