/* sort and argsort: a merge sort of items, which are an element's key and its position. All items of a row are different, so it does not
 * matter that networks and merges are not stable, and the order is that of a stable sort.
 *
 * A block sorts a tile of items in shared memory by a bitonic network; short rows lie in a tile side by side. Then pairs of sorted runs are
 * merged, until a row is one run: each block makes one tile of the result, and finds by two binary searches which parts of the two runs
 * belong to it; each thread does the same within the tile. */
#include "engine/cuda/sort_rows.cuh"

namespace {

template <typename I> struct item;
template <> struct item<sort_item> {
    enum { TILE_LOG = 11 };
    static __device__ __forceinline__ sort_item make(uint64_t key, int64_t position) {
        return key << 32 | (uint64_t)position;
    }
    static __device__ __forceinline__ sort_item last() {
        return ~(sort_item)0;
    }
    static __device__ __forceinline__ bool before(sort_item a, sort_item b) {
        return a < b;
    }
    static __device__ __forceinline__ int64_t position(sort_item a) {
        return (int64_t)(a & 0xffffffffu);
    }
};
template <> struct item<sort_item_wide> {
    enum { TILE_LOG = 10 };
    static __device__ __forceinline__ sort_item_wide make(uint64_t key, int64_t position) {
        return {key, (uint64_t)position};
    }
    static __device__ __forceinline__ sort_item_wide last() {
        return {~(uint64_t)0, ~(uint64_t)0};
    }
    static __device__ __forceinline__ bool before(const sort_item_wide &a, const sort_item_wide &b) {
        return a.key < b.key || (a.key == b.key && a.position < b.position);
    }
    static __device__ __forceinline__ int64_t position(const sort_item_wide &a) {
        return (int64_t)a.position;
    }
};

/* ---- tiles ---- */

struct tile_arguments {
    const char *x;
    char *items;
    struct key_type type;
    int64_t rows, n, tiles, strides[3];
    struct divisor_wide inner, across; /* tiles of a row, side by side */
    uint32_t width;                    /* a row takes 2^width places of a tile */
};

/* Sorts each 2^width places of the tile. */
template <typename I> __device__ __forceinline__ void tile_sort(I *items, uint32_t width) {
    enum { PAIRS = 1 << (item<I>::TILE_LOG - 1) };
#pragma unroll 1
    for (uint32_t run = 0; run < width; run++) { /* sorted runs of 2^run become runs of twice as many */
#pragma unroll 1
        for (int step = (int)run; step >= 0; step--) {
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < PAIRS; i += SPACE_THREADS) {
                const uint32_t distance = 1u << step, in = i & (distance - 1), base = i >> step << (step + 1);
                const uint32_t a = base + in;
                /* The first step of a run compares mirrored places, so that all comparisons go one way. */
                const uint32_t b = step == (int)run ? base + 2 * distance - 1 - in : a + distance;
                const I first = items[a], second = items[b];
                if (item<I>::before(second, first)) {
                    items[a] = second;
                    items[b] = first;
                }
            }
        }
    }
    __syncthreads();
}

template <typename I>
__global__ void __launch_bounds__(SPACE_THREADS) tile_kernel(const __grid_constant__ struct tile_arguments p) {
    enum { TILE = 1 << item<I>::TILE_LOG };
    __shared__ I items[TILE];
    for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const int64_t down = index_divide_wide(p.across, tile), side = tile - down * p.across.extent;
        const int64_t first = down * (TILE >> p.width), begin = side << p.width;
        for (uint32_t e = threadIdx.x; e < TILE; e += SPACE_THREADS) {
            const int64_t row = first + (e >> p.width), at = begin + (e & ((1u << p.width) - 1));
            I own = item<I>::last();
            if (row < p.rows && at < p.n) {
                const int64_t outer = index_divide_wide(p.inner, row), inner = row - outer * p.inner.extent;
                const int64_t from = outer * p.strides[0] + at * p.strides[1] + inner * p.strides[2];
                own = item<I>::make(key_read(p.type, p.x, from), at);
            }
            items[e] = own;
        }
        tile_sort(items, p.width);
        for (uint32_t e = threadIdx.x; e < TILE; e += SPACE_THREADS) {
            const int64_t row = first + (e >> p.width), at = begin + (e & ((1u << p.width) - 1));
            if (row < p.rows && at < p.n) {
                ((I *)p.items)[row * p.n + at] = items[e];
            }
        }
        __syncthreads(); /* all have stored their items before these change */
    }
}

/* ---- merges ---- */

struct merge_arguments {
    const char *from;
    char *to;
    int64_t n, tiles;
    struct divisor_wide across; /* tiles of a row */
    int64_t run;                /* items of a sorted run, a power of two */
};

