/* Softmax and its logarithm along the last axis.
 *
 * A group of `wide` threads has a row. Rows that lie in memory one after another (along): the group is neighbouring
 * threads, a warp reads along the row. Rows that lie side by side (across; softmax over a leading axis): a block is
 * `beside` rows times `wide` threads for each, and a warp reads across the rows.
 *
 *   held      Rows whose elements fit into the group's registers, 16 (f64: 8) for each thread: one read, one write. The
 *             maximum, then the sum of exponentials, then the results, as on the CPU.
 *   streamed  Longer rows. First the maximum and the sum so far together, the sum scaled down whenever the maximum
 *             grows; then the row is read a second time. Where there are too few rows for the device each is cut into
 *             parts: one kernel leaves each part's maximum and sum in scratch, a second one merges those of its row and
 *             writes.
 *
 * A row with a NaN, or whose maximum is infinite, is NaN throughout, since x - maximum is for one element and so the
 * sum is. The output may be the input: a thread writes only where it alone reads. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include "engine/cuda/cuda.h"

enum {
    SOFTMAX_THREADS = 256,
    SOFTMAX_WARPS_MAX = 32,
    SOFTMAX_CHUNK = 8,   /* elements between two looks at the maximum */
    SOFTMAX_PART = 4096, /* elements that make a part worth a block */
    BLOCKS_BUSY = 2,     /* blocks for each processor below which rows are cut, */
    BLOCKS_WANTED = 8,   /* how many there are to be then, */
    BLOCKS_MAX = 64,     /* and how many are launched at most: they go on to the next tile themselves */
};

/* ---- elements; a half computes in f32 ---- */

