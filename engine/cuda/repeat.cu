/* repeat_each: elements of an axis, each as often as its count says.
 *
 * Four kernels: each block adds up the counts of its chunks; one block makes of these sums where chunks begin; each block writes the sum up to and with
 * each count; each thread looks for the element that comes to its place. */
#include "engine/cuda/block_scan.cuh"
#include "engine/cuda/take.cuh"

namespace {

enum { EACH = 8, CHUNK = SPACE_THREADS * EACH }; /* counts of a thread, which lie together, and of a chunk */

struct repeat_arguments {
    const char *x;
    char *out;
    struct take_indices counts;
    int64_t outer, n, length, inner, chunks; /* inner: in units of `T` */
    unsigned long long *begins;              /* [chunks] the sum of a chunk, then of those before it */
    unsigned long long *ends;                /* [n] */
    unsigned long long *total;               /* zero before */
    struct divisor_wide by_inner, by_length;
};

__device__ __forceinline__ unsigned long long repeat_count(const struct repeat_arguments &p, int64_t at) {
    const int64_t count = at < p.n ? take_index(p.counts, at) : 0;
    return count < 0 ? 0 : (unsigned long long)count;
}

__device__ __forceinline__ unsigned long long repeat_own(const struct repeat_arguments &p, int64_t begin) {
    unsigned long long sum = 0;
    for (int64_t at = begin; at < begin + EACH; at++) {
        sum += repeat_count(p, at);
    }
    return sum;
}

__global__ void __launch_bounds__(SPACE_THREADS)
    repeat_count_kernel(const __grid_constant__ struct repeat_arguments p) {
    __shared__ unsigned long long sums[SPACE_THREADS];
    for (int64_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const int64_t begin = chunk * CHUNK + (int64_t)threadIdx.x * EACH;
        const unsigned long long sum = block_scan(repeat_own(p, begin), sums);
        unsigned long long given = 0;
        for (int64_t at = begin; at < begin + EACH && at < p.n; at++) {
            given += (unsigned long long)take_index(p.counts, at);
        }
        atomicAdd(p.total, given);
        if (threadIdx.x == SPACE_THREADS - 1) {
            p.begins[chunk] = sum;
        }
        __syncthreads(); /* all have read their sums before these change */
    }
}

/* By one block. */
__global__ void __launch_bounds__(SPACE_THREADS)
    repeat_begin_kernel(const __grid_constant__ struct repeat_arguments p) {
    __shared__ unsigned long long sums[SPACE_THREADS];
    block_scan_all(p.begins, p.chunks, sums);
}

__global__ void __launch_bounds__(SPACE_THREADS) repeat_end_kernel(const __grid_constant__ struct repeat_arguments p) {
    __shared__ unsigned long long sums[SPACE_THREADS];
    for (int64_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const int64_t begin = chunk * CHUNK + (int64_t)threadIdx.x * EACH;
        const unsigned long long own = repeat_own(p, begin);
        unsigned long long end = p.begins[chunk] + block_scan(own, sums) - own;
        for (int64_t at = begin; at < begin + EACH && at < p.n; at++) {
            end += repeat_count(p, at);
            p.ends[at] = end;
        }
        __syncthreads(); /* all have read their sums before these change */
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS)
    repeat_write_kernel(const __grid_constant__ struct repeat_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x, all = p.outer * p.length * p.inner;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        const int64_t row = index_divide_wide(p.by_inner, i), line = index_divide_wide(p.by_length, row);
        const unsigned long long place = (unsigned long long)(row - line * p.length);
        int64_t low = 0, high = p.n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (p.ends[middle] <= place) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        T value = {};
        if (low < p.n) {
            value = ((const T *)p.x)[(line * p.n + low) * p.inner + i - row * p.inner];
        }
        ((T *)p.out)[i] = value;
    }
}

typedef void repeat_function(const struct repeat_arguments arguments);

} // namespace

/* ---- the launcher ---- */

static repeat_function *const repeat_writes[] = {repeat_write_kernel<uint8_t>, repeat_write_kernel<uint16_t>,
                                                 repeat_write_kernel<uint32_t>, repeat_write_kernel<uint64_t>,
                                                 repeat_write_kernel<ulonglong2>};

static bool repeat_walk(cuda_kernel_seen *seen, void *context) {
    bool more = seen(context, false, (const void *)repeat_count_kernel) &&
                seen(context, false, (const void *)repeat_begin_kernel) &&
                seen(context, false, (const void *)repeat_end_kernel);
    for (repeat_function *kernel : repeat_writes) {
        more = more && seen(context, false, (const void *)kernel);
    }
    return more;
}

static int64_t repeat_chunks(const struct launch *launch) {
    return (launch->inputs[1].shape[0] - 1) / CHUNK + 1;
}

static uint64_t repeat_workspace(struct device *device, const struct launch *launch) {
    (void)device;
    return (uint64_t)(repeat_chunks(launch) + launch->inputs[1].shape[0]) * sizeof(unsigned long long);
}

static struct repeat_arguments repeat_make(const struct launch *launch) {
    const struct operand *x = &launch->inputs[0], *counts = &launch->inputs[1], *out = &launch->output;
    struct repeat_arguments arguments = {};
    arguments.x = (const char *)x->data;
    arguments.out = (char *)out->data;
    arguments.counts = {counts->data, 0, NULL, counts->dtype == DTYPE_I32, 1};
    arguments.outer = out->shape[0];
    arguments.n = x->shape[1];
    arguments.length = out->shape[1];
    arguments.inner = out->shape[2];
    arguments.chunks = repeat_chunks(launch);
    arguments.begins = (unsigned long long *)launch->workspace;
    arguments.ends = arguments.begins + arguments.chunks;
    arguments.total = (unsigned long long *)launch_further(launch, 1)->data;
    const int64_t rows = arguments.outer * arguments.length;
    arguments.by_inner = divisor_wide_make(arguments.inner, rows * arguments.inner);
    arguments.by_length = divisor_wide_make(arguments.length, rows);
    return arguments;
}

static int repeat_each_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                           struct fault *fault) {
    const struct repeat_arguments arguments = repeat_make(launch);
    const unsigned blocks = space_blocks(cuda, arguments.chunks);
    const int64_t all = arguments.outer * arguments.length * arguments.inner;
    const size_t size = dtype_size((enum dtype)launch->output.dtype);
    repeat_function *write = repeat_writes[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4];
    CUDA_TRY(fault, cudaMemsetAsync(arguments.total, 0, sizeof *arguments.total, stream->stream));
    int code = space_start((const void *)repeat_count_kernel, blocks, &arguments, fault, stream->stream);
    if (code == STATUS_OK) {
        code = space_start((const void *)repeat_begin_kernel, 1, &arguments, fault, stream->stream);
    }
    if (code == STATUS_OK) {
        code = space_start((const void *)repeat_end_kernel, blocks, &arguments, fault, stream->stream);
    }
    if (code == STATUS_OK) {
        code = space_start((const void *)write, space_blocks(cuda, all / SPACE_THREADS + 1), &arguments, fault,
                           stream->stream);
    }
    return code;
}

const struct cuda_kernel cuda_kernel_repeat_each = {
    {.index_dtypes = TAKE_INDEX_DTYPES, .workspace = repeat_workspace}, repeat_each_run, repeat_walk};