/* How many of the first `diagonal` items of the merged runs are of run a. */
template <typename I>
__device__ __forceinline__ int64_t merge_split(const I *a, int64_t a_count, const I *b, int64_t b_count,
                                               int64_t diagonal) {
    int64_t low = diagonal > b_count ? diagonal - b_count : 0, high = diagonal < a_count ? diagonal : a_count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (item<I>::before(a[middle], b[diagonal - 1 - middle])) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

template <typename I>
__global__ void __launch_bounds__(SPACE_THREADS) merge_kernel(const __grid_constant__ struct merge_arguments p) {
    enum { TILE = 1 << item<I>::TILE_LOG, ITEMS = TILE / SPACE_THREADS };
    __shared__ I items[TILE];
    __shared__ int64_t splits[2];
    for (int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const int64_t row = index_divide_wide(p.across, tile), begin = (tile - row * p.across.extent) * TILE;
        const int64_t end = p.n - begin < TILE ? p.n : begin + TILE;
        const I *from = (const I *)p.from + row * p.n;
        const int64_t pair = begin & ~(2 * p.run - 1), middle = p.n - pair < p.run ? p.n : pair + p.run;
        const int64_t pair_end = p.n - middle < p.run ? p.n : middle + p.run;
        const I *a = from + pair, *b = from + middle;
        if (threadIdx.x < 2) {
            splits[threadIdx.x] =
                merge_split(a, middle - pair, b, pair_end - middle, (threadIdx.x ? end : begin) - pair);
        }
        __syncthreads();
        const int64_t a_begin = splits[0], b_begin = begin - pair - a_begin;
        const int a_count = (int)(splits[1] - a_begin), count = (int)(end - begin), b_count = count - a_count;
        for (int e = (int)threadIdx.x; e < count; e += SPACE_THREADS) {
            items[e] = e < a_count ? a[a_begin + e] : b[b_begin + e - a_count];
        }
        __syncthreads();
        const int first = (int)threadIdx.x * ITEMS;
        I own[ITEMS];
        if (first < count) {
            const I *left = items, *right = items + a_count;
            int i = (int)merge_split(left, a_count, right, b_count, first), j = first - i;
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                if (first + e < count) {
                    const bool takes = j >= b_count || (i < a_count && item<I>::before(left[i], right[j]));
                    own[e] = takes ? left[i] : right[j];
                    i += takes;
                    j += !takes;
                }
            }
        }
        __syncthreads();
        if (first < count) {
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                if (first + e < count) {
                    items[first + e] = own[e];
                }
            }
        }
        __syncthreads();
        for (int e = (int)threadIdx.x; e < count; e += SPACE_THREADS) {
            ((I *)p.to)[row * p.n + begin + e] = items[e];
        }
        __syncthreads(); /* all have stored their items before these change */
    }
}

/* ---- results ---- */

struct finish_arguments {
    const char *x, *items;
    char *values;       /* or NULL */
    int64_t *positions; /* or NULL */
    int64_t elements;
    struct divisor_wide inner, n;
    uint32_t size;
};

/* Writes element `to` of the output, which is [outer, n, inner] as x is. */
template <typename I>
__global__ void __launch_bounds__(SPACE_THREADS) finish_kernel(const __grid_constant__ struct finish_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t to = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; to < p.elements; to += step) {
        const int64_t line = index_divide_wide(p.inner, to), inner = to - line * p.inner.extent;
        const int64_t outer = index_divide_wide(p.n, line), place = line - outer * p.n.extent;
        const int64_t row = outer * p.inner.extent + inner;
        const int64_t position = item<I>::position(((const I *)p.items)[row * p.n.extent + place]);
        if (p.positions) {
            p.positions[to] = position;
        } else {
            const int64_t from = (outer * p.n.extent + position) * p.inner.extent + inner;
            key_copy(p.values, to, key_bits(p.x, from, p.size), p.size);
        }
    }
}

} // namespace

/* ---- launchers ---- */

static int64_t tile_log(const struct key_type &type) {
    return sort_is_wide(type) ? (int)item<sort_item_wide>::TILE_LOG : (int)item<sort_item>::TILE_LOG;
}

uint64_t sort_rows_bytes(const struct key_type &type, int64_t rows, int64_t n) {
    const uint64_t items = (uint64_t)rows * (uint64_t)n;
    const uint64_t bytes = items * (sort_is_wide(type) ? sizeof(sort_item_wide) : sizeof(sort_item));
    return n > (int64_t)1 << tile_log(type) ? 2 * bytes : bytes;
}

