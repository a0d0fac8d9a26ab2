/* Attention: a block of threads has a tile of TILE rows of q, or backward one of TILE keys, and the other tiles pass through shared memory one
 * after another; the scores of two tiles are the only ones there are. 8 threads share a row: each has every eighth score, and every eighth
 * column of what is summed, in registers. A row's maximum so far is subtracted in exponentials, and sums are scaled down where it grows.
 *
 * Backward computes the scores again, once for the gradient by q, and once for those by k and v, which sum over the rows of all heads that
 * share them: so each number is summed by one thread, in one order.
 *
 * Of halves (T) tiles and sums are in f32 (C): they are widened on their way to shared memory, and results rounded where they are written. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/shared.cuh"
#include "engine/cuda/space.h"
#include "engine/device/attention.h"

#ifndef DYNAMIC_SHARED /* as much shared memory as the launch asks for; defined otherwise where kernels run on the host */
#define DYNAMIC_SHARED(name) extern __shared__ uint4 name[]
#endif

namespace {

enum {
    TILE = 32,
    SHARE = SPACE_THREADS / TILE, /* threads of a row */
    EACH = TILE / SHARE,          /* scores of a thread */
    LINE = TILE + 1,              /* of a tile of scores: neighbouring rows are in different banks */
    WIDTH_MAX = 256,
    WARP = 32,
    WARPS = SPACE_THREADS / WARP,
};

struct attention_arguments {
    struct attention a; /* its mask is an address of the host */
    const void *mask;   /* NULL: there is none */
    int64_t mask_strides[4];
    bool mask_bool, mask_own; /* mask_own: it has q's dtype; neither: the one that is computed in */
    void *dots;               /* of a gradient: of each row's gradient and result */
    int pitch;                /* of a tile's rows: odd */
    int64_t row_tiles, key_tiles;
};

__device__ __forceinline__ float exponential(float x) {
    return expf(x);
}
__device__ __forceinline__ double exponential(double x) {
    return exp(x);
}
__device__ __forceinline__ float logarithm(float x) {
    return logf(x);
}
__device__ __forceinline__ double logarithm(double x) {
    return log(x);
}

template <class T> struct tiles {
    T *left, *right;    /* [TILE][pitch] */
    T *scores, *slopes; /* [TILE][LINE] */
};

template <class T> __device__ __forceinline__ tiles<T> tiles_of(const attention_arguments &p, void *shared) {
    tiles<T> of;
    of.left = (T *)shared;
    of.right = of.left + TILE * p.pitch;
    of.scores = of.right + TILE * p.pitch;
    of.slopes = of.scores + TILE * LINE;
    return of;
}

/* `rows` rows that lie one after another; those that are missing are 0. */
template <class T, class C>
__device__ __forceinline__ void tile_load(const attention_arguments &p, const void *from, int64_t first, int64_t rows,
                                          int64_t width, C *to) {
    const T *x = (const T *)from + first * width;
    const int w = (int)width;
    for (int i = (int)threadIdx.x; i < TILE * w; i += SPACE_THREADS) {
        const int row = i / w, column = i - row * w;
        to[row * p.pitch + column] = row < rows ? number_widen(x[i]) : (C)0;
    }
}

/* Products of a row of `own` with rows of `other`, of which this thread has every eighth. */
template <class T>
__device__ __forceinline__ void tile_dots(const attention_arguments &p, const T *own, const T *other, int64_t width,
                                          T (&dots)[EACH]) {
    const int row = (int)threadIdx.x / SHARE, lane = (int)threadIdx.x % SHARE;
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        dots[u] = 0;
    }
#pragma unroll 4
    for (int c = 0; c < (int)width; c++) {
        const T x = own[row * p.pitch + c];
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            dots[u] += x * other[(lane + u * SHARE) * p.pitch + c];
        }
    }
}

