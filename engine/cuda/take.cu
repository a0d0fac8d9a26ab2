/* Operations that read positions out of an index tensor. Each index is checked. Elements that a wrong index
 * would have filled are 0. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/take.cuh"

namespace {

/* ---- take: x [outer, extent, inner], output [outer, count, inner], inner in units of T ---- */

struct take_arguments {
    const char *x;
    char *out;
    struct take_indices indices;
    int64_t rows, inner, tiles; /* rows: outer · count; tiles of 2^width units by 2^depth rows */
    struct divisor_wide across, count;
    uint32_t width, depth;
};

enum { TILE = SPACE_THREADS * SPACE_UNROLL, TILE_LOG = 10 };
static_assert(TILE == 1 << TILE_LOG, "a tile's size is a power of two");

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) take_kernel(const __grid_constant__ struct take_arguments p) {
    unsigned long long bad = none;
    for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const int64_t down = index_divide_wide(p.across, tile), side = tile - down * p.across.extent;
        int64_t inner[SPACE_UNROLL], row[SPACE_UNROLL], index[SPACE_UNROLL];
        T value[SPACE_UNROLL];
        bool inside[SPACE_UNROLL];
        /* Indices, what they point at, results: of each kind all reads are under way before the first is waited for. */
#pragma unroll
        for (int u = 0; u < SPACE_UNROLL; u++) {
            const uint32_t element = u * SPACE_THREADS + threadIdx.x;
            inner[u] = (side << p.width) + (element & ((1u << p.width) - 1));
            row[u] = (down << p.depth) + (element >> p.width);
            inside[u] = inner[u] < p.inner && row[u] < p.rows;
            if (inside[u]) {
                index[u] = take_index(p.indices, row[u] - index_divide_wide(p.count, row[u]) * p.count.extent);
            }
        }
#pragma unroll
        for (int u = 0; u < SPACE_UNROLL; u++) {
            value[u] = T();
            const int64_t outer = inside[u] ? index_divide_wide(p.count, row[u]) : 0;
            if (inside[u] && take_check(p.indices, row[u] - outer * p.count.extent, index[u], &bad)) {
                value[u] = ((const T *)p.x)[(outer * p.indices.extent + index[u]) * p.inner + inner[u]];
            }
        }
#pragma unroll
        for (int u = 0; u < SPACE_UNROLL; u++) {
            if (inside[u]) {
                ((T *)p.out)[row[u] * p.inner + inner[u]] = value[u];
            }
        }
    }
    take_finish(p.indices, bad);
}

/* ---- take_along_axis: x [outer, extent, inner], indices and output [outer, count, inner] ---- */

struct along_arguments {
    const char *x;
    char *out;
    struct take_places indices; /* which have the output's shape */
    int64_t n;
    int64_t strides[3]; /* of x */
};

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) along_kernel(const __grid_constant__ struct along_arguments p) {
    unsigned long long bad = none;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t begin = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; begin < p.n; begin += SPACE_UNROLL * step) {
        int64_t index[SPACE_UNROLL];
        T value[SPACE_UNROLL];
#pragma unroll
        for (int u = 0; u < SPACE_UNROLL; u++) {
            index[u] = begin + u * step < p.n ? take_index(p.indices, begin + u * step) : 0;
        }
#pragma unroll
        for (int u = 0; u < SPACE_UNROLL; u++) {
            const int64_t at = begin + u * step;
            value[u] = T();
            if (at < p.n && take_check(p.indices, at, index[u], &bad)) {
                const int64_t row = index_divide_wide(p.indices.inner, at);
                const int64_t outer = index_divide_wide(p.indices.count, row);
                const int64_t inner = at - row * p.indices.inner.extent;
                value[u] = ((const T *)p.x)[outer * p.strides[0] + index[u] * p.strides[1] + inner * p.strides[2]];
            }
        }
#pragma unroll
        for (int u = 0; u < SPACE_UNROLL; u++) {
            if (begin + u * step < p.n) {
                ((T *)p.out)[begin + u * step] = value[u];
            }
        }
    }
    take_finish(p.indices, bad);
}

/* ---- one_hot: output [n, classes], all zero before ---- */

struct one_hot_arguments {
    char *out;
    int64_t n;
    struct number_bytes one;
    struct take_indices indices;
};

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS, 4) /* or the look for a wrong index takes the registers of a block */
    one_hot_kernel(const __grid_constant__ struct one_hot_arguments p) {
    unsigned long long bad = none;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < p.n; at += step) {
        const int64_t index = take_index(p.indices, at);
        if (take_check(p.indices, at, index, &bad)) {
            ((T *)p.out)[at * p.indices.extent + index] = number_of_pattern<T>(p.one);
        }
    }
    take_finish(p.indices, bad);
}

} // namespace

/* ---- launchers ---- */