__device__ inline float softmax_load(__half x) {
    return __half2float(x);
}
__device__ inline float softmax_load(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
__device__ inline float softmax_load(float x) {
    return x;
}
__device__ inline double softmax_load(double x) {
    return x;
}
__device__ inline void softmax_store(float x, __half *out) {
    *out = __float2half_rn(x);
}
__device__ inline void softmax_store(float x, __nv_bfloat16 *out) {
    *out = __float2bfloat16_rn(x);
}
__device__ inline void softmax_store(float x, float *out) {
    *out = x;
}
__device__ inline void softmax_store(double x, double *out) {
    *out = x;
}

template <class T> struct softmax_type {
    typedef float C; /* computes */
    enum { held = 16, vector = 16 / sizeof(T) };
};
template <> struct softmax_type<double> {
    typedef double C;
    enum { held = 8, vector = 2 };
};

/* ---- the plan ---- */

struct softmax_plan {
    const void *in;
    void *out;
    void *partials; /* softmax_sum [rows][parts]; NULL where there is one part */
    int rank;       /* axes of rows */
    int64_t shape[SHAPE_RANK_MAX], in_strides[SHAPE_RANK_MAX], out_strides[SHAPE_RANK_MAX];
    int64_t rows, n, in_stride, out_stride;
    int64_t parts, part; /* elements of a part */
    int wide, beside;    /* powers of two */
    int threads, grid;
    bool across, vectors, logarithm;
};

struct softmax_place {
    int64_t in, out;
};

__device__ inline int64_t softmax_divide(int64_t a, int64_t b) {
    return ((uint64_t)(a | b) >> 32) == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* Where a row begins. */
__device__ inline softmax_place softmax_row(const softmax_plan &plan, int64_t row) {
    softmax_place place = {0, 0};
    for (int i = plan.rank - 1; i >= 0; i--) {
        int64_t left = i > 0 ? softmax_divide(row, plan.shape[i]) : 0, index = row - left * plan.shape[i];
        place.in += index * plan.in_strides[i];
        place.out += index * plan.out_strides[i];
        row = left;
    }
    return place;
}

/* Which part of a tile a thread has. */
struct softmax_thread {
    int row, lane;
};

__device__ inline softmax_thread softmax_thread_of(const softmax_plan &plan) {
    int tid = (int)threadIdx.x;
    if (plan.across) {
        return {tid & (plan.beside - 1), tid / plan.beside};
    }
    return {tid / plan.wide, tid & (plan.wide - 1)};
}

/* ---- merging over a group; every thread of it gets the same result ---- */

template <class C> struct softmax_sum { C maximum, sum; /* of exp(x - maximum) */ };

__device__ inline float softmax_exp(float x) {
    return expf(x);
}
__device__ inline double softmax_exp(double x) {
    return exp(x);
}
__device__ inline float softmax_log(float x) {
    return logf(x);
}
__device__ inline double softmax_log(double x) {
    return log(x);
}

/* What exponentials are taken against. Of nothing but -inf so far it is 0: they count as exp(-inf) = 0, a NaN as
 * itself. */
template <class C> __device__ inline C softmax_shift(C maximum) {
    return maximum == (C)-INFINITY ? (C)0 : maximum;
}

struct softmax_greater {
    template <class C> __device__ static C merge(C a, C b) {
        return b > a ? b : a;
    }
};
struct softmax_plus {
    template <class C> __device__ static C merge(C a, C b) {
        return a + b;
    }
};
struct softmax_both {
    template <class C> __device__ static softmax_sum<C> merge(const softmax_sum<C> &a, const softmax_sum<C> &b) {
        C maximum = b.maximum > a.maximum ? b.maximum : a.maximum, shift = softmax_shift(maximum);
        return {maximum, a.sum * softmax_exp(a.maximum - shift) + b.sum * softmax_exp(b.maximum - shift)};
    }
};

template <class C> __device__ inline C softmax_exchange(C value, int distance, int width) {
    return __shfl_xor_sync(0xffffffffu, value, distance, width);
}
template <class C>
__device__ inline softmax_sum<C> softmax_exchange(const softmax_sum<C> &value, int distance, int width) {
    return {softmax_exchange(value.maximum, distance, width), softmax_exchange(value.sum, distance, width)};
}

/* `shared` has room for one value of each thread. All threads of the block call this. */
template <class Merge, class V>
__device__ inline V softmax_group(const softmax_plan &plan, const softmax_thread &thread, V value, V *shared) {
    int tid = (int)threadIdx.x;
    if (plan.across) {
        shared[tid] = value;
        __syncthreads();
        for (int half = plan.wide / 2; half > 0; half /= 2) {
            if (thread.lane < half) {
                shared[tid] = Merge::merge(shared[tid], shared[tid + half * plan.beside]);
            }
            __syncthreads();
        }
        value = shared[thread.row];
        __syncthreads(); /* the next use writes to it */
        return value;
    }
    /* A butterfly: a + b is b + a, so all lanes end with the same bits. */
    int width = plan.wide < 32 ? plan.wide : 32;
    for (int distance = width / 2; distance > 0; distance /= 2) {
        value = Merge::merge(value, softmax_exchange(value, distance, width));
    }
    if (plan.wide > 32) {
        int first = thread.row * plan.wide / 32;
        if (tid % 32 == 0) {
            shared[tid / 32] = value;
        }
        __syncthreads();
        value = shared[first];
        for (int i = 1; i < plan.wide / 32; i++) {
            value = Merge::merge(value, shared[first + i]);
        }
        __syncthreads();
    }
    return value;
}

/* ---- rows held in registers ---- */

/* Number `i` of a thread's elements: with vectors, thread after thread has 16 bytes; else one element. */
template <class T, bool VECTORS> __device__ inline int64_t softmax_element(const softmax_plan &plan, int lane, int i) {
    enum { V = VECTORS ? (int)softmax_type<T>::vector : 1 };
    return ((int64_t)(i / V) * plan.wide + lane) * V + i % V;
}

template <class T, bool VECTORS>
__device__ inline void softmax_read(const softmax_plan &plan, const T *x, int lane, int64_t n,
                                    typename softmax_type<T>::C *held) {
    typedef typename softmax_type<T>::C C;
    enum { V = VECTORS ? (int)softmax_type<T>::vector : 1 };
    struct alignas(V * sizeof(T)) vector {
        T x[V];
    };
#pragma unroll
    for (int i = 0; i < softmax_type<T>::held; i += V) {
        int64_t element = softmax_element<T, VECTORS>(plan, lane, i);
        if (element < n) { /* n is a multiple of V */
            vector loaded = *(const vector *)(const void *)(x + element * (VECTORS ? 1 : plan.in_stride));
#pragma unroll
            for (int v = 0; v < V; v++) {
                held[i + v] = softmax_load(loaded.x[v]);
            }
        } else {
#pragma unroll
            for (int v = 0; v < V; v++) {
                held[i + v] = (C)-INFINITY;
            }
        }
    }
}

template <class T, bool VECTORS>
__device__ inline void softmax_write(const softmax_plan &plan, T *out, int lane, int64_t n,
                                     const typename softmax_type<T>::C *held) {
    enum { V = VECTORS ? (int)softmax_type<T>::vector : 1 };
    struct alignas(V * sizeof(T)) vector {
        T x[V];
    };
#pragma unroll
    for (int i = 0; i < softmax_type<T>::held; i += V) {
        int64_t element = softmax_element<T, VECTORS>(plan, lane, i);
        if (element < n) {
            vector stored;
#pragma unroll
            for (int v = 0; v < V; v++) {
                softmax_store(held[i + v], &stored.x[v]);
            }
            *(vector *)(void *)(out + element * (VECTORS ? 1 : plan.out_stride)) = stored;
        }
    }
}

template <class T, bool VECTORS>
__global__ void __launch_bounds__(1024) softmax_held(const __grid_constant__ softmax_plan plan) {
    typedef typename softmax_type<T>::C C;
    enum { HELD = softmax_type<T>::held };
    __shared__ C shared[1024];
    softmax_thread thread = softmax_thread_of(plan);
    int64_t tiles = (plan.rows + plan.beside - 1) / plan.beside;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t row = tile * plan.beside + thread.row, n = row < plan.rows ? plan.n : 0;
        softmax_place place = softmax_row(plan, row < plan.rows ? row : 0);
        C held[HELD], maximum = (C)-INFINITY, sum = 0;
        softmax_read<T, VECTORS>(plan, (const T *)plan.in + place.in, thread.lane, n, held);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            maximum = held[i] > maximum ? held[i] : maximum; /* passes over NaN, which the sum will meet */
        }
        maximum = softmax_group<softmax_greater>(plan, thread, maximum, shared);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            held[i] -= maximum;
            C power = softmax_exp(held[i]);
            sum += softmax_element<T, VECTORS>(plan, thread.lane, i) < n ? power : (C)0;
            held[i] = plan.logarithm ? held[i] : power;
        }
        sum = softmax_group<softmax_plus>(plan, thread, sum, shared);
        C shift = plan.logarithm ? softmax_log(sum) : (C)0;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            held[i] = plan.logarithm ? held[i] - shift : held[i] / sum;
        }
        softmax_write<T, VECTORS>(plan, (T *)plan.out + place.out, thread.lane, n, held);
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
        value[u] = softmax_load(x[u * step]);
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
    for (; i + (SOFTMAX_CHUNK - 1) * wide < end; i += SOFTMAX_CHUNK * wide) {
        softmax_take<SOFTMAX_CHUNK>(sum, x + i * plan.in_stride, wide * plan.in_stride);
    }
    for (; i < end; i += wide) {
        softmax_take<1>(sum, x + i * plan.in_stride, 0);
    }
    return sum;
}

