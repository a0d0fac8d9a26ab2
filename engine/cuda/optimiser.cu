/* Steps of optimisers: a thread for each element of a parameter. */
#define OPTIMISER_FUNCTION static __device__ __forceinline__
#include "engine/device/optimiser.h"

#include "engine/cuda/cuda.h"
#include "engine/cuda/space.h"

namespace {

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
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS;
    for (int64_t at = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; at < a.elements; at += step) {
        T x[OPTIMISER_INPUTS] = {}, y[OPTIMISER_OUTPUTS] = {};
#pragma unroll
        for (int i = 0; i < inputs; i++) {
            x[i] = ((const T *)a.in[i])[at];
        }
        optimiser_step(way, a, x, y);
#pragma unroll
        for (int i = 0; i < inputs - 1; i++) {
            ((T *)a.out[i])[at] = y[i];
        }
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void optimiser_function(const struct optimiser_arguments arguments);

#define WAY_f32(way, inputs) optimiser_kernel<float, OPTIMISER_WAY_##way, inputs>,
#define WAY_f64(way, inputs) optimiser_kernel<double, OPTIMISER_WAY_##way, inputs>,
static optimiser_function *const optimiser_functions[2 * OPTIMISER_WAY_COUNT] = {OPTIMISER_WAYS(WAY_f32)
                                                                                     OPTIMISER_WAYS(WAY_f64)};

static bool optimiser_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int way = 0; way < 2 * OPTIMISER_WAY_COUNT; way++) {
        more = more && seen(context, true, (const void *)optimiser_functions[way]);
    }
    return more;
}

static int optimiser_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                         struct fault *fault) {
    struct optimiser_arguments a = {};
    const int way = optimiser_make(launch, &a.wide);
    const bool f64 = launch->output.dtype == DTYPE_F64;
    a.narrow = optimiser_narrow(&a.wide);
    a.elements = launch->output.shape[0];
    for (unsigned i = 0; i < launch->n_inputs; i++) {
        a.in[i] = launch->inputs[i].data;
    }
    a.out[0] = launch->output.data;
    for (unsigned i = 1; i <= launch->further; i++) {
        a.out[i] = launch_further(launch, i)->data;
    }
    return space_start((const void *)optimiser_functions[way + (f64 ? OPTIMISER_WAY_COUNT : 0)],
                       space_blocks(cuda, a.elements / SPACE_THREADS + 1), &a, fault, stream->stream);
}

#define OPTIMISER                                                                                                      \
    { .driver = optimiser_run, .walk = optimiser_walk }
const struct cuda_kernel cuda_kernel_sgd = OPTIMISER;
const struct cuda_kernel cuda_kernel_adam = OPTIMISER;
const struct cuda_kernel cuda_kernel_adamw = OPTIMISER;
const struct cuda_kernel cuda_kernel_rmsprop = OPTIMISER;
const struct cuda_kernel cuda_kernel_adagrad = OPTIMISER;
const struct cuda_kernel cuda_kernel_moving_average = OPTIMISER;
