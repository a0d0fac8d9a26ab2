/* Random numbers: engine/device/philox.h defines every one of them. A thread makes the numbers of one block of the generator, four
 * or (f64) two, and writes them at once. Uniform numbers are the CPU's to the bit; normal ones within the error of log, sine
 * and cosine. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/space.h"

#define PHILOX_FUNCTION static __device__ __forceinline__
#include "engine/device/philox.h"

namespace {

struct random_arguments {
    void *out;
    int64_t n;
    uint64_t seed, offset;
    double first, second; /* low and high, or mean and deviation */
    double least, last;   /* what uniform may give: values of the dtype */
    bool plain;           /* first is 0 and second 1: nothing is scaled */
};

/* ---- four lanes to numbers ---- */

/* For floats of up to 32 bits, with first 0 and second 1: the same numbers without f64, of which a processor converts only 16 in a clock.
 * For 0 + u · 1 is u, and 0 + x · 1 is x, or 0 for -0. */
struct uniform {
    static __device__ __forceinline__ void plain(const struct random_arguments &p, const uint32_t *lane,
                                                 float (&value)[4]) {
        const float last = (float)p.last;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float u = philox_unit_float(lane[i]);
            value[i] = u > last ? last : u;
        }
    }
    static __device__ __forceinline__ double bounded(const struct random_arguments &p, double u) {
        double value = formula_multiply_add(p.first, u, __dsub_rn(p.second, p.first));
        value = value < p.least ? p.least : value;
        return value > p.last ? p.last : value;
    }
    static __device__ __forceinline__ void numbers(const struct random_arguments &p, const uint32_t *lane,
                                                   double (&value)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            value[i] = bounded(p, (double)philox_unit_float(lane[i]));
        }
    }
    static __device__ __forceinline__ void numbers(const struct random_arguments &p, const uint32_t *lane,
                                                   double (&value)[2]) {
        value[0] = bounded(p, philox_unit_double(lane[0], lane[1]));
        value[1] = bounded(p, philox_unit_double(lane[2], lane[3]));
    }
};

struct normal {
    static __device__ __forceinline__ void standard(const uint32_t *lane, float (&value)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            float r = sqrtf(-2.0f * logf(1.0f - philox_unit_float(lane[i]))), sine, cosine;
            sincospif(2.0f * philox_unit_float(lane[i + 1]), &sine, &cosine);
            value[i] = r * cosine;
            value[i + 1] = r * sine;
        }
    }
    static __device__ __forceinline__ void plain(const struct random_arguments &, const uint32_t *lane,
                                                 float (&value)[4]) {
        standard(lane, value);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            value[i] += 0.0f;
        }
    }
    static __device__ __forceinline__ void numbers(const struct random_arguments &p, const uint32_t *lane,
                                                   double (&value)[4]) {
        float x[4];
        standard(lane, x);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            value[i] = formula_multiply_add(p.first, p.second, (double)x[i]);
        }
    }
    static __device__ __forceinline__ void numbers(const struct random_arguments &p, const uint32_t *lane,
                                                   double (&value)[2]) {
        double r = sqrt(-2 * log1p(-philox_unit_double(lane[0], lane[1]))), sine, cosine;
        sincospi(2 * philox_unit_double(lane[2], lane[3]), &sine, &cosine);
        value[0] = formula_multiply_add(p.first, p.second, r * cosine);
        value[1] = formula_multiply_add(p.first, p.second, r * sine);
    }
};

template <class D, typename T, int count>
__device__ __forceinline__ void random_numbers(const struct random_arguments &p, const uint32_t *lane,
                                               number_pack<T, count> &out) {
    if constexpr (count == 4) {
        if (p.plain) {
            float value[count];
            D::plain(p, lane, value);
#pragma unroll
            for (int i = 0; i < count; i++) {
                out.lane[i] = number_store<T>::from(value[i]);
            }
            return;
        }
    }
    double value[count];
    D::numbers(p, lane, value);
#pragma unroll
    for (int i = 0; i < count; i++) {
        out.lane[i] = number_cast<T>::from(value[i]);
    }
}