/* Adds the products of a row of `parts` with the columns of a tile, of which this thread has every eighth. */
template <class T, int COLUMNS>
__device__ __forceinline__ void tile_sum(const attention_arguments &p, const T *parts, const T *tile, int64_t width,
                                         T (&sums)[COLUMNS]) {
    const int row = (int)threadIdx.x / SHARE, lane = (int)threadIdx.x % SHARE;
#pragma unroll 1
    for (int j = 0; j < TILE; j++) {
        const T part = parts[row * LINE + j];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            if (lane + c * SHARE < (int)width) {
                sums[c] += part * tile[j * p.pitch + lane + c * SHARE];
            }
        }
    }
}

template <class T, class C, int COLUMNS>
__device__ __forceinline__ void tile_store(void *to, int64_t at, int64_t width, C factor, const C (&sums)[COLUMNS]) {
    const int lane = (int)threadIdx.x % SHARE;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        if (lane + c * SHARE < (int)width) {
            ((T *)to)[at * width + lane + c * SHARE] = number_store<T>::from(sums[c] * factor);
        }
    }
}

template <class T, int COLUMNS> __device__ __forceinline__ void clear(T (&sums)[COLUMNS]) {
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        sums[c] = 0;
    }
}

/* The score of a row and a key, from their product; -inf if the row does not see the key. */
template <class T, class C>
__device__ __forceinline__ C score_of(const attention_arguments &p, int64_t batch, int64_t head, int64_t row,
                                      int64_t key, C product) {
    const C never = -(C)INFINITY;
    if (row >= p.a.n || key >= p.a.m || (p.a.causal && key > row)) {
        return never;
    }
    C score = product * (C)p.a.scale;
    if (p.mask) {
        const int64_t at =
            batch * p.mask_strides[0] + head * p.mask_strides[1] + row * p.mask_strides[2] + key * p.mask_strides[3];
        if (p.mask_bool) {
            score = ((const uint8_t *)p.mask)[at] ? score : never;
        } else if (sizeof(T) == sizeof(C) || p.mask_own) {
            score += number_widen(((const T *)p.mask)[at]);
        } else {
            score += ((const C *)p.mask)[at];
        }
    }
    return score;
}

/* Its part of the row, from logsumexp; 0 where it is not seen. */
template <class T> __device__ __forceinline__ T part_of(T score, T logsumexp) {
    return logsumexp == -(T)INFINITY || score == -(T)INFINITY ? (T)0 : exponential(score - logsumexp);
}

/* Of the threads that share a row. */
template <class T> __device__ __forceinline__ T row_greatest(T x) {
    for (int distance = SHARE / 2; distance > 0; distance /= 2) {
        const T other = __shfl_xor_sync(0xffffffffu, x, distance, SHARE);
        x = other > x ? other : x;
    }
    return x;
}
template <class T> __device__ __forceinline__ T row_sum(T x) {
    for (int distance = SHARE / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, distance, SHARE);
    }
    return x;
}

/* A tile of rows of a head. */
struct row_tile {
    int64_t batch, head, first, rows; /* of q */
    int64_t q, k;                     /* where the head's rows begin: of q, and of k */
    int64_t keys;                     /* that its rows see */
};

__device__ __forceinline__ row_tile row_tile_of(const attention_arguments &p, int64_t unit) {
    row_tile tile;
    const int64_t line = unit / p.row_tiles;
    tile.first = (unit - line * p.row_tiles) * TILE;
    tile.rows = p.a.n - tile.first < TILE ? p.a.n - tile.first : (int64_t)TILE;
    tile.batch = line / p.a.heads;
    tile.head = line - tile.batch * p.a.heads;
    tile.q = line * p.a.n;
    tile.k = (tile.batch * p.a.kv_heads + tile.head / p.a.group) * p.a.m;
    const int64_t seen = tile.first + tile.rows;
    tile.keys = p.a.causal && seen < p.a.m ? seen : p.a.m;
    return tile;
}

