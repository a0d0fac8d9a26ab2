/* How many elements are not 0: by size, since a mask tells which bits count. */
#include "engine/cuda/reduce_whole.cuh"

template <class Bits> struct count {
    typedef Bits T;
    typedef uint64_t R;
    typedef uint64_t A;
    Bits mask;
    explicit count(const reduce_numbers &numbers) : mask((Bits)numbers.mask) {
    }
    __host__ __device__ A neutral() const {
        return 0;
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            a += (x[i] & mask) != 0;
        }
    }
    __device__ void merge(A &a, const A &b) const {
        a += b;
    }
    __device__ R finish(const A &a) const {
        return a;
    }
};

static_assert(DTYPE_F64 == 10 && DTYPE_U16 == 13 && DTYPE_U32 == 14 && DTYPE_U64 == 15, "the table's order");

/* By dtype: none, bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, u16, u32, u64. */
const struct reduce_kernel reduce_counts[DTYPE_COUNT] = {
    REDUCE_NONE,
    REDUCE_KERNEL_PLAIN(count<uint8_t>),
    REDUCE_KERNEL_PLAIN(count<uint8_t>),
    REDUCE_KERNEL_PLAIN(count<uint8_t>),
    REDUCE_KERNEL_PLAIN(count<uint16_t>),
    REDUCE_KERNEL_PLAIN(count<uint32_t>),
    REDUCE_KERNEL_PLAIN(count<uint64_t>),
    REDUCE_KERNEL_PLAIN(count<uint16_t>),
    REDUCE_KERNEL_PLAIN(count<uint16_t>),
    REDUCE_KERNEL_PLAIN(count<uint32_t>),
    REDUCE_KERNEL_PLAIN(count<uint64_t>),
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL_PLAIN(count<uint16_t>),
    REDUCE_KERNEL_PLAIN(count<uint32_t>),
    REDUCE_KERNEL_PLAIN(count<uint64_t>),
};
