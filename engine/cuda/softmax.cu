/* Softmax and its logarithm along the last axis.
 *
 * A group of `wide` threads has a row. Rows that lie in memory one after another (along): the group is neighbouring
 * threads, a warp reads along the row. Rows that lie side by side (across; softmax over a leading axis): a block is
 * `beside` rows times `wide` threads for each, and a warp reads across the rows.
 *
 *   held      Rows whose elements fit into the group's registers, 16 (f64: 8) for each thread: one read, one write. The
 *             maximum, then the sum of exponentials, then the results, as on the CPU.
 *   shared    Longer rows along, of which a processor's shared memory has room for two or three: the same, with a block
 *             for each row, whose threads keep their elements in shared memory in place of registers.
 *   streamed  Longer rows. First the maximum and the sum so far together, the sum scaled down whenever the maximum
 *             grows; then the row is read a second time. Where there are too few rows for the device each is cut into
 *             parts: one kernel leaves each part's maximum and sum in scratch, a second one merges those of its row and
 *             writes.
 *
 * All results of a row are NaN if an element is NaN or the maximum is infinite: then x - maximum is NaN for one element, and so is the sum.
 * The output may be the input: a thread writes only where it alone reads. */
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include "engine/cuda/shared.cuh"
#include "engine/cuda/softmax.cuh"
#include "engine/cuda/softmax.h"

#ifndef DYNAMIC_SHARED /* as much shared memory as the launch asks for; defined otherwise where kernels run on the host */
#define DYNAMIC_SHARED(name) extern __shared__ uint4 name[]
#endif

enum {
    SOFTMAX_THREADS = 256,
    SOFTMAX_THREADS_MAX = 512,    /* where rows are side by side, which takes many threads to hold them */
    SOFTMAX_SHARED_THREADS = 512, /* for a row in shared memory, */
    SOFTMAX_SHARED = 112 << 10,   /* of which it may have so much: half of what a processor of Hopper has */
    SOFTMAX_LOADS = 4,            /* of one thread that are under way at a time */
    SOFTMAX_PART = 4096,          /* a part pays if it has so many elements */
    BLOCKS_BUSY = 2,              /* with fewer blocks for each processor rows are cut, */
    BLOCKS_WANTED = 8,            /* so that there are so many */
    BLOCKS_MAX = 64,              /* at most so many are launched, which loop over the tiles */
};

/* ---- rows held in registers ---- */

/* By __stcg(), as the compiler is apt to take a vector apart that has just been put together. */
struct softmax_store_global {
    template <class Vector> static __device__ __forceinline__ void store(void *out, const Vector &vector) {
        if constexpr (sizeof(Vector) == 16) {
            uint4 word;
            memcpy(&word, &vector, sizeof word);
            __stcg((uint4 *)out, word);
        } else {
            *(Vector *)out = vector;
        }
    }
};

template <class C> struct softmax_held_group {
    const softmax_plan &plan;
    const softmax_thread &thread;
    C *shared;
    template <class Merge> __device__ __forceinline__ C merge(C value) const {
        return softmax_group<Merge>(plan, thread, value, shared);
    }
};

template <class T, bool VECTORS>
__global__ void __launch_bounds__(VECTORS ? SOFTMAX_THREADS : SOFTMAX_THREADS_MAX,
                                  !VECTORS         ? 1
                                  : sizeof(T) == 8 ? 2
                                                   : 4) /* or registers are spilled to make room for one more block */
    softmax_held(const __grid_constant__ softmax_plan plan) {
    typedef typename softmax_type<T>::C C;
    __shared__ C shared[VECTORS ? SOFTMAX_THREADS : SOFTMAX_THREADS_MAX];
    softmax_thread thread = softmax_thread_of(plan);
    int64_t tiles = (plan.rows + plan.beside - 1) / plan.beside;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t row = tile * plan.beside + thread.row;
        int n = row < plan.rows ? (int)plan.n : 0;
        softmax_place place = softmax_row(plan, row < plan.rows ? row : 0);
        softmax_hold<T, VECTORS, softmax_store_global>((const T *)plan.in + place.in, plan.in_stride,
                                                       (T *)plan.out + place.out, plan.out_stride, plan.wide,
                                                       thread.lane, n, plan.logarithm,
                                                       softmax_held_group<C>{plan, thread, shared});
    }
}

/* ---- rows held in shared memory ---- */

