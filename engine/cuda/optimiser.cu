/* Steps of optimisers: a thread for each element of a parameter. Halves are widened where they are read, and results rounded to them where they are
 * written. */
#define OPTIMISER_FUNCTION static __device__ __forceinline__
#include "engine/device/optimiser.h"

#include "engine/cuda/number.cuh"
#include "engine/cuda/space.h"

namespace {

enum { LANES = 4 }; /* of halves that one access moves, where all operands are aligned for it */

struct optimiser_arguments {
    const void *in[OPTIMISER_INPUTS];
    void *out[OPTIMISER_OUTPUTS];
    int64_t elements;
    struct optimiser_f64 wide;
    struct optimiser_f32 narrow;
};

/* One element; `way` is known when this is compiled. */
__device__ __forceinline__ void optimiser_step(int way, const optimiser_arguments &a, const float *x, float *y) {
#define STEP(name, inputs)                                                                                             \
    if (way == OPTIMISER_WAY_##name) {                                                                                 \
        optimiser_##name##_f32(&a.narrow, x, y);                                                                       \
    }
    OPTIMISER_WAYS(STEP)
#undef STEP
}
__device__ __forceinline__ void optimiser_step(int way, const optimiser_arguments &a, const double *x, double *y) {
#define STEP(name, inputs)                                                                                             \
    if (way == OPTIMISER_WAY_##name) {                                                                                 \
        optimiser_##name##_f64(&a.wide, x, y);                                                                         \
    }
    OPTIMISER_WAYS(STEP)
#undef STEP
}

template <class T, int way, int inputs>
__global__ void __launch_bounds__(SPACE_THREADS)
    optimiser_kernel(const __grid_constant__ struct optimiser_arguments a) {
    typedef decltype(number_widen(T())) C;
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS;
    for (int64_t at = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; at < a.elements; at += step) {
        C x[OPTIMISER_INPUTS] = {}, y[OPTIMISER_OUTPUTS] = {};
#pragma unroll
        for (int i = 0; i < inputs; i++) {
            x[i] = number_widen(((const T *)a.in[i])[at]);
        }
        optimiser_step(way, a, x, y);
#pragma unroll
        for (int i = 0; i < inputs - 1; i++) {
            ((T *)a.out[i])[at] = number_store<T>::from(y[i]);
        }
    }
}

/* The same of halves, LANES of them with one access; of the last ones, which may be fewer, one by one. */
template <class T, int way, int inputs>
__global__ void __launch_bounds__(SPACE_THREADS) optimiser_wide(const __grid_constant__ struct optimiser_arguments a) {
    typedef number_pack<T, LANES> pack;
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS * LANES;
    for (int64_t at = ((int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x) * LANES; at < a.elements; at += step) {
        const int count = a.elements - at < LANES ? (int)(a.elements - at) : (int)LANES;
        pack in[inputs], out[inputs - 1];
#pragma unroll
        for (int i = 0; i < inputs; i++) {
            const T *from = (const T *)a.in[i] + at;
            if (count == LANES) {
                in[i] = *(const pack *)from;
            } else {
#pragma unroll
                for (int lane = 0; lane < LANES; lane++) {
                    in[i].lane[lane] = from[lane < count ? lane : 0];
                }
            }
        }
#pragma unroll
        for (int lane = 0; lane < LANES; lane++) {
            float x[OPTIMISER_INPUTS] = {}, y[OPTIMISER_OUTPUTS] = {};
#pragma unroll
            for (int i = 0; i < inputs; i++) {
                x[i] = number_widen(in[i].lane[lane]);
            }
            optimiser_step(way, a, x, y);
#pragma unroll
            for (int i = 0; i < inputs - 1; i++) {
                out[i].lane[lane] = number_store<T>::from(y[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < inputs - 1; i++) {
            T *to = (T *)a.out[i] + at;
            if (count == LANES) {
                *(pack *)to = out[i];
            } else {
#pragma unroll
                for (int lane = 0; lane < LANES - 1; lane++) {
                    if (lane < count) {
                        to[lane] = out[i].lane[lane];
                    }
                }
            }
        }
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void optimiser_function(const struct optimiser_arguments arguments);

#define WAY_f16(way, inputs) optimiser_kernel<__half, OPTIMISER_WAY_##way, inputs>,
#define WAY_bf16(way, inputs) optimiser_kernel<__nv_bfloat16, OPTIMISER_WAY_##way, inputs>,
#define WAY_f32(way, inputs) optimiser_kernel<float, OPTIMISER_WAY_##way, inputs>,
#define WAY_f64(way, inputs) optimiser_kernel<double, OPTIMISER_WAY_##way, inputs>,
#define WAY_f16_wide(way, inputs) optimiser_wide<__half, OPTIMISER_WAY_##way, inputs>,
#define WAY_bf16_wide(way, inputs) optimiser_wide<__nv_bfloat16, OPTIMISER_WAY_##way, inputs>,
/* By dtype from DTYPE_F16 on, then the wide ones of halves. */
enum { WIDE = 4, FUNCTIONS = 6 };
static_assert(DTYPE_F64 - DTYPE_F16 == 3, "the table's order");
static optimiser_function *const optimiser_functions[FUNCTIONS][OPTIMISER_WAY_COUNT] = {
    {OPTIMISER_WAYS(WAY_f16)}, {OPTIMISER_WAYS(WAY_bf16)},     {OPTIMISER_WAYS(WAY_f32)},
    {OPTIMISER_WAYS(WAY_f64)}, {OPTIMISER_WAYS(WAY_f16_wide)}, {OPTIMISER_WAYS(WAY_bf16_wide)}};

static bool optimiser_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int i = 0; i < FUNCTIONS * OPTIMISER_WAY_COUNT; i++) {
        more = more &&
               seen(context, true, (const void *)optimiser_functions[i / OPTIMISER_WAY_COUNT][i % OPTIMISER_WAY_COUNT]);
    }
    return more;
}

static int optimiser_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                         struct fault *fault) {
    struct optimiser_arguments a = {};
    const int way = optimiser_make(launch, &a.wide);
    int function = launch->output.dtype - DTYPE_F16;
    uintptr_t addresses = 0;
    a.narrow = optimiser_narrow(&a.wide);
    a.elements = launch->output.shape[0];
    for (unsigned i = 0; i < launch->n_inputs; i++) {
        a.in[i] = launch->inputs[i].data;
        addresses |= (uintptr_t)a.in[i];
    }
    for (unsigned i = 0; i <= launch->further; i++) {
        a.out[i] = i ? launch_further(launch, i)->data : launch->output.data;
        addresses |= (uintptr_t)a.out[i];
    }
    const bool wide = dtype_size((enum dtype)launch->output.dtype) == 2 && addresses % (2 * LANES) == 0;
    function += wide ? WIDE : 0;
    return space_start((const void *)optimiser_functions[function][way],
                       space_blocks(cuda, a.elements / (wide ? LANES : 1) / SPACE_THREADS + 1), &a, fault,
                       stream->stream);
}

#define OPTIMISER                                                                                                      \
    { .base = {.halves = true}, .driver = optimiser_run, .walk = optimiser_walk }
const struct cuda_kernel cuda_kernel_sgd = OPTIMISER;
const struct cuda_kernel cuda_kernel_adam = OPTIMISER;
const struct cuda_kernel cuda_kernel_adamw = OPTIMISER;
const struct cuda_kernel cuda_kernel_rmsprop = OPTIMISER;
const struct cuda_kernel cuda_kernel_adagrad = OPTIMISER;
const struct cuda_kernel cuda_kernel_moving_average = OPTIMISER;
