/* Products on tiles in shared memory. A block computes TILE by TILE results, 16 by 16 threads with TILE/16 squared
 * each: thread (x, y) has rows y, y + 16, … and columns x, x + 16, …, so that a warp reads shared memory without
 * conflicts and writes results side by side. TILE_DEPTH columns of a and rows of b are brought in at a time, zeros
 * beyond the edges; neighbouring threads read along whichever axis of the operand has the smaller stride.
 *
 * If there are few results of long sums, the depth is cut into parts, whose accumulators a second kernel adds up, always in the same order.
 * Integers are computed modulo 2^32 or 2^64 and cut to their dtype in the end, as on the CPU; floats are accumulated in f64. Bias and
 * activation come last, for floats before the sum is rounded. */
#include "engine/cuda/matmul_tiled.h"

#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <string.h>

#include "engine/cuda/activation.cuh"

enum {
    TILE = 64,
    TILE_DEPTH = 16,
    TILE_THREADS = 256,
    TILE_SIDE = 16,                  /* threads along each side */
    TILE_RESULTS = TILE / TILE_SIDE, /* along each side, of one thread */
    TILE_LOADS = TILE * TILE_DEPTH / TILE_THREADS,
    TILE_PART = 16 * TILE_DEPTH, /* the least depth of a part */
    BLOCKS_WANTED = 2,           /* for each processor */
    BLOCKS_MAX = 64,
};

struct tiled_plan {
    struct matmul_tiled product;
    void *partials;                 /* [parts][results] accumulators; NULL where there is one part */
    int64_t batches, rows, columns; /* tiles of a result: rows by columns */
    int64_t parts, part;            /* depth of a part, a multiple of TILE_DEPTH */
    bool a_down, b_down;            /* the operand is read along its first axis */
};

/* ---- arithmetic: Left times Right is Result, A accumulates, load() brings an element into it ---- */

template <class L, class R, class T> struct tiled_floats {
    typedef L Left;
    typedef R Right;
    typedef T Result;
    typedef double A;
    /* The conversion of fp8 is explicit. */
    template <class Element> __device__ static A load(Element x) {
        return (A)number_widen(x);
    }
    __device__ static A add(A sum, A x) {
        return sum + x;
    }
    __device__ static A multiply_add(A sum, A x, A y) {
        return sum + x * y;
    }
    __device__ static void store(A sum, const T *bias, unsigned activation, T *out) {
        *out = number_cast<T>::from(activation_apply<A>(activation, bias ? sum + load(*bias) : sum));
    }
};

template <class T, class Accumulator> struct tiled_integers {
    typedef T Left, Right, Result;
    typedef Accumulator A;
    __device__ static A load(T x) {
        return (A)x;
    }
    __device__ static A add(A sum, A x) {
        return sum + x;
    }
    __device__ static A multiply_add(A sum, A x, A y) {
        return sum + x * y;
    }
    __device__ static void store(A sum, const T *bias, unsigned activation, T *out) {
        *out = activation_apply<T>(activation, (T)(bias ? sum + (A)*bias : sum));
    }
};

/* linear takes no complex numbers, so that there is neither bias nor activation. */
template <class C> struct tiled_complex {
    typedef C Left, Right, Result;
    typedef formula_c128 A;
    __device__ static A load(C x) {
        return number_cast<A>::from(x);
    }
    __device__ static A add(A sum, A x) {
        return formula_add_c128(sum, x);
    }
    __device__ static A multiply_add(A sum, A x, A y) {
        sum.re += x.re * y.re - x.im * y.im;
        sum.im += x.re * y.im + x.im * y.re;
        return sum;
    }
    __device__ static void store(A sum, const C *, unsigned, C *out) {
        *out = number_cast<C>::from(sum);
    }
};

/* A bool is a byte of 0 or 1. */
struct tiled_truth {
    typedef uint8_t Left, Right, Result;
    typedef uint32_t A;
    __device__ static A load(uint8_t x) {
        return x;
    }
    __device__ static A add(A sum, A x) {
        return sum | x;
    }
    __device__ static A multiply_add(A sum, A x, A y) {
        return sum | (x & y);
    }
    __device__ static void store(A sum, const uint8_t *, unsigned, uint8_t *out) {
        *out = (uint8_t)sum;
    }
};

