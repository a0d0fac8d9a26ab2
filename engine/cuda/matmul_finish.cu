/* Bias, activation and rounding in a pass of its own (matmul_finish.h). A thread takes UNROLL elements, each a block's width
 * from the last, so that a warp reads and writes side by side; all are read before the first is written. */
#include "engine/cuda/matmul_finish.h"

#include "engine/cuda/activation.cuh"
#include "engine/cuda/index.cuh"

namespace {

enum { UNROLL = 4 };

struct finish_arguments {
    struct matmul_finish finish;
    struct divisor_wide columns, rows;
    int64_t elements;
};

struct finish_place {
    int64_t from, to, column;
};

__device__ __forceinline__ finish_place finish_locate(const struct finish_arguments &arguments, int64_t element) {
    const struct matmul_finish &finish = arguments.finish;
    int64_t line = index_divide_wide(arguments.columns, element), column = element - line * finish.columns;
    int64_t batch = index_divide_wide(arguments.rows, line), row = line - batch * finish.rows;
    return {batch * finish.from_batch + row * finish.from_row + column,
            batch * finish.to_batch + row * finish.to_row + column, column};
}

/* Halves in f32. */
template <class From, class To>
__global__ void __launch_bounds__(SPACE_THREADS)
    finish_kernel(const __grid_constant__ struct finish_arguments arguments) {
    const struct matmul_finish &finish = arguments.finish;
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS * UNROLL;
    for (int64_t first = (int64_t)blockIdx.x * SPACE_THREADS * UNROLL; first < arguments.elements; first += step) {
        decltype(number_widen(From())) value[UNROLL];
        int64_t to[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int64_t element = first + u * SPACE_THREADS + threadIdx.x;
            if (element < arguments.elements) {
                const finish_place at = finish_locate(arguments, element);
                value[u] = number_widen(((const From *)finish.from)[at.from]);
                if (finish.bias) {
                    value[u] += number_widen(((const To *)finish.bias)[at.column]);
                }
                to[u] = at.to;
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (first + u * SPACE_THREADS + threadIdx.x < arguments.elements) {
                if constexpr (std::is_integral<To>::value) {
                    value[u] = (To)value[u]; /* wraps, before the activation looks at the sign */
                }
                ((To *)finish.to)[to[u]] = number_store<To>::from(activation_apply(finish.activation, value[u]));
            }
        }
    }
}

typedef void finish_function(const struct finish_arguments arguments);

const struct {
    enum dtype from, to;
    finish_function *kernel;
} kernels[] = {
    {DTYPE_U8, DTYPE_U8, finish_kernel<int8_t, int8_t>}, /* of integers: zeros, where there is no depth */
    {DTYPE_U16, DTYPE_U16, finish_kernel<int16_t, int16_t>},
    {DTYPE_U32, DTYPE_U32, finish_kernel<int32_t, int32_t>},
    {DTYPE_U64, DTYPE_U64, finish_kernel<int64_t, int64_t>},
    {DTYPE_I8, DTYPE_I8, finish_kernel<int8_t, int8_t>},
    {DTYPE_I32, DTYPE_I8, finish_kernel<int32_t, int8_t>},
    {DTYPE_I16, DTYPE_I16, finish_kernel<int16_t, int16_t>},
    {DTYPE_I32, DTYPE_I32, finish_kernel<int32_t, int32_t>},
    {DTYPE_I64, DTYPE_I64, finish_kernel<int64_t, int64_t>},
    {DTYPE_F16, DTYPE_F16, finish_kernel<__half, __half>},
    {DTYPE_BF16, DTYPE_BF16, finish_kernel<__nv_bfloat16, __nv_bfloat16>},
    {DTYPE_F32, DTYPE_F16, finish_kernel<float, __half>},
    {DTYPE_F32, DTYPE_BF16, finish_kernel<float, __nv_bfloat16>},
    {DTYPE_F32, DTYPE_F32, finish_kernel<float, float>},
    {DTYPE_F64, DTYPE_F64, finish_kernel<double, double>},
};

finish_function *finish_find(enum dtype from, enum dtype to) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (kernels[i].from == from && kernels[i].to == to) {
            return kernels[i].kernel;
        }
    }
    return nullptr;
}

} // namespace

bool matmul_finish_walk(cuda_kernel_seen *seen, void *context) {
    for (const auto &row : kernels) {
        if (!seen(context, cuda_dtype_common(row.to), (const void *)row.kernel)) {
            return false;
        }
    }
    return true;
}

int matmul_finish_run(struct cuda *cuda, struct cuda_stream *stream, const struct matmul_finish *finish,
                      struct fault *fault) {
    finish_function *kernel = finish_find(finish->from_dtype, finish->dtype);
    struct finish_arguments arguments;
    if (!kernel) {
        return fault_set(fault, STATUS_INTERNAL, "no kernel finishes a product in %s as %s",
                         dtype_name(finish->from_dtype), dtype_name(finish->dtype));
    }
    memset(&arguments, 0, sizeof arguments);
    arguments.finish = *finish;
    arguments.elements = finish->batches * finish->rows * finish->columns;
    arguments.columns = divisor_wide_make(finish->columns, arguments.elements);
    arguments.rows = divisor_wide_make(finish->rows, arguments.elements);
    int64_t blocks = (arguments.elements - 1) / (SPACE_THREADS * UNROLL) + 1;
    return space_start((const void *)kernel, space_blocks(cuda, blocks), &arguments, fault, stream->stream);
}
