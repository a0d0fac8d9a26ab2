/* Random numbers: engine/device/philox.h defines every one of them. A thread makes the numbers of one block of the generator, four
 * or (f64) two, and writes them at once. Uniform numbers are the CPU's to the bit; normal ones within the error of log, sine
 * and cosine. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/space.h"

#define PHILOX_FUNCTION static __host__ __device__ __forceinline__
#include "engine/device/philox.h"

namespace {

struct random_arguments {
    void *out;
    int64_t n;
    uint64_t seed, offset;
    double first, second; /* low and high, or mean and deviation, or the scale */
    double least, last;   /* what uniform may give: values of the dtype */
    bool plain;           /* first is 0 and second 1: nothing is scaled */
};

struct integer_arguments {
    void *out;
    int64_t n;
    uint64_t seed, offset;
    uint64_t low, range; /* of randint */
    uint64_t threshold;  /* of bernoulli: lanes below it are chosen */
    uint64_t one;        /* the bits of a 1 */
};

struct permutation_arguments {
    void *out;
    struct philox_permutation permutation;
};

struct draw_arguments {
    const void *x;
    void *out;
    int64_t n;
    uint64_t seed, offset;
    double scale;       /* of dropout */
    uint64_t threshold; /* of dropout: the elements of lanes below it are 0 */
    bool like;          /* bernoulli_like */
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

struct exponential {
    static __device__ __forceinline__ void plain(const struct random_arguments &, const uint32_t *, float (&)[4]) {
    }
    static __device__ __forceinline__ void numbers(const struct random_arguments &p, const uint32_t *lane,
                                                   double (&value)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            value[i] = (0.0 - (double)logf(1.0f - philox_unit_float(lane[i]))) * p.first; /* not -0 */
        }
    }
    static __device__ __forceinline__ void numbers(const struct random_arguments &p, const uint32_t *lane,
                                                   double (&value)[2]) {
        value[0] = -log1p(-philox_unit_double(lane[0], lane[1])) * p.first;
        value[1] = -log1p(-philox_unit_double(lane[2], lane[3])) * p.first;
    }
};

template <class D, typename T, int count>
__device__ __forceinline__ void random_numbers(const struct random_arguments &p, const uint32_t *lane,
                                               number_pack<T, count> &out) {
    if constexpr (count == 4) {
        if (p.plain) {
            float value[count] = {};
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

/* ---- integers, by size ---- */

/* Stores the numbers of one block of the generator at once where that is possible. */
template <typename T, int count>
__device__ __forceinline__ void random_store(void *out, int64_t block, int64_t n,
                                             const number_pack<T, count> &numbers) {
    T *to = (T *)out + block * count;
    if ((uintptr_t)out % sizeof(numbers) == 0 && (block + 1) * count <= n) {
        *(number_pack<T, count> *)to = numbers;
        return;
    }
#pragma unroll
    for (int i = 0; i < count; i++) {
        if (block * count + i < n) {
            to[i] = numbers.lane[i];
        }
    }
}

__device__ __forceinline__ uint64_t product_high(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return (uint64_t)((unsigned __int128)a * b >> 64);
#endif
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) randint_kernel(const __grid_constant__ struct integer_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t block = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; block * 2 < p.n; block += step) {
        uint32_t lane[4];
        number_pack<T, 2> numbers;
        philox_block(p.seed, p.offset + (uint64_t)block, &lane[0], &lane[1], &lane[2], &lane[3]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            numbers.lane[i] = (T)(p.low + product_high((uint64_t)lane[2 * i] << 32 | lane[2 * i + 1], p.range));
        }
        random_store(p.out, block, p.n, numbers);
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) bernoulli_kernel(const __grid_constant__ struct integer_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t block = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; block * 4 < p.n; block += step) {
        uint32_t lane[4];
        number_pack<T, 4> numbers;
        philox_block(p.seed, p.offset + (uint64_t)block, &lane[0], &lane[1], &lane[2], &lane[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            numbers.lane[i] = lane[i] < p.threshold ? (T)p.one : (T)0;
        }
        random_store(p.out, block, p.n, numbers);
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS)
    permutation_kernel(const __grid_constant__ struct permutation_arguments p) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.permutation.n; i += step) {
        ((T *)p.out)[i] = (T)philox_permuted(&p.permutation, i);
    }
}

/* ---- for each element of an input: four of one block of the generator ---- */

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) draw_kernel(const __grid_constant__ struct draw_arguments p) {
    typedef number_pack<T, 4> pack;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const bool together = (uintptr_t)p.x % sizeof(pack) == 0;
    for (int64_t block = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; block * 4 < p.n; block += step) {
        uint32_t lane[4];
        pack in, out;
        const T *from = (const T *)p.x + block * 4;
        if (together && (block + 1) * 4 <= p.n) {
            in = *(const pack *)from;
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                in.lane[i] = from[block * 4 + i < p.n ? i : 0];
            }
        }
        philox_block(p.seed, p.offset + (uint64_t)block, &lane[0], &lane[1], &lane[2], &lane[3]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const auto x = number_widen(in.lane[i]);
            const bool chosen = p.like ? (double)lane[i] < (double)x * 4294967296.0 : lane[i] >= p.threshold;
            const auto kept = p.like ? (decltype(x))1 : x * (decltype(x))p.scale;
            out.lane[i] = number_store<T>::from(chosen ? kept : (decltype(x))0);
        }
        random_store(p.out, block, p.n, out);
    }
}

} // namespace