/* ---- places ---- */

struct tiled_offsets {
    int64_t a, b, c;
};

__device__ inline tiled_offsets tiled_batch(const struct matmul_tiled &product, int64_t batch) {
    tiled_offsets at = {0, 0, 0};
    for (int i = product.batch_rank - 1; i >= 0; i--) {
        int64_t left = batch / product.batch_shape[i], index = batch - left * product.batch_shape[i];
        at.a += index * product.a_batch[i];
        at.b += index * product.b_batch[i];
        at.c += index * product.c_batch[i];
        batch = left;
    }
    return at;
}

/* Where element (row, column) of a matrix of all batches' results lies; `index` counts them row-major. */
__device__ inline int64_t tiled_result(const struct matmul_tiled &product, int64_t index) {
    int64_t line = index / product.n, column = index - line * product.n;
    int64_t batch = line / product.m, row = line - batch * product.m;
    return tiled_batch(product, batch).c + row * product.c_row + column * product.c_column;
}

/* Brings TILE_DEPTH by TILE elements into shared memory: element (depth, side) from depth · depth_stride + side ·
 * side_stride, or zero from depth_left or side_left on. */
template <class Op, class T>
__device__ inline void tiled_bring(typename Op::A (*tile)[TILE + 1], const T *x, int64_t depth_stride,
                                   int64_t side_stride, int64_t depth_left, int64_t side_left, bool along_depth) {
#pragma unroll
    for (int u = 0; u < TILE_LOADS; u++) {
        int e = (int)threadIdx.x + u * TILE_THREADS;
        int depth = along_depth ? e % TILE_DEPTH : e / TILE, side = along_depth ? e / TILE_DEPTH : e % TILE;
        tile[depth][side] = depth < depth_left && side < side_left
                                ? Op::load(x[depth * depth_stride + side * side_stride])
                                : typename Op::A();
    }
}

