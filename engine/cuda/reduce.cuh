/* The kernels of reductions, for the sources that instantiate them (reduce_*.cu), and the plan that reduce.cu makes.
 *
 * The elements of one output are `steps` times a `run`: the run is one reduced axis, a step is a place on the others. A
 * group of threads shares them out: `across` threads take the run side by side, and as many such teams as the group has
 * room for take different steps.
 *
 *   rows     A group is `lanes` neighbours in a block, so the threads of a warp read along the run; contiguous runs are
 *            read 16 bytes at a time. For sums over trailing axes.
 *   columns  A block is `lanes` neighbours, each with one output of its own, or with REDUCE_COLUMNS that lie side by side
 *            and are read at once, times a group for each of these: the threads of a warp read along the outputs. For
 *            sums over leading axes.
 *
 * If there are too few outputs to occupy the device, each is cut into `parts`, whose accumulators a second kernel merges. The order of
 * merging depends on the plan alone, so results are the same each time. A single output of one contiguous run that would be cut is
 * left to CUB (reduce_whole.cuh). What they compute is a class: reduce_ops.cuh. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "engine/device/launch.h" /* not cuda.h, whose struct cuda CUB's namespace cuda does not go with */
}

#include "engine/cuda/reduce_ops.cuh"

enum {
    REDUCE_THREADS = 256,
    REDUCE_COLUMNS = 4, /* outputs of one thread that are read at once */
    REDUCE_UNROLL = 4,  /* loads of one thread that are under way at a time */
    /* Blocks that a processor is to hold: with one more, there would be too few registers for all loads to be under way. */
    REDUCE_ROWS_BLOCKS = 3,
    REDUCE_COLUMNS_BLOCKS = 3,
};

struct reduce_axes {
    int rank;
    int64_t shape[SHAPE_RANK_MAX], strides[SHAPE_RANK_MAX]; /* in elements */
};

struct reduce_plan {
    const void *in;
    void *out;
    void *partials; /* [outputs][parts] accumulators, or CUB's; NULL where there is one part */
    struct reduce_axes kept,
        kept_out;               /* the kept axes, in the input and in the output; an output's number counts over them */
    struct reduce_axes stepped; /* the reduced axes without the run */
    int64_t outputs, steps, run, run_stride;
    int64_t parts, part_steps, part_run; /* a part is so many steps of the whole run, or all steps of so much of it */
    struct reduce_numbers numbers;
    bool down;                           /* goes by columns */
    bool beside;                         /* takes REDUCE_COLUMNS columns at a time */
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
    bool beside;     /* has a kernel that takes REDUCE_COLUMNS columns at a time */
    /* Tells of these kernels (cuda_kernel_walk), without CUB's. */
    bool (*walk)(bool (*seen)(void *context, bool common, const void *kernel), void *context, bool common);
};
/* By dtype; `launch` is NULL where there is no kernel. */
extern const struct reduce_kernel reduce_sums[DTYPE_COUNT], reduce_products[DTYPE_COUNT];
/* By the dtype of elements that are converted as they are read: to i64 or u64, means to f32. */
extern const struct reduce_kernel reduce_sums_narrow[DTYPE_COUNT], reduce_products_narrow[DTYPE_COUNT];
extern const struct reduce_kernel reduce_means_narrow[DTYPE_COUNT];
extern const struct reduce_kernel reduce_extremes[DTYPE_COUNT], reduce_positions[DTYPE_COUNT];
extern const struct reduce_kernel reduce_variances[DTYPE_COUNT], reduce_norms[DTYPE_COUNT];
extern const struct reduce_kernel reduce_counts[DTYPE_COUNT], reduce_exponentials[DTYPE_COUNT];

