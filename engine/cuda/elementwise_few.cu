/* Elementwise operations that have kernels for few layouts (`layouts` in their descriptions): functions that take longer than the difference
 * between layouts, and too many to compile for all of them. For f32 and halves one kernel for contiguous operands and one for
 * all layouts; both learn from a launch which of the dtypes they read and write, and compute in f32. For other dtypes only a
 * kernel for all layouts. */
#include <type_traits>

#include "engine/cuda/elementwise_formula.cuh"

namespace {

/* clang-format off */
OP_FORMULAS_FEW(FORMULA)
/* clang-format on */

/* ---- elements whose dtype is known at run time: f32, f16 or bf16 ---- */

template <typename T, int lanes>
__device__ __forceinline__ void few_load_as(const char *data, int64_t position, float *out) {
    const number_pack<T, lanes> pack = ((const number_pack<T, lanes> *)data)[position];
#pragma unroll
    for (int i = 0; i < lanes; i++) {
        out[i] = number_widen(pack.lane[i]);
    }
}

template <int lanes>
__device__ __forceinline__ void few_load(uint32_t dtype, const char *data, int64_t position, float *out) {
    if (dtype == DTYPE_F32) {
        few_load_as<float, lanes>(data, position, out);
    } else if (dtype == DTYPE_F16) {
        few_load_as<__half, lanes>(data, position, out);
    } else {
        few_load_as<__nv_bfloat16, lanes>(data, position, out);
    }
}

template <typename T, int lanes, typename R>
__device__ __forceinline__ void few_store_as(char *data, int64_t position, const R *from) {
    number_pack<T, lanes> pack;
#pragma unroll
    for (int i = 0; i < lanes; i++) {
        pack.lane[i] = number_store<T>::from(from[i]);
    }
    ((number_pack<T, lanes> *)data)[position] = pack;
}

/* A truth value is a byte, whatever the inputs are. */
template <int lanes, typename R>
__device__ __forceinline__ void few_store(uint32_t dtype, char *data, int64_t position, const R *from) {
    if constexpr (sizeof(R) == 1) {
        few_store_as<uint8_t, lanes>(data, position, from);
    } else if (dtype == DTYPE_F32) {
        few_store_as<float, lanes>(data, position, from);
    } else if (dtype == DTYPE_F16) {
        few_store_as<__half, lanes>(data, position, from);
    } else {
        few_store_as<__nv_bfloat16, lanes>(data, position, from);
    }
}

/* ---- kernels: F is an `applied` of floats ---- */

template <class F, int lanes>
__device__ __forceinline__ void few_compute(const double *parameter, const float (*in)[lanes],
                                            typename F::result *out) {
#pragma unroll
    for (int i = 0; i < lanes; i++) {
        float argument[3] = {in[0][i], 0, 0};
        for (int k = 1; k < F::inputs; k++) {
            argument[k] = in[k][i];
        }
        for (int k = 0; k < F::parameters; k++) {
            argument[F::inputs + k] = (float)parameter[k];
        }
        out[i] = F::apply(argument[0], argument[1], argument[2]);
    }
}

enum { LANES = 4 };

template <class F>
__global__ void __launch_bounds__(SPACE_THREADS) few_flat(const __grid_constant__ struct flat_arguments p) {
    constexpr int unroll = SPACE_UNROLL_WIDE;
    const int64_t step = (int64_t)gridDim.x * (SPACE_THREADS * unroll);
    typename F::result out[LANES];
    for (int64_t at = (int64_t)blockIdx.x * (SPACE_THREADS * unroll) + threadIdx.x; at < p.positions; at += step) {
        float in[unroll][F::inputs][LANES];
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            if (at + u * SPACE_THREADS < p.positions) {
                for (int k = 0; k < F::inputs; k++) {
                    few_load<LANES>(p.dtype, p.data[k + 1], at + u * SPACE_THREADS, in[u][k]);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            if (at + u * SPACE_THREADS < p.positions) {
                few_compute<F, LANES>(p.parameter, in[u], out);
                few_store<LANES>(p.dtype, p.data[0], at + u * SPACE_THREADS, out);
            }
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < p.tail) {
        const int64_t at = p.positions * LANES + threadIdx.x;
        float in[F::inputs][1];
        for (int k = 0; k < F::inputs; k++) {
            few_load<1>(p.dtype, p.data[k + 1], at, in[k]);
        }
        few_compute<F, 1>(p.parameter, in, out);
        few_store<1>(p.dtype, p.data[0], at, out);
    }
}

template <class F>
__global__ void __launch_bounds__(SPACE_THREADS) few_space(const __grid_constant__ struct space_arguments p) {
    for (uint32_t tile = blockIdx.x; tile < p.space.tiles; tile += gridDim.x) {
#pragma unroll 1
        for (int u = 0; u < SPACE_UNROLL; u++) {
            const struct index_position at = index_locate(p.space, tile, u * SPACE_THREADS + threadIdx.x);
            if (at.inside) {
                int64_t offset[F::inputs + 1];
                float in[F::inputs][1];
                typename F::result out;
                index_offsets<F::inputs + 1>(p.space, at, offset);
                for (int k = 0; k < F::inputs; k++) {
                    few_load<1>(p.dtype, p.data[k + 1], offset[k + 1], in[k]);
                }
                few_compute<F, 1>(p.parameter, in, &out);
                few_store<1>(p.dtype, p.data[0], offset[0], &out);
            }
        }
    }
}

/* Of floats that become floats or truth values; complex() makes complex numbers of floats. */
template <class F> constexpr struct space_kernels few_kernels() {
    if constexpr (std::is_same<typename F::first, float>::value && sizeof(typename F::result) <= sizeof(float)) {
        return {nullptr, few_space<F>, few_flat<F>, LANES};
    } else {
        return {nullptr, elementwise_kernel<F, 1>, nullptr, 1};
    }
}

} // namespace

/* clang-format off */
#define KERNELS(name, inputs, parameters, dtype, result)                                                               \
    few_kernels<applied<of_##name##_##dtype, inputs, parameters, FORMULA_TYPE_##dtype, FORMULA_TYPE_##result>>(),
const struct space_kernels elementwise_few[] = {
    OP_FORMULAS_FEW(KERNELS)
};
/* clang-format on */
