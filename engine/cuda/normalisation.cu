/* Normalisations: a block for each row. Its threads add up what they see in f64, and then each other's sums in a fixed order. For a gradient the
 * block also writes the row's mean and scale, from which further kernels compute the gradients by weight and bias. Halves are widened where they are
 * read, and what comes out is rounded to them where it is written. */
#include "engine/cuda/index.cuh"
#include "engine/cuda/number.cuh"
#include "engine/device/normalisation.h"

namespace {

enum { WARP = 32, WARPS = SPACE_THREADS / WARP, COLUMNS = 32, COLUMN_ROWS = SPACE_THREADS / COLUMNS };

struct normalisation_arguments {
    struct normalisation n;
    struct normalisation_operands of;
    int64_t elements; /* of a row */
    struct divisor_wide length;
    double *known; /* of a gradient: mean and scale of each row */
};

struct pair {
    double a, b;
};

/* The sums of all threads' pairs; every thread gets them. */
__device__ __forceinline__ pair block_sum(pair x) {
    __shared__ pair sums[WARPS];
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        x.a += __shfl_xor_sync(0xffffffffu, x.a, distance, WARP);
        x.b += __shfl_xor_sync(0xffffffffu, x.b, distance, WARP);
    }
    __syncthreads(); /* all have read the sums of the call before */
    if (threadIdx.x % WARP == 0) {
        sums[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    pair all = {0, 0};
    for (int i = 0; i < WARPS; i++) {
        all.a += sums[i].a;
        all.b += sums[i].b;
    }
    return all;
}

/* Where element number `element` of a row is, and which factor it has. */
struct place {
    int64_t at, factor;
};

__device__ __forceinline__ place place_of(const normalisation_arguments &p, int64_t row, int64_t element) {
    const int64_t segment = index_divide_wide(p.length, element), offset = element - segment * p.n.length;
    place found;
    found.at = row * p.n.row_step + segment * p.n.segment_step + offset * p.n.stride;
    found.factor = p.n.along ? offset : row % p.n.factor_rows * p.n.factor_row_step + segment * p.n.factor_segment_step;
    return found;
}

/* The mean and the variance of a row. */
template <class T> __device__ __forceinline__ pair row_known(const normalisation_arguments &p, int64_t row) {
    const T *x = (const T *)p.of.x;
    if (p.n.given) {
        return {(double)number_widen(((const T *)p.of.mean)[row]),
                (double)number_widen(((const T *)p.of.variance)[row])};
    }
    pair sum = {0, 0};
    if (p.n.centred) {
        for (int64_t i = threadIdx.x; i < p.elements; i += SPACE_THREADS) {
            sum.a += (double)number_widen(x[place_of(p, row, i).at]);
        }
        sum = block_sum(sum);
    }
    const double mean = sum.a / (double)p.elements;
    pair squares = {0, 0};
    for (int64_t i = threadIdx.x; i < p.elements; i += SPACE_THREADS) {
        const double distance = (double)number_widen(x[place_of(p, row, i).at]) - mean;
        squares.a += distance * distance;
    }
    squares = block_sum(squares);
    return {mean, squares.a / (double)p.elements};
}

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    normalisation_forward(const __grid_constant__ struct normalisation_arguments p) {
    typedef decltype(number_widen(T())) C;
    const T *x = (const T *)p.of.x, *weight = (const T *)p.of.weight, *bias = (const T *)p.of.bias;
    for (int64_t row = blockIdx.x; row < p.n.rows; row += gridDim.x) {
        const pair known = row_known<T>(p, row);
        const C mean = (C)known.a, scale = (C)(1 / sqrt(known.b + p.n.epsilon));
        for (int64_t i = threadIdx.x; i < p.elements; i += SPACE_THREADS) {
            const place at = place_of(p, row, i);
            C value = (number_widen(x[at.at]) - mean) * scale;
            value = weight ? value * number_widen(weight[at.factor]) : value;
            ((T *)p.of.out[0])[at.at] = number_store<T>::from(bias ? value + number_widen(bias[at.factor]) : value);
        }
        if (p.of.mean && !p.n.given && threadIdx.x == 0) {
            const double keep = 1 - p.n.momentum, count = (double)p.elements;
            ((T *)p.of.out[1])[row] = number_store<T>::from(
                (C)(keep * (double)number_widen(((const T *)p.of.mean)[row]) + p.n.momentum * known.a));
            ((T *)p.of.out[2])[row] =
                number_store<T>::from((C)(keep * (double)number_widen(((const T *)p.of.variance)[row]) +
                                          p.n.momentum * known.b * (count / (count - 1))));
        }
    }
}

/* The gradient by x; mean and scale of each row for the other gradients. */
template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    normalisation_back(const __grid_constant__ struct normalisation_arguments p) {
    typedef decltype(number_widen(T())) C;
    const T *x = (const T *)p.of.x, *gradient = (const T *)p.of.gradient, *weight = (const T *)p.of.weight;
    for (int64_t row = blockIdx.x; row < p.n.rows; row += gridDim.x) {
        const pair known = row_known<T>(p, row);
        const double mean = known.a, scale = 1 / sqrt(known.b + p.n.epsilon), count = (double)p.elements;
        pair sums = {0, 0};
        for (int64_t i = threadIdx.x; i < p.elements; i += SPACE_THREADS) {
            const place at = place_of(p, row, i);
            const double g =
                (double)number_widen(gradient[at.at]) * (weight ? (double)number_widen(weight[at.factor]) : 1);
            sums.a += g;
            sums.b += g * ((double)number_widen(x[at.at]) - mean);
        }
        sums = block_sum(sums);
        const double shift = p.n.centred ? sums.a / count : 0, slope = sums.b / count * scale; /* of the normalised x */
        for (int64_t i = threadIdx.x; i < p.elements; i += SPACE_THREADS) {
            const place at = place_of(p, row, i);
            const C own = number_widen(gradient[at.at]), g = weight ? own * number_widen(weight[at.factor]) : own;
            const C normal = (number_widen(x[at.at]) - (C)mean) * (C)scale;
            ((T *)p.of.out[0])[at.at] = number_store<T>::from((C)scale * (g - (C)shift - normal * (C)slope));
        }
        if (threadIdx.x == 0) {
            p.known[2 * row] = mean;
            p.known[2 * row + 1] = scale;
        }
    }
}

/* Gradients by weight and bias where a factor belongs to whole segments: a block for each factor, over the rows that have it. */
template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    normalisation_segments(const __grid_constant__ struct normalisation_arguments p) {
    typedef decltype(number_widen(T())) C;
    const T *x = (const T *)p.of.x, *gradient = (const T *)p.of.gradient;
    for (int64_t factor = blockIdx.x; factor < p.n.factors; factor += gridDim.x) {
        const int64_t first = factor / p.n.factor_row_step, own = factor - first * p.n.factor_row_step;
        /* Of a group norm one segment of each of these rows, of a batch norm all of the only one. */
        const int64_t begin = p.n.factor_segment_step ? own * p.n.length : 0;
        const int64_t count = p.n.factor_segment_step ? p.n.length : p.elements;
        pair sums = {0, 0};
        for (int64_t row = first; row < p.n.rows; row += p.n.factor_rows) {
            const double mean = p.known[2 * row], scale = p.known[2 * row + 1];
            for (int64_t i = threadIdx.x; i < count; i += SPACE_THREADS) {
                const int64_t at = place_of(p, row, begin + i).at;
                const double g = (double)number_widen(gradient[at]);
                sums.a += g * ((double)number_widen(x[at]) - mean) * scale;
                sums.b += g;
            }
        }
        sums = block_sum(sums);
        if (threadIdx.x == 0) {
            ((T *)p.of.out[1])[factor] = number_store<T>::from((C)sums.a);
            ((T *)p.of.out[2])[factor] = number_store<T>::from((C)sums.b);
        }
    }
}

/* The same where each element has a factor: 32 columns for each block, whose rows 8 threads share. */
template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    normalisation_columns(const __grid_constant__ struct normalisation_arguments p) {
    typedef decltype(number_widen(T())) C;
    __shared__ pair parts[COLUMN_ROWS][COLUMNS];
    const T *x = (const T *)p.of.x, *gradient = (const T *)p.of.gradient;
    const int64_t lane = threadIdx.x % COLUMNS, down = threadIdx.x / COLUMNS;
    for (int64_t begin = (int64_t)blockIdx.x * COLUMNS; begin < p.n.factors; begin += (int64_t)gridDim.x * COLUMNS) {
        const int64_t column = begin + lane;
        pair sums = {0, 0};
        for (int64_t row = down; row < p.n.rows && column < p.n.factors; row += COLUMN_ROWS) {
            const int64_t at = row * p.n.row_step + column;
            const double g = (double)number_widen(gradient[at]);
            sums.a += g * ((double)number_widen(x[at]) - p.known[2 * row]) * p.known[2 * row + 1];
            sums.b += g;
        }
        parts[down][lane] = sums;
        __syncthreads();
        if (down == 0 && column < p.n.factors) {
            pair all = {0, 0};
            for (int i = 0; i < COLUMN_ROWS; i++) {
                all.a += parts[i][lane].a;
                all.b += parts[i][lane].b;
            }
            ((T *)p.of.out[1])[column] = number_store<T>::from((C)all.a);
            if (p.of.out[2]) {
                ((T *)p.of.out[2])[column] = number_store<T>::from((C)all.b);
            }
        }
        __syncthreads();
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void normalisation_function(const struct normalisation_arguments arguments);

enum { FORWARD, BACK, SEGMENTS, COLUMN_SUMS, KINDS };

/* By dtype from DTYPE_F16 on. */
static_assert(DTYPE_F64 - DTYPE_F16 == 3, "the table's order");
#define KINDS_OF(T)                                                                                                    \
    { normalisation_forward<T>, normalisation_back<T>, normalisation_segments<T>, normalisation_columns<T> }
static normalisation_function *const normalisation_functions[4][KINDS] = {KINDS_OF(__half), KINDS_OF(__nv_bfloat16),
                                                                          KINDS_OF(float), KINDS_OF(double)};

static bool normalisation_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int i = 0; i < 4 * KINDS; i++) {
        more = more && seen(context, false, (const void *)normalisation_functions[i / KINDS][i % KINDS]);
    }
    return more;
}

static uint64_t normalisation_workspace(struct device *device, const struct launch *launch) {
    struct normalisation n;
    (void)device;
    normalisation_make(&n, launch);
    return n.back ? (uint64_t)(2 * n.rows) * sizeof(double) : 0;
}

static int normalisation_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                             struct fault *fault) {
    struct normalisation_arguments p = {};
    normalisation_make(&p.n, launch);
    p.of = normalisation_operands(launch);
    p.elements = p.n.segments * p.n.length;
    p.length = divisor_wide_make(p.n.length, p.elements);
    p.known = (double *)launch->workspace;
    normalisation_function *const *functions = normalisation_functions[launch->output.dtype - DTYPE_F16];
    int code = STATUS_OK;
    if (p.n.rows > 0) {
        code = space_start((const void *)functions[p.n.back ? BACK : FORWARD], space_blocks(cuda, p.n.rows), &p, fault,
                           stream->stream);
    }
    if (code != STATUS_OK || !p.n.back) {
        return code;
    }
    const int64_t blocks = p.n.along ? (p.n.factors - 1) / COLUMNS + 1 : p.n.factors;
    return space_start((const void *)functions[p.n.along ? COLUMN_SUMS : SEGMENTS], space_blocks(cuda, blocks), &p,
                       fault, stream->stream);
}

#define NORMALISATION                                                                                                  \
    {                                                                                                                  \
        .base = {.workspace = normalisation_workspace, .halves = true}, .driver = normalisation_run,                   \
        .walk = normalisation_walk                                                                                     \
    }
const struct cuda_kernel cuda_kernel_batch_norm = NORMALISATION;
const struct cuda_kernel cuda_kernel_batch_norm_inference = NORMALISATION;
const struct cuda_kernel cuda_kernel_batch_norm_grad = NORMALISATION;
const struct cuda_kernel cuda_kernel_layer_norm = NORMALISATION;
const struct cuda_kernel cuda_kernel_layer_norm_grad = NORMALISATION;
const struct cuda_kernel cuda_kernel_group_norm = NORMALISATION;
const struct cuda_kernel cuda_kernel_group_norm_grad = NORMALISATION;
const struct cuda_kernel cuda_kernel_rms_norm = NORMALISATION;
const struct cuda_kernel cuda_kernel_rms_norm_grad = NORMALISATION;