template <class T, int COLUMNS>
__global__ void __launch_bounds__(SPACE_THREADS)
    attention_forward(const __grid_constant__ struct attention_arguments p) {
    DYNAMIC_SHARED(shared);
    typedef decltype(number_widen(T())) C;
    const tiles<C> of = tiles_of<C>(p, shared);
    const int own = (int)threadIdx.x / SHARE, lane = (int)threadIdx.x % SHARE;
    const int64_t units = p.a.batch * p.a.heads * p.row_tiles;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const row_tile tile = row_tile_of(p, unit);
        C sums[COLUMNS], maximum = -(C)INFINITY, total = 0;
        clear(sums);
        __syncthreads(); /* the unit before has been read */
        tile_load<T>(p, p.a.q, tile.q + tile.first, tile.rows, p.a.d, of.left);
#pragma unroll 1
        for (int64_t key = 0; key < tile.keys; key += TILE) {
            C scores[EACH], greatest = -(C)INFINITY, sum = 0;
            __syncthreads();
            tile_load<T>(p, p.a.k, tile.k + key, p.a.m - key, p.a.d, of.right);
            __syncthreads();
            tile_dots(p, of.left, of.right, p.a.d, scores);
#pragma unroll
            for (int u = 0; u < EACH; u++) {
                scores[u] = score_of<T>(p, tile.batch, tile.head, tile.first + own, key + lane + u * SHARE, scores[u]);
                greatest = scores[u] > greatest ? scores[u] : greatest;
            }
            greatest = row_greatest(greatest);
            greatest = maximum > greatest ? maximum : greatest;
            const C shift = greatest == -(C)INFINITY ? (C)0 : greatest, keep = exponential(maximum - shift);
#pragma unroll
            for (int u = 0; u < EACH; u++) {
                const C part = exponential(scores[u] - shift);
                of.scores[own * LINE + lane + u * SHARE] = part;
                sum += part;
            }
            total = total * keep + row_sum(sum);
            maximum = greatest;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                sums[c] *= keep;
            }
            __syncthreads();
            tile_load<T>(p, p.a.v, tile.k + key, p.a.m - key, p.a.e, of.right);
            __syncthreads();
            tile_sum(p, of.scores, of.right, p.a.e, sums);
        }
        if (own < tile.rows) {
            const int64_t at = tile.q + tile.first + own;
            tile_store<T>(p.a.out[0], at, p.a.e, total == 0 ? (C)0 : 1 / total, sums);
            if (lane == 0) {
                ((C *)p.a.out[1])[at] = total == 0 ? -(C)INFINITY : maximum + logarithm(total);
            }
        }
    }
}

/* A warp for each row. */
template <class T>
__global__ void __launch_bounds__(SPACE_THREADS) attention_dots(const __grid_constant__ struct attention_arguments p) {
    typedef decltype(number_widen(T())) C;
    const int lane = (int)threadIdx.x % WARP;
    const int64_t rows = p.a.batch * p.a.heads * p.a.n;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP; row < rows;
         row += (int64_t)gridDim.x * WARPS) {
        const T *x = (const T *)p.a.gradient + row * p.a.e, *y = (const T *)p.a.result + row * p.a.e;
        C sum = 0;
        for (int64_t i = lane; i < p.a.e; i += WARP) {
            sum += number_widen(x[i]) * number_widen(y[i]);
        }
        for (int distance = WARP / 2; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, distance, WARP);
        }
        if (lane == 0) {
            ((C *)p.dots)[row] = sum;
        }
    }
}

