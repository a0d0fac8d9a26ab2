/* histogram: blocks count in shared memory, where the bins have room there, and add their counts to the output. Sums of integers are the
 * same in any order. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/space.h"

namespace {

enum { BINS = 4096 }; /* that have room in shared memory */

struct count_arguments {
    const char *x;
    unsigned long long *out;
    int64_t n, bins;
    double low, high, scale;
};

/* -1: in no bin. */
__device__ __forceinline__ int64_t count_bin(const struct count_arguments &p, double x) {
    if (!(x >= p.low && x <= p.high)) {
        return -1;
    }
    const int64_t bin = (int64_t)((x - p.low) * p.scale);
    return bin < p.bins ? bin : p.bins - 1;
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) count_kernel(const __grid_constant__ struct count_arguments p) {
    __shared__ unsigned counts[BINS];
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const bool near = p.bins <= BINS;
    for (int i = (int)threadIdx.x; near && i < (int)p.bins; i += SPACE_THREADS) {
        counts[i] = 0;
    }
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step) {
        const int64_t bin = count_bin(p, (double)number_widen(((const T *)p.x)[i]));
        if (bin >= 0 && near) {
            atomicAdd(&counts[bin], 1u);
        } else if (bin >= 0) {
            atomicAdd(&p.out[bin], 1ull);
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; near && i < (int)p.bins; i += SPACE_THREADS) {
        if (counts[i]) {
            atomicAdd(&p.out[i], (unsigned long long)counts[i]);
        }
    }
}

} // namespace

typedef void count_function(const struct count_arguments arguments);

struct count_entry {
    enum dtype dtype;
    count_function *kernel;
};

static const struct count_entry count_entries[] = {
    {DTYPE_U16, count_kernel<uint16_t>},       {DTYPE_U32, count_kernel<uint32_t>}, {DTYPE_U64, count_kernel<uint64_t>},
    {DTYPE_U8, count_kernel<uint8_t>},         {DTYPE_I8, count_kernel<int8_t>},    {DTYPE_I16, count_kernel<int16_t>},
    {DTYPE_I32, count_kernel<int32_t>},        {DTYPE_I64, count_kernel<int64_t>},  {DTYPE_F16, count_kernel<__half>},
    {DTYPE_BF16, count_kernel<__nv_bfloat16>}, {DTYPE_F32, count_kernel<float>},    {DTYPE_F64, count_kernel<double>},
};

static bool count_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (const struct count_entry &entry : count_entries) {
        more = more && seen(context, false, (const void *)entry.kernel);
    }
    return more;
}

static int histogram_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                         struct fault *fault) {
    enum { MOST = 1 << 30 }; /* elements of a launch: a block's counts have 32 bits */
    const struct operand *x = &launch->inputs[0];
    const int64_t size = (int64_t)dtype_size((enum dtype)x->dtype), n = x->shape[0];
    struct histogram_attributes given;
    histogram_attributes_read(&launch->attributes, &given);
    struct count_arguments arguments = {(const char *)x->data,
                                        (unsigned long long *)launch->output.data,
                                        0,
                                        given.bins,
                                        given.low,
                                        given.high,
                                        (double)given.bins / (given.high - given.low)};
    count_function *kernel = nullptr;
    for (const struct count_entry &entry : count_entries) {
        kernel = entry.dtype == (enum dtype)x->dtype ? entry.kernel : kernel;
    }
    if (!kernel) {
        return fault_set(fault, STATUS_INTERNAL, "histogram of %s has no kernel", dtype_name((enum dtype)x->dtype));
    }
    CUDA_TRY(fault, cudaMemsetAsync(launch->output.data, 0, (size_t)given.bins * sizeof(int64_t), stream->stream));
    int code = STATUS_OK;
    for (int64_t begin = 0; begin < n && code == STATUS_OK; begin += MOST) {
        arguments.x = (const char *)x->data + begin * size;
        arguments.n = n - begin < MOST ? n - begin : (int64_t)MOST;
        code = space_start((const void *)kernel, space_blocks(cuda, arguments.n / (SPACE_THREADS * 4) + 1), &arguments,
                           fault, stream->stream);
    }
    return code;
}

const struct cuda_kernel cuda_kernel_histogram = {.driver = histogram_run, .walk = count_walk};
