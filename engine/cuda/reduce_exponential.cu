/* The kernels of logarithms of sums of exponentials. */
#include "engine/cuda/reduce_exponential.cuh"
#include "engine/cuda/reduce_whole.cuh"

template <> struct reduce_occupancy<logsumexp<double>> {
    enum { rows = 2, columns = 2 };
};

/* By dtype: none, bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64. */
const struct reduce_kernel reduce_exponentials[DTYPE_COUNT] = {
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL_PLAIN(logsumexp<__half>),
    REDUCE_KERNEL_PLAIN(logsumexp<__nv_bfloat16>),
    REDUCE_KERNEL_PLAIN(logsumexp<float>),
    REDUCE_KERNEL_PLAIN(logsumexp<double>),
};
