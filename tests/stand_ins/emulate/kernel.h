/* What CUDA's own words mean on the host. convert.py puts this before each source of engine/cuda, whose launches it makes
 * calls of emulate(). C++ only. */
#pragma once

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <utility>

#include "tests/stand_ins/emulate/block.h"
#include "tests/stand_ins/emulate/graph.h"

/* ---- declarations; one block runs at a time, so that shared memory may be static; that which launches ask for is damaged
 * before each ---- */

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

#define DYNAMIC_SHARED(name) uint8_t *const name = emulated_shared
enum { EMULATED_SHARED_MAX = 227 << 10 };
alignas(16) static uint8_t emulated_shared[EMULATED_SHARED_MAX];

#define threadIdx block_thread
#define blockIdx block_index
#define blockDim block_size
#define gridDim block_grid

/* ---- launches: kernel<<<grid, block, 0, stream>>>(arguments) ---- */

template <class Kernel> struct emulated_launch {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    Kernel kernel;

    template <class... Arguments, size_t... I>
    static void call(dim3 grid, dim3 block, const void *const *list, std::index_sequence<I...>) {
        auto thread = [&] { (*(const Kernel *)list[0])(*(const Arguments *)list[1 + I]...); };
        block_launch(
            grid, block, [](void *argument) { (*(decltype(thread) *)argument)(); }, &thread);
    }
    template <class... Arguments>
    static void run(dim3 grid, dim3 block, size_t shared, const void *const *list) {
        memset(emulated_shared, 0xee, shared);
        call<Arguments...>(grid, block, list, std::index_sequence_for<Arguments...>());
    }
    template <class... Arguments> void operator()(const Arguments &...arguments) const {
        static const size_t bytes[] = {sizeof kernel, sizeof arguments...};
        static const struct emulated_kernel own = {1 + sizeof...(Arguments), bytes, run<Arguments...>};
        const void *const list[] = {&kernel, &arguments...};
        emulated_put(stream, &own, grid, block, shared, list);
    }
};

template <class Kernel>
static inline emulated_launch<Kernel> emulate(dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                              Kernel kernel) {
    if (shared > EMULATED_SHARED_MAX)
        block_die("a launch asks for %zu bytes of shared memory", shared);
    return {grid, block, shared, stream, kernel};
}

/* ---- threads that wait for each other ---- */

#define EMULATED_TEXT_OF(x) #x
#define EMULATED_TEXT(x) EMULATED_TEXT_OF(x)
#define EMULATED_HERE __FILE__ ":" EMULATED_TEXT(__LINE__)

#define __syncthreads() ((void)block_barrier(false, EMULATED_HERE))
#define __syncthreads_or(x) ((int)block_barrier((x) != 0, EMULATED_HERE))
#define __shfl_down_sync(mask, value, distance, width)                                                                 \
    emulated_shuffle(mask, value, emulated_down((int)(distance), width), EMULATED_HERE)
#define __shfl_up_sync(mask, value, distance, width)                                                                   \
    emulated_shuffle(mask, value, emulated_up((int)(distance), width), EMULATED_HERE)
#define __shfl_sync(mask, value, lane, width)                                                                          \
    emulated_shuffle(mask, value, emulated_lane() / (width) * (width) + (lane) % (width), EMULATED_HERE)
#define __shfl_xor_sync(mask, value, distance, width)                                                                  \
    emulated_shuffle(mask, value, emulated_across(distance, width), EMULATED_HERE)

static inline int emulated_lane() {
    return (int)(block_thread.x % BLOCK_WARP);
}

/* A lane that would be outside of its group of `width` lanes, or in a later one: the thread's own. */
static inline int emulated_down(int distance, int width) {
    int lane = emulated_lane();
    return lane % width + distance < width ? lane + distance : lane;
}
static inline int emulated_up(int distance, int width) {
    int lane = emulated_lane();
    return lane % width >= distance ? lane - distance : lane;
}
static inline int emulated_across(int distance, int width) {
    int lane = emulated_lane();
    return (lane ^ distance) / width > lane / width ? lane : lane ^ distance;
}

template <class T> static inline T emulated_shuffle(unsigned mask, T value, int lane, const char *where) {
    if (mask != 0xffffffffu)
        block_die("%s: a shuffle of some lanes", where);
    T result;
    memcpy(&result, block_exchange(&value, sizeof value, (unsigned)lane, where), sizeof result);
    return result;
}

/* ---- functions that only devices have ---- */

static inline void __threadfence_system() {
}

template <class T> static inline void __stcg(T *to, T value) {
    *to = value;
}

template <class T> static inline T atomicAdd(T *at, T value) {
    T old = *at;
    *at = old + value;
    return old;
}

template <class T> static inline T atomicMin(T *at, T value) {
    T old = *at;
    *at = value < old ? value : old;
    return old;
}

template <class T> static inline T atomicMax(T *at, T value) {
    T old = *at;
    *at = value > old ? value : old;
    return old;
}

static inline int __float_as_int(float x) {
    int bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline long long __double_as_longlong(double x) {
    long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double __longlong_as_double(long long bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline double __dsub_rn(double a, double b) {
    return a - b;
}

static inline double __dmul_rn(double a, double b) {
    return a * b;
}

static inline void sincospif(float x, float *sine, float *cosine) {
    double angle = M_PI * (double)x;
    *sine = (float)sin(angle);
    *cosine = (float)cos(angle);
}

static inline void sincospi(double x, double *sine, double *cosine) {
    long double angle = 3.14159265358979323846264338327950288L * (long double)x;
    *sine = (double)sinl(angle);
    *cosine = (double)cosl(angle);
}
