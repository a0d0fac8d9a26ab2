/* nonzero, masked_select and unique_runs: elements that are chosen, one after another, and their number.
 *
 * Three kernels: each block counts what it chooses in its chunks; one block adds the counts up; each block writes what it chooses behind
 * that of the chunks before. Outputs are zero before. */
#include "engine/cuda/block_scan.cuh"
#include "engine/cuda/key.cuh"
#include "engine/cuda/take.cuh"

namespace {

enum { EACH = 8, CHUNK = SPACE_THREADS * EACH }; /* elements of a thread, which lie together, and of a chunk */
enum compact_mode { COMPACT_NONZERO, COMPACT_MASK, COMPACT_RUNS };

struct compact_arguments {
    enum compact_mode mode;
    const char *x;
    const uint8_t *mask;
    struct key_type type;
    uint32_t parts; /* bytes of each part of complex numbers, which have no keys; else 0 */
    int64_t n, chunks;
    unsigned long long *counts; /* [chunks] */
    int64_t *count;             /* the number of all */
    char *values;
    int64_t *indices, *inverse, *run_counts;
    struct take_indices positions;
    int rank;
    struct divisor_wide shape[SHAPE_RANK_MAX];
};

__device__ __forceinline__ bool compact_is_nan(const struct compact_arguments &p, uint64_t key) {
    const uint64_t sign = (uint64_t)1 << (8 * p.type.size - 1);
    return p.type.kind == KEY_FLOAT && key == (sign | (sign - 1));
}

/* Whether two complex numbers are equal. */
__device__ __forceinline__ bool compact_same(const struct compact_arguments &p, int64_t a, int64_t b) {
    if (p.parts == sizeof(double)) {
        const double *x = (const double *)p.x;
        return x[2 * a] == x[2 * b] && x[2 * a + 1] == x[2 * b + 1];
    }
    const float *x = (const float *)p.x;
    return x[2 * a] == x[2 * b] && x[2 * a + 1] == x[2 * b + 1];
}

__device__ __forceinline__ bool compact_chooses(const struct compact_arguments &p, int64_t at) {
    if (p.mode == COMPACT_MASK) {
        return p.mask[at] != 0;
    }
    if (p.mode == COMPACT_NONZERO) {
        const uint64_t bits = key_bits(p.x, at, p.type.size), sign = (uint64_t)1 << (8 * p.type.size - 1);
        return (p.type.kind == KEY_FLOAT ? bits & ~sign : bits) != 0;
    }
    if (p.parts) {
        return at == 0 || !compact_same(p, at, at - 1);
    }
    const uint64_t key = key_read(p.type, p.x, at);
    return at == 0 || compact_is_nan(p, key) || key != key_read(p.type, p.x, at - 1);
}

__device__ __forceinline__ unsigned compact_count(const struct compact_arguments &p, int64_t begin) {
    unsigned count = 0;
    for (int64_t at = begin; at < begin + EACH && at < p.n; at++) {
        count += compact_chooses(p, at);
    }
    return count;
}

__global__ void __launch_bounds__(SPACE_THREADS)
    compact_count_kernel(const __grid_constant__ struct compact_arguments p) {
    __shared__ unsigned long long sums[SPACE_THREADS];
    for (int64_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const unsigned long long sum =
            block_scan(compact_count(p, chunk * CHUNK + (int64_t)threadIdx.x * EACH), sums);
        if (threadIdx.x == SPACE_THREADS - 1) {
            p.counts[chunk] = sum;
        }
        __syncthreads(); /* all have read their sums before these change */
    }
}

/* By one block: counts become places. */
__global__ void __launch_bounds__(SPACE_THREADS)
    compact_place_kernel(const __grid_constant__ struct compact_arguments p) {
    __shared__ unsigned long long sums[SPACE_THREADS];
    const unsigned long long all = block_scan_all(p.counts, p.chunks, sums);
    if (threadIdx.x == 0) {
        *p.count = (int64_t)all;
    }
}

/* Where the run that begins at an element ends. */
__device__ __forceinline__ int64_t compact_run_end(const struct compact_arguments &p, int64_t begin) {
    const uint64_t key = p.parts ? 0 : key_read(p.type, p.x, begin);
    const bool nan = p.parts ? !compact_same(p, begin, begin) : compact_is_nan(p, key);
    int64_t low = begin + 1, high = nan ? low : p.n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (p.parts ? compact_same(p, begin, middle) : key_read(p.type, p.x, middle) == key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

__device__ __forceinline__ void compact_write(const struct compact_arguments &p, int64_t at, int64_t place) {
    if (p.mode == COMPACT_NONZERO) {
        int64_t rest = at;
        for (int axis = p.rank - 1; axis >= 0; axis--) {
            const int64_t next = index_divide_wide(p.shape[axis], rest);
            p.indices[axis * p.n + place] = rest - next * p.shape[axis].extent;
            rest = next;
        }
        return;
    }
    if (p.type.size == 16) {
        ((ulonglong2 *)p.values)[place] = ((const ulonglong2 *)p.x)[at];
    } else {
        key_copy(p.values, place, key_bits(p.x, at, p.type.size), p.type.size);
    }
    if (p.mode == COMPACT_RUNS) {
        p.indices[place] = take_index(p.positions, at);
        p.run_counts[place] = compact_run_end(p, at) - at;
    }
}

__global__ void __launch_bounds__(SPACE_THREADS)
    compact_write_kernel(const __grid_constant__ struct compact_arguments p) {
    __shared__ unsigned long long sums[SPACE_THREADS];
    for (int64_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const int64_t begin = chunk * CHUNK + (int64_t)threadIdx.x * EACH;
        const unsigned own = compact_count(p, begin);
        int64_t place = (int64_t)(p.counts[chunk] + block_scan(own, sums) - own);
        for (int64_t at = begin; at < begin + EACH && at < p.n; at++) {
            if (compact_chooses(p, at)) {
                compact_write(p, at, place++);
            }
            const int64_t position = p.mode == COMPACT_RUNS ? take_index(p.positions, at) : -1;
            if ((uint64_t)position < (uint64_t)p.n) {
                p.inverse[position] = place - 1;
            }
        }
        __syncthreads(); /* all have read their sums before these change */
    }
}

} // namespace

/* ---- the launcher ---- */

static bool compact_walk(cuda_kernel_seen *seen, void *context) {
    return seen(context, false, (const void *)compact_count_kernel) &&
           seen(context, false, (const void *)compact_place_kernel) &&
           seen(context, false, (const void *)compact_write_kernel);
}

static int64_t operand_elements(const struct operand *operand) {
    int64_t n = 1;
    for (int i = 0; i < operand->rank; i++) {
        n *= operand->shape[i];
    }
    return n;
}

static int64_t compact_chunks(const struct launch *launch) {
    return (operand_elements(&launch->inputs[0]) - 1) / CHUNK + 1;
}

static uint64_t compact_workspace(struct device *device, const struct launch *launch) {
    (void)device;
    return (uint64_t)compact_chunks(launch) * sizeof(unsigned long long);
}

static int compact_clear(const struct operand *out, struct fault *fault, cudaStream_t stream) {
    size_t bytes = (size_t)operand_elements(out) * dtype_size((enum dtype)out->dtype);
    CUDA_TRY(fault, cudaMemsetAsync(out->data, 0, bytes, stream));
    return STATUS_OK;
}

static struct compact_arguments compact_make(const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    struct compact_arguments arguments = {};
    arguments.mode = launch->opcode == OP_NONZERO         ? COMPACT_NONZERO
                     : launch->opcode == OP_MASKED_SELECT ? COMPACT_MASK
                                                          : COMPACT_RUNS;
    arguments.x = (const char *)x->data;
    arguments.type = key_type_of((enum dtype)x->dtype);
    arguments.parts = dtype_is_complex((enum dtype)x->dtype) ? arguments.type.size / 2 : 0;
    arguments.n = operand_elements(x);
    arguments.rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        arguments.shape[i] = divisor_wide_make(x->shape[i], arguments.n);
    }
    arguments.chunks = compact_chunks(launch);
    arguments.counts = (unsigned long long *)launch->workspace;
    arguments.count = (int64_t *)launch_further(launch, launch->further)->data;
    arguments.values = (char *)launch->output.data;
    if (arguments.mode == COMPACT_NONZERO) {
        arguments.indices = (int64_t *)launch->output.data;
    } else if (arguments.mode == COMPACT_MASK) {
        arguments.mask = (const uint8_t *)launch->inputs[1].data;
    } else {
        arguments.positions = {launch->inputs[1].data, arguments.n, NULL, launch->inputs[1].dtype == DTYPE_I32, 1};
        arguments.indices = (int64_t *)launch_further(launch, 1)->data;
        arguments.inverse = (int64_t *)launch_further(launch, 2)->data;
        arguments.run_counts = (int64_t *)launch_further(launch, 3)->data;
    }
    return arguments;
}

static int compact_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    const struct compact_arguments arguments = compact_make(launch);
    const unsigned blocks = space_blocks(cuda, arguments.chunks);
    int code = compact_clear(&launch->output, fault, stream->stream);
    for (unsigned i = 1; i < launch->further && code == STATUS_OK; i++) {
        code = compact_clear(launch_further(launch, i), fault, stream->stream);
    }
    if (code == STATUS_OK) {
        code = space_start((const void *)compact_count_kernel, blocks, &arguments, fault, stream->stream);
    }
    if (code == STATUS_OK) {
        code = space_start((const void *)compact_place_kernel, 1, &arguments, fault, stream->stream);
    }
    if (code == STATUS_OK) {
        code = space_start((const void *)compact_write_kernel, blocks, &arguments, fault, stream->stream);
    }
    return code;
}

#define COMPACT                                                                                                        \
    { {.index_dtypes = TAKE_INDEX_DTYPES, .workspace = compact_workspace}, compact_run, compact_walk }
const struct cuda_kernel cuda_kernel_nonzero = COMPACT;
const struct cuda_kernel cuda_kernel_masked_select = COMPACT;
const struct cuda_kernel cuda_kernel_unique_runs = COMPACT;