template <class D, typename T>
__global__ void __launch_bounds__(SPACE_THREADS) random_kernel(const __grid_constant__ struct random_arguments p) {
    constexpr int count = sizeof(T) == 8 ? 2 : 4;
    typedef number_pack<T, count> pack;
    const bool together = (uintptr_t)p.out % sizeof(pack) == 0;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t block = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; block * count < p.n; block += step) {
        uint32_t lane[4];
        pack out;
        philox_block(p.seed, p.offset + (uint64_t)block, &lane[0], &lane[1], &lane[2], &lane[3]);
        random_numbers<D>(p, lane, out);
        T *to = (T *)p.out + block * count;
        if (together && (block + 1) * count <= p.n) {
            *(pack *)to = out;
        } else {
#pragma unroll
            for (int i = 0; i < count; i++) {
                if (block * count + i < p.n) {
                    to[i] = out.lane[i];
                }
            }
        }
    }
}

} // namespace

/* ---- launchers; columns from f16 on ---- */

typedef void random_function(const struct random_arguments arguments);

static const struct random_row {
    random_function *uniform, *normal;
} random_rows[] = {
    {random_kernel<uniform, __half>, random_kernel<normal, __half>},
    {random_kernel<uniform, __nv_bfloat16>, random_kernel<normal, __nv_bfloat16>},
    {random_kernel<uniform, float>, random_kernel<normal, float>},
    {random_kernel<uniform, double>, random_kernel<normal, double>},
};
static_assert(DTYPE_BF16 == DTYPE_F16 + 1 && DTYPE_F32 == DTYPE_F16 + 2 && DTYPE_F64 == DTYPE_F16 + 3, "in order");

static bool random_has(unsigned opcode, enum dtype dtype) {
    return (opcode == OP_UNIFORM || opcode == OP_NORMAL) && dtype >= DTYPE_F16 && dtype <= DTYPE_F64;
}

static bool random_walk(cuda_kernel_seen *seen, void *context) {
    for (const struct random_row &row : random_rows) {
        if (!seen(context, true, (const void *)row.uniform) || !seen(context, true, (const void *)row.normal)) {
            return false;
        }
    }
    return true;
}

static int random_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *out = &launch->output;
    const struct random_row *row = &random_rows[out->dtype - DTYPE_F16];
    struct random_arguments arguments = {};
    arguments.out = out->data;
    arguments.n = 1;
    for (int i = 0; i < out->rank; i++) {
        arguments.n *= out->shape[i];
    }
    if (launch->opcode == OP_UNIFORM) {
        struct uniform_attributes given;
        uniform_attributes_read(&launch->attributes, &given);
        arguments.seed = given.seed;
        arguments.offset = (uint64_t)given.offset;
        arguments.first = arguments.least = given.low;
        arguments.second = arguments.last = given.high;
        if (given.low < given.high) {
            arguments.least = dtype_not_below((enum dtype)out->dtype, given.low);
            arguments.last = dtype_below((enum dtype)out->dtype, given.high);
        }
    } else {
        struct normal_attributes given;
        normal_attributes_read(&launch->attributes, &given);
        arguments.seed = given.seed;
        arguments.offset = (uint64_t)given.offset;
        arguments.first = given.mean;
        arguments.second = given.deviation;
    }
    arguments.plain = arguments.first == 0 && arguments.second == 1;
    unsigned blocks = space_blocks(cuda, arguments.n / (2 * SPACE_THREADS) + 1);
    random_function *kernel = launch->opcode == OP_UNIFORM ? row->uniform : row->normal;
    return space_start((const void *)kernel, blocks, &arguments, fault, stream->stream);
}

CUDA_KERNELS_FOUND(random_found, random_has)

const struct cuda_kernel cuda_kernel_uniform = {{.dtypes = random_found}, random_run, random_walk};
const struct cuda_kernel cuda_kernel_normal = {{.dtypes = random_found}, random_run, random_walk};