template <typename I>
static int rows_run(const struct cuda *cuda, const struct sort_rows *sort, const char **sorted, struct fault *fault,
                    cudaStream_t stream) {
    const int64_t rows = sort->rows, n = sort->n, log = item<I>::TILE_LOG, tile = (int64_t)1 << log;
    const int64_t across = (n + tile - 1) / tile;
    struct tile_arguments tiles = {};
    tiles.x = sort->x;
    tiles.items = sort->memory;
    tiles.type = sort->type;
    tiles.rows = rows;
    tiles.n = n;
    for (int i = 0; i < 3; i++) {
        tiles.strides[i] = sort->strides[i];
    }
    while (tiles.width < log && (int64_t)1 << tiles.width < n) {
        tiles.width++;
    }
    const int64_t beside = tile >> tiles.width; /* rows in a tile */
    tiles.tiles = across * ((rows + beside - 1) / beside);
    tiles.across = divisor_wide_make(across, tiles.tiles);
    tiles.inner = divisor_wide_make(sort->inner, rows);
    *sorted = sort->memory;
    int code = space_start((const void *)tile_kernel<I>, space_blocks(cuda, tiles.tiles), &tiles, fault, stream);
    struct merge_arguments merge = {};
    merge.n = n;
    merge.tiles = across * rows;
    merge.across = divisor_wide_make(across, merge.tiles);
    char *other = sort->memory + (uint64_t)rows * (uint64_t)n * sizeof(I);
    for (merge.run = tile; merge.run < n && code == STATUS_OK; merge.run *= 2) {
        merge.from = *sorted;
        merge.to = other;
        code = space_start((const void *)merge_kernel<I>, space_blocks(cuda, merge.tiles), &merge, fault, stream);
        other = (char *)(uintptr_t)*sorted;
        *sorted = merge.to;
    }
    return code;
}

int sort_rows_run(const struct cuda *cuda, const struct sort_rows *sort, const char **sorted, struct fault *fault,
                  cudaStream_t stream) {
    return sort_is_wide(sort->type) ? rows_run<sort_item_wide>(cuda, sort, sorted, fault, stream)
                                    : rows_run<sort_item>(cuda, sort, sorted, fault, stream);
}

bool sort_rows_walk(cuda_kernel_seen *seen, void *context) {
    static const void *const kernels[] = {
        (const void *)tile_kernel<sort_item>, (const void *)tile_kernel<sort_item_wide>,
        (const void *)merge_kernel<sort_item>, (const void *)merge_kernel<sort_item_wide>};
    bool more = true;
    for (const void *kernel : kernels) {
        more = more && seen(context, false, kernel);
    }
    return more;
}

static bool sort_walk(cuda_kernel_seen *seen, void *context) {
    return sort_rows_walk(seen, context) && seen(context, false, (const void *)finish_kernel<sort_item>) &&
           seen(context, false, (const void *)finish_kernel<sort_item_wide>);
}

static int sort_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    (void)device;
    return launch->inputs[0].shape[1] < UINT32_MAX
               ? STATUS_OK
               : fault_set(fault, STATUS_UNSUPPORTED, "an axis of %lld elements is too long to sort",
                           (long long)launch->inputs[0].shape[1]);
}

static uint64_t sort_workspace(struct device *device, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    (void)device;
    return sort_rows_bytes(key_type_of((enum dtype)x->dtype), x->shape[0] * x->shape[2], x->shape[1]);
}

static int sort_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *x = &launch->inputs[0];
    struct sort_attributes attributes; /* argsort has the same */
    sort_attributes_read(&launch->attributes, &attributes);
    struct sort_rows sort = {};
    sort.x = (const char *)x->data;
    sort.type = key_type_of((enum dtype)x->dtype);
    sort.type.flip = attributes.descending ? ~UINT64_C(0) : 0;
    sort.rows = x->shape[0] * x->shape[2];
    sort.n = x->shape[1];
    sort.inner = x->shape[2];
    sort.strides[0] = sort.n * sort.inner;
    sort.strides[1] = sort.inner;
    sort.strides[2] = 1;
    sort.memory = (char *)launch->workspace;
    struct finish_arguments finish = {};
    int code = sort_rows_run(cuda, &sort, &finish.items, fault, stream->stream);
    if (code != STATUS_OK) {
        return code;
    }
    finish.x = sort.x;
    finish.values = launch->opcode == OP_SORT ? (char *)launch->output.data : nullptr;
    finish.positions = launch->opcode == OP_ARGSORT ? (int64_t *)launch->output.data : nullptr;
    finish.elements = sort.rows * sort.n;
    finish.inner = divisor_wide_make(sort.inner, finish.elements);
    finish.n = divisor_wide_make(sort.n, finish.elements);
    finish.size = sort.type.size;
    const void *kernel =
        sort_is_wide(sort.type) ? (const void *)finish_kernel<sort_item_wide> : (const void *)finish_kernel<sort_item>;
    return space_start(kernel, space_blocks(cuda, finish.elements / SPACE_THREADS + 1), &finish, fault, stream->stream);
}

#define SORT {{.accepts = sort_accepts, .workspace = sort_workspace}, sort_run, sort_walk}
const struct cuda_kernel cuda_kernel_sort = SORT;
const struct cuda_kernel cuda_kernel_argsort = SORT;