/* Where a thread keeps its vector number `k`: pieces of 16 bytes, each a block's width from the last, so that a warp's accesses use all banks
 * alike. No other thread reads them. */
template <class T, bool VECTORS> struct softmax_kept {
    typedef typename softmax_type<T>::C C;
    typedef softmax_vector<T, VECTORS> V;
    enum { bytes = (int)sizeof(C) * V::n, piece = bytes < 16 ? bytes / (int)sizeof(C) : 16 / (int)sizeof(C) };
    struct alignas(piece * sizeof(C)) part {
        C x[piece];
    };
    static __device__ __forceinline__ part *at(void *memory, int k, int i) {
        return (part *)memory + (k * (V::n / piece) + i) * SOFTMAX_SHARED_THREADS + threadIdx.x;
    }
    static __device__ __forceinline__ void put(void *memory, int k, const C *values) {
#pragma unroll
        for (int i = 0; i < V::n / piece; i++) {
            part one;
#pragma unroll
            for (int v = 0; v < piece; v++) {
                one.x[v] = values[i * piece + v];
            }
            *at(memory, k, i) = one;
        }
    }
    static __device__ __forceinline__ void get(void *memory, int k, C *values) {
#pragma unroll
        for (int i = 0; i < V::n / piece; i++) {
            const part one = *at(memory, k, i);
#pragma unroll
            for (int v = 0; v < piece; v++) {
                values[i * piece + v] = one.x[v];
            }
        }
    }
};

/* Takes N vectors of a row, a block's width apart, and keeps them. */
template <int N, class T, bool VECTORS>
__device__ inline void softmax_keep(void *memory, int k, const T *x, int64_t step,
                                    typename softmax_type<T>::C &maximum) {
    typedef typename softmax_type<T>::C C;
    typedef softmax_vector<T, VECTORS> V;
    typename V::type loaded[N];
#pragma unroll
    for (int u = 0; u < N; u++) {
        loaded[u] = *(const typename V::type *)(const void *)(x + u * step);
    }
#pragma unroll
    for (int u = 0; u < N; u++) {
        C values[V::n];
#pragma unroll
        for (int v = 0; v < V::n; v++) {
            values[v] = number_widen(loaded[u].x[v]);
            maximum = values[v] > maximum ? values[v] : maximum;
        }
        softmax_kept<T, VECTORS>::put(memory, k + u, values);
    }
}

template <class T, bool VECTORS>
__global__ void __launch_bounds__(SOFTMAX_SHARED_THREADS, sizeof(T) == 8 ? 2 : 3)
    softmax_shared(const __grid_constant__ softmax_plan plan) {
    typedef typename softmax_type<T>::C C;
    typedef softmax_vector<T, VECTORS> V;
    typedef softmax_kept<T, VECTORS> kept;
    __shared__ C shared[SOFTMAX_SHARED_THREADS / 32];
    DYNAMIC_SHARED(memory);
    const int vectors = (int)(plan.n / V::n), tid = (int)threadIdx.x;
    const int mine = (vectors - tid + SOFTMAX_SHARED_THREADS - 1) / SOFTMAX_SHARED_THREADS;
    const int64_t in_step = (VECTORS ? 1 : plan.in_stride) * V::n * SOFTMAX_SHARED_THREADS;
    const int64_t out_step = (VECTORS ? 1 : plan.out_stride) * V::n * SOFTMAX_SHARED_THREADS;
    for (int64_t row = blockIdx.x; row < plan.rows; row += gridDim.x) {
        softmax_place place = softmax_row(plan, row);
        const T *x = (const T *)plan.in + place.in + (VECTORS ? 1 : plan.in_stride) * V::n * tid;
        T *out = (T *)plan.out + place.out + (VECTORS ? 1 : plan.out_stride) * V::n * tid;
        C maximum = (C)-INFINITY, sum = 0;
        int k = 0;
        for (; k + SOFTMAX_LOADS <= mine; k += SOFTMAX_LOADS, x += SOFTMAX_LOADS * in_step) {
            softmax_keep<SOFTMAX_LOADS, T, VECTORS>(memory, k, x, in_step, maximum);
        }
        for (; k < mine; k++, x += in_step) {
            softmax_keep<1, T, VECTORS>(memory, k, x, 0, maximum);
        }
        maximum = softmax_warps<SOFTMAX_SHARED_THREADS, softmax_greater>(maximum, shared);
        for (k = 0; k < mine; k++) {
            C values[V::n];
            kept::get(memory, k, values);
#pragma unroll
            for (int v = 0; v < V::n; v++) {
                const C difference = values[v] - maximum, power = softmax_exp(difference);
                sum += power;
                values[v] = plan.logarithm ? difference : power;
            }
            kept::put(memory, k, values);
        }
        sum = softmax_warps<SOFTMAX_SHARED_THREADS, softmax_plus>(sum, shared);
        const C factor = plan.logarithm ? (C)1 : (C)1 / sum, shift = plan.logarithm ? softmax_log(sum) : (C)0;
        for (k = 0; k < mine; k++, out += out_step) {
            C values[V::n];
            typename V::type stored;
            kept::get(memory, k, values);
#pragma unroll
            for (int v = 0; v < V::n; v++) {
                stored.x[v] = number_store<T>::from(values[v] * factor - shift);
            }
            softmax_store_global::store(out, stored);
        }
    }
}

