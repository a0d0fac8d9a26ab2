/* The kernel of every elementwise operation, cast and copy: a template over the function F of one element. CUDA C++ only.
 *
 * F has F::inputs, the number F::parameters of arguments after the inputs that are attributes, the types F::first, F::second, F::third of
 * its arguments, F::result, and F::apply(a, b, c). If `lanes` is more than 1, a
 * position of the space is that many elements, which one access reads or writes (an input that has one value for all of them is
 * read once). One thread reads all inputs of a position and then writes its result: so the output may be an input's memory. */
#pragma once

#include "engine/cuda/index.cuh"
#include "engine/cuda/number.cuh"

template <typename T, int lanes>
__device__ __forceinline__ number_pack<T, lanes> elementwise_load(const char *data, int64_t offset, bool together) {
    const T *x = (const T *)data + offset;
    if constexpr (lanes == 1) {
        return number_pack<T, 1>{{*x}};
    } else {
        if (together) {
            return *(const number_pack<T, lanes> *)x;
        }
        number_pack<T, lanes> pack;
        T value = *x;
#pragma unroll
        for (int i = 0; i < lanes; i++) {
            pack.lane[i] = value;
        }
        return pack;
    }
}

template <class F, int lanes> struct elementwise_inputs {
    number_pack<typename F::first, lanes> a;
    number_pack<typename F::second, lanes> b;
    number_pack<typename F::third, lanes> c;
};

template <class F, int lanes>
__device__ __forceinline__ void elementwise_parameters(const double *parameter, elementwise_inputs<F, lanes> &in) {
    if constexpr (F::parameters > 0) {
#pragma unroll
        for (int i = 0; i < lanes; i++) {
            if constexpr (F::inputs == 1) {
                in.b.lane[i] = (typename F::second)parameter[0];
            }
            if constexpr (F::inputs + F::parameters == 3) {
                in.c.lane[i] = (typename F::third)parameter[F::parameters - 1];
            }
        }
    }
}

template <class F, int lanes>
__device__ __forceinline__ void elementwise_read(const struct space_arguments &arguments, const int64_t *offset,
                                                 elementwise_inputs<F, lanes> &in) {
    const int64_t *together = arguments.space.inner_stride;
    in.a = elementwise_load<typename F::first, lanes>(arguments.data[1], offset[1], together[1] != 0);
    if constexpr (F::inputs > 1) {
        in.b = elementwise_load<typename F::second, lanes>(arguments.data[2], offset[2], together[2] != 0);
    }
    if constexpr (F::inputs > 2) {
        in.c = elementwise_load<typename F::third, lanes>(arguments.data[3], offset[3], together[3] != 0);
    }
    elementwise_parameters<F, lanes>(arguments.parameter, in);
}

template <class F, int lanes>
__device__ __forceinline__ void elementwise_write(char *data, int64_t offset, const elementwise_inputs<F, lanes> &in) {
    number_pack<typename F::result, lanes> out;
#pragma unroll
    for (int i = 0; i < lanes; i++) {
        out.lane[i] = F::apply(in.a.lane[i], in.b.lane[i], in.c.lane[i]);
    }
    *(number_pack<typename F::result, lanes> *)((typename F::result *)data + offset) = out;
}

/* The elements after the last position, in a space of one row: each of the first threads takes one. */
template <class F, int lanes>
__device__ __forceinline__ void elementwise_tail(const struct space_arguments &arguments) {
    const int64_t element = arguments.space.inner * lanes + threadIdx.x;
    int64_t offset[F::inputs + 1];
#pragma unroll
    for (int k = 0; k <= F::inputs; k++) {
        offset[k] = arguments.space.inner_stride[k] != 0 ? element : 0;
    }
    elementwise_inputs<F, 1> in;
    elementwise_read<F, 1>(arguments, offset, in);
    elementwise_write<F, 1>(arguments.data[0], offset[0], in);
}

