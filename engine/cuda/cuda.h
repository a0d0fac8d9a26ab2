/* The CUDA device, as its drivers see it. Includable from C and from CUDA C++.
 *
 * A driver puts one launch on a stream and returns. The submitter's thread calls drivers; for launches whose calls may take long
 * (op_kernel.waits) a thread of aside.h does, and no other call waits for the device. Every call of CUDA is checked with CUDA_TRY, which
 * sets a fault and returns from the driver. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "engine/device/launch.h"
#include "engine/device/libraries.h"
#include "engine/device/op_kernel.h"

/* Scratch memory for products by cublasLt, which tells how much it needs when the submitter asks. It is kept for later products on the
 * same stream, which run after this one. Other kernels use launch->workspace. */
struct cuda_scratch {
    void *memory;
    size_t bytes;
    uint64_t used; /* when it was used last, by the device's count of uses */
};

struct cuda_capture;

struct cuda_stream {
    cudaStream_t stream;
    struct cuda_scratch scratch;
    struct cuda_capture *capture; /* not NULL: launches are captured (graph.h) */
    struct cuda *cuda;
};

struct cuda_blas;
struct cuda_cudnn;
struct cuda_cufft;
struct cuda_cusolver;

/* Libraries that are loaded when they are needed first: library.h. */
enum cuda_library { CUDA_CUDNN, CUDA_CUFFT, CUDA_CUSOLVER, CUDA_LIBRARIES };

struct cuda {
    int ordinal;    /* as CUDA counts */
    int processors; /* streaming multiprocessors */
    int capability; /* 90: compute capability 9.0 */
    int shared_max; /* bytes of shared memory that one block may ask for */
    uint32_t grid_max[3], block_max[3];
    struct cuda_blas *blas;              /* created with the first product */
    uint16_t fused[OP_ACTIVATION_COUNT]; /* dtypes, as bits, whose activation is left to cublasLt: cuda_fused.c */
    /* Products of floats that cublasLt has computed, and that the module's own kernel has, because there was no algorithm or no memory.
     * Written by the submitter's thread, read by any. */
    uint64_t products_library, products_slow;
    struct device_library libraries[CUDA_LIBRARIES]; /* library.c's */
    unsigned libraries_wait[CUDA_LIBRARIES];  /* launches for which a library that had no memory is not asked again */
    unsigned libraries_aside[CUDA_LIBRARIES]; /* calls that are not the submitter's and have not returned; atomic */
    struct cuda_cudnn *cudnn;                 /* each is created with the first launch that wants it */
    struct cuda_cufft *cufft;
    struct cuda_cusolver *cusolver;
};

static inline bool cuda_fuses(const struct cuda *cuda, unsigned activation, enum dtype dtype) {
    return activation < OP_ACTIVATION_COUNT && (cuda->fused[activation] >> dtype & 1);
}
/* Whether a list of words, separated by commas, has this word. */
bool cuda_listed(const char *list, const char *word);
/* Sets cuda->fused from the module's table and TENSORD_CUDA_FUSED. */
void cuda_fused_init(struct cuda *cuda);

static inline void cuda_count_up(uint64_t *counter) {
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* Puts a launch whose kernel exists on the stream. An error is a failure of the device: see cuda_fault(). */
typedef int cuda_driver(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                        struct fault *fault);

/* A walk calls `seen` for each kernel of a source until that returns false. `common`: a kernel that jobs use all the time. CUB's kernels are
 * not among them: only CUB knows which kernels it launches. */
typedef bool cuda_kernel_seen(void *context, bool common, const void *kernel);
typedef bool cuda_kernel_walk(cuda_kernel_seen *seen, void *context);

/* The module's entry for an operation: cuda_kernel_NAME, defined next to its driver. The owner thread calls the functions of `base`, which
 * do not call CUDA. */
struct cuda_kernel {
    struct op_kernel base;
    cuda_driver *driver;
    cuda_kernel_walk *walk;    /* of the driver's source */
    enum cuda_library library; /* of a kernel with base.waits: whose calls may take long */
};
#define CUDA_KERNEL(ID, name) extern const struct cuda_kernel cuda_kernel_##name;
OP_KERNELS(CUDA_KERNEL)
CUDA_KERNEL(, elementwise)
#undef CUDA_KERNEL

/* Makes op_kernel.dtypes for a driver that looks its kernel up by dtype: the dtypes for which `has` returns true. */
#define CUDA_KERNELS_FOUND(name, has)                                                                                  \
    static uint32_t name(const struct device *device, unsigned opcode) {                                               \
        uint32_t found = 0;                                                                                            \
        (void)device;                                                                                                  \
        for (int dtype = DTYPE_INVALID + 1; dtype < DTYPE_COUNT; dtype++)                                              \
            found |= (uint32_t)has(opcode, (enum dtype)dtype) << dtype;                                                \
        return found;                                                                                                  \
    }

struct cuda *cuda_of(struct device *device);

/* Floats up to 32 bits. */
static inline bool cuda_dtype_common(enum dtype dtype) {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_F32;
}

/* Makes the stream's scratch memory at least this large; its content is lost. The stream has it until another needs the memory, or the device has
 * had nothing to do for a while; on a full device, what is held for that. NULL with STATUS_OUT_OF_MEMORY: no launch gets so much on this device,
 * whatever is free. Then the driver must go on without scratch memory, since an error that it returns counts as a failure of the device. */
void *cuda_scratch(struct cuda_stream *stream, size_t bytes, struct fault *fault);

/* Turns a CUDA error into a fault that names the call and has CUDA's name and message of the error: STATUS_DEVICE_LOST for a sticky error,
 * STATUS_OUT_OF_MEMORY for cudaErrorMemoryAllocation, STATUS_INTERNAL for others. Returns the fault's code. */
int cuda_fault(struct fault *fault, cudaError_t error, const char *call);

/* After a failed call of a library, which has a CUDA runtime of its own: STATUS_OK, unless the device has failed for good. Clears the error
 * that the library may have left in this runtime. */
int cuda_survives(const char *call, struct fault *fault);

#define CUDA_TRY(fault, call)                                                                                          \
    do {                                                                                                               \
        cudaError_t cuda_try_error = (call);                                                                           \
        if (cuda_try_error != cudaSuccess)                                                                             \
            return cuda_fault(fault, cuda_try_error, #call);                                                           \
    } while (0)

#ifdef __cplusplus
}
#endif