/* ---- rows streamed twice ---- */

enum softmax_phase { SOFTMAX_SUMS = 1, SOFTMAX_RESULTS = 2 };

/* Takes N elements, `step` apart. */
template <int N, class T, class C>
__device__ inline void softmax_take(softmax_sum<C> &so_far, const T *x, int64_t step) {
    C value[N], maximum = so_far.maximum, sum = 0;
#pragma unroll
    for (int u = 0; u < N; u++) {
        value[u] = number_widen(x[u * step]);
    }
#pragma unroll
    for (int u = 0; u < N; u++) {
        maximum = value[u] > maximum ? value[u] : maximum;
    }
    C shift = softmax_shift(maximum);
#pragma unroll
    for (int u = 0; u < N; u++) {
        sum += softmax_exp(value[u] - shift);
    }
    so_far.sum = so_far.sum * softmax_exp(so_far.maximum - shift) + sum;
    so_far.maximum = maximum;
}

template <class T, class C>
__device__ inline softmax_sum<C> softmax_add_up(const softmax_plan &plan, const T *x, int64_t begin, int64_t end) {
    softmax_sum<C> sum = {(C)-INFINITY, 0};
    int64_t i = begin, wide = plan.wide;
    enum { CHUNK = softmax_type<T>::chunk };
    for (; i + (CHUNK - 1) * wide < end; i += CHUNK * wide) {
        softmax_take<CHUNK>(sum, x + i * plan.in_stride, wide * plan.in_stride);
    }
    for (; i < end; i += wide) {
        softmax_take<1>(sum, x + i * plan.in_stride, 0);
    }
    return sum;
}

template <class T, class C>
__device__ inline void softmax_results(const softmax_plan &plan, const T *x, T *out, int64_t begin, int64_t end,
                                       const softmax_sum<C> &sum) {
    C shift = softmax_log(sum.sum), factor = (C)1 / sum.sum;
    int64_t wide = plan.wide;
#pragma unroll 4
    for (int64_t i = begin; i < end; i += wide) {
        C value = number_widen(x[i * plan.in_stride]) - sum.maximum;
        out[i * plan.out_stride] =
            number_store<T>::from(plan.logarithm ? value - shift : softmax_exp(value) * factor);
    }
}

template <class T>
__global__ void __launch_bounds__(SOFTMAX_THREADS, sizeof(T) == 8 ? 2 : 4)
    softmax_streamed(const __grid_constant__ softmax_plan plan, int phases) {
    typedef typename softmax_type<T>::C C;
    __shared__ softmax_sum<C> shared[SOFTMAX_THREADS];
    softmax_thread thread = softmax_thread_of(plan);
    int64_t tiles = (plan.rows + plan.beside - 1) / plan.beside * plan.parts;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t block = softmax_divide(tile, plan.parts), part = tile - block * plan.parts;
        int64_t row = block * plan.beside + thread.row, begin = part * plan.part + thread.lane;
        int64_t end = plan.n - part * plan.part < plan.part ? plan.n : (part + 1) * plan.part;
        bool live = row < plan.rows;
        softmax_place place = softmax_row(plan, live ? row : 0);
        const T *x = (const T *)plan.in + place.in;
        softmax_sum<C> *partials = (softmax_sum<C> *)plan.partials + (live ? row : 0) * plan.parts;
        softmax_sum<C> sum = {(C)-INFINITY, 0};
        if (live && (phases & SOFTMAX_SUMS)) {
            sum = softmax_add_up<T, C>(plan, x, begin, end);
        } else if (live) {
            for (int64_t i = thread.lane; i < plan.parts; i += plan.wide) {
                sum = softmax_both::merge(sum, partials[i]);
            }
        }
        sum = softmax_group<softmax_both>(plan, thread, sum, shared);
        if (live && (phases & SOFTMAX_RESULTS)) {
            softmax_results(plan, x, (T *)plan.out + place.out, begin, end, sum);
        } else if (live && thread.lane == 0) {
            partials[part] = sum;
        }
    }
}