/* ---- launchers; columns from f16 on ---- */

typedef void random_function(const struct random_arguments arguments);
typedef void integer_function(const struct integer_arguments arguments);
typedef void permutation_function(const struct permutation_arguments arguments);
typedef void draw_function(const struct draw_arguments arguments);

static const struct random_row {
    random_function *uniform, *normal, *exponential;
    draw_function *draw;
} random_rows[] = {
    {random_kernel<uniform, __half>, random_kernel<normal, __half>, random_kernel<exponential, __half>,
     draw_kernel<__half>},
    {random_kernel<uniform, __nv_bfloat16>, random_kernel<normal, __nv_bfloat16>,
     random_kernel<exponential, __nv_bfloat16>, draw_kernel<__nv_bfloat16>},
    {random_kernel<uniform, float>, random_kernel<normal, float>, random_kernel<exponential, float>,
     draw_kernel<float>},
    {random_kernel<uniform, double>, random_kernel<normal, double>, random_kernel<exponential, double>,
     draw_kernel<double>},
};
static_assert(DTYPE_BF16 == DTYPE_F16 + 1 && DTYPE_F32 == DTYPE_F16 + 2 && DTYPE_F64 == DTYPE_F16 + 3, "in order");

/* By the logarithm of the element's size. */
static const struct integer_row {
    integer_function *randint, *bernoulli;
    permutation_function *permutation;
} integer_rows[] = {
    {randint_kernel<uint8_t>, bernoulli_kernel<uint8_t>, permutation_kernel<uint8_t>},
    {randint_kernel<uint16_t>, bernoulli_kernel<uint16_t>, permutation_kernel<uint16_t>},
    {randint_kernel<uint32_t>, bernoulli_kernel<uint32_t>, permutation_kernel<uint32_t>},
    {randint_kernel<uint64_t>, bernoulli_kernel<uint64_t>, permutation_kernel<uint64_t>},
};

static const struct integer_row *integer_row_of(unsigned dtype) {
    size_t size = dtype_size((enum dtype)dtype);
    return &integer_rows[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
}

static bool random_has(unsigned opcode, enum dtype dtype) {
    bool floating = dtype >= DTYPE_F16 && dtype <= DTYPE_F64;
    switch (opcode) {
    case OP_RANDINT:
    case OP_PERMUTATION:
        return dtype_kind(dtype) == DTYPE_KIND_INT;
    case OP_BERNOULLI:
        return floating || dtype_kind(dtype) < DTYPE_KIND_FLOAT;
    default:
        return floating;
    }
}

static bool random_walk(cuda_kernel_seen *seen, void *context) {
    for (const struct random_row &row : random_rows) {
        if (!seen(context, true, (const void *)row.uniform) || !seen(context, true, (const void *)row.normal) ||
            !seen(context, false, (const void *)row.exponential) || !seen(context, true, (const void *)row.draw)) {
            return false;
        }
    }
    for (const struct integer_row &row : integer_rows) {
        if (!seen(context, false, (const void *)row.randint) || !seen(context, false, (const void *)row.bernoulli) ||
            !seen(context, false, (const void *)row.permutation)) {
            return false;
        }
    }
    return true;
}

static int64_t random_elements(const struct launch *launch) {
    int64_t n = 1;
    for (int i = 0; i < launch->output.rank; i++) {
        n *= launch->output.shape[i];
    }
    return n;
}

/* Blocks for so many elements, of which a thread makes `together` at a time. */
static unsigned random_blocks(const struct cuda *cuda, int64_t n, int64_t together) {
    return space_blocks(cuda, n / (together * SPACE_THREADS) + 1);
}

static int random_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *out = &launch->output;
    const struct random_row *row = &random_rows[out->dtype - DTYPE_F16];
    struct random_arguments arguments = {};
    random_function *kernel = row->normal;
    arguments.out = out->data;
    arguments.n = random_elements(launch);
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
        kernel = row->uniform;
    } else if (launch->opcode == OP_NORMAL) {
        struct normal_attributes given;
        normal_attributes_read(&launch->attributes, &given);
        arguments.seed = given.seed;
        arguments.offset = (uint64_t)given.offset;
        arguments.first = given.mean;
        arguments.second = given.deviation;
    } else {
        struct exponential_attributes given;
        exponential_attributes_read(&launch->attributes, &given);
        arguments.seed = given.seed;
        arguments.offset = (uint64_t)given.offset;
        arguments.first = given.scale;
        kernel = row->exponential;
    }
    arguments.plain = launch->opcode != OP_EXPONENTIAL && arguments.first == 0 && arguments.second == 1;
    return space_start((const void *)kernel, random_blocks(cuda, arguments.n, 2), &arguments, fault, stream->stream);
}

