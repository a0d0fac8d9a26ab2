/* The kernels of reductions, for the sources that instantiate them (reduce_*.cu), and the plan that reduce.cu makes.
 *
 * The elements of one output are `steps` times a `run`: the run is one reduced axis, a step is a place on the others. A
 * group of threads shares them out: `across` threads take the run side by side, and as many such teams as the group has
 * room for take different steps.
 *
 *   rows     A group is `lanes` neighbours in a block, so the threads of a warp read along the run; contiguous runs are
 *            read 16 bytes at a time. For sums over trailing axes.
 *   columns  A block is `lanes` neighbours, each with REDUCE_COLUMNS outputs of its own, times a group for each of
 *            these: the threads of a warp read along the outputs. For sums over leading axes.
 *
 * Where there are too few outputs to occupy the device, each is cut into `parts`, whose accumulators are merged by a
 * second kernel. Who merges what depends on the plan alone, so results are the same each time. A single output of one
 * contiguous run that would be cut is left to CUB (reduce_whole.cuh).
 *
 * A reduction is a class: the element's type T, an accumulator A (plain, a multiple of 4 bytes), the result's type R,
 * neutral(), take(a, x, position, step): N elements, at positions that far apart, increasing for one accumulator,
 * merge(a, b), which does not mind the order, and finish(a). */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "engine/launch.h" /* not cuda.h, whose struct cuda CUB's namespace cuda does not go with */
}

enum {
    REDUCE_THREADS = 256,
    REDUCE_COLUMNS = 4, /* outputs of one thread */
    REDUCE_UNROLL = 4,  /* loads of one thread that are under way at a time */
};

struct reduce_axes {
    int rank;
    int64_t shape[SHAPE_RANK_MAX], strides[SHAPE_RANK_MAX]; /* in elements */
};

struct reduce_plan {
    const void *in;
    void *out;
    void *partials;                    /* [outputs][parts] accumulators, or CUB's; NULL where there is one part */
    struct reduce_axes kept, kept_out; /* the same axes of input and output; an output's number counts over these */
    struct reduce_axes stepped;        /* the reduced axes but for the run */
    int64_t outputs, steps, run, run_stride;
    int64_t parts, part_steps, part_run; /* a part is so many steps of the whole run, or all steps of so much of it */
    double divisor;                      /* of a sum; the mean's */
    bool lowest;                         /* the least in place of the greatest */
    bool down;                           /* columns */
    int lanes, across;                   /* powers of two */
    int merge_lanes;
    int grid, merge_grid;
};

/* One dtype's kernels of a reduction. */
struct reduce_kernel {
    cudaError_t (*launch)(const struct reduce_plan *plan, cudaStream_t stream);
    /* A contiguous run to one output, by CUB's protocol: reduce_whole.cuh. May be NULL. */
    cudaError_t (*whole)(const struct reduce_plan *plan, void *memory, size_t *bytes, cudaStream_t stream);
    int accumulator; /* bytes */
    int vector;      /* elements in one load */
};
/* By dtype; `launch` is NULL where there is no kernel. */
extern const struct reduce_kernel reduce_sums[DTYPE_COUNT], reduce_products[DTYPE_COUNT];
extern const struct reduce_kernel reduce_extremes[DTYPE_COUNT], reduce_positions[DTYPE_COUNT];

/* ---- elements ---- */

/* The type that computes with an element's. */
template <class T> struct reduce_compute { typedef int32_t type; };
template <> struct reduce_compute<int64_t> { typedef int64_t type; };
template <> struct reduce_compute<__half> { typedef float type; };
template <> struct reduce_compute<__nv_bfloat16> { typedef float type; };
template <> struct reduce_compute<float> { typedef float type; };
template <> struct reduce_compute<double> { typedef double type; };

