/* Losses of elements and their gradients: a thread for each element. A loss that is reduced is summed in f64 by each block, and the blocks' sums
 * by one block; the order depends on the number of elements and the device alone. Halves are widened where they are read, and results rounded to
 * them where they are written. */
#include "engine/cuda/number.cuh"

#define LOSS_FUNCTION static __device__ __forceinline__
#include "engine/device/loss_formula.h"

#include "engine/cuda/cuda.h"
#include "engine/cuda/space.h"

namespace {

enum { WARP = 32, WARPS = SPACE_THREADS / WARP, ELEMENTS = 4 /* of a thread, that are worth a block */ };

struct element_loss_arguments {
    const void *in[LOSS_INPUTS], *gradient;
    void *out;
    double *sums; /* workspace: of each block */
    int64_t elements, blocks;
    double delta, scale;
    int way;
    bool reduced;
};

/* `way` is the same for all threads. */
#define FORMULA_OF(name, T, suffix)                                                                                    \
    __device__ __forceinline__ T loss_##name(int way, T x, T t, T w, T p, T d) {                                       \
        switch (way) {                                                                                                 \
            LOSS_WAYS(suffix)                                                                                          \
        default:                                                                                                       \
            return x;                                                                                                  \
        }                                                                                                              \
    }
#define FORWARD_F32(way, inputs)                                                                                       \
    case LOSS_WAY_##way:                                                                                               \
        return loss_##way##_f32(x, t, w, p, d);
#define FORWARD_F64(way, inputs)                                                                                       \
    case LOSS_WAY_##way:                                                                                               \
        return loss_##way##_f64(x, t, w, p, d);
#define BACK_F32(way, inputs)                                                                                          \
    case LOSS_WAY_##way:                                                                                               \
        return loss_##way##_back_f32(x, t, w, p, d);
#define BACK_F64(way, inputs)                                                                                          \
    case LOSS_WAY_##way:                                                                                               \
        return loss_##way##_back_f64(x, t, w, p, d);
FORMULA_OF(of, float, FORWARD_F32)
FORMULA_OF(of, double, FORWARD_F64)
FORMULA_OF(slope, float, BACK_F32)
FORMULA_OF(slope, double, BACK_F64)

template <class T, class C>
__device__ __forceinline__ void inputs_of(const element_loss_arguments &a, int64_t at, C (&v)[LOSS_INPUTS]) {
#pragma unroll
    for (int i = 0; i < LOSS_INPUTS; i++) {
        v[i] = a.in[i] ? number_widen(((const T *)a.in[i])[at]) : (C)1;
    }
}