/* ---- launchers ---- */

template <class T> static cudaError_t softmax_launch_held(const struct softmax_plan *plan, cudaStream_t stream) {
    if (plan->vectors) {
        softmax_held<T, true><<<plan->grid, plan->threads, 0, stream>>>(*plan);
    } else {
        softmax_held<T, false><<<plan->grid, plan->threads, 0, stream>>>(*plan);
    }
    return cudaGetLastError();
}

template <class T> static cudaError_t softmax_launch_shared(const struct softmax_plan *plan, cudaStream_t stream) {
    cudaError_t error =
        shared_allow((const void *)(plan->vectors ? softmax_shared<T, true> : softmax_shared<T, false>), plan->shared);
    if (error != cudaSuccess) {
        return error;
    }
    if (plan->vectors) {
        softmax_shared<T, true><<<plan->grid, plan->threads, (size_t)plan->shared, stream>>>(*plan);
    } else {
        softmax_shared<T, false><<<plan->grid, plan->threads, (size_t)plan->shared, stream>>>(*plan);
    }
    return cudaGetLastError();
}

template <class T> static cudaError_t softmax_launch_streamed(const struct softmax_plan *plan, cudaStream_t stream) {
    if (plan->parts == 1) {
        softmax_streamed<T><<<plan->grid, plan->threads, 0, stream>>>(*plan, SOFTMAX_SUMS | SOFTMAX_RESULTS);
        return cudaGetLastError();
    }
    softmax_streamed<T><<<plan->grid, plan->threads, 0, stream>>>(*plan, SOFTMAX_SUMS);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) {
        return error;
    }
    softmax_streamed<T><<<plan->grid, plan->threads, 0, stream>>>(*plan, SOFTMAX_RESULTS);
    return cudaGetLastError();
}

typedef cudaError_t softmax_launcher(const struct softmax_plan *plan, cudaStream_t stream);

template <class T> static bool softmax_walk(cuda_kernel_seen *seen, void *context, bool common) {
    return seen(context, common, (const void *)softmax_held<T, true>) &&
           seen(context, common, (const void *)softmax_held<T, false>) &&
           seen(context, common, (const void *)softmax_shared<T, true>) &&
           seen(context, common, (const void *)softmax_shared<T, false>) &&
           seen(context, common, (const void *)softmax_streamed<T>);
}

static const struct softmax_kernel {
    softmax_launcher *held, *shared, *streamed;
    int elements, vector; /* held by a thread; in 16 bytes */
    int size, partial;    /* bytes of what is computed with, and of a part */
    bool (*walk)(cuda_kernel_seen *seen, void *context, bool common);
} kernels[] = {
    /* f16, bf16, f32, f64 */
    {softmax_launch_held<__half>, softmax_launch_shared<__half>, softmax_launch_streamed<__half>, 16, 8, 4, 8,
     softmax_walk<__half>},
    {softmax_launch_held<__nv_bfloat16>, softmax_launch_shared<__nv_bfloat16>, softmax_launch_streamed<__nv_bfloat16>,
     16, 8, 4, 8, softmax_walk<__nv_bfloat16>},
    {softmax_launch_held<float>, softmax_launch_shared<float>, softmax_launch_streamed<float>, 16, 4, 4, 8,
     softmax_walk<float>},
    {softmax_launch_held<double>, softmax_launch_shared<double>, softmax_launch_streamed<double>, 8, 2, 8, 16,
     softmax_walk<double>},
};
static_assert(softmax_type<float>::held == 16 && softmax_type<double>::held == 8, "as in the table");
static_assert(DTYPE_F64 - DTYPE_F16 == 3, "the table's order");