template <class T> __device__ inline T reduce_load(T x) {
    return x;
}
__device__ inline float reduce_load(__half x) {
    return __half2float(x);
}
__device__ inline float reduce_load(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

/* Elements of one load: 16 bytes, but not more than 8, which keeps the code for bytes in bounds. */
template <class T> struct reduce_vector {
    enum { n = sizeof(T) == 1 ? 8 : 16 / sizeof(T) };
    struct alignas(n * sizeof(T)) type {
        T x[n];
    };
};

/* ---- places ---- */

__device__ inline int64_t reduce_divide(int64_t a, int64_t b) {
    return ((uint64_t)(a | b) >> 32) == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* Where element number `index`, counted row-major over the axes, lies. */
__device__ inline int64_t reduce_offset(const reduce_axes &axes, int64_t index) {
    int64_t offset = 0;
    for (int i = axes.rank - 1; i > 0; i--) {
        int64_t left = reduce_divide(index, axes.shape[i]);
        offset += (index - left * axes.shape[i]) * axes.strides[i];
        index = left;
    }
    return axes.rank > 0 ? offset + index * axes.strides[0] : 0;
}

struct reduce_range {
    int64_t step, step_end, begin, end;
};

__device__ inline reduce_range reduce_part(const reduce_plan &plan, int64_t part) {
    reduce_range range = {0, plan.steps, 0, plan.run};
    if (plan.part_steps < plan.steps) {
        range.step = part * plan.part_steps;
        range.step_end = plan.steps - range.step < plan.part_steps ? plan.steps : range.step + plan.part_steps;
    } else if (plan.part_run < plan.run) {
        range.begin = part * plan.part_run;
        range.end = plan.run - range.begin < plan.part_run ? plan.run : range.begin + plan.part_run;
    }
    return range;
}

/* ---- threads ---- */

template <class A> __device__ inline A reduce_shuffle(const A &a, int distance, int width) {
    uint32_t words[sizeof(A) / 4];
    A result;
    static_assert(sizeof(A) % 4 == 0, "an accumulator is made of words");
    memcpy(words, &a, sizeof a);
#pragma unroll
    for (unsigned i = 0; i < sizeof(A) / 4; i++) {
        words[i] = __shfl_down_sync(0xffffffffu, words[i], (unsigned)distance, width);
    }
    memcpy(&result, words, sizeof result);
    return result;
}

/* Merges the accumulators of each group of `lanes` neighbours; its first thread gets the result. `shared` has room for
 * one of each warp. All threads of the block call this. */
template <class Op>
__device__ inline void reduce_group(const Op &op, typename Op::A &a, int lanes, typename Op::A *shared) {
    int width = lanes < 32 ? lanes : 32, warp = (int)threadIdx.x / 32;
    for (int distance = width / 2; distance > 0; distance /= 2) {
        op.merge(a, reduce_shuffle(a, distance, width));
    }
    if (lanes <= 32) {
        return;
    }
    if (threadIdx.x % 32 == 0) {
        shared[warp] = a;
    }
    __syncthreads();
    if ((threadIdx.x & (unsigned)(lanes - 1)) == 0) {
        for (int i = 1; i < lanes / 32; i++) {
            op.merge(a, shared[warp + i]);
        }
    }
    __syncthreads(); /* the next round writes to it */
}

template <class Op>
__device__ inline void reduce_store(const reduce_plan &plan, const Op &op, int64_t output, int64_t part,
                                    const typename Op::A &a) {
    if (plan.partials) {
        ((typename Op::A *)plan.partials)[output * plan.parts + part] = a;
    } else {
        ((typename Op::R *)plan.out)[reduce_offset(plan.kept_out, output)] = op.finish(a);
    }
}

/* ---- rows ---- */

/* Takes a contiguous piece of a run. The threads begin with elements up to the next address that a vector may have. */
template <class Op>
__device__ inline void reduce_contiguous(const Op &op, typename Op::A &a, const typename Op::T *x, int64_t n,
                                         int64_t position, int64_t at, int across) {
    typedef typename Op::T T;
    typedef reduce_vector<T> V;
    typedef typename V::type vector;
    int64_t head = (int64_t)((0 - (uintptr_t)x) % sizeof(vector) / sizeof(T));
    head = head < n ? head : n;
    for (int64_t i = at; i < head; i += across) {
        const T one[1] = {x[i]};
        op.take(a, one, position + i, 1);
    }
    int64_t vectors = (n - head) / V::n, i = at;
    const vector *body = (const vector *)(const void *)(x + head);
    for (; i + (REDUCE_UNROLL - 1) * (int64_t)across < vectors; i += REDUCE_UNROLL * (int64_t)across) {
        vector loaded[REDUCE_UNROLL];
#pragma unroll
        for (int u = 0; u < REDUCE_UNROLL; u++) {
            loaded[u] = body[i + u * (int64_t)across];
        }
#pragma unroll
        for (int u = 0; u < REDUCE_UNROLL; u++) {
            op.take(a, loaded[u].x, position + head + (i + u * (int64_t)across) * V::n, 1);
        }
    }
    for (; i < vectors; i += across) {
        const vector loaded = body[i];
        op.take(a, loaded.x, position + head + i * V::n, 1);
    }
    for (i = head + vectors * V::n + at; i < n; i += across) {
        const T one[1] = {x[i]};
        op.take(a, one, position + i, 1);
    }
}

template <class Op>
__device__ inline void reduce_strided(const Op &op, typename Op::A &a, const typename Op::T *x, int64_t stride,
                                      int64_t n, int64_t position, int64_t at, int across) {
    int64_t i = at;
    for (; i + (REDUCE_UNROLL - 1) * (int64_t)across < n; i += REDUCE_UNROLL * (int64_t)across) {
        typename Op::T loaded[REDUCE_UNROLL];
#pragma unroll
        for (int u = 0; u < REDUCE_UNROLL; u++) {
            loaded[u] = x[(i + u * (int64_t)across) * stride];
        }
        op.take(a, loaded, position + i, across);
    }
    for (; i < n; i += across) {
        const typename Op::T one[1] = {x[i * stride]};
        op.take(a, one, position + i, across);
    }
}

template <class Op>
__global__ void __launch_bounds__(REDUCE_THREADS, 4)
    reduce_rows(const __grid_constant__ reduce_plan plan, const Op op) {
    typedef typename Op::A A;
    __shared__ A shared[REDUCE_THREADS / 32];
    int lane = (int)threadIdx.x & (plan.lanes - 1), per_block = REDUCE_THREADS / plan.lanes;
    int at = lane & (plan.across - 1), step = lane / plan.across, step_lanes = plan.lanes / plan.across;
    int64_t tiles = (plan.outputs + per_block - 1) / per_block * plan.parts;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t block = reduce_divide(tile, plan.parts), part = tile - block * plan.parts;
        int64_t output = block * per_block + (int)threadIdx.x / plan.lanes;
        A a = op.neutral();
        if (output < plan.outputs) {
            const typename Op::T *x = (const typename Op::T *)plan.in + reduce_offset(plan.kept, output);
            reduce_range range = reduce_part(plan, part);
            int64_t n = range.end - range.begin;
            for (int64_t s = range.step + step; s < range.step_end; s += step_lanes) {
                const typename Op::T *run = x + reduce_offset(plan.stepped, s) + range.begin * plan.run_stride;
                int64_t position = s * plan.run + range.begin;
                if (plan.run_stride == 1) {
                    reduce_contiguous(op, a, run, n, position, at, plan.across);
                } else {
                    reduce_strided(op, a, run, plan.run_stride, n, position, at, plan.across);
                }
            }
        }
        reduce_group(op, a, plan.lanes, shared);
        if (lane == 0 && output < plan.outputs) {
            reduce_store(plan, op, output, part, a);
        }
    }
}

/* ---- columns ---- */

/* Takes a piece of a run into the accumulators of the first `live` outputs. */
template <class Op>
__device__ inline void reduce_down(const Op &op, typename Op::A *a, const typename Op::T *const *x, int live,
                                   int64_t offset, int64_t stride, int64_t n, int64_t position, int64_t at,
                                   int across) {
    int64_t i = at;
    for (; i + (REDUCE_UNROLL - 1) * (int64_t)across < n; i += REDUCE_UNROLL * (int64_t)across) {
        typename Op::T loaded[REDUCE_COLUMNS][REDUCE_UNROLL];
#pragma unroll
        for (int u = 0; u < REDUCE_UNROLL; u++) {
#pragma unroll
            for (int v = 0; v < REDUCE_COLUMNS; v++) {
                if (v < live) {
                    loaded[v][u] = x[v][offset + (i + u * (int64_t)across) * stride];
                }
            }
        }
#pragma unroll
        for (int v = 0; v < REDUCE_COLUMNS; v++) {
            if (v < live) {
                op.take(a[v], loaded[v], position + i, across);
            }
        }
    }
    for (; i < n; i += across) {
#pragma unroll
        for (int v = 0; v < REDUCE_COLUMNS; v++) {
            if (v < live) {
                const typename Op::T one[1] = {x[v][offset + i * stride]};
                op.take(a[v], one, position + i, across);
            }
        }
    }
}

/* Merges accumulators of threads that stand `lanes` apart; those of the first row get the result. */
template <class Op>
__device__ inline void reduce_stack(const Op &op, typename Op::A &a, int lanes, typename Op::A *shared) {
    int tid = (int)threadIdx.x;
    shared[tid] = a;
    __syncthreads();
    for (int half = REDUCE_THREADS / 2; half >= lanes; half /= 2) {
        if (tid < half) {
            op.merge(shared[tid], shared[tid + half]);
        }
        __syncthreads();
    }
    a = shared[tid];
    __syncthreads(); /* the next round writes to it */
}

template <class Op>
__global__ void __launch_bounds__(REDUCE_THREADS)
    reduce_columns(const __grid_constant__ reduce_plan plan, const Op op) {
    typedef typename Op::A A;
    __shared__ A shared[REDUCE_THREADS];
    int lanes = plan.lanes, lane = (int)threadIdx.x & (lanes - 1), row = (int)threadIdx.x / lanes;
    int rows = REDUCE_THREADS / lanes;
    int at = row & (plan.across - 1), step = row / plan.across, step_lanes = rows / plan.across;
    int per_block = lanes * REDUCE_COLUMNS;
    int64_t tiles = (plan.outputs + per_block - 1) / per_block * plan.parts;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t block = reduce_divide(tile, plan.parts), part = tile - block * plan.parts;
        int64_t first = block * per_block + lane;
        const typename Op::T *x[REDUCE_COLUMNS];
        A a[REDUCE_COLUMNS];
        int live = 0;
#pragma unroll
        for (int v = 0; v < REDUCE_COLUMNS; v++) {
            int64_t output = first + v * lanes;
            x[v] = (const typename Op::T *)plan.in;
            a[v] = op.neutral();
            if (output < plan.outputs) {
                x[v] += reduce_offset(plan.kept, output);
                live = v + 1;
            }
        }
        reduce_range range = reduce_part(plan, part);
        for (int64_t s = range.step + step; s < range.step_end; s += step_lanes) {
            int64_t offset = reduce_offset(plan.stepped, s) + range.begin * plan.run_stride;
            reduce_down(op, a, x, live, offset, plan.run_stride, range.end - range.begin, s * plan.run + range.begin,
                        at, plan.across);
        }
#pragma unroll
        for (int v = 0; v < REDUCE_COLUMNS; v++) {
            if (rows > 1) {
                reduce_stack(op, a[v], lanes, shared);
            }
            if (row == 0 && v < live) {
                reduce_store(plan, op, first + v * lanes, part, a[v]);
            }
        }
    }
}