template <class Op>
__global__ void __launch_bounds__(TILE_THREADS) tiled_multiply(const __grid_constant__ tiled_plan plan) {
    typedef typename Op::Left Left;
    typedef typename Op::Right Right;
    typedef typename Op::Result Result;
    typedef typename Op::A A;
    __shared__ A left[TILE_DEPTH][TILE + 1], right[TILE_DEPTH][TILE + 1];
    const struct matmul_tiled &p = plan.product;
    int x = (int)threadIdx.x % TILE_SIDE, y = (int)threadIdx.x / TILE_SIDE;
    int64_t tiles = plan.batches * plan.rows * plan.columns * plan.parts;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t part = tile % plan.parts, rest = tile / plan.parts;
        int64_t column = rest % plan.columns * TILE, line = rest / plan.columns;
        int64_t row = line % plan.rows * TILE, batch = line / plan.rows;
        tiled_offsets at = tiled_batch(p, batch);
        const Left *a = (const Left *)p.a + at.a + row * p.a_row;
        const Right *b = (const Right *)p.b + at.b + column * p.b_column;
        const Result *bias = (const Result *)p.bias;
        int64_t begin = part * plan.part, end = p.k - begin < plan.part ? p.k : begin + plan.part;
        A sum[TILE_RESULTS][TILE_RESULTS] = {};
        for (int64_t k = begin; k < end; k += TILE_DEPTH) {
            tiled_bring<Op>(left, a + k * p.a_column, p.a_column, p.a_row, end - k, p.m - row, !plan.a_down);
            tiled_bring<Op>(right, b + k * p.b_row, p.b_row, p.b_column, end - k, p.n - column, plan.b_down);
            __syncthreads();
#pragma unroll
            for (int depth = 0; depth < TILE_DEPTH; depth++) {
                A s[TILE_RESULTS], t[TILE_RESULTS];
#pragma unroll
                for (int i = 0; i < TILE_RESULTS; i++) {
                    s[i] = left[depth][y + i * TILE_SIDE];
                    t[i] = right[depth][x + i * TILE_SIDE];
                }
#pragma unroll
                for (int i = 0; i < TILE_RESULTS; i++) {
#pragma unroll
                    for (int j = 0; j < TILE_RESULTS; j++) {
                        sum[i][j] = Op::multiply_add(sum[i][j], s[i], t[j]);
                    }
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < TILE_RESULTS; i++) {
#pragma unroll
            for (int j = 0; j < TILE_RESULTS; j++) {
                int64_t r = row + y + i * TILE_SIDE, c = column + x + j * TILE_SIDE;
                if (r >= p.m || c >= p.n) {
                    continue;
                }
                if (plan.partials) {
                    int64_t results = plan.batches * p.m * p.n;
                    ((A *)plan.partials)[part * results + (batch * p.m + r) * p.n + c] = sum[i][j];
                } else {
                    Op::store(sum[i][j], bias ? bias + c : nullptr, p.activation,
                              (Result *)p.c + at.c + r * p.c_row + c * p.c_column);
                }
            }
        }
    }
}

template <class Op>
__global__ void __launch_bounds__(TILE_THREADS) tiled_add_up(const __grid_constant__ tiled_plan plan) {
    typedef typename Op::A A;
    typedef typename Op::Result Result;
    const Result *bias = (const Result *)plan.product.bias;
    int64_t results = plan.batches * plan.product.m * plan.product.n;
    for (int64_t i = (int64_t)blockIdx.x * TILE_THREADS + threadIdx.x; i < results;
         i += (int64_t)gridDim.x * TILE_THREADS) {
        A sum = A();
        for (int64_t part = 0; part < plan.parts; part++) {
            sum = Op::add(sum, ((const A *)plan.partials)[part * results + i]);
        }
        Op::store(sum, bias ? bias + i % plan.product.n : nullptr, plan.product.activation,
                  (Result *)plan.product.c + tiled_result(plan.product, i));
    }
}

/* ---- launchers ---- */

static int tiled_grid(const struct cuda *cuda, int64_t blocks) {
    int64_t most = (int64_t)cuda->processors * BLOCKS_MAX;
    return (int)(blocks < most ? blocks : most);
}

template <class Op>
static cudaError_t tiled_launch(const struct cuda *cuda, const struct tiled_plan *plan, cudaStream_t stream) {
    int64_t tiles = plan->batches * plan->rows * plan->columns;
    tiled_multiply<Op><<<tiled_grid(cuda, tiles * plan->parts), TILE_THREADS, 0, stream>>>(*plan);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess && plan->partials) {
        int64_t results = plan->batches * plan->product.m * plan->product.n;
        int grid = tiled_grid(cuda, (results + TILE_THREADS - 1) / TILE_THREADS);
        tiled_add_up<Op><<<grid, TILE_THREADS, 0, stream>>>(*plan);
        error = cudaGetLastError();
    }
    return error;
}

struct tiled_kernel {
    enum dtype a, b;
    cudaError_t (*launch)(const struct cuda *cuda, const struct tiled_plan *plan, cudaStream_t stream);
    int accumulator; /* bytes */
    void (*multiply)(const tiled_plan plan), (*add_up)(const tiled_plan plan);
};

template <class Op> static constexpr struct tiled_kernel tiled_kernel_of(enum dtype a, enum dtype b) {
    return {a, b, tiled_launch<Op>, (int)sizeof(typename Op::A), tiled_multiply<Op>, tiled_add_up<Op>};
}
template <class T> static constexpr struct tiled_kernel tiled_kernel_of_floats(enum dtype dtype) {
    return tiled_kernel_of<tiled_floats<T, T, T>>(dtype, dtype);
}
template <class T, class A> static constexpr struct tiled_kernel tiled_kernel_of_integers(enum dtype dtype) {
    return tiled_kernel_of<tiled_integers<T, A>>(dtype, dtype);
}

