/* The CUDA device, as its drivers see it. Includable from C and from CUDA C++.
 *
 * A driver puts one launch on a stream and returns; nothing here waits for the device. The submitter's thread makes all of
 * these calls. Every call of CUDA is checked with CUDA_TRY, which leaves a fault and returns from the driver. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "engine/device/launch.h"
#include "engine/device/op_kernel.h"

/* Memory for a product by cublasLt, which says how much it wants when the submitter asks; and kept for the next ones on the
 * same stream, which run after it. Other kernels' is launch->workspace. */
struct cuda_scratch {
    void *memory;
    size_t bytes;
    uint64_t used; /* when last, by the device's count */
};

struct cuda_stream {
    cudaStream_t stream;
    struct cuda_scratch scratch;
    struct cuda *cuda;
};

struct cuda_blas;

struct cuda {
    int ordinal;    /* as CUDA counts */
    int processors; /* streaming multiprocessors */
    int capability; /* 90: compute capability 9.0 */
    int shared_max; /* bytes of shared memory that one block may ask for */
    uint32_t grid_max[3], block_max[3];
    struct cuda_blas *blas;              /* created with the first product */
    uint16_t fused[OP_ACTIVATION_COUNT]; /* dtypes, as bits, whose activation is left to cublasLt: cuda_fused.c */
    /* Products of floats: that cublasLt computed, and that the module's own kernel did, for want of an algorithm or of
     * memory. Written by the submitter's thread, read by any. */
    uint64_t products_library, products_slow;
};

static inline bool cuda_fuses(const struct cuda *cuda, unsigned activation, enum dtype dtype) {
    return activation < OP_ACTIVATION_COUNT && (cuda->fused[activation] >> dtype & 1);
}
/* Sets it as the module's table and TENSORD_CUDA_FUSED say. */
void cuda_fused_init(struct cuda *cuda);

static inline void cuda_count_up(uint64_t *counter) {
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* Puts a launch whose kernel is known to exist on the stream. An error is the device's: see cuda_fault(). */
typedef int cuda_driver(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                        struct fault *fault);

/* Tells of each kernel of a source, until one is answered with false. `common`: one that jobs use all the time. Of CUB's
 * kernels nobody tells: only CUB knows which it launches. */
typedef bool cuda_kernel_seen(void *context, bool common, const void *kernel);
typedef bool cuda_kernel_walk(cuda_kernel_seen *seen, void *context);

/* What the module has for an operation: cuda_kernel_NAME, defined beside its driver. The functions of `base` are the owner
 * thread's, and call nothing of CUDA. */
struct cuda_kernel {
    struct op_kernel base;
    cuda_driver *driver;
    cuda_kernel_walk *walk; /* of the driver's source */
};
#define CUDA_KERNEL(ID, name) extern const struct cuda_kernel cuda_kernel_##name;
OP_KERNELS(CUDA_KERNEL)
CUDA_KERNEL(, elementwise)
#undef CUDA_KERNEL

/* op_kernel.dtypes where a driver looks its kernel up by dtype: those that have one, as `has` says. */
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

/* Makes the stream's scratch at least this large, with what was in it gone; it is kept until the device needs the memory
 * for another stream, or has nothing to do for a while. NULL and a fault where there is no more: with STATUS_OUT_OF_MEMORY
 * the driver goes on without, for what it returns is the device's failure. */
void *cuda_scratch(struct cuda_stream *stream, size_t bytes, struct fault *fault);

/* Turns a CUDA error into a fault that names the call, CUDA's name for the error and its words: STATUS_DEVICE_LOST for a
 * sticky one, STATUS_OUT_OF_MEMORY for cudaErrorMemoryAllocation, STATUS_INTERNAL for the rest. Returns its code. */
int cuda_fault(struct fault *fault, cudaError_t error, const char *call);

#define CUDA_TRY(fault, call)                                                                                          \
    do {                                                                                                               \
        cudaError_t cuda_try_error = (call);                                                                           \
        if (cuda_try_error != cudaSuccess)                                                                             \
            return cuda_fault(fault, cuda_try_error, #call);                                                           \
    } while (0)

#ifdef __cplusplus
}
#endif