template <class T, int COLUMNS>
__global__ void __launch_bounds__(SPACE_THREADS) attention_rows(const __grid_constant__ struct attention_arguments p) {
    DYNAMIC_SHARED(shared);
    typedef decltype(number_widen(T())) C;
    const tiles<C> of = tiles_of<C>(p, shared);
    const int own = (int)threadIdx.x / SHARE, lane = (int)threadIdx.x % SHARE;
    const int64_t units = p.a.batch * p.a.heads * p.row_tiles;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const row_tile tile = row_tile_of(p, unit);
        const int64_t row = tile.q + tile.first + own;
        const C logsumexp = own < tile.rows ? ((const C *)p.a.logsumexp)[row] : -(C)INFINITY;
        const C dot = own < tile.rows ? ((const C *)p.dots)[row] : (C)0;
        C sums[COLUMNS];
        clear(sums);
#pragma unroll 1
        for (int64_t key = 0; key < tile.keys; key += TILE) {
            C parts[EACH], slopes[EACH];
            __syncthreads();
            tile_load<T>(p, p.a.q, tile.q + tile.first, tile.rows, p.a.d, of.left);
            tile_load<T>(p, p.a.k, tile.k + key, p.a.m - key, p.a.d, of.right);
            __syncthreads();
            tile_dots(p, of.left, of.right, p.a.d, parts);
#pragma unroll
            for (int u = 0; u < EACH; u++) {
                const C score =
                    score_of<T>(p, tile.batch, tile.head, tile.first + own, key + lane + u * SHARE, parts[u]);
                parts[u] = part_of(score, logsumexp);
            }
            __syncthreads();
            tile_load<T>(p, p.a.gradient, tile.q + tile.first, tile.rows, p.a.e, of.left);
            tile_load<T>(p, p.a.v, tile.k + key, p.a.m - key, p.a.e, of.right);
            __syncthreads();
            tile_dots(p, of.left, of.right, p.a.e, slopes);
#pragma unroll
            for (int u = 0; u < EACH; u++) {
                of.slopes[own * LINE + lane + u * SHARE] = parts[u] * (slopes[u] - dot) * (C)p.a.scale;
            }
            __syncthreads();
            tile_load<T>(p, p.a.k, tile.k + key, p.a.m - key, p.a.d, of.right);
            __syncthreads();
            tile_sum(p, of.slopes, of.right, p.a.d, sums);
        }
        if (own < tile.rows) {
            tile_store<T>(p.a.out[0], row, p.a.d, (C)1, sums);
        }
    }
}

template <class T, int COLUMNS>
__global__ void __launch_bounds__(SPACE_THREADS) attention_keys(const __grid_constant__ struct attention_arguments p) {
    DYNAMIC_SHARED(shared);
    typedef decltype(number_widen(T())) C;
    const tiles<C> of = tiles_of<C>(p, shared);
    const int own = (int)threadIdx.x / SHARE, lane = (int)threadIdx.x % SHARE;
    const int64_t units = p.a.batch * p.a.kv_heads * p.key_tiles;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const int64_t line = unit / p.key_tiles, key = (unit - line * p.key_tiles) * TILE;
        const int64_t batch = line / p.a.kv_heads, first_head = (line - batch * p.a.kv_heads) * p.a.group;
        const int64_t keys = p.a.m - key, begin = line * p.a.m + key;
        C by_k[COLUMNS], by_v[COLUMNS];
        clear(by_k);
        clear(by_v);
#pragma unroll 1
        for (int64_t head = first_head; head < first_head + p.a.group; head++) {
            const int64_t q = (batch * p.a.heads + head) * p.a.n;
#pragma unroll 1
            for (int64_t row = p.a.causal ? key : 0; row < p.a.n; row += TILE) {
                C parts[EACH], slopes[EACH];
                __syncthreads();
                tile_load<T>(p, p.a.q, q + row, p.a.n - row, p.a.d, of.left);
                tile_load<T>(p, p.a.k, begin, keys, p.a.d, of.right);
                __syncthreads();
                tile_dots(p, of.right, of.left, p.a.d, parts);
#pragma unroll
                for (int u = 0; u < EACH; u++) {
                    const int64_t at = row + lane + u * SHARE;
                    const C logsumexp = at < p.a.n ? ((const C *)p.a.logsumexp)[q + at] : -(C)INFINITY;
                    parts[u] = part_of(score_of<T>(p, batch, head, at, key + own, parts[u]), logsumexp);
                }
                __syncthreads();
                tile_load<T>(p, p.a.gradient, q + row, p.a.n - row, p.a.e, of.left);
                tile_load<T>(p, p.a.v, begin, keys, p.a.e, of.right);
                __syncthreads();
                tile_dots(p, of.right, of.left, p.a.e, slopes);
#pragma unroll
                for (int u = 0; u < EACH; u++) {
                    const int64_t at = row + lane + u * SHARE;
                    const C dot = at < p.a.n ? ((const C *)p.dots)[q + at] : (C)0;
                    of.scores[own * LINE + lane + u * SHARE] = parts[u];
                    of.slopes[own * LINE + lane + u * SHARE] = parts[u] * (slopes[u] - dot) * (C)p.a.scale;
                }
                __syncthreads();
                tile_sum(p, of.scores, of.left, p.a.e, by_v);
                __syncthreads();
                tile_load<T>(p, p.a.q, q + row, p.a.n - row, p.a.d, of.left);
                __syncthreads();
                tile_sum(p, of.slopes, of.left, p.a.d, by_k);
            }
        }
        if (own < keys) {
            tile_store<T>(p.a.out[1], begin + own, p.a.d, (C)1, by_k);
            tile_store<T>(p.a.out[2], begin + own, p.a.e, (C)1, by_v);
        }
    }
}

