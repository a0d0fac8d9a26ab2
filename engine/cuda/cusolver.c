#include "engine/cuda/cusolver.h"

#include <limits.h>
#include <pthread.h>
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
    struct solver_handle *free; /* under cusolver_lock */
    bool used;                  /* a handle has been made; too */
#define CUSOLVER_MEMBER(name) __typeof__(&cusolver##name) name;
    CUSOLVER_FUNCTIONS(CUSOLVER_MEMBER)
#undef CUSOLVER_MEMBER
};

/* For one call at a time: a thread that launches has one for itself. */
struct solver_handle {
    struct solver_handle *next; /* in the list of those that no thread has */
    const struct cuda_cusolver *library;
    cusolverDnHandle_t handle;
    cusolverDnParams_t params;
    void *host; /* its workspace on this side: no call is under way when the next one begins */
    size_t host_bytes;
    const char *call; /* the last one, in words for a refusal */
};

/* Of cuda->cusolver of all devices, and of what it has. */
static pthread_mutex_t cusolver_lock = PTHREAD_MUTEX_INITIALIZER;

#define CUSOLVER_TRY(own, name, ...)                                                                                   \
    do {                                                                                                               \
        cusolverStatus_t cusolver_try_status = (own)->library->name(__VA_ARGS__);                                      \
        if (cusolver_try_status != CUSOLVER_STATUS_SUCCESS) {                                                          \
            (own)->call = "cusolver" #name;                                                                            \
            return cusolver_try_status;                                                                                \
        }                                                                                                              \
    } while (0)
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cusolverStatus_t try_status = (call);                                                                          \
        if (try_status != CUSOLVER_STATUS_SUCCESS)                                                                     \
            return try_status;                                                                                         \
    } while (0)

/* With the lock held. NULL: there is none. */
static struct cuda_cusolver *cusolver_load(struct cuda *cuda) {
    struct cuda_cusolver *solver = calloc(1, sizeof *solver);
    char text[64];
    if (!solver) {
        cuda_library_put_off(cuda, CUDA_CUSOLVER, "no host memory");
        return NULL;
    }
#define CUSOLVER_SYMBOL(name) {"cusolver" #name, &solver->name},
    const struct cuda_symbol symbols[] = {CUSOLVER_FUNCTIONS(CUSOLVER_SYMBOL)};
#undef CUSOLVER_SYMBOL
    snprintf(text, sizeof text, "libcusolver.so.%d", CUSOLVER_VER_MAJOR);
    if (!cuda_library_load(cuda, CUDA_CUSOLVER, text, symbols, sizeof symbols / sizeof *symbols)) {
        free(solver);
        return NULL;
    }
    return solver;
}

/* With the lock held. NULL: it could not be made, which is noted: without any, the library is asked again only after some launches. */
static struct solver_handle *handle_create(struct cuda *cuda, struct cuda_cusolver *solver) {
    struct solver_handle *own = calloc(1, sizeof *own);
    struct fault fault;
    char text[64] = "no host memory";
    cusolverStatus_t status = own ? solver->DnCreate(&own->handle) : CUSOLVER_STATUS_ALLOC_FAILED;
    if (status == CUSOLVER_STATUS_SUCCESS) {
        status = solver->DnCreateParams(&own->params);
        if (status != CUSOLVER_STATUS_SUCCESS)
            solver->DnDestroy(own->handle);
    }
    if (status == CUSOLVER_STATUS_SUCCESS) {
        own->library = solver;
        solver->used = true;
        snprintf(text, sizeof text, "%d", CUSOLVER_VER_MAJOR); /* that of the file's name */
        cuda_library_loaded(cuda, CUDA_CUSOLVER, text);
        return own;
    }
    if (own)
        snprintf(text, sizeof text, "its handle: status %d", (int)status);
    if (solver->used)
        cuda_library_refused(cuda, CUDA_CUSOLVER, "cusolverDnCreate", text,
                             &fault); /* the next launch finds a lost device */
    else
        cuda_library_put_off(cuda, CUDA_CUSOLVER, text);
    free(own);
    return NULL;
}