typedef void take_function(const struct take_arguments arguments);
typedef void along_function(const struct along_arguments arguments);
typedef void one_hot_function(const struct one_hot_arguments arguments);

/* By the size of what is moved at a time. */
static take_function *const take_functions[] = {take_kernel<uint8_t>, take_kernel<uint16_t>, take_kernel<uint32_t>,
                                                take_kernel<uint64_t>, take_kernel<ulonglong2>};
static along_function *const along_functions[] = {along_kernel<uint8_t>, along_kernel<uint16_t>, along_kernel<uint32_t>,
                                                  along_kernel<uint64_t>, along_kernel<ulonglong2>};
static one_hot_function *const one_hot_functions[] = {one_hot_kernel<uint8_t>, one_hot_kernel<uint16_t>,
                                                      one_hot_kernel<uint32_t>, one_hot_kernel<uint64_t>,
                                                      one_hot_kernel<ulonglong2>};

static int take_row(int64_t bytes) {
    return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : 4;
}

static bool take_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (take_function *kernel : take_functions) {
        more = more && seen(context, true, (const void *)kernel);
    }
    for (along_function *kernel : along_functions) {
        more = more && seen(context, true, (const void *)kernel);
    }
    for (one_hot_function *kernel : one_hot_functions) {
        more = more && seen(context, true, (const void *)kernel);
    }
    return more;
}

/* The largest unit, up to 16 bytes, that rows and addresses are multiples of. */
static int64_t take_unit(const void *x, const void *out, int64_t bytes) {
    uint64_t all = (uint64_t)(uintptr_t)x | (uint64_t)(uintptr_t)out | (uint64_t)bytes | 16;
    return (int64_t)(all & -all);
}

static int take_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    int64_t bytes = x->shape[2] * (int64_t)dtype_size((enum dtype)x->dtype), rows = x->shape[0] * out->shape[1];
    int64_t unit = take_unit(x->data, out->data, bytes);
    struct take_arguments arguments = {};
    arguments.x = (const char *)x->data;
    arguments.out = (char *)out->data;
    arguments.indices = take_indices_of(launch, 1, x->shape[1]);
    arguments.rows = rows;
    arguments.inner = bytes / unit;
    arguments.width = space_tile_width(arguments.inner, TILE_LOG);
    arguments.depth = TILE_LOG - arguments.width;
    int64_t across = ((arguments.inner - 1) >> arguments.width) + 1;
    arguments.tiles = across * (((rows - 1) >> arguments.depth) + 1);
    arguments.across = divisor_wide_make(across, arguments.tiles);
    arguments.count = divisor_wide_make(out->shape[1], rows);
    take_function *kernel = take_functions[take_row((int64_t)unit)];
    return space_start((const void *)kernel, space_blocks(cuda, arguments.tiles), &arguments, fault, stream->stream);
}

static int take_along_axis_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                               struct fault *fault) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    size_t size = dtype_size((enum dtype)x->dtype);
    struct along_arguments arguments = {};
    arguments.x = (const char *)x->data;
    arguments.out = (char *)out->data;
    arguments.indices = take_places_of(launch, 1, x->shape[1]);
    arguments.n = out->shape[0] * out->shape[1] * out->shape[2];
    for (int i = 0; i < 3; i++) {
        arguments.strides[i] = x->strides[i];
    }
    along_function *kernel = along_functions[take_row((int64_t)size)];
    unsigned blocks = space_blocks(cuda, arguments.n / (SPACE_THREADS * SPACE_UNROLL) + 1);
    return space_start((const void *)kernel, blocks, &arguments, fault, stream->stream);
}

static int one_hot_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    const struct operand *out = &launch->output;
    enum dtype dtype = (enum dtype)out->dtype;
    size_t size = dtype_size(dtype);
    int64_t n = out->shape[0], classes = out->shape[1];
    struct one_hot_arguments arguments = {(char *)out->data, n, number_one(dtype), take_indices_of(launch, 0, classes)};
    one_hot_function *kernel = one_hot_functions[take_row((int64_t)size)];
    CUDA_TRY(fault, cudaMemsetAsync(out->data, 0, (size_t)(n * classes) * size, stream->stream));
    return space_start((const void *)kernel, space_blocks(cuda, n / SPACE_THREADS + 1), &arguments, fault,
                       stream->stream);
}

const struct cuda_kernel cuda_kernel_take = {
    .base = {.index_dtypes = TAKE_INDEX_DTYPES}, .driver = take_run, .walk = take_walk};
const struct cuda_kernel cuda_kernel_take_along_axis = {
    .base = {.index_dtypes = TAKE_INDEX_DTYPES}, .driver = take_along_axis_run, .walk = take_walk};
const struct cuda_kernel cuda_kernel_one_hot = {
    .base = {.index_dtypes = TAKE_INDEX_DTYPES}, .driver = one_hot_run, .walk = take_walk};
