/* Sums, products and means of integers and truth values that are narrower than what is computed: they are converted as they are read, so that no
 * wider copy of a tensor is needed. As those of the converted elements: sums and products wrap in 64 bits, means take each element as f32. */
#include "engine/cuda/reduce.cuh"

namespace {

template <class Element> struct sum_narrow {
    typedef Element T;
    typedef uint64_t R;
    typedef uint64_t A;
    explicit sum_narrow(const reduce_numbers &) {
    }
    __host__ __device__ A neutral() const {
        return 0;
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            a += (uint64_t)x[i];
        }
    }
    __device__ void merge(A &a, const A &b) const {
        a += b;
    }
    __device__ R finish(const A &a) const {
        return a;
    }
};

template <class Element> struct product_narrow {
    typedef Element T;
    typedef uint64_t R;
    typedef uint64_t A;
    explicit product_narrow(const reduce_numbers &) {
    }
    __host__ __device__ A neutral() const {
        return 1;
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            a *= (uint64_t)x[i];
        }
    }
    __device__ void merge(A &a, const A &b) const {
        a *= b;
    }
    __device__ R finish(const A &a) const {
        return a;
    }
};

template <class Element> struct mean_narrow {
    typedef Element T;
    typedef float R;
    typedef double A;
    double divisor;
    explicit mean_narrow(const reduce_numbers &numbers) : divisor(numbers.divisor) {
    }
    __host__ __device__ A neutral() const {
        return 0;
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            a += (double)(float)x[i];
        }
    }
    __device__ void merge(A &a, const A &b) const {
        a += b;
    }
    __device__ R finish(const A &a) const {
        return (float)(a / divisor);
    }
};

} // namespace

static_assert(DTYPE_I64 == 6 && DTYPE_F64 == 10 && DTYPE_U16 == 13 && DTYPE_U64 == 15, "the tables' order");

/* By the dtype of the elements: none, bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, u16, u32, u64. */
#define NARROW(ROW, reduction, wide)                                                                                   \
    {                                                                                                                  \
        REDUCE_NONE, ROW(reduction<uint8_t>), ROW(reduction<uint8_t>), ROW(reduction<int8_t>),                         \
            ROW(reduction<int16_t>), ROW(reduction<int32_t>), wide(reduction<int64_t>), REDUCE_NONE, REDUCE_NONE,      \
            REDUCE_NONE, REDUCE_NONE, REDUCE_NONE, REDUCE_NONE, ROW(reduction<uint16_t>), ROW(reduction<uint32_t>),    \
            wide(reduction<uint64_t>)                                                                                  \
    }
#define NOT_NARROW(reduction) REDUCE_NONE
const struct reduce_kernel reduce_sums_narrow[DTYPE_COUNT] = NARROW(REDUCE_KERNEL_OWN, sum_narrow, NOT_NARROW);
const struct reduce_kernel reduce_products_narrow[DTYPE_COUNT] =
    NARROW(REDUCE_KERNEL_PLAIN, product_narrow, NOT_NARROW);
const struct reduce_kernel reduce_means_narrow[DTYPE_COUNT] =
    NARROW(REDUCE_KERNEL_PLAIN, mean_narrow, REDUCE_KERNEL_PLAIN);
