/* Random numbers: engine/philox.h defines every one of them. A thread makes the numbers of one block of the generator, four
 * or (f64) two, and writes them at once. Uniform numbers are the CPU's to the bit; normal ones within the error of log, sine
 * and cosine. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/space.h"

#define PHILOX_FUNCTION static __device__ __forceinline__
#include "engine/philox.h"

namespace {

struct random_arguments {
    void *out;
    int64_t n;
    uint64_t seed, offset;
    double first, second; /* low and high, or mean and deviation */
    double least, last;   /* what uniform may give: values of the dtype */
};

/* ---- four lanes to numbers ---- */

struct uniform {
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
    static __device__ __forceinline__ void numbers(const struct random_arguments &p, const uint32_t *lane,
                                                   double (&value)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            float r = sqrtf(-2.0f * logf(1.0f - philox_unit_float(lane[i]))), sine, cosine;
            sincospif(2.0f * philox_unit_float(lane[i + 1]), &sine, &cosine);
            value[i] = formula_multiply_add(p.first, p.second, (double)(r * cosine));
            value[i + 1] = formula_multiply_add(p.first, p.second, (double)(r * sine));
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

template <class D, typename T>
__global__ void __launch_bounds__(SPACE_THREADS) random_kernel(const __grid_constant__ struct random_arguments p) {
    constexpr int count = sizeof(T) == 8 ? 2 : 4;
    typedef number_pack<T, count> pack;
    const bool together = (uintptr_t)p.out % sizeof(pack) == 0;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t block = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; block * count < p.n; block += step) {
        uint32_t lane[4];
        double value[count];
        pack out;
        philox_block(p.seed, p.offset + (uint64_t)block, &lane[0], &lane[1], &lane[2], &lane[3]);
        D::numbers(p, lane, value);
#pragma unroll
        for (int i = 0; i < count; i++) {
            out.lane[i] = number_cast<T>::from(value[i]);
        }
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

bool cuda_random_has(unsigned opcode, enum dtype dtype) {
    return (opcode == OP_UNIFORM || opcode == OP_NORMAL) && dtype >= DTYPE_F16 && dtype <= DTYPE_F64;
}

int cuda_random(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *out = &launch->output;
    const struct random_row *row = &random_rows[out->dtype - DTYPE_F16];
    struct random_arguments arguments = {
        out->data,        1, (uint64_t)launch->ints[1], (uint64_t)launch->ints[2], launch->floats[0], launch->floats[1],
        launch->floats[0], launch->floats[1]};
    for (int i = 0; i < out->rank; i++) {
        arguments.n *= out->shape[i];
    }
    if (launch->opcode == OP_UNIFORM && arguments.first < arguments.second) {
        arguments.least = dtype_not_below((enum dtype)out->dtype, arguments.first);
        arguments.last = dtype_below((enum dtype)out->dtype, arguments.second);
    }
    unsigned blocks = space_blocks(cuda, arguments.n / (2 * SPACE_THREADS) + 1);
    random_function *kernel = launch->opcode == OP_UNIFORM ? row->uniform : row->normal;
    return space_start((const void *)kernel, blocks, &arguments, fault, stream->stream);
}