/* ---- launchers ---- */

enum attention_kind { FORWARD, ROWS, KEYS };

template <class T, int COLUMNS>
cudaError_t attention_start(enum attention_kind kind, unsigned blocks, size_t shared, const attention_arguments &p,
                            cudaStream_t stream) {
    const void *kernel = kind == FORWARD ? (const void *)attention_forward<T, COLUMNS>
                         : kind == ROWS  ? (const void *)attention_rows<T, COLUMNS>
                                         : (const void *)attention_keys<T, COLUMNS>;
    cudaError_t error = shared_allow(kernel, (int)shared);
    if (error != cudaSuccess) {
        return error;
    }
    if (kind == FORWARD) {
        attention_forward<T, COLUMNS><<<blocks, SPACE_THREADS, shared, stream>>>(p);
    } else if (kind == ROWS) {
        attention_rows<T, COLUMNS><<<blocks, SPACE_THREADS, shared, stream>>>(p);
    } else {
        attention_keys<T, COLUMNS><<<blocks, SPACE_THREADS, shared, stream>>>(p);
    }
    return cudaGetLastError();
}

typedef cudaError_t attention_starter(enum attention_kind kind, unsigned blocks, size_t shared,
                                      const attention_arguments &p, cudaStream_t stream);

/* By the columns that a thread has, the fewest first; of f64 the most alone. */
enum { WAYS = 3 };
const int attention_columns[WAYS] = {8, 16, 32};
static_assert(DTYPE_F64 - DTYPE_F16 == 3, "the table's order");
#define STARTERS(T)                                                                                                    \
    { attention_start<T, 8>, attention_start<T, 16>, attention_start<T, 32> }
attention_starter *const attention_starters[4][WAYS] = {
    STARTERS(__half),
    STARTERS(__nv_bfloat16),
    STARTERS(float),
    {attention_start<double, 32>, attention_start<double, 32>, attention_start<double, 32>}};
const void *const attention_sums[4] = {(const void *)attention_dots<__half>,
                                       (const void *)attention_dots<__nv_bfloat16>, (const void *)attention_dots<float>,
                                       (const void *)attention_dots<double>};

template <class T, int COLUMNS> bool attention_seen(cuda_kernel_seen *seen, void *context) {
    return seen(context, false, (const void *)attention_forward<T, COLUMNS>) &&
           seen(context, false, (const void *)attention_rows<T, COLUMNS>) &&
           seen(context, false, (const void *)attention_keys<T, COLUMNS>);
}
template <class T> bool attention_seen_all(cuda_kernel_seen *seen, void *context) {
    return attention_seen<T, 8>(seen, context) && attention_seen<T, 16>(seen, context) &&
           attention_seen<T, 32>(seen, context) && seen(context, false, (const void *)attention_dots<T>);
}

