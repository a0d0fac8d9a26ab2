/* Creation: full, arange, eye. Outputs are contiguous. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/space.h"

namespace {

/* Writes `bytes` bytes of a pattern of sixteen, which repeats an element: in 16-byte stores where addresses are multiples of
 * 16, byte by byte before and behind. The output begins at a multiple of the element's size, so that a byte's place in the
 * pattern is its address modulo 16. */
struct fill_arguments {
    char *out;
    int64_t bytes;
    struct number_bytes pattern;
};

__global__ void __launch_bounds__(SPACE_THREADS) fill_kernel(const __grid_constant__ struct fill_arguments p) {
    const int64_t before = (int64_t)(-(uintptr_t)p.out & 15), head = before < p.bytes ? before : p.bytes;
    const int64_t whole = (p.bytes - head) / 16, step = (int64_t)gridDim.x * blockDim.x;
    ulonglong2 *chunks = (ulonglong2 *)(p.out + head);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < whole; i += step) {
        chunks[i] = make_ulonglong2(p.pattern.half[0], p.pattern.half[1]);
    }
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        int64_t byte = threadIdx.x < 16 ? (int64_t)threadIdx.x : head + whole * 16 + threadIdx.x - 16;
        if (threadIdx.x < 16 ? byte < head : byte < p.bytes) {
            const uintptr_t place = (uintptr_t)(p.out + byte) % 16;
            p.out[byte] = (char)((place < 8 ? p.pattern.half[0] : p.pattern.half[1]) >> (place % 8 * 8));
        }
    }
}

/* The kinds of numbers that arange and linspace count in; element i is start + i · step, not a running sum. */
struct arange_arguments {
    void *out;
    int64_t n;
    uint64_t start, step;
    double start_float, step_float;
    int64_t last; /* the element that is `stop` whatever the steps come to; -1: there is none */
    double stop;
};

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) arange_kernel(const __grid_constant__ struct arange_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step) {
        ((T *)p.out)[i] = number_cast<T>::from((int64_t)(p.start + (uint64_t)i * p.step));
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS)
    arange_float_kernel(const __grid_constant__ struct arange_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step) {
        const double value = formula_multiply_add(p.start_float, (double)i, p.step_float);
        ((T *)p.out)[i] = number_cast<T>::from(i == p.last ? p.stop : value);
    }
}

/* Complex numbers: both parts count in steps of their own. */
struct parts_arguments {
    void *out;
    int64_t n, last; /* the element that is `stop`; -1: there is none */
    double start[2], step[2], stop[2];
};

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) parts_kernel(const __grid_constant__ struct parts_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < 2 * p.n; i += step) {
        const int part = (int)(i % 2);
        const double value = formula_multiply_add(p.start[part], (double)(i / 2), p.step[part]);
        ((T *)p.out)[i] = (T)(i / 2 == p.last ? p.stop[part] : value);
    }
}

__global__ void __launch_bounds__(SPACE_THREADS)
    arange_truth_kernel(const __grid_constant__ struct arange_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step) {
        ((uint8_t *)p.out)[i] = p.start + (uint64_t)i * p.step != 0;
    }
}

/* Every `stride`-th element, n of them. */
struct diagonal_arguments {
    char *out;
    int64_t n, stride;
    struct number_bytes pattern;
};

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) diagonal_kernel(const __grid_constant__ struct diagonal_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step) {
        ((T *)p.out)[i * p.stride] = number_of_pattern<T>(p.pattern);
    }
}

} // namespace

/* ---- launchers ---- */

static int64_t operand_elements(const struct operand *operand) {
    int64_t n = 1;
    for (int i = 0; i < operand->rank; i++) {
        n *= operand->shape[i];
    }
    return n;
}

static unsigned create_blocks(const struct cuda *cuda, int64_t threads) {
    return space_blocks(cuda, threads / SPACE_THREADS + 1);
}

static int full_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *out = &launch->output;
    enum dtype dtype = (enum dtype)out->dtype;
    struct full_attributes attributes;
    full_attributes_read(&launch->attributes, &attributes);
    struct fill_arguments arguments = {(char *)out->data, operand_elements(out) * (int64_t)dtype_size(dtype),
                                       number_pattern(dtype, attributes.value.i, attributes.value.f)};
    return space_start((const void *)fill_kernel, create_blocks(cuda, arguments.bytes / 64), &arguments, fault,
                       stream->stream);
}

typedef void arange_function(const struct arange_arguments arguments);

/* Integers count modulo 2^64, so that kernels of signed ones do all; f8 is refused. */
static arange_function *arange_find(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_BOOL:
        return arange_truth_kernel;
    case DTYPE_U8:
    case DTYPE_I8:
        return arange_kernel<int8_t>;
    case DTYPE_U16:
    case DTYPE_I16:
        return arange_kernel<int16_t>;
    case DTYPE_U32:
    case DTYPE_I32:
        return arange_kernel<int32_t>;
    case DTYPE_U64:
    case DTYPE_I64:
        return arange_kernel<int64_t>;
    case DTYPE_F16:
        return arange_float_kernel<__half>;
    case DTYPE_BF16:
        return arange_float_kernel<__nv_bfloat16>;
    case DTYPE_F32:
        return arange_float_kernel<float>;
    case DTYPE_F64:
        return arange_float_kernel<double>;
    default:
        return nullptr;
    }
}

