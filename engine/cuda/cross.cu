/* cross: each thread has vectors of three elements. */
#include "engine/cuda/index.cuh"
#include "engine/cuda/number.cuh"

namespace {

enum { OUT, A, B, ARRAYS };

struct cross_arguments {
    char *data[ARRAYS];
    int64_t vectors;
    int rank;                                  /* without the axis of the vectors */
    struct divisor_wide shape[SHAPE_RANK_MAX]; /* the strides are in elements */
    int64_t stride[ARRAYS][SHAPE_RANK_MAX], across[ARRAYS];
};

/* p · q - r · s by the formulas of elementwise operations; integers as unsigned ones of at least 32 bits, modulo their size. */
#define CROSS_DIFFERENCE(name, T)                                                                                      \
    FORMULA_FUNCTION T cross_difference(T p, T q, T r, T s) {                                                          \
        return formula_subtract_##name(formula_multiply_##name(p, q), formula_multiply_##name(r, s));                  \
    }
CROSS_DIFFERENCE(f32, float)
CROSS_DIFFERENCE(f64, double)
CROSS_DIFFERENCE(c64, formula_c64)
CROSS_DIFFERENCE(c128, formula_c128)
FORMULA_FUNCTION uint32_t cross_difference(uint32_t p, uint32_t q, uint32_t r, uint32_t s) {
    return p * q - r * s;
}
FORMULA_FUNCTION uint64_t cross_difference(uint64_t p, uint64_t q, uint64_t r, uint64_t s) {
    return p * q - r * s;
}
template <typename T> FORMULA_FUNCTION T cross_read(T x) {
    return x;
}
FORMULA_FUNCTION uint32_t cross_read(uint8_t x) {
    return x;
}
FORMULA_FUNCTION uint32_t cross_read(uint16_t x) {
    return x;
}
FORMULA_FUNCTION float cross_read(__half x) {
    return number_widen(x);
}
FORMULA_FUNCTION float cross_read(__nv_bfloat16 x) {
    return number_widen(x);
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) cross_kernel(const __grid_constant__ struct cross_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.vectors; i += step) {
        int64_t rest = i, at[ARRAYS] = {0, 0, 0};
#pragma unroll 1
        for (int axis = p.rank - 1; axis >= 0; axis--) {
            const int64_t next = index_divide_wide(p.shape[axis], rest), place = rest - next * p.shape[axis].extent;
            rest = next;
            for (int k = 0; k < ARRAYS; k++) {
                at[k] += place * p.stride[k][axis];
            }
        }
        const T *a = (const T *)p.data[A] + at[A], *b = (const T *)p.data[B] + at[B];
        T *out = (T *)p.data[OUT] + at[OUT];
        const auto a0 = cross_read(a[0]), a1 = cross_read(a[p.across[A]]), a2 = cross_read(a[2 * p.across[A]]);
        const auto b0 = cross_read(b[0]), b1 = cross_read(b[p.across[B]]), b2 = cross_read(b[2 * p.across[B]]);
        out[0] = number_store<T>::from(cross_difference(a1, b2, a2, b1));
        out[p.across[OUT]] = number_store<T>::from(cross_difference(a2, b0, a0, b2));
        out[2 * p.across[OUT]] = number_store<T>::from(cross_difference(a0, b1, a1, b0));
    }
}

typedef void cross_function(const struct cross_arguments arguments);

} // namespace

/* ---- launchers, by the type of an element ---- */

static cross_function *const cross_kernels[] = {
    cross_kernel<float>,    cross_kernel<double>,        cross_kernel<formula_c64>, cross_kernel<formula_c128>,
    cross_kernel<__half>,   cross_kernel<__nv_bfloat16>, cross_kernel<uint8_t>,     cross_kernel<uint16_t>,
    cross_kernel<uint32_t>, cross_kernel<uint64_t>};

static cross_function *cross_find(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F32:
        return cross_kernel<float>;
    case DTYPE_F64:
        return cross_kernel<double>;
    case DTYPE_C64:
        return cross_kernel<formula_c64>;
    case DTYPE_C128:
        return cross_kernel<formula_c128>;
    case DTYPE_F16:
        return cross_kernel<__half>;
    case DTYPE_BF16:
        return cross_kernel<__nv_bfloat16>;
    default: /* integers */
        return dtype_size(dtype) == 1   ? cross_kernel<uint8_t>
               : dtype_size(dtype) == 2 ? cross_kernel<uint16_t>
               : dtype_size(dtype) == 4 ? cross_kernel<uint32_t>
                                        : cross_kernel<uint64_t>;
    }
}

static bool cross_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (cross_function *kernel : cross_kernels) {
        more = more && seen(context, false, (const void *)kernel);
    }
    return more;
}

static int cross_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct operand *operands[ARRAYS] = {&launch->output, &launch->inputs[0], &launch->inputs[1]};
    struct cross_arguments arguments = {};
    arguments.rank = launch->output.rank - 1;
    arguments.vectors = 1;
    for (int i = 0; i < arguments.rank; i++) {
        arguments.vectors *= launch->output.shape[i];
    }
    for (int i = 0; i < arguments.rank; i++) {
        arguments.shape[i] = divisor_wide_make(launch->output.shape[i], arguments.vectors);
    }
    for (int k = 0; k < ARRAYS; k++) {
        arguments.data[k] = (char *)operands[k]->data;
        arguments.across[k] = operands[k]->strides[arguments.rank];
        for (int i = 0; i < arguments.rank; i++) {
            arguments.stride[k][i] = operands[k]->strides[i];
        }
    }
    return space_start((const void *)cross_find((enum dtype)launch->output.dtype),
                       space_blocks(cuda, arguments.vectors / SPACE_THREADS + 1), &arguments, fault, stream->stream);
}

const struct cuda_kernel cuda_kernel_cross = {.driver = cross_run, .walk = cross_walk};