static int integer_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    const struct operand *out = &launch->output;
    const struct integer_row *row = integer_row_of(out->dtype);
    struct integer_arguments arguments = {};
    arguments.out = out->data;
    arguments.n = random_elements(launch);
    integer_function *kernel = row->randint;
    if (launch->opcode == OP_RANDINT) {
        struct randint_attributes given;
        randint_attributes_read(&launch->attributes, &given);
        arguments.seed = given.seed;
        arguments.offset = (uint64_t)given.offset;
        arguments.low = (uint64_t)given.low;
        arguments.range = (uint64_t)given.high - (uint64_t)given.low;
    } else {
        struct bernoulli_attributes given;
        bernoulli_attributes_read(&launch->attributes, &given);
        arguments.seed = given.seed;
        arguments.offset = (uint64_t)given.offset;
        arguments.threshold = philox_threshold(given.probability);
        arguments.one = number_pattern((enum dtype)out->dtype, 1, 1).half[0];
        kernel = row->bernoulli;
    }
    return space_start((const void *)kernel, random_blocks(cuda, arguments.n, 4), &arguments, fault, stream->stream);
}

static int permutation_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                           struct fault *fault) {
    struct permutation_attributes given;
    struct permutation_arguments arguments = {};
    permutation_attributes_read(&launch->attributes, &given);
    arguments.out = launch->output.data;
    philox_permutation_init(&arguments.permutation, given.seed, (uint64_t)given.n);
    return space_start((const void *)integer_row_of(launch->output.dtype)->permutation, random_blocks(cuda, given.n, 2),
                       &arguments, fault, stream->stream);
}

static int draw_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *x = &launch->inputs[0];
    struct draw_arguments arguments = {};
    arguments.x = x->data;
    arguments.out = launch->output.data;
    arguments.n = random_elements(launch);
    if (launch->opcode == OP_DROPOUT) {
        struct dropout_attributes given;
        dropout_attributes_read(&launch->attributes, &given);
        arguments.seed = given.seed;
        arguments.offset = (uint64_t)given.offset;
        arguments.scale = 1 / (1 - given.probability);
        arguments.threshold = philox_threshold(given.probability);
    } else {
        struct bernoulli_like_attributes given;
        bernoulli_like_attributes_read(&launch->attributes, &given);
        arguments.seed = given.seed;
        arguments.offset = (uint64_t)given.offset;
        arguments.like = true;
    }
    return space_start((const void *)random_rows[x->dtype - DTYPE_F16].draw, random_blocks(cuda, arguments.n, 4),
                       &arguments, fault, stream->stream);
}

CUDA_KERNELS_FOUND(random_found, random_has)

const struct cuda_kernel cuda_kernel_uniform = {{.dtypes = random_found}, random_run, random_walk};
const struct cuda_kernel cuda_kernel_normal = {{.dtypes = random_found}, random_run, random_walk};
const struct cuda_kernel cuda_kernel_exponential = {{.dtypes = random_found}, random_run, random_walk};
const struct cuda_kernel cuda_kernel_randint = {{.dtypes = random_found}, integer_run, random_walk};
const struct cuda_kernel cuda_kernel_bernoulli = {{.dtypes = random_found}, integer_run, random_walk};
const struct cuda_kernel cuda_kernel_permutation = {{.dtypes = random_found}, permutation_run, random_walk};
const struct cuda_kernel cuda_kernel_dropout = {{.dtypes = random_found}, draw_run, random_walk};
const struct cuda_kernel cuda_kernel_bernoulli_like = {{.dtypes = random_found}, draw_run, random_walk};
