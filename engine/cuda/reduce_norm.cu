/* The kernels of norms. */
#include "engine/cuda/reduce_norm.cuh"
#include "engine/cuda/reduce_whole.cuh"

template <class Element> struct reduce_occupancy<vector_norm<Element>> {
    enum { rows = 2, columns = 2 };
};

/* By dtype: none, bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64. */
const struct reduce_kernel reduce_norms[DTYPE_COUNT] = {
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL_PLAIN(vector_norm<__half>),
    REDUCE_KERNEL_PLAIN(vector_norm<__nv_bfloat16>),
    REDUCE_KERNEL_PLAIN(vector_norm<float>),
    REDUCE_KERNEL_PLAIN(vector_norm<double>),
};
