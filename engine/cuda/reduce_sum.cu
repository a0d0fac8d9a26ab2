/* The kernels of sums, means and products. */
#include "engine/cuda/reduce_sum.cuh"
#include "engine/cuda/reduce_whole.cuh"

static_assert(sizeof(long long) == sizeof(int64_t), "i64");
static_assert(DTYPE_F64 == 10 && DTYPE_U16 == 13 && DTYPE_U32 == 14 && DTYPE_U64 == 15, "the tables' order");

/* By dtype: none, bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, u16, u32, u64, c64, c128. */
const struct reduce_kernel reduce_sums[DTYPE_COUNT] = {
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL(sum_integer),
    REDUCE_KERNEL(sum_float<__half>),
    REDUCE_KERNEL(sum_float<__nv_bfloat16>),
    REDUCE_KERNEL(sum_float<float>),
    REDUCE_KERNEL(sum_double),
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL(sum_integer),
};
const struct reduce_kernel reduce_products[DTYPE_COUNT] = {
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL_OWN(product_integer),
    REDUCE_KERNEL_OWN(product_f16),
    REDUCE_KERNEL_OWN(product_bf16),
    REDUCE_KERNEL_OWN(product_f32),
    REDUCE_KERNEL_OWN(product_f64),
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL_OWN(product_integer),
    REDUCE_KERNEL_OWN(product_complex<formula_c64>),
    REDUCE_KERNEL_OWN(product_complex<formula_c128>),
};
