/* Pooling: a thread for each place of the result. A gradient is gathered: each place of x adds up the windows that have it, in the order of
 * y's places, so that it comes out the same from run to run. Halves are widened where they are read, and results rounded to them where they are
 * written. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/take.cuh"

#define POOLING_FUNCTION static __host__ __device__ __forceinline__
#include "proto/ops/pooling.h"

namespace {

struct pooling_arguments {
    struct pooling p;
    const void *from;
    void *to;
    int64_t *positions;          /* max_pool */
    struct take_indices indices; /* max_pool_grad */
    int64_t count, x_places, y_places;
};

struct pooling_place {
    int64_t plane, z, y, x;
};

__device__ __forceinline__ pooling_place place_of(int64_t at, int64_t places, const int64_t *extent) {
    pooling_place place;
    place.plane = at / places;
    const uint32_t own = (uint32_t)(at - place.plane * places), width = (uint32_t)extent[2],
                   height = (uint32_t)extent[1];
    const uint32_t row = own / width, depth = row / height;
    place.x = own - row * width;
    place.y = row - depth * height;
    place.z = depth;
    return place;
}

/* Kahan's summation, as a window may be a whole plane; and the plain sum, for Kahan's of an infinity is NaN. */
template <class T> struct mean_sum { T sum, lost, plain; };

template <class T> __device__ __forceinline__ void mean_add(struct mean_sum<T> *all, T x) {
    const T rest = x - all->lost, sum = all->sum + rest;
    all->lost = (sum - all->sum) - rest;
    all->sum = sum;
    all->plain += x;
}

/* The greatest element (with its position) or the mean of each window. */
template <class T, bool greatest>
__global__ void __launch_bounds__(SPACE_THREADS, 4)
    pooling_forward(const __grid_constant__ struct pooling_arguments a) {
    typedef decltype(number_widen(T())) C;
    const struct pooling &p = a.p;
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS;
    for (int64_t at = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; at < a.count; at += step) {
        const pooling_place to = place_of(at, a.y_places, p.y);
        const T *x = (const T *)a.from + to.plane * a.x_places;
        const struct pooling_window wz = pooling_window(&p, 0, to.z), wy = pooling_window(&p, 1, to.y);
        const struct pooling_window wx = pooling_window(&p, 2, to.x);
        C value = -(C)INFINITY;
        struct mean_sum<C> sum = {};
        int64_t position = -1;
        for (int64_t i = 0; i < wz.count; i++) {
            for (int64_t j = 0; j < wy.count; j++) {
                int64_t from = ((wz.begin + i * wz.step) * p.x[1] + wy.begin + j * wy.step) * p.x[2] + wx.begin;
                for (int64_t k = 0; k < wx.count; k++, from += wx.step) {
                    const C seen = number_widen(x[from]);
                    if (!greatest) {
                        mean_add(&sum, seen);
                    } else if (position < 0 || seen > value || (seen != seen && value == value)) {
                        value = seen;
                        position = from;
                    }
                }
            }
        }
        if (greatest) {
            a.positions[at] = position;
        } else {
            value = (isfinite(sum.sum) ? sum.sum : sum.plain) / (C)(wz.divisor * wy.divisor * wx.divisor);
        }
        ((T *)a.to)[at] = number_store<T>::from(value);
    }
}

