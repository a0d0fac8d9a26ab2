/* Losses of rows of scores and their gradients: a warp for each row. Before it a kernel of one block looks for a wrong target, reports the one at
 * the smallest position, and adds up the targets' weights; after it another one adds up the sums of the blocks. All sums have one order. Halves are
 * widened where they are read, and results rounded to them where they are written. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/take.cuh"
#include "engine/device/loss.h"

namespace {

enum { WARP = 32, WARPS = SPACE_THREADS / WARP };

struct loss_arguments {
    const void *scores, *gradient, *probabilities, *weight; /* NULL: there is none */
    struct take_indices targets;                            /* no index: there are none */
    void *out;
    struct report *report;
    double *sums; /* workspace: the weight of all targets, and the loss of each block; NULL: there is none */
    int64_t rows, classes, inner; /* scores [outer, classes, inner]; rows: outer · inner */
    int64_t ignored, blocks;
    double smoothing;
    bool plain, reduced, mean; /* the scores are logarithms; the losses are added up; and divided */
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

/* The sum of one number of each thread; thread 0 gets it. */
__device__ __forceinline__ double block_total(double x) {
    __shared__ double parts[WARPS];
    x = warp_sum(x);
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

__device__ __forceinline__ float exponential(float x) {
    return expf(x);
}
__device__ __forceinline__ double exponential(double x) {
    return exp(x);
}

template <class T> __device__ __forceinline__ double weight_of(const loss_arguments &p, int64_t c) {
    return p.weight ? (double)number_widen(((const T *)p.weight)[c]) : 1;
}

/* What the loss multiplies -log_softmax of a class by; `wanted`: the row's probabilities. */
template <class T>
__device__ __forceinline__ double factor_of(const loss_arguments &p, const T *wanted, int64_t target, int64_t c) {
    const double own = wanted ? (double)number_widen(wanted[c * p.inner]) : c == target ? 1 : 0;
    return weight_of<T>(p, c) * (p.smoothing > 0 ? (1 - p.smoothing) * own + p.smoothing / (double)p.classes : own);
}

template <class T, bool back>
__global__ void __launch_bounds__(SPACE_THREADS) loss_kernel(const __grid_constant__ struct loss_arguments p) {
    typedef decltype(number_widen(T())) C;
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const bool single = !p.probabilities && !(p.smoothing > 0); /* only the target has a factor */
    const double scale = back && p.mean ? 1 / (p.targets.index ? p.sums[0] : (double)p.rows) : 1;
    double total = 0;
    /* All lanes of a warp have the same row, so none is missing when they exchange values. */
    for (int64_t row = (int64_t)blockIdx.x * WARPS + warp; row < p.rows; row += (int64_t)gridDim.x * WARPS) {
        const int64_t outer = row / p.inner, inner = row - outer * p.inner,
                      target = p.targets.index ? take_index(p.targets, row) : 0;
        const int64_t at = outer * p.classes * p.inner + inner;
        const T *x = (const T *)p.scores + at, *wanted = p.probabilities ? (const T *)p.probabilities + at : NULL;
        const bool counts = !p.targets.index || (target != p.ignored && (uint64_t)target < (uint64_t)p.classes);
        C greatest = -(C)INFINITY;
        double factors = 0, exponentials = 0;
        if (!p.plain) {
            for (int64_t i = lane; i < p.classes; i += WARP) {
                const C value = number_widen(x[i * p.inner]);
                greatest = value > greatest ? value : greatest;
                factors += single ? 0 : factor_of(p, wanted, target, i);
            }
            greatest = warp_greatest(greatest);
            for (int64_t i = lane; i < p.classes; i += WARP) {
                exponentials += (double)exponential(number_widen(x[i * p.inner]) - greatest);
            }
            exponentials = warp_sum(exponentials);
            factors = single ? (counts ? weight_of<T>(p, target) : 0) : warp_sum(factors);
        }
        if (back) {
            T *out = (T *)p.out + at;
            const double gradient = (double)number_widen(((const T *)p.gradient)[p.reduced ? 0 : row]) * scale;
            for (int64_t i = lane; i < p.classes; i += WARP) {
                const double part =
                    p.plain ? 0
                            : factors * ((double)exponential(number_widen(x[i * p.inner]) - greatest) / exponentials);
                out[i * p.inner] =
                    number_store<T>::from(counts ? (C)(gradient * (part - factor_of(p, wanted, target, i))) : (C)0);
            }
            continue;
        }
        double loss = 0;
        const double logarithm = p.plain ? 0 : log(exponentials), shift = p.plain ? 0 : (double)greatest;
        if (counts && single) {
            loss = weight_of<T>(p, target) * (logarithm - ((double)number_widen(x[target * p.inner]) - shift));
        } else if (counts) {
            for (int64_t i = lane; i < p.classes; i += WARP) {
                loss += factor_of(p, wanted, target, i) * (logarithm - ((double)number_widen(x[i * p.inner]) - shift));
            }
        }
        loss = single ? loss : warp_sum(loss);
        if (lane == 0) {
            total += loss;
            if (!p.reduced) {
                ((T *)p.out)[row] = number_store<T>::from((C)loss);
            }
        }
    }
    if (!back && p.reduced) {
        total = block_total(total);
        if (threadIdx.x == 0) {
            p.sums[1 + blockIdx.x] = total;
        }
    }
}

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS) loss_check(const __grid_constant__ struct loss_arguments p) {
    __shared__ unsigned long long smallest;
    const unsigned long long none = ~0ull;
    unsigned long long bad = none;
    double weights = 0;
    if (threadIdx.x == 0) {
        smallest = none;
    }
    __syncthreads();
    for (int64_t row = threadIdx.x; row < p.rows; row += SPACE_THREADS) {
        const int64_t target = take_index(p.targets, row);
        if (target == p.ignored) {
            continue;
        }
        if ((uint64_t)target < (uint64_t)p.classes) {
            weights += weight_of<T>(p, target);
        } else if (bad == none) {
            bad = (unsigned long long)row;
        }
    }
    if (bad != none) {
        atomicMin(&smallest, bad);
    }
    weights = block_total(weights);
    if (threadIdx.x == 0 && p.sums) {
        p.sums[0] = weights;
    }
    if (threadIdx.x == 0 && smallest != none) {
        p.report->value = take_index(p.targets, (int64_t)smallest);
        p.report->position = (int64_t)smallest;
        p.report->limit = p.classes;
        __threadfence_system();
        *(volatile report_code *)&p.report->code = STATUS_OUT_OF_RANGE;
    }
}

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS) loss_finish(const __grid_constant__ struct loss_arguments p) {
    double total = 0;
    for (int64_t i = threadIdx.x; i < p.blocks; i += SPACE_THREADS) {
        total += p.sums[1 + i];
    }
    total = block_total(total);
    if (threadIdx.x == 0) {
        const double by = p.targets.index ? p.sums[0] : (double)p.rows;
        typedef decltype(number_widen(T())) C;
        *(T *)p.out = number_store<T>::from((C)(p.mean ? total / by : total));
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void loss_function(const struct loss_arguments arguments);

enum { FORWARD, BACK, CHECK, FINISH, KINDS };

/* By dtype from DTYPE_F16 on. */
static_assert(DTYPE_F64 - DTYPE_F16 == 3, "the table's order");
#define KINDS_OF(T)                                                                                                    \
    { loss_kernel<T, false>, loss_kernel<T, true>, loss_check<T>, loss_finish<T> }
static loss_function *const loss_functions[4][KINDS] = {KINDS_OF(__half), KINDS_OF(__nv_bfloat16), KINDS_OF(float),
                                                        KINDS_OF(double)};

static bool loss_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int i = 0; i < 4 * KINDS; i++) {
        more = more && seen(context, false, (const void *)loss_functions[i / KINDS][i % KINDS]);
    }
    return more;
}