/* The sum of one number of each thread; thread 0 gets it. */
__device__ __forceinline__ double block_total(double x) {
    __shared__ double parts[WARPS];
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, distance, WARP);
    }
    if (threadIdx.x % WARP == 0) {
        parts[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    double all = 0;
    for (int i = 0; i < WARPS; i++) {
        all += parts[i];
    }
    return all;
}

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    element_loss_forward(const __grid_constant__ struct element_loss_arguments a) {
    typedef decltype(number_widen(T())) C;
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS;
    double total = 0;
    for (int64_t at = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; at < a.elements; at += step) {
        C v[LOSS_INPUTS];
        inputs_of<T>(a, at, v);
        const C loss = loss_of(a.way, v[0], v[1], v[2], v[3], (C)a.delta);
        total += (double)loss;
        if (!a.reduced) {
            ((T *)a.out)[at] = number_store<T>::from(loss);
        }
    }
    if (a.reduced) {
        total = block_total(total);
        if (threadIdx.x == 0) {
            a.sums[blockIdx.x] = total;
        }
    }
}

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    element_loss_finish(const __grid_constant__ struct element_loss_arguments a) {
    typedef decltype(number_widen(T())) C;
    double total = 0;
    for (int64_t i = threadIdx.x; i < a.blocks; i += SPACE_THREADS) {
        total += a.sums[i];
    }
    total = block_total(total);
    if (threadIdx.x == 0) {
        *(T *)a.out = number_store<T>::from((C)(total * a.scale));
    }
}

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    element_loss_back(const __grid_constant__ struct element_loss_arguments a) {
    typedef decltype(number_widen(T())) C;
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS;
    const T *gradient = (const T *)a.gradient;
    for (int64_t at = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; at < a.elements; at += step) {
        C v[LOSS_INPUTS];
        inputs_of<T>(a, at, v);
        const C factor = a.reduced ? (C)((double)number_widen(*gradient) * a.scale) : (C)number_widen(gradient[at]);
        ((T *)a.out)[at] = number_store<T>::from(factor * loss_slope(a.way, v[0], v[1], v[2], v[3], (C)a.delta));
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void element_loss_function(const struct element_loss_arguments arguments);

enum { FORWARD, FINISH, BACK, KINDS };

/* By dtype from DTYPE_F16 on. */
static_assert(DTYPE_F64 - DTYPE_F16 == 3, "the table's order");
#define KINDS_OF(T)                                                                                                    \
    { element_loss_forward<T>, element_loss_finish<T>, element_loss_back<T> }
static element_loss_function *const element_loss_functions[4][KINDS] = {KINDS_OF(__half), KINDS_OF(__nv_bfloat16),
                                                                        KINDS_OF(float), KINDS_OF(double)};

static bool element_loss_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int i = 0; i < 4 * KINDS; i++) {
        more = more && seen(context, false, (const void *)element_loss_functions[i / KINDS][i % KINDS]);
    }
    return more;
}

static unsigned element_loss_blocks(const struct cuda *cuda, int64_t elements) {
    return space_blocks(cuda, elements / (SPACE_THREADS * ELEMENTS) + 1);
}

static uint64_t element_loss_workspace(struct device *device, const struct launch *launch) {
    const struct element_loss loss = element_loss_make(launch);
    return loss.back || loss.reduction == OP_REDUCTION_NONE
               ? 0
               : element_loss_blocks(cuda_of(device), loss.elements) * sizeof(double);
}

static int element_loss_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                            struct fault *fault) {
    const struct element_loss loss = element_loss_make(launch);
    element_loss_function *const *functions = element_loss_functions[launch->output.dtype - DTYPE_F16];
    struct element_loss_arguments a = {};
    for (unsigned i = 0; i < loss.n_inputs; i++) {
        a.in[i] = loss.x[i].data;
    }
    a.gradient = loss.back ? loss.gradient->data : NULL;
    a.out = launch->output.data;
    a.sums = (double *)launch->workspace;
    a.elements = loss.elements;
    a.delta = loss.delta;
    a.scale = loss.scale;
    a.way = loss.way;
    a.reduced = loss.reduction != OP_REDUCTION_NONE;
    const unsigned blocks = element_loss_blocks(cuda, a.elements);
    a.blocks = blocks;
    int code = space_start((const void *)functions[loss.back ? BACK : FORWARD], blocks, &a, fault, stream->stream);
    if (code == STATUS_OK && a.reduced && !loss.back) {
        code = space_start((const void *)functions[FINISH], 1, &a, fault, stream->stream);
    }
    return code;
}

#define ELEMENT_LOSS                                                                                                   \
    {                                                                                                                  \
        .base = {.workspace = element_loss_workspace, .halves = true}, .driver = element_loss_run,                     \
        .walk = element_loss_walk                                                                                      \
    }
const struct cuda_kernel cuda_kernel_mse_loss = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_mse_loss_grad = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_l1_loss = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_l1_loss_grad = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_huber_loss = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_huber_loss_grad = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_bce_with_logits = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_bce_with_logits_grad = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_kl_div = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_kl_div_grad = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_bce_with_logits_target_grad = ELEMENT_LOSS;
const struct cuda_kernel cuda_kernel_kl_div_target_grad = ELEMENT_LOSS;
