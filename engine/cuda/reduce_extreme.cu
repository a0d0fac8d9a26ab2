/* The kernels of greatest and least elements. */
#include "engine/cuda/reduce_extreme.cuh"
#include "engine/cuda/reduce_whole.cuh"

static_assert(DTYPE_F64 == 10 && DTYPE_U16 == 13 && DTYPE_U32 == 14 && DTYPE_U64 == 15, "the tables' order");

/* By dtype: none, bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, u16, u32, u64, c64, c128. */
const struct reduce_kernel reduce_extremes[DTYPE_COUNT] = {
    REDUCE_NONE,
    REDUCE_KERNEL_OWN(extreme<uint8_t>),
    REDUCE_KERNEL_OWN(extreme<uint8_t>),
    REDUCE_KERNEL_OWN(extreme<int8_t>),
    REDUCE_KERNEL_OWN(extreme<int16_t>),
    REDUCE_KERNEL(extreme<int32_t>),
    REDUCE_KERNEL(extreme<int64_t>),
    REDUCE_KERNEL(extreme<__half>),
    REDUCE_KERNEL(extreme<__nv_bfloat16>),
    REDUCE_KERNEL(extreme<float>),
    REDUCE_KERNEL(extreme<double>),
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL_OWN(extreme<uint16_t>),
    REDUCE_KERNEL_OWN(extreme<uint32_t>),
    REDUCE_KERNEL_OWN(extreme<uint64_t>),
};