static unsigned loss_blocks(const struct cuda *cuda, const struct class_loss *loss) {
    return space_blocks(cuda, loss->rows / WARPS + 1);
}

static uint64_t loss_workspace(struct device *device, const struct launch *launch) {
    const struct class_loss loss = class_loss_make(launch);
    return loss.reduction == OP_REDUCTION_NONE ? 0 : (1 + loss_blocks(cuda_of(device), &loss)) * sizeof(double);
}

static int loss_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct class_loss loss = class_loss_make(launch);
    loss_function *const *functions = loss_functions[loss.scores->dtype - DTYPE_F16];
    struct loss_arguments p = {};
    p.scores = loss.scores->data;
    p.gradient = loss.back ? loss.gradient->data : NULL;
    p.probabilities = loss.soft ? loss.targets->data : NULL;
    if (!loss.soft) {
        p.targets = {loss.targets->data, loss.classes, launch->report, loss.targets->dtype == DTYPE_I32, 1};
    }
    p.weight = loss.weight ? loss.weight->data : NULL;
    p.out = launch->output.data;
    p.report = launch->report;
    p.reduced = loss.reduction != OP_REDUCTION_NONE;
    p.mean = loss.reduction == OP_REDUCTION_MEAN;
    p.sums = p.reduced ? (double *)launch->workspace : NULL;
    p.rows = loss.rows;
    p.classes = loss.classes;
    p.inner = loss.inner;
    p.ignored = loss.ignored;
    p.smoothing = loss.smoothing;
    p.plain = loss.plain;
    p.blocks = loss_blocks(cuda, &loss);
    int code = STATUS_OK;
    if (!loss.soft) {
        code = space_start((const void *)functions[CHECK], 1, &p, fault, stream->stream);
    }
    if (code == STATUS_OK) {
        code = space_start((const void *)functions[loss.back ? BACK : FORWARD], (unsigned)p.blocks, &p, fault,
                           stream->stream);
    }
    if (code == STATUS_OK && p.reduced && !loss.back) {
        code = space_start((const void *)functions[FINISH], 1, &p, fault, stream->stream);
    }
    return code;
}

#define LOSS                                                                                                           \
    {                                                                                                                  \
        .base = {.index_dtypes = TAKE_INDEX_DTYPES, .workspace = loss_workspace, .halves = true}, .driver = loss_run,  \
        .walk = loss_walk                                                                                              \
    }
const struct cuda_kernel cuda_kernel_cross_entropy = LOSS;
const struct cuda_kernel cuda_kernel_cross_entropy_grad = LOSS;
const struct cuda_kernel cuda_kernel_soft_cross_entropy = LOSS;
const struct cuda_kernel cuda_kernel_soft_cross_entropy_grad = LOSS;
const struct cuda_kernel cuda_kernel_nll_loss = LOSS;
const struct cuda_kernel cuda_kernel_nll_loss_grad = LOSS;