template <class F, int lanes>
__global__ void __launch_bounds__(SPACE_THREADS)
    elementwise_kernel(const __grid_constant__ struct space_arguments arguments) {
    constexpr int unroll = lanes > 1 ? SPACE_UNROLL_WIDE : SPACE_UNROLL;
    const struct space &space = arguments.space;
    for (uint32_t tile = blockIdx.x; tile < space.tiles; tile += gridDim.x) {
        elementwise_inputs<F, lanes> in[unroll];
        int64_t to[unroll];
        bool inside[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const struct index_position at = index_locate(space, tile, u * SPACE_THREADS + threadIdx.x);
            inside[u] = at.inside;
            if (at.inside) {
                int64_t offset[F::inputs + 1];
                index_offsets<F::inputs + 1>(space, at, offset);
                elementwise_read<F, lanes>(arguments, offset, in[u]);
                to[u] = offset[0];
            }
        }
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            if (inside[u]) {
                elementwise_write<F, lanes>(arguments.data[0], to[u], in[u]);
            }
        }
    }
    if constexpr (lanes > 1) {
        if (blockIdx.x == 0 && threadIdx.x < arguments.tail) {
            elementwise_tail<F, lanes>(arguments);
        }
    }
}

template <class F, int lanes>
__device__ __forceinline__ void elementwise_flat_read(const struct flat_arguments &p, int64_t at,
                                                      elementwise_inputs<F, lanes> &in) {
    in.a = ((const number_pack<typename F::first, lanes> *)p.data[1])[at];
    if constexpr (F::inputs > 1) {
        in.b = ((const number_pack<typename F::second, lanes> *)p.data[2])[at];
    }
    if constexpr (F::inputs > 2) {
        in.c = ((const number_pack<typename F::third, lanes> *)p.data[3])[at];
    }
}

template <class F, int lanes>
__global__ void __launch_bounds__(SPACE_THREADS) elementwise_flat(const __grid_constant__ struct flat_arguments p) {
    constexpr int unroll = SPACE_UNROLL_WIDE;
    const int64_t step = (int64_t)gridDim.x * (SPACE_THREADS * unroll);
    for (int64_t at = (int64_t)blockIdx.x * (SPACE_THREADS * unroll) + threadIdx.x; at < p.positions; at += step) {
        elementwise_inputs<F, lanes> in[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            if (at + u * SPACE_THREADS < p.positions) {
                elementwise_flat_read<F, lanes>(p, at + u * SPACE_THREADS, in[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            if (at + u * SPACE_THREADS < p.positions) {
                elementwise_write<F, lanes>(p.data[0], (at + u * SPACE_THREADS) * lanes, in[u]);
            }
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < p.tail) {
        const int64_t at = p.positions * lanes + threadIdx.x;
        elementwise_inputs<F, 1> in;
        elementwise_flat_read<F, 1>(p, at, in);
        elementwise_write<F, 1>(p.data[0], at, in);
    }
}

template <typename T, typename... Others> constexpr int elementwise_size() {
    int size = sizeof(T);
    ((size = (int)sizeof(Others) > size ? (int)sizeof(Others) : size), ...);
    return size;
}

/* elementwise_few.cu: kernels in the order of OP_FORMULAS_FEW. */
extern const struct space_kernels elementwise_few[];

/* All versions, the wide ones with 16 bytes of the largest type at a time. */
template <class F, bool flat = true> constexpr struct space_kernels elementwise_kernels() {
    constexpr int lanes =
        16 / elementwise_size<typename F::result, typename F::first, typename F::second, typename F::third>();
    if constexpr (flat) {
        return {elementwise_kernel<F, lanes>, elementwise_kernel<F, 1>, elementwise_flat<F, lanes>, lanes};
    } else {
        return {elementwise_kernel<F, lanes>, elementwise_kernel<F, 1>, nullptr, lanes};
    }
}