template <class T, bool greatest>
__global__ void __launch_bounds__(SPACE_THREADS, greatest && sizeof(T) == 2 ? 4 : 2)
    pooling_back(const __grid_constant__ struct pooling_arguments a) {
    typedef decltype(number_widen(T())) C;
    const struct pooling &p = a.p;
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS;
    for (int64_t at = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; at < a.count; at += step) {
        const pooling_place to = place_of(at, a.x_places, p.x);
        const int64_t own = at - to.plane * a.x_places;
        const struct pooling_range zs = pooling_seen(&p, 0, to.z), ys = pooling_seen(&p, 1, to.y);
        const struct pooling_range xs = pooling_seen(&p, 2, to.x);
        C sum = 0;
        for (int64_t z = zs.first; z < zs.end; z++) {
            const struct pooling_window wz = pooling_window(&p, 0, z);
            for (int64_t y = ys.first; y < ys.end && pooling_has(&wz, to.z); y++) {
                const struct pooling_window wy = pooling_window(&p, 1, y);
#pragma unroll 1
                for (int64_t x = xs.first; x < xs.end && pooling_has(&wy, to.y); x++) {
                    const struct pooling_window wx = pooling_window(&p, 2, x);
                    const int64_t from = to.plane * a.y_places + (z * p.y[1] + y) * p.y[2] + x;
                    if (greatest ? take_index(a.indices, from) != own : !pooling_has(&wx, to.x)) {
                        continue;
                    }
                    const C gradient = number_widen(((const T *)a.from)[from]);
                    sum += greatest ? gradient : gradient / (C)(wz.divisor * wy.divisor * wx.divisor);
                }
            }
        }
        ((T *)a.to)[at] = number_store<T>::from(sum);
    }
}

} // namespace

/* ---- the launcher ---- */

typedef void pooling_function(const struct pooling_arguments arguments);

/* By dtype from DTYPE_F16 on. */
static_assert(DTYPE_F64 - DTYPE_F16 == 3, "the table's order");
#define DTYPES(kernel, greatest)                                                                                       \
    { kernel<__half, greatest>, kernel<__nv_bfloat16, greatest>, kernel<float, greatest>, kernel<double, greatest> }
/* [back][greatest] */
static pooling_function *const pooling_functions[2][2][4] = {
    {DTYPES(pooling_forward, false), DTYPES(pooling_forward, true)},
    {DTYPES(pooling_back, false), DTYPES(pooling_back, true)},
};

static bool pooling_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int i = 0; i < 16; i++) {
        more = more && seen(context, false, (const void *)pooling_functions[i >> 3][i >> 2 & 1][i & 3]);
    }
    return more;
}

static int pooling_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    const struct operand *in = &launch->inputs[0], *out = &launch->output;
    const bool greatest = launch->opcode == OP_MAX_POOL || launch->opcode == OP_MAX_POOL_GRAD;
    const bool back = launch->opcode == OP_MAX_POOL_GRAD || launch->opcode == OP_AVG_POOL_GRAD ||
                      launch->opcode == OP_ADAPTIVE_AVG_POOL_GRAD;
    struct pooling_arguments a = {};
    pooling_make(&a.p, launch->opcode, &launch->attributes, in->rank, (back ? out : in)->shape,
                 (back ? in : out)->shape, false);
    a.from = in->data;
    a.to = out->data;
    a.positions = greatest && !back ? (int64_t *)launch_further(launch, 1)->data : NULL;
    a.x_places = pooling_volume(a.p.x);
    if (greatest && back) {
        a.indices = {launch->inputs[1].data, a.x_places, NULL, launch->inputs[1].dtype == DTYPE_I32, 1};
    }
    a.y_places = pooling_volume(a.p.y);
    a.count = a.p.planes * (back ? a.x_places : a.y_places);
    return space_start((const void *)pooling_functions[back][greatest][out->dtype - DTYPE_F16],
                       space_blocks(cuda, a.count / SPACE_THREADS + 1), &a, fault, stream->stream);
}

#define POOLING                                                                                                        \
    { .base = {.index_dtypes = TAKE_INDEX_DTYPES, .halves = true}, .driver = pooling_run, .walk = pooling_walk }
const struct cuda_kernel cuda_kernel_max_pool = POOLING;
const struct cuda_kernel cuda_kernel_max_pool_grad = POOLING;
const struct cuda_kernel cuda_kernel_avg_pool = POOLING;
const struct cuda_kernel cuda_kernel_avg_pool_grad = POOLING;
const struct cuda_kernel cuda_kernel_adaptive_avg_pool = POOLING;
const struct cuda_kernel cuda_kernel_adaptive_avg_pool_grad = POOLING;
