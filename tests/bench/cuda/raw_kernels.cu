/* The kernels of the process that calls CUDA directly. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cub/device/device_reduce.cuh>

#include "tests/bench/cuda/raw.h"
#include "tests/bench/cuda/raw_cuda.h"

namespace {

__global__ void add16(float *x, const float *b) {
    if (threadIdx.x < 16)
        x[threadIdx.x] += b[threadIdx.x];
}

/* Mixes a position's bits (the finaliser of MurmurHash3). */
__device__ uint32_t mixed(uint32_t bits) {
    bits ^= bits >> 16;
    bits *= 0x85ebca6bu;
    bits ^= bits >> 13;
    bits *= 0xc2b2ae35u;
    return bits ^ bits >> 16;
}

template <typename T> __global__ void fill(T *data, int64_t count, uint32_t seed) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t bits = mixed((uint32_t)i ^ mixed(seed + (uint32_t)(i >> 32)));
        data[i] = T((float)(bits >> 8) * 0x1p-23f - 1.0f);
    }
}

template <typename T> cudaError_t launch_fill(void *data, int64_t count, uint32_t seed, cudaStream_t stream) {
    fill<T><<<1024, 256, 0, stream>>>(static_cast<T *>(data), count, seed);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t raw_adds(float *x, const float *b, int64_t count, cudaStream_t stream) {
    for (int64_t i = 0; i < count; i++)
        add16<<<1, 32, 0, stream>>>(x, b);
    return cudaGetLastError();
}

extern "C" cudaError_t raw_fill(void *data, int type, int64_t count, uint32_t seed, cudaStream_t stream) {
    switch (type) {
    case RAW_BF16:
        return launch_fill<__nv_bfloat16>(data, count, seed, stream);
    case RAW_F16:
        return launch_fill<__half>(data, count, seed, stream);
    case RAW_FP8:
        return launch_fill<__nv_fp8_e4m3>(data, count, seed, stream);
    default:
        return launch_fill<float>(data, count, seed, stream);
    }
}

extern "C" cudaError_t raw_sums(const void *x, int64_t n, void *memory, uint64_t bytes, int64_t count,
                                cudaStream_t stream) {
    const uint64_t room = 256; /* of the sum, with what CUB needs behind it, aligned */
    const float *in = static_cast<const float *>(x);
    float *sum = static_cast<float *>(memory);
    void *scratch = static_cast<char *>(memory) + room;
    size_t needed = 0;
    cudaError_t error = cub::DeviceReduce::Sum(nullptr, needed, in, sum, n, stream);
    if (error == cudaSuccess && needed + room > bytes)
        error = cudaErrorMemoryAllocation;
    for (int64_t i = 0; i < count && error == cudaSuccess; i++)
        error = cub::DeviceReduce::Sum(scratch, needed, in, sum, n, stream);
    return error;
}