attention_starter *starter_of(unsigned dtype, int64_t width) {
    int i = 0;
    while (attention_columns[i] * SHARE < width) {
        i++;
    }
    return attention_starters[dtype - DTYPE_F16][i];
}

} // namespace

static bool attention_walk(cuda_kernel_seen *seen, void *context) {
    return attention_seen_all<__half>(seen, context) && attention_seen_all<__nv_bfloat16>(seen, context) &&
           attention_seen_all<float>(seen, context) && attention_seen<double, 32>(seen, context) &&
           seen(context, false, (const void *)attention_dots<double>);
}

static int64_t width_of(const struct attention *a) {
    return a->d > a->e ? a->d : a->e;
}

/* Of a number that is computed with. */
static size_t size_of(unsigned dtype) {
    return dtype == DTYPE_F64 ? sizeof(double) : sizeof(float);
}

static size_t shared_of(int64_t width, unsigned dtype) {
    return (size_t)(2 * TILE * (width | 1) + 2 * TILE * LINE) * size_of(dtype);
}

static int attention_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    const struct attention a = attention_make(launch);
    const size_t most = (size_t)cuda_of(device)->shared_max;
    if (width_of(&a) > WIDTH_MAX) {
        return fault_set(fault, STATUS_UNSUPPORTED,
                         "a cuda device's attention has at most %d elements on the last axes", (int)WIDTH_MAX);
    }
    if (shared_of(width_of(&a), launch->output.dtype) > most) {
        return fault_set(fault, STATUS_UNSUPPORTED,
                         "the device's blocks have too little shared memory for these heads");
    }
    return STATUS_OK;
}

static uint64_t attention_workspace(struct device *device, const struct launch *launch) {
    const struct attention a = attention_make(launch);
    (void)device;
    return a.back ? (uint64_t)(a.batch * a.heads * a.n) * size_of(launch->output.dtype) : 0;
}

static int attention_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                         struct fault *fault) {
    const unsigned dtype = launch->output.dtype;
    struct attention_arguments p = {};
    p.a = attention_make(launch);
    if (p.a.mask) {
        p.mask = p.a.mask->data;
        p.mask_bool = p.a.mask->dtype == DTYPE_BOOL;
        p.mask_own = p.a.mask->dtype == dtype;
        memcpy(p.mask_strides, p.a.mask->strides, sizeof p.mask_strides);
    }
    p.dots = launch->workspace;
    p.pitch = (int)(width_of(&p.a) | 1);
    p.row_tiles = (p.a.n + TILE - 1) / TILE;
    p.key_tiles = (p.a.m + TILE - 1) / TILE;
    const size_t shared = shared_of(width_of(&p.a), dtype);
    attention_starter *start = starter_of(dtype, width_of(&p.a));
    const int64_t rows = p.a.batch * p.a.heads * p.row_tiles, keys = p.a.batch * p.a.kv_heads * p.key_tiles;
    if (!p.a.back) {
        CUDA_TRY(fault, start(FORWARD, space_blocks(cuda, rows), shared, p, stream->stream));
        return STATUS_OK;
    }
    int code = space_start(attention_sums[dtype - DTYPE_F16],
                           space_blocks(cuda, p.a.batch * p.a.heads * p.a.n / WARPS + 1), &p, fault, stream->stream);
    if (code != STATUS_OK) {
        return code;
    }
    CUDA_TRY(fault, start(ROWS, space_blocks(cuda, rows), shared, p, stream->stream));
    CUDA_TRY(fault, start(KEYS, space_blocks(cuda, keys), shared, p, stream->stream));
    return STATUS_OK;
}

#define ATTENTION                                                                                                      \
    {                                                                                                                  \
        .base = {.accepts = attention_accepts, .workspace = attention_workspace, .halves = true},                      \
        .driver = attention_run, .walk = attention_walk                                                                \
    }
const struct cuda_kernel cuda_kernel_attention = ATTENTION;
const struct cuda_kernel cuda_kernel_attention_grad = ATTENTION;