template <class T, class C>
__device__ inline void softmax_results(const softmax_plan &plan, const T *x, T *out, int64_t begin, int64_t end,
                                       const softmax_sum<C> &sum) {
    C shift = softmax_log(sum.sum);
    int64_t wide = plan.wide;
#pragma unroll 4
    for (int64_t i = begin; i < end; i += wide) {
        C value = softmax_load(x[i * plan.in_stride]) - sum.maximum;
        softmax_store(plan.logarithm ? value - shift : softmax_exp(value) / sum.sum, &out[i * plan.out_stride]);
    }
}

template <class T>
__global__ void __launch_bounds__(SOFTMAX_THREADS)
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

static const struct softmax_kernel {
    softmax_launcher *held, *streamed;
    int elements, vector; /* held by a thread; in 16 bytes */
    int partial;          /* bytes */
} kernels[] = {
    /* f16, bf16, f32, f64 */
    {softmax_launch_held<__half>, softmax_launch_streamed<__half>, 16, 8, 8},
    {softmax_launch_held<__nv_bfloat16>, softmax_launch_streamed<__nv_bfloat16>, 16, 8, 8},
    {softmax_launch_held<float>, softmax_launch_streamed<float>, 16, 4, 8},
    {softmax_launch_held<double>, softmax_launch_streamed<double>, 8, 2, 16},
};
static_assert(softmax_type<float>::held == 16 && softmax_type<double>::held == 8, "as in the table");
static_assert(DTYPE_F64 - DTYPE_F16 == 3, "the table's order");

bool cuda_softmax_has(unsigned opcode, enum dtype dtype) {
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
    plan->wide = power_of_two((plan->n + kernel->elements - 1) / kernel->elements, 1024);
    if (plan->n > (int64_t)plan->wide * kernel->elements || plan->wide * least > 1024) {
        return false;
    }
    /* Half the elements each while that keeps a row within a warp: more loads are then under way. */
    if (!plan->across && plan->wide < 32 && plan->n > plan->wide) {
        plan->wide *= 2;
    }
    plan->threads = plan->wide * least > SOFTMAX_THREADS ? plan->wide * least : SOFTMAX_THREADS;
    plan->beside = plan->threads / plan->wide;
    plan->vectors = plan_has_vectors(plan, kernel->vector);
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

int cuda_softmax(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct softmax_kernel *kernel = &kernels[launch->inputs[0].dtype - DTYPE_F16];
    struct softmax_plan plan;
    plan_init(&plan, launch);
    bool held = plan_held(&plan, kernel);
    if (!held) {
        plan_streamed(&plan, cuda);
    }
    int64_t tiles = (plan.rows + plan.beside - 1) / plan.beside * plan.parts;
    int64_t most = (int64_t)cuda->processors * BLOCKS_MAX;
    plan.grid = (int)(tiles < most ? tiles : most);
    if (plan.parts > 1) {
        plan.partials = cuda_scratch(stream, (size_t)plan.rows * (size_t)plan.parts * (size_t)kernel->partial, fault);
        if (!plan.partials && fault->code != STATUS_OUT_OF_MEMORY) {
            return fault->code;
        }
        if (!plan.partials) {
            cudaGetLastError(); /* dealt with: it goes without, only slower */
            plan.parts = 1;
            plan.part = plan.n;
        }
    }
    CUDA_TRY(fault, (held ? kernel->held : kernel->streamed)(&plan, stream->stream));
    return STATUS_OK;
}