/* A handle that no other thread has; NULL: own kernels have to compute. */
static struct solver_handle *handle_take(struct cuda *cuda) {
    struct solver_handle *own = NULL;
    pthread_mutex_lock(&cusolver_lock);
    if (cuda->cusolver && cuda->cusolver->free) {
        own = cuda->cusolver->free;
        cuda->cusolver->free = own->next;
    } else if (cuda_library_due(cuda, CUDA_CUSOLVER)) {
        if (!cuda->cusolver)
            cuda->cusolver = cusolver_load(cuda);
        own = cuda->cusolver ? handle_create(cuda, cuda->cusolver) : NULL;
    }
    pthread_mutex_unlock(&cusolver_lock);
    return own;
}

static void handle_give(struct cuda *cuda, struct solver_handle *own) {
    pthread_mutex_lock(&cusolver_lock);
    own->next = cuda->cusolver->free;
    cuda->cusolver->free = own;
    pthread_mutex_unlock(&cusolver_lock);
}

void cusolver_finish(struct cuda *cuda) {
    struct cuda_cusolver *solver = cuda->cusolver;
    if (!solver)
        return;
    for (struct solver_handle *own = solver->free, *next; own; own = next) {
        next = own->next;
        solver->DnDestroyParams(own->params);
        solver->DnDestroy(own->handle);
        free(own->host);
        free(own);
    }
    free(solver);
    cuda->cusolver = NULL;
}

/* What a call works with besides its operands. */
struct room {
    void *device, *host;
    size_t device_bytes, host_bytes; /* that it wants */
    uint64_t device_most;            /* that there are */
};

static cusolverStatus_t room_take(struct solver_handle *own, struct room *room) {
    own->call = "the workspace";
    if (room->device_bytes > room->device_most)
        return CUSOLVER_STATUS_ALLOC_FAILED;
    if (room->host_bytes > own->host_bytes) {
        void *host = realloc(own->host, room->host_bytes);
        if (!host)
            return CUSOLVER_STATUS_ALLOC_FAILED;
        own->host = host;
        own->host_bytes = room->host_bytes;
    }
    room->host = own->host;
    return CUSOLVER_STATUS_SUCCESS;
}

#define ROOM_ARGUMENTS room->device, room->device_bytes, room->host, room->host_bytes

static cusolverStatus_t run_factors(struct solver_handle *own, const struct cusolver_matrix *x, cudaDataType type,
                                    struct room *room) {
    const cublasFillMode_t fill = x->upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
    const int64_t m = x->m, n = x->n;
    switch (x->task) {
    case CUSOLVER_CHOLESKY:
        CUSOLVER_TRY(own, DnXpotrf_bufferSize, own->handle, own->params, fill, n, type, x->a, n, type,
                     &room->device_bytes, &room->host_bytes);
        TRY(room_take(own, room));
        CUSOLVER_TRY(own, DnXpotrf, own->handle, own->params, fill, n, type, x->a, n, type, ROOM_ARGUMENTS, x->info);
        break;
    case CUSOLVER_LU:
        CUSOLVER_TRY(own, DnXgetrf_bufferSize, own->handle, own->params, m, n, type, x->a, m, type, &room->device_bytes,
                     &room->host_bytes);
        TRY(room_take(own, room));
        CUSOLVER_TRY(own, DnXgetrf, own->handle, own->params, m, n, type, x->a, m, x->order, type, ROOM_ARGUMENTS,
                     x->info);
        break;
    case CUSOLVER_SOLVE:
        CUSOLVER_TRY(own, DnXgetrs, own->handle, own->params, CUBLAS_OP_N, n, x->k, type, x->a, n, x->order, type, x->b,
                     n, x->info);
        break;
    default:
        CUSOLVER_TRY(own, DnXgeqrf_bufferSize, own->handle, own->params, m, n, type, x->a, m, type, x->tau, type,
                     &room->device_bytes, &room->host_bytes);
        TRY(room_take(own, room));
        CUSOLVER_TRY(own, DnXgeqrf, own->handle, own->params, m, n, type, x->a, m, type, x->tau, type, ROOM_ARGUMENTS,
                     x->info);
    }
    return CUSOLVER_STATUS_SUCCESS;
}