static int arange_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *out = &launch->output;
    struct arange_attributes given;
    arange_attributes_read(&launch->attributes, &given);
    struct arange_arguments arguments = {out->data,
                                         operand_elements(out),
                                         (uint64_t)given.start.i,
                                         (uint64_t)given.step.i,
                                         given.start.f,
                                         given.step.f,
                                         -1,
                                         0};
    return space_start((const void *)arange_find((enum dtype)out->dtype), create_blocks(cuda, arguments.n / 4),
                       &arguments, fault, stream->stream);
}

static int linspace_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                        struct fault *fault) {
    const struct operand *out = &launch->output;
    struct linspace_attributes given;
    linspace_attributes_read(&launch->attributes, &given);
    int64_t steps = given.count - given.endpoint;
    double step = steps > 0 ? (given.stop - given.start) / (double)steps : 0;
    struct arange_arguments arguments = {
        out->data, given.count, 0, 0, given.start, step, given.endpoint && steps > 0 ? steps : -1, given.stop};
    return space_start((const void *)arange_find((enum dtype)out->dtype), create_blocks(cuda, arguments.n / 4),
                       &arguments, fault, stream->stream);
}

typedef void parts_function(const struct parts_arguments arguments);

static int linspace_complex_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                                struct fault *fault) {
    const struct operand *out = &launch->output;
    struct linspace_complex_attributes given;
    linspace_complex_attributes_read(&launch->attributes, &given);
    const int64_t steps = given.count - given.endpoint;
    struct parts_arguments arguments = {out->data,
                                        given.count,
                                        given.endpoint && steps > 0 ? steps : -1,
                                        {given.start_real, given.start_imaginary},
                                        {0, 0},
                                        {given.stop_real, given.stop_imaginary}};
    for (int part = 0; part < 2 && steps > 0; part++) {
        arguments.step[part] = (arguments.stop[part] - arguments.start[part]) / (double)steps;
    }
    parts_function *kernel = out->dtype == DTYPE_C64 ? parts_kernel<float> : parts_kernel<double>;
    return space_start((const void *)kernel, create_blocks(cuda, arguments.n / 4), &arguments, fault, stream->stream);
}

typedef void diagonal_function(const struct diagonal_arguments arguments);

/* By the size of an element. */
static diagonal_function *const diagonal_functions[] = {diagonal_kernel<uint8_t>, diagonal_kernel<uint16_t>,
                                                        diagonal_kernel<uint32_t>, diagonal_kernel<uint64_t>,
                                                        diagonal_kernel<ulonglong2>};

static bool create_walk(cuda_kernel_seen *seen, void *context) {
    bool more = seen(context, true, (const void *)fill_kernel) &&
                seen(context, false, (const void *)(parts_function *)parts_kernel<float>) &&
                seen(context, false, (const void *)(parts_function *)parts_kernel<double>);
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        arange_function *kernel = arange_find((enum dtype)dtype);
        more = more && (!kernel || seen(context, false, (const void *)kernel));
    }
    for (diagonal_function *kernel : diagonal_functions) {
        more = more && seen(context, false, (const void *)kernel);
    }
    return more;
}

/* No number here overflows, since the shape rule limits the diagonal. */
static int eye_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *out = &launch->output;
    size_t size = dtype_size((enum dtype)out->dtype);
    struct eye_attributes attributes;
    eye_attributes_read(&launch->attributes, &attributes);
    int64_t rows = out->shape[0], columns = out->shape[1], diagonal = attributes.diagonal;
    int64_t begin = diagonal < 0 ? -diagonal : 0, end = rows < columns - diagonal ? rows : columns - diagonal;
    CUDA_TRY(fault, cudaMemsetAsync(out->data, 0, (size_t)(rows * columns) * size, stream->stream));
    if (begin >= end) {
        return STATUS_OK;
    }
    struct diagonal_arguments arguments = {(char *)out->data + (begin * columns + begin + diagonal) * (int64_t)size,
                                           end - begin, columns + 1, number_one((enum dtype)out->dtype)};
    diagonal_function *kernel = diagonal_functions[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4];
    return space_start((const void *)kernel, create_blocks(cuda, arguments.n), &arguments, fault, stream->stream);
}

const struct cuda_kernel cuda_kernel_full = {.driver = full_run, .walk = create_walk};
const struct cuda_kernel cuda_kernel_arange = {.driver = arange_run, .walk = create_walk};
const struct cuda_kernel cuda_kernel_linspace = {.driver = linspace_run, .walk = create_walk};
const struct cuda_kernel cuda_kernel_linspace_complex = {.driver = linspace_complex_run, .walk = create_walk};
const struct cuda_kernel cuda_kernel_eye = {.driver = eye_run, .walk = create_walk};