/* Blocks that a processor is to hold of a reduction's kernels. Fewer for reductions that compute so much that they need more registers. */
template <class Op> struct reduce_occupancy {
    enum { rows = REDUCE_ROWS_BLOCKS, columns = REDUCE_COLUMNS_BLOCKS };
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

/* ---- results ---- */

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

/* Takes a contiguous piece of a run. The threads begin with the elements before the first aligned address. */
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
    const vector *from = (const vector *)(const void *)(x + head) + at;
    for (; i + (REDUCE_UNROLL - 1) * (int64_t)across < vectors; i += REDUCE_UNROLL * across) {
        vector loaded[REDUCE_UNROLL];
#pragma unroll
        for (int u = 0; u < REDUCE_UNROLL; u++) {
            loaded[u] = *from;
            from += across;
        }
#pragma unroll
        for (int u = 0; u < REDUCE_UNROLL; u++) {
            op.take(a, loaded[u].x, position + head + (i + u * (int64_t)across) * V::n, 1);
        }
    }
    for (; i < vectors; i += across, from += across) {
        const vector loaded = *from;
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
    x += at * stride;
    stride *= across;
    for (; i + (REDUCE_UNROLL - 1) * (int64_t)across < n; i += REDUCE_UNROLL * across) {
        typename Op::T loaded[REDUCE_UNROLL];
#pragma unroll
        for (int u = 0; u < REDUCE_UNROLL; u++) {
            loaded[u] = *x;
            x += stride;
        }
        op.take(a, loaded, position + i, across);
    }
    for (; i < n; i += across, x += stride) {
        const typename Op::T one[1] = {*x};
        op.take(a, one, position + i, across);
    }
}

template <class Op>
__global__ void __launch_bounds__(REDUCE_THREADS, reduce_occupancy<Op>::rows)
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

/* Elements of neighbouring columns, read at once: 16 bytes of 4-byte elements. */
template <class T, int COLUMNS> struct alignas(sizeof(T) * COLUMNS < 16 ? sizeof(T) * COLUMNS : 16) reduce_beside {
    T x[COLUMNS];
};

/* Takes N elements of each of a thread's columns, `step` apart. */
template <int N, class Op, int COLUMNS>
__device__ inline void reduce_down(const Op &op, typename Op::A *a, const typename Op::T *x, int64_t step,
                                   int64_t position, int across) {
    typedef reduce_beside<typename Op::T, COLUMNS> beside;
    beside loaded[N];
#pragma unroll
    for (int u = 0; u < N; u++) {
        loaded[u] = *(const beside *)(const void *)(x + u * step);
    }
#pragma unroll
    for (int v = 0; v < COLUMNS; v++) {
        typename Op::T column[N];
#pragma unroll
        for (int u = 0; u < N; u++) {
            column[u] = loaded[u].x[v];
        }
        op.take(a[v], column, position, across);
    }
}

/* Merges accumulators of threads that stand `lanes` apart, of all columns together; those of the first row get the
 * result. */
template <class Op, int COLUMNS>
__device__ inline void reduce_stack(const Op &op, typename Op::A *a, int lanes, typename Op::A *shared) {
    int tid = (int)threadIdx.x;
#pragma unroll
    for (int v = 0; v < COLUMNS; v++) {
        shared[v * REDUCE_THREADS + tid] = a[v];
    }
    __syncthreads();
    for (int half = REDUCE_THREADS / 2; half >= lanes; half /= 2) {
        if (tid < half) {
#pragma unroll
            for (int v = 0; v < COLUMNS; v++) {
                op.merge(shared[v * REDUCE_THREADS + tid], shared[v * REDUCE_THREADS + tid + half]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int v = 0; v < COLUMNS; v++) {
        a[v] = shared[v * REDUCE_THREADS + tid];
    }
    __syncthreads(); /* the next round writes to it */
}

template <class Op, int COLUMNS>
__global__ void __launch_bounds__(REDUCE_THREADS, reduce_occupancy<Op>::columns)
    reduce_columns(const __grid_constant__ reduce_plan plan, const Op op) {
    typedef typename Op::A A;
    __shared__ A shared[REDUCE_THREADS * COLUMNS];
    const int lanes = plan.lanes, lane = (int)threadIdx.x & (lanes - 1), row = (int)threadIdx.x / lanes;
    const int rows = REDUCE_THREADS / lanes, across = plan.across;
    const int at = row & (across - 1), step = row / across, step_lanes = rows / across;
    const int per_block = lanes * COLUMNS;
    const int64_t tiles = (plan.outputs + per_block - 1) / per_block * plan.parts, stride = across * plan.run_stride;
    constexpr int unroll = COLUMNS > 1 ? REDUCE_UNROLL : 2 * REDUCE_UNROLL; /* of smaller loads */
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t block = reduce_divide(tile, plan.parts), part = tile - block * plan.parts;
        int64_t output = block * per_block + lane * COLUMNS; /* the number of outputs is a multiple of COLUMNS */
        bool live = output < plan.outputs;
        A a[COLUMNS];
#pragma unroll
        for (int v = 0; v < COLUMNS; v++) {
            a[v] = op.neutral();
        }
        if (live) {
            const typename Op::T *x = (const typename Op::T *)plan.in + reduce_offset(plan.kept, output);
            reduce_range range = reduce_part(plan, part);
            for (int64_t s = range.step + step; s < range.step_end; s += step_lanes) {
                int64_t i = range.begin + at;
                const typename Op::T *from = x + reduce_offset(plan.stepped, s) + i * plan.run_stride;
                for (; i + (unroll - 1) * (int64_t)across < range.end; i += unroll * across) {
                    reduce_down<unroll, Op, COLUMNS>(op, a, from, stride, s * plan.run + i, across);
                    from += unroll * stride;
                }
                for (; i < range.end; i += across, from += stride) {
                    reduce_down<1, Op, COLUMNS>(op, a, from, 0, s * plan.run + i, across);
                }
            }
        }
        if (rows > 1) {
            reduce_stack<Op, COLUMNS>(op, a, lanes, shared);
        }
        if (row == 0 && live) {
#pragma unroll
            for (int v = 0; v < COLUMNS; v++) {
                reduce_store(plan, op, output + v, part, a[v]);
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

template <class Op>
static bool reduce_launch_beside(const struct reduce_plan *plan, const Op &op, cudaStream_t stream) {
    if (plan->down && plan->beside) {
        reduce_columns<Op, REDUCE_COLUMNS><<<plan->grid, REDUCE_THREADS, 0, stream>>>(*plan, op);
    }
    return plan->down && plan->beside;
}

template <class Op, bool BESIDE> static cudaError_t reduce_launch(const struct reduce_plan *plan, cudaStream_t stream) {
    const Op op(plan->numbers);
    bool launched = false;
    if constexpr (BESIDE) {
        launched = reduce_launch_beside<Op>(plan, op, stream);
    }
    if (!launched && plan->down) {
        reduce_columns<Op, 1><<<plan->grid, REDUCE_THREADS, 0, stream>>>(*plan, op);
    } else if (!launched) {
        reduce_rows<Op><<<plan->grid, REDUCE_THREADS, 0, stream>>>(*plan, op);
    }
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess && plan->partials) {
        reduce_partials<Op><<<plan->merge_grid, REDUCE_THREADS, 0, stream>>>(*plan, op);
        error = cudaGetLastError();
    }
    return error;
}

template <class Op, bool BESIDE>
static bool reduce_walk(bool (*seen)(void *context, bool common, const void *kernel), void *context, bool common) {
    if constexpr (BESIDE) {
        if (!seen(context, common, (const void *)reduce_columns<Op, REDUCE_COLUMNS>)) {
            return false;
        }
    }
    return seen(context, common, (const void *)reduce_rows<Op>) &&
           seen(context, common, (const void *)reduce_columns<Op, 1>) &&
           seen(context, common, (const void *)reduce_partials<Op>);
}

#define REDUCE_ROW(Op, whole, beside)                                                                                  \
    {                                                                                                                  \
        reduce_launch<Op, beside>, whole, (int)sizeof(Op::A), (int)reduce_vector<Op::T>::n, beside,                    \
            reduce_walk<Op, beside>                                                                                    \
    }
#define REDUCE_KERNEL(Op) REDUCE_ROW(Op, reduce_whole<Op>, true)
/* Without CUB's kernels, which take as long to compile as all others: for dtypes and operations that are rare with large
 * tensors. */
#define REDUCE_KERNEL_OWN(Op) REDUCE_ROW(Op, nullptr, true)
/* And without the kernel that takes several columns at a time. */
#define REDUCE_KERNEL_PLAIN(Op) REDUCE_ROW(Op, nullptr, false)
#define REDUCE_NONE                                                                                                    \
    { nullptr, nullptr, 0, 0, false, nullptr }