/* Sizes are in elements here. */
static cusolverStatus_t run_q(struct solver_handle *own, const struct cusolver_matrix *x, struct room *room) {
    const int m = (int)x->m, n = (int)x->n, k = (int)x->k;
    int length = 0;
    if (x->wide)
        CUSOLVER_TRY(own, DnDorgqr_bufferSize, own->handle, m, n, k, x->a, m, x->tau, &length);
    else
        CUSOLVER_TRY(own, DnSorgqr_bufferSize, own->handle, m, n, k, x->a, m, x->tau, &length);
    room->device_bytes = (size_t)length * (x->wide ? 8 : 4);
    TRY(room_take(own, room));
    if (x->wide)
        CUSOLVER_TRY(own, DnDorgqr, own->handle, m, n, k, x->a, m, x->tau, room->device, length, x->info);
    else
        CUSOLVER_TRY(own, DnSorgqr, own->handle, m, n, k, x->a, m, x->tau, room->device, length, x->info);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t run_spectrum(struct solver_handle *own, const struct cusolver_matrix *x, cudaDataType type,
                                     struct room *room) {
    const int64_t m = x->m, n = x->n;
    if (x->task == CUSOLVER_EIGEN) {
        const cusolverEigMode_t mode = x->vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
        const cublasFillMode_t fill = x->upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
        CUSOLVER_TRY(own, DnXsyevd_bufferSize, own->handle, own->params, mode, fill, n, type, x->a, n, type, x->values,
                     type, &room->device_bytes, &room->host_bytes);
        TRY(room_take(own, room));
        CUSOLVER_TRY(own, DnXsyevd, own->handle, own->params, mode, fill, n, type, x->a, n, type, x->values, type,
                     ROOM_ARGUMENTS, x->info);
        return CUSOLVER_STATUS_SUCCESS;
    }
    const signed char left = !x->vectors ? 'N' : x->k == n ? 'S' : 'A', right = x->vectors ? 'S' : 'N';
    CUSOLVER_TRY(own, DnXgesvd_bufferSize, own->handle, own->params, left, right, m, n, type, x->a, m, type, x->values,
                 type, x->u, m, type, x->vt, n, type, &room->device_bytes, &room->host_bytes);
    TRY(room_take(own, room));
    CUSOLVER_TRY(own, DnXgesvd, own->handle, own->params, left, right, m, n, type, x->a, m, type, x->values, type, x->u,
                 m, type, x->vt, n, type, ROOM_ARGUMENTS, x->info);
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t run_task(struct solver_handle *own, const struct cusolver_matrix *x, struct room *room,
                                 cudaStream_t stream) {
    const cudaDataType type = x->wide ? CUDA_R_64F : CUDA_R_32F;
    CUSOLVER_TRY(own, DnSetStream, own->handle, stream);
    return x->task == CUSOLVER_Q                                       ? run_q(own, x, room)
           : x->task == CUSOLVER_EIGEN || x->task == CUSOLVER_SINGULAR ? run_spectrum(own, x, type, room)
                                                                       : run_factors(own, x, type, room);
}

int cusolver_run(struct cuda *cuda, const struct cusolver_matrix *matrix, void *workspace, uint64_t workspace_bytes,
                 cudaStream_t stream, bool *refused, struct fault *fault) {
    *refused = true;
    struct solver_handle *own = handle_take(cuda);
    if (!own)
        return STATUS_OK;
    struct room room = {.device = workspace, .device_most = workspace_bytes};
    cusolverStatus_t status = run_task(own, matrix, &room, stream);
    const char *call = own->call;
    handle_give(cuda, own);
    *refused = status != CUSOLVER_STATUS_SUCCESS;
    if (!*refused)
        return STATUS_OK;
    char text[32];
    snprintf(text, sizeof text, "status %d", (int)status);
    return cuda_library_refused(cuda, CUDA_CUSOLVER, call, text, fault);
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
