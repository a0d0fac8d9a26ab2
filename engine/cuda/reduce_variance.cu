/* The kernels of variances and standard deviations. */
#include "engine/cuda/reduce_variance.cuh"
#include "engine/cuda/reduce_whole.cuh"

/* By dtype: none, bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64. */
const struct reduce_kernel reduce_variances[DTYPE_COUNT] = {
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL_PLAIN(variance<__half>),
    REDUCE_KERNEL_PLAIN(variance<__nv_bfloat16>),
    REDUCE_KERNEL_PLAIN(variance<float>),
    REDUCE_KERNEL_PLAIN(variance<double>),
};