static const struct tiled_kernel kernels[] = {
    tiled_kernel_of<tiled_truth>(DTYPE_BOOL, DTYPE_BOOL),
    /* The low bits of a product are the same with a sign. There is no relu without one (matmul.c). */
    tiled_kernel_of_integers<int8_t, uint32_t>(DTYPE_U8),
    tiled_kernel_of_integers<int16_t, uint32_t>(DTYPE_U16),
    tiled_kernel_of_integers<int32_t, uint32_t>(DTYPE_U32),
    tiled_kernel_of_integers<int64_t, uint64_t>(DTYPE_U64),
    tiled_kernel_of_integers<int8_t, uint32_t>(DTYPE_I8),
    tiled_kernel_of_integers<int16_t, uint32_t>(DTYPE_I16),
    tiled_kernel_of_integers<int32_t, uint32_t>(DTYPE_I32),
    tiled_kernel_of_integers<int64_t, uint64_t>(DTYPE_I64),
    tiled_kernel_of_floats<__half>(DTYPE_F16),
    tiled_kernel_of_floats<__nv_bfloat16>(DTYPE_BF16),
    tiled_kernel_of_floats<float>(DTYPE_F32),
    tiled_kernel_of_floats<double>(DTYPE_F64),
    tiled_kernel_of<tiled_complex<formula_c64>>(DTYPE_C64, DTYPE_C64),
    tiled_kernel_of<tiled_complex<formula_c128>>(DTYPE_C128, DTYPE_C128),
    tiled_kernel_of<tiled_floats<__nv_fp8_e4m3, __nv_fp8_e4m3, float>>(DTYPE_F8E4M3, DTYPE_F8E4M3),
    tiled_kernel_of<tiled_floats<__nv_fp8_e4m3, __nv_fp8_e5m2, float>>(DTYPE_F8E4M3, DTYPE_F8E5M2),
    tiled_kernel_of<tiled_floats<__nv_fp8_e5m2, __nv_fp8_e4m3, float>>(DTYPE_F8E5M2, DTYPE_F8E4M3),
    tiled_kernel_of<tiled_floats<__nv_fp8_e5m2, __nv_fp8_e5m2, float>>(DTYPE_F8E5M2, DTYPE_F8E5M2),
};

bool matmul_tiled_walk(cuda_kernel_seen *seen, void *context) {
    for (const struct tiled_kernel &kernel : kernels) {
        if (!seen(context, false, (const void *)kernel.multiply) ||
            !seen(context, false, (const void *)kernel.add_up)) {
            return false;
        }
    }
    return true;
}

static const struct tiled_kernel *tiled_find(enum dtype a, enum dtype b) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (kernels[i].a == a && kernels[i].b == b) {
            return &kernels[i];
        }
    }
    return nullptr;
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

static void plan_init(struct tiled_plan *plan, const struct cuda *cuda, const struct matmul_tiled *product, bool cut) {
    memset(plan, 0, sizeof *plan);
    plan->product = *product;
    plan->batches = 1;
    for (int i = 0; i < product->batch_rank; i++) {
        plan->batches *= product->batch_shape[i];
    }
    plan->rows = (product->m + TILE - 1) / TILE;
    plan->columns = (product->n + TILE - 1) / TILE;
    plan->a_down = magnitude(product->a_row) < magnitude(product->a_column);
    plan->b_down = magnitude(product->b_row) < magnitude(product->b_column);
    plan->parts = 1;
    plan->part = product->k;
    int64_t tiles = plan->batches * plan->rows * plan->columns;
    int64_t wanted = ((int64_t)cuda->processors * BLOCKS_WANTED + tiles - 1) / tiles, worth = product->k / TILE_PART;
    int64_t parts = wanted < worth ? wanted : worth;
    if (cut && parts > 1) {
        plan->part = ((product->k + parts - 1) / parts + TILE_DEPTH - 1) / TILE_DEPTH * TILE_DEPTH;
        plan->parts = (product->k + plan->part - 1) / plan->part;
    }
}

bool matmul_tiled_has(enum dtype a, enum dtype b) {
    return tiled_find(a, b) != nullptr;
}

size_t matmul_tiled_bytes(const struct cuda *cuda, const struct matmul_tiled *product) {
    const struct tiled_kernel *kernel = tiled_find(product->a_dtype, product->b_dtype);
    struct tiled_plan plan;
    plan_init(&plan, cuda, product, true);
    size_t results = (size_t)(plan.batches * product->m * product->n);
    return plan.parts > 1 ? results * (size_t)plan.parts * (size_t)kernel->accumulator : 0;
}

int matmul_tiled_run(struct cuda *cuda, struct cuda_stream *stream, const struct matmul_tiled *product, void *partials,
                     struct fault *fault) {
    const struct tiled_kernel *kernel = tiled_find(product->a_dtype, product->b_dtype);
    struct tiled_plan plan;
    plan_init(&plan, cuda, product, partials != NULL);
    plan.partials = partials;
    CUDA_TRY(fault, kernel->launch(cuda, &plan, stream->stream));
    return STATUS_OK;
}
