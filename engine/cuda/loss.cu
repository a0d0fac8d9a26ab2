/* Cross-entropy and its gradient: a warp for each row of scores. A second kernel, of one block, looks for a wrong target and reports the one at
 * the smallest position. */
#include "engine/cuda/cuda.h"
#include "engine/cuda/space.h"

namespace {

enum { WARP = 32, WARPS = SPACE_THREADS / WARP };

struct loss_arguments {
    const void *scores, *gradient;
    const int64_t *targets;
    void *out;
    struct report *report;
    int64_t rows, classes, inner; /* scores [outer, classes, inner]; rows: outer · inner */
    int64_t ignored;
    double smoothing;
};

template <class T> __device__ __forceinline__ T warp_sum(T x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, distance, WARP);
    }
    return x;
}

template <class T> __device__ __forceinline__ T warp_greatest(T x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        const T other = __shfl_xor_sync(0xffffffffu, x, distance, WARP);
        x = other > x ? other : x;
    }
    return x;
}

__device__ __forceinline__ float exponential(float x) {
    return expf(x);
}
__device__ __forceinline__ double exponential(double x) {
    return exp(x);
}

template <class T, bool back>
__global__ void __launch_bounds__(SPACE_THREADS) loss_kernel(const __grid_constant__ struct loss_arguments p) {
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const double smoothing = p.smoothing, each = smoothing / (double)p.classes;
    /* All lanes of a warp have the same row, so none is missing when they exchange values. */
    for (int64_t row = (int64_t)blockIdx.x * WARPS + warp; row < p.rows; row += (int64_t)gridDim.x * WARPS) {
        const int64_t outer = row / p.inner, inner = row - outer * p.inner, target = p.targets[row];
        const T *x = (const T *)p.scores + outer * p.classes * p.inner + inner;
        const bool counts = target != p.ignored && (uint64_t)target < (uint64_t)p.classes;
        T greatest = -(T)INFINITY;
        double all = 0, exponentials = 0;
        for (int64_t i = lane; i < p.classes; i += WARP) {
            const T value = x[i * p.inner];
            greatest = value > greatest ? value : greatest;
            all += (double)value;
        }
        greatest = warp_greatest(greatest);
        for (int64_t i = lane; i < p.classes; i += WARP) {
            exponentials += (double)exponential(x[i * p.inner] - greatest);
        }
        exponentials = warp_sum(exponentials);
        if (back) {
            T *out = (T *)p.out + outer * p.classes * p.inner + inner;
            const double gradient = (double)((const T *)p.gradient)[row];
            for (int64_t i = lane; i < p.classes; i += WARP) {
                const double part = (double)exponential(x[i * p.inner] - greatest) / exponentials;
                const double wanted = i == target ? 1 - smoothing + each : each;
                out[i * p.inner] = counts ? (T)(gradient * (part - wanted)) : (T)0;
            }
        } else {
            all = warp_sum(all);
            if (lane == 0) {
                const double logarithm = log(exponentials), shift = (double)greatest;
                const double own = counts ? logarithm - ((double)x[target * p.inner] - shift) : 0;
                const double mean = logarithm - (all / (double)p.classes - shift);
                const double loss = smoothing > 0 ? (1 - smoothing) * own + smoothing * mean : own;
                ((T *)p.out)[row] = counts ? (T)loss : (T)0;
            }
        }
    }
}

__global__ void __launch_bounds__(SPACE_THREADS) loss_check(const __grid_constant__ struct loss_arguments p) {
    __shared__ unsigned long long smallest;
    const unsigned long long none = ~0ull;
    unsigned long long bad = none;
    if (threadIdx.x == 0) {
        smallest = none;
    }
    __syncthreads();
    for (int64_t row = threadIdx.x; row < p.rows; row += SPACE_THREADS) {
        const int64_t target = p.targets[row];
        if (target != p.ignored && (uint64_t)target >= (uint64_t)p.classes) {
            bad = (unsigned long long)row;
            break;
        }
    }
    if (bad != none) {
        atomicMin(&smallest, bad);
    }
    __syncthreads();
    if (threadIdx.x == 0 && smallest != none) {
        p.report->value = p.targets[smallest];
        p.report->position = (int64_t)smallest;
        p.report->limit = p.classes;
        __threadfence_system();
        *(volatile report_code *)&p.report->code = STATUS_OUT_OF_RANGE;
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void loss_function(const struct loss_arguments arguments);

/* [back][f64] */
static loss_function *const loss_functions[2][2] = {{loss_kernel<float, false>, loss_kernel<double, false>},
                                                    {loss_kernel<float, true>, loss_kernel<double, true>}};

static bool loss_walk(cuda_kernel_seen *seen, void *context) {
    bool more = seen(context, false, (const void *)loss_check);
    for (int i = 0; i < 4; i++) {
        more = more && seen(context, false, (const void *)loss_functions[i >> 1][i & 1]);
    }
    return more;
}

static int loss_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const int back = launch->opcode == OP_CROSS_ENTROPY_GRAD;
    const struct operand *scores = &launch->inputs[back], *targets = &launch->inputs[1 + back];
    struct cross_entropy_attributes given;
    struct loss_arguments p = {};
    cross_entropy_attributes_read(&launch->attributes, &given);
    p.scores = scores->data;
    p.gradient = back ? launch->inputs[0].data : NULL;
    p.targets = (const int64_t *)targets->data;
    p.out = launch->output.data;
    p.report = launch->report;
    p.rows = p.inner = 1;
    p.classes = scores->shape[scores->rank == 1 ? 0 : 1];
    p.ignored = given.ignore_index;
    p.smoothing = given.label_smoothing;
    for (int i = 0; i < targets->rank; i++) {
        p.rows *= targets->shape[i];
        p.inner *= i > 0 ? targets->shape[i] : 1;
    }
    int code = space_start((const void *)loss_functions[back][scores->dtype == DTYPE_F64],
                           space_blocks(cuda, p.rows / WARPS + 1), &p, fault, stream->stream);
    return code == STATUS_OK ? space_start((const void *)loss_check, 1, &p, fault, stream->stream) : code;
}

const struct cuda_kernel cuda_kernel_cross_entropy = {.driver = loss_run, .walk = loss_walk};
const struct cuda_kernel cuda_kernel_cross_entropy_grad = {.driver = loss_run, .walk = loss_walk};