/* ---- parts ---- */

template <class Op>
__global__ void __launch_bounds__(REDUCE_THREADS)
    reduce_partials(const __grid_constant__ reduce_plan plan, const Op op) {
    typedef typename Op::A A;
    __shared__ A shared[REDUCE_THREADS / 32];
    int lanes = plan.merge_lanes, lane = (int)threadIdx.x & (lanes - 1), per_block = REDUCE_THREADS / lanes;
    int64_t blocks = (plan.outputs + per_block - 1) / per_block;
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        int64_t output = block * per_block + (int)threadIdx.x / lanes;
        A a = op.neutral();
        if (output < plan.outputs) {
            const A *partials = (const A *)plan.partials + output * plan.parts;
            for (int64_t i = lane; i < plan.parts; i += lanes) {
                op.merge(a, partials[i]);
            }
        }
        reduce_group(op, a, lanes, shared);
        if (lane == 0 && output < plan.outputs) {
            ((typename Op::R *)plan.out)[reduce_offset(plan.kept_out, output)] = op.finish(a);
        }
    }
}

/* ---- launchers ---- */

template <class Op> static cudaError_t reduce_launch(const struct reduce_plan *plan, cudaStream_t stream) {
    const Op op(*plan);
    if (plan->down) {
        reduce_columns<Op><<<plan->grid, REDUCE_THREADS, 0, stream>>>(*plan, op);
    } else {
        reduce_rows<Op><<<plan->grid, REDUCE_THREADS, 0, stream>>>(*plan, op);
    }
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess && plan->partials) {
        reduce_partials<Op><<<plan->merge_grid, REDUCE_THREADS, 0, stream>>>(*plan, op);
        error = cudaGetLastError();
    }
    return error;
}

#define REDUCE_KERNEL(Op)                                                                                              \
    { reduce_launch<Op>, reduce_whole<Op>, (int)sizeof(Op::A), (int)reduce_vector<Op::T>::n }
/* Without CUB's kernels, which take as long to compile as all others: for dtypes and operations that are rare with large
 * tensors. */
#define REDUCE_KERNEL_OWN(Op)                                                                                          \
    { reduce_launch<Op>, nullptr, (int)sizeof(Op::A), (int)reduce_vector<Op::T>::n }
#define REDUCE_NONE                                                                                                    \
    { nullptr, nullptr, 0, 0 }