static bool softmax_walk_all(cuda_kernel_seen *seen, void *context) {
    for (int i = 0; i < 4; i++) {
        if (!kernels[i].walk(seen, context, cuda_dtype_common((enum dtype)(DTYPE_F16 + i)))) {
            return false;
        }
    }
    return true;
}

static bool softmax_has(unsigned opcode, enum dtype dtype) {
    return (opcode == OP_SOFTMAX || opcode == OP_LOG_SOFTMAX) && dtype >= DTYPE_F16 && dtype <= DTYPE_F64;
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

static int power_of_two(int64_t n, int most) {
    int power = 1;
    while (power < n && power < most) {
        power *= 2;
    }
    return power;
}

/* Makes the axis of rows along which the input's elements are closest the last one; rows are independent, so their
 * order is free. */
static void plan_rows(struct softmax_plan *plan) {
    int best = plan->rank - 1;
    for (int i = 0; i < plan->rank; i++) {
        int64_t stride = magnitude(plan->in_strides[i]), least = magnitude(plan->in_strides[best]);
        if (plan->shape[i] > 1 && stride != 0 && (plan->shape[best] == 1 || least == 0 || stride < least)) {
            best = i;
        }
    }
    int64_t shape = plan->shape[best], in = plan->in_strides[best], out = plan->out_strides[best];
    for (int i = best; i < plan->rank - 1; i++) {
        plan->shape[i] = plan->shape[i + 1];
        plan->in_strides[i] = plan->in_strides[i + 1];
        plan->out_strides[i] = plan->out_strides[i + 1];
    }
    plan->shape[plan->rank - 1] = shape;
    plan->in_strides[plan->rank - 1] = in;
    plan->out_strides[plan->rank - 1] = out;
}

/* Whether all rows begin at addresses for 16-byte accesses, and end there. */
static bool plan_has_vectors(const struct softmax_plan *plan, int vector) {
    bool fit = !plan->across && plan->in_stride == 1 && plan->out_stride == 1 && plan->n % vector == 0 &&
               (uintptr_t)plan->in % 16 == 0 && (uintptr_t)plan->out % 16 == 0;
    for (int i = 0; i < plan->rank && fit; i++) {
        fit = plan->shape[i] == 1 || (plan->in_strides[i] % vector == 0 && plan->out_strides[i] % vector == 0);
    }
    return fit;
}

static void plan_init(struct softmax_plan *plan, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    int last = x->rank - 1;
    memset(plan, 0, sizeof *plan);
    plan->in = x->data;
    plan->out = out->data;
    plan->rank = last;
    plan->rows = 1;
    for (int i = 0; i < last; i++) {
        plan->shape[i] = x->shape[i];
        plan->in_strides[i] = x->strides[i];
        plan->out_strides[i] = out->strides[i];
        plan->rows *= x->shape[i];
    }
    plan->n = x->shape[last];
    plan->in_stride = plan->n == 1 ? 1 : x->strides[last];
    plan->out_stride = plan->n == 1 ? 1 : out->strides[last];
    plan->logarithm = launch->opcode == OP_LOG_SOFTMAX;
    plan->parts = 1;
    plan->part = plan->n;
    plan_rows(plan);
    int64_t beside = magnitude(plan->in_strides[last - 1]);
    plan->across = plan->shape[last - 1] > 1 && beside != 0 && beside < magnitude(plan->in_stride);
}

/* Threads for each row; false where its elements cannot be held. */
static bool plan_held(struct softmax_plan *plan, const struct softmax_kernel *kernel) {
    int least = plan->across ? power_of_two(plan->shape[plan->rank - 1], 32) : 1; /* rows beside each other */
    int most = plan->across ? SOFTMAX_THREADS_MAX : SOFTMAX_THREADS;
    plan->wide = power_of_two((plan->n + kernel->elements - 1) / kernel->elements, most);
    if (plan->n > (int64_t)plan->wide * kernel->elements || plan->wide * least > most) {
        return false;
    }
    /* Each thread has half as many elements as long as the row stays within a warp: more loads are under way then. */
    if (!plan->across && plan->wide < 32 && plan->n > plan->wide) {
        plan->wide *= 2;
    }
    plan->threads = plan->wide * least > SOFTMAX_THREADS ? plan->wide * least : SOFTMAX_THREADS;
    plan->beside = plan->threads / plan->wide;
    plan->vectors = plan_has_vectors(plan, kernel->vector);
    return true;
}

/* A block for each row; false where a row is too long, or there are too few of them. */
static bool plan_shared(struct softmax_plan *plan, const struct cuda *cuda, const struct softmax_kernel *kernel) {
    enum { OTHER = 1 << 10 }; /* shared memory of the kernel itself and of the system */
    int most = cuda->shared_max < SOFTMAX_SHARED ? cuda->shared_max - OTHER : SOFTMAX_SHARED - OTHER;
    plan->vectors = plan_has_vectors(plan, kernel->vector);
    int64_t step = (int64_t)SOFTMAX_SHARED_THREADS * (plan->vectors ? kernel->vector : 1);
    int64_t bytes = (plan->n + step - 1) / step * step * kernel->size;
    if (plan->across || bytes > most || plan->rows < cuda->processors) {
        return false;
    }
    plan->threads = SOFTMAX_SHARED_THREADS;
    plan->beside = 1;
    plan->shared = (int)bytes;
    return true;
}

static void plan_streamed(struct softmax_plan *plan, const struct cuda *cuda) {
    plan->beside = plan->across ? power_of_two(plan->shape[plan->rank - 1], 32) : 1;
    plan->threads = SOFTMAX_THREADS;
    plan->wide = SOFTMAX_THREADS / plan->beside;
    int64_t blocks = (plan->rows + plan->beside - 1) / plan->beside;
    if (blocks < (int64_t)cuda->processors * BLOCKS_BUSY) {
        int64_t wanted = ((int64_t)cuda->processors * BLOCKS_WANTED + blocks - 1) / blocks;
        int64_t worth = plan->n * plan->beside / SOFTMAX_PART;
        int64_t parts = wanted < worth ? wanted : worth;
        plan->part = parts > 1 ? ((plan->n + parts - 1) / parts + 63) / 64 * 64 : plan->n;
        plan->parts = (plan->n + plan->part - 1) / plan->part;
    }
}

static softmax_launcher *plan_make(struct softmax_plan *plan, const struct cuda *cuda, const struct launch *launch,
                                   const struct softmax_kernel *kernel) {
    plan_init(plan, launch);
    softmax_launcher *launcher = plan_held(plan, kernel)           ? kernel->held
                                 : plan_shared(plan, cuda, kernel) ? kernel->shared
                                                                   : kernel->streamed;
    if (launcher == kernel->streamed) {
        plan_streamed(plan, cuda);
    }
    int64_t tiles = (plan->rows + plan->beside - 1) / plan->beside * plan->parts;
    int64_t most = (int64_t)cuda->processors * BLOCKS_MAX;
    plan->grid = (int)(tiles < most ? tiles : most);
    return launcher;
}

unsigned softmax_lanes(const struct cuda *cuda, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    if (x->dtype != x->as || !softmax_has(launch->opcode, (enum dtype)x->dtype)) {
        return 0;
    }
    const struct softmax_kernel *kernel = &kernels[x->dtype - DTYPE_F16];
    struct softmax_plan plan;
    const bool held = plan_make(&plan, cuda, launch, kernel) == kernel->held;
    return held && !plan.across && plan.in_stride == 1 && plan.out_stride == 1 ? (unsigned)plan.wide : 0;
}

static uint64_t softmax_workspace(struct device *device, const struct launch *launch) {
    const struct cuda *cuda = cuda_of(device);
    const struct softmax_kernel *kernel = &kernels[launch->inputs[0].dtype - DTYPE_F16];
    struct softmax_plan plan;
    plan_make(&plan, cuda, launch, kernel);
    return plan.parts > 1 ? (uint64_t)plan.rows * (uint64_t)plan.parts * (uint64_t)kernel->partial : 0;
}

static int softmax_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    struct softmax_plan plan;
    softmax_launcher *launcher = plan_make(&plan, cuda, launch, &kernels[launch->inputs[0].dtype - DTYPE_F16]);
    plan.partials = launch->workspace;
    CUDA_TRY(fault, launcher(&plan, stream->stream));
    return STATUS_OK;
}

CUDA_KERNELS_FOUND(softmax_found, softmax_has)

#define SOFTMAX {{.dtypes = softmax_found, .workspace = softmax_workspace}, softmax_run, softmax_walk_all}
const struct cuda_kernel cuda_kernel_softmax = SOFTMAX;
const struct cuda_kernel cuda_kernel_log_softmax = SOFTMAX;
