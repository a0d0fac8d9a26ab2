/* Positions of greatest and least elements: the first of equals; the first NaN wins. The least is found as the greatest
 * of ~x or -x, as in reduce_extreme.cu. */
#include "engine/cuda/reduce_whole.cuh"

template <class C> __device__ inline C position_turn(C x, bool lowest) {
    return lowest ? ~x : x;
}
template <> __device__ inline float position_turn(float x, bool lowest) {
    return lowest ? -x : x;
}
template <> __device__ inline double position_turn(double x, bool lowest) {
    return lowest ? -x : x;
}

template <class C> struct position_found {
    int64_t at; /* -1: nothing yet */
    C value;
};

template <class Element> struct position {
    typedef Element T;
    typedef int64_t R;
    typedef typename reduce_compute<Element>::type C;
    typedef position_found<C> A;
    bool lowest;
    explicit position(const reduce_numbers &numbers) : lowest(numbers.lowest) {
    }
    __host__ __device__ A neutral() const {
        return {-1, 0};
    }
    __device__ bool beats(C x, C v) const {
        return x > v || (x != x && v == v);
    }
    /* One accumulator meets positions in increasing order, so a later equal never counts. */
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t at, int64_t step) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            C value = position_turn((C)reduce_load(x[i]), lowest);
            if (a.at < 0 || beats(value, a.value)) {
                a.value = value;
                a.at = at + i * step;
            }
        }
    }
    __device__ void merge(A &a, const A &b) const {
        if (b.at >= 0 && (a.at < 0 || beats(b.value, a.value) || (b.at < a.at && !beats(a.value, b.value)))) {
            a = b;
        }
    }
    __device__ R finish(const A &a) const {
        return a.at;
    }
};

static_assert(DTYPE_F64 == 10 && DTYPE_U16 == 13 && DTYPE_U32 == 14 && DTYPE_U64 == 15, "the tables' order");

/* By dtype: none, bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, u16, u32, u64, c64, c128. */
const struct reduce_kernel reduce_positions[DTYPE_COUNT] = {
    REDUCE_NONE,
    REDUCE_KERNEL_OWN(position<uint8_t>),
    REDUCE_KERNEL_OWN(position<uint8_t>),
    REDUCE_KERNEL_OWN(position<int8_t>),
    REDUCE_KERNEL_OWN(position<int16_t>),
    REDUCE_KERNEL(position<int32_t>),
    REDUCE_KERNEL(position<int64_t>),
    REDUCE_KERNEL(position<__half>),
    REDUCE_KERNEL(position<__nv_bfloat16>),
    REDUCE_KERNEL(position<float>),
    REDUCE_KERNEL(position<double>),
    REDUCE_NONE,
    REDUCE_NONE,
    REDUCE_KERNEL_OWN(position<uint16_t>),
    REDUCE_KERNEL_OWN(position<uint32_t>),
    REDUCE_KERNEL_OWN(position<uint64_t>),
};
