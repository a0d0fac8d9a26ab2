/* Positions drawn by weights. engine/device/multinomial.h says how. A block takes a row: its threads add up runs, one of them adds up the
 * runs' sums, and then each thread draws some of the samples. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/space.h"

#define PHILOX_FUNCTION static __host__ __device__ __forceinline__
#include "engine/device/multinomial.h"

namespace {

struct multinomial_arguments {
    const void *weights;
    void *out;
    double *sums; /* [rows][runs + 1] */
    int64_t rows, k, runs, samples;
    uint64_t seed, offset;
    uint8_t dtype;
};

__device__ __forceinline__ double weight_at(const struct multinomial_arguments &p, int64_t at) {
    double weight;
    switch (p.dtype) {
    case DTYPE_F16:
        weight = (double)__half2float(((const __half *)p.weights)[at]);
        break;
    case DTYPE_BF16:
        weight = (double)__bfloat162float(((const __nv_bfloat16 *)p.weights)[at]);
        break;
    case DTYPE_F32:
        weight = (double)((const float *)p.weights)[at];
        break;
    default:
        weight = ((const double *)p.weights)[at];
    }
    return multinomial_weight(weight);
}

/* The number of weights in the run that begins at weight `first`. */
__device__ __forceinline__ int64_t run_extent(const struct multinomial_arguments &p, int64_t first) {
    const int64_t rest = p.k - first, most = MULTINOMIAL_RUN;
    return rest < most ? rest : most;
}

__device__ __forceinline__ int64_t row_sample(const struct multinomial_arguments &p, int64_t row, int64_t sample,
                                              const double *sums) {
    const double u = multinomial_unit(p.seed, p.offset, (uint64_t)(row * p.samples + sample)), total = sums[p.runs];
    if (!(total > 0)) {
        const int64_t at = (int64_t)(u * (double)p.k);
        return at < p.k ? at : p.k - 1;
    }
    const double target = __dmul_rn(u, total); /* rounded before anything is subtracted from it */
    const int64_t run = multinomial_run(sums, p.runs, target), first = run * MULTINOMIAL_RUN;
    const int64_t n = run_extent(p, first);
    double sum = 0;
    int64_t found = 0;
    for (int64_t i = 0; i < n && !(target - sums[run] < sum); i++) {
        const double weight = weight_at(p, row * p.k + first + i);
        found = weight > 0 ? i : found;
        sum += weight;
    }
    return first + found;
}

__global__ void __launch_bounds__(SPACE_THREADS)
    multinomial_kernel(const __grid_constant__ struct multinomial_arguments p) {
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        double *sums = p.sums + row * (p.runs + 1);
        for (int64_t run = threadIdx.x; run < p.runs; run += SPACE_THREADS) {
            const int64_t first = run * MULTINOMIAL_RUN;
            const int64_t n = run_extent(p, first);
            double sum = 0;
            for (int64_t i = 0; i < n; i++) {
                sum += weight_at(p, row * p.k + first + i);
            }
            sums[run + 1] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            double sum = 0;
            sums[0] = 0;
            for (int64_t run = 1; run <= p.runs; run++) {
                sum += sums[run];
                sums[run] = sum;
            }
        }
        __syncthreads();
        for (int64_t sample = threadIdx.x; sample < p.samples; sample += SPACE_THREADS) {
            ((int64_t *)p.out)[row * p.samples + sample] = row_sample(p, row, sample, sums);
        }
    }
}

__global__ void __launch_bounds__(SPACE_THREADS)
    multinomial_keys_kernel(const __grid_constant__ struct multinomial_arguments p) {
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; i < p.rows * p.k; i += step) {
        const double weight = weight_at(p, i), u = multinomial_unit(p.seed, p.offset, (uint64_t)i);
        ((double *)p.out)[i] = weight > 0 ? weight / -log1p(-u) : -1;
    }
}

} // namespace

static bool multinomial_walk(cuda_kernel_seen *seen, void *context) {
    return seen(context, false, (const void *)multinomial_kernel) &&
           seen(context, false, (const void *)multinomial_keys_kernel);
}

static int64_t multinomial_runs(const struct launch *launch) {
    return (launch->inputs[0].shape[1] + MULTINOMIAL_RUN - 1) / MULTINOMIAL_RUN;
}

static uint64_t multinomial_workspace(struct device *device, const struct launch *launch) {
    (void)device;
    return launch->output.dtype == DTYPE_I64
               ? (uint64_t)launch->inputs[0].shape[0] * (uint64_t)(multinomial_runs(launch) + 1) * sizeof(double)
               : 0;
}

static int multinomial_start(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                             struct fault *fault) {
    const struct operand *weights = &launch->inputs[0];
    struct multinomial_attributes given;
    struct multinomial_arguments arguments = {};
    multinomial_attributes_read(&launch->attributes, &given);
    arguments.weights = weights->data;
    arguments.out = launch->output.data;
    arguments.sums = (double *)launch->workspace;
    arguments.rows = weights->shape[0];
    arguments.k = weights->shape[1];
    arguments.runs = multinomial_runs(launch);
    arguments.samples = given.samples;
    arguments.seed = given.seed;
    arguments.offset = (uint64_t)given.offset;
    arguments.dtype = weights->dtype;
    if (given.replacement) {
        return space_start((const void *)multinomial_kernel, space_blocks(cuda, arguments.rows), &arguments, fault,
                           stream->stream);
    }
    return space_start((const void *)multinomial_keys_kernel,
                       space_blocks(cuda, arguments.rows * arguments.k / SPACE_THREADS + 1), &arguments, fault,
                       stream->stream);
}

static bool multinomial_has(unsigned opcode, enum dtype dtype) {
    (void)opcode;
    return dtype >= DTYPE_F16 && dtype <= DTYPE_F64;
}

CUDA_KERNELS_FOUND(multinomial_found, multinomial_has)

const struct cuda_kernel cuda_kernel_multinomial = {
    {.dtypes = multinomial_found, .workspace = multinomial_workspace}, multinomial_start, multinomial_walk};
