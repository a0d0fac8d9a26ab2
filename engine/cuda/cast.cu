/* Casts between all dtypes: the kernel of elementwise.cuh with a conversion of engine/device/formula.h. Both operands may be
 * strided. */
#include <type_traits>

#include "engine/cuda/elementwise.cuh"

namespace {

/* f16, bf16 and f8 are widened first; narrow integers widen to int32_t by themselves. */
template <typename T, typename R> struct cast {
    enum { inputs = 1 };
    typedef T first, second, third;
    typedef R result;
    static __device__ __forceinline__ R apply(T a, T, T) {
        return number_cast<R>::from(number_widen(a));
    }
};

/* Casts that jobs use all the time have a kernel for operands without gaps; such kernels for all 130 casts would be too many to load. */
template <typename T> constexpr bool cast_common() {
    return std::is_same<T, __half>::value || std::is_same<T, __nv_bfloat16>::value || std::is_same<T, float>::value;
}

/* Everything except zero is true, also a NaN. */
template <typename T> struct cast_truth {
    enum { inputs = 1 };
    typedef T first, second, third;
    typedef uint8_t result;
    static __device__ __forceinline__ uint8_t apply(T a, T, T) {
        return number_widen(a) != 0;
    }
};

} // namespace

/* ---- the table: rows by the dtype from which, columns by that to which, in their order; a copy where there is none ---- */

static_assert(DTYPE_BOOL == 1 && DTYPE_U8 == 2 && DTYPE_I8 == 3 && DTYPE_I16 == 4 && DTYPE_I32 == 5 && DTYPE_I64 == 6 &&
                  DTYPE_F16 == 7 && DTYPE_BF16 == 8 && DTYPE_F32 == 9 && DTYPE_F64 == 10 && DTYPE_F8E4M3 == 11 &&
                  DTYPE_F8E5M2 == 12 && DTYPE_COUNT == 13,
              "rows and columns are in the order of dtypes");

#define NONE space_kernels()
#define CAST(T, R) (elementwise_kernels < cast<T, R>, cast_common<T>() && cast_common<R>() > ())
#define TRUTH(T) (elementwise_kernels<cast_truth<T>, false>())
#define TO_INTEGERS(T) CAST(T, uint8_t), CAST(T, int8_t), CAST(T, int16_t), CAST(T, int32_t), CAST(T, int64_t)
#define TO_F8(T) CAST(T, f8e4m3), CAST(T, f8e5m2)
#define TO_FLOATS(T) CAST(T, __half), CAST(T, __nv_bfloat16), CAST(T, float), CAST(T, double)
#define TO_ALL_FLOATS(T) TO_FLOATS(T), TO_F8(T)

static const struct space_kernels table[DTYPE_COUNT][DTYPE_COUNT] = {
    {},
    {NONE, NONE, NONE, CAST(uint8_t, int8_t), CAST(uint8_t, int16_t), CAST(uint8_t, int32_t), CAST(uint8_t, int64_t),
     TO_ALL_FLOATS(uint8_t)},
    {NONE, TRUTH(uint8_t), NONE, CAST(uint8_t, int8_t), CAST(uint8_t, int16_t), CAST(uint8_t, int32_t),
     CAST(uint8_t, int64_t), TO_ALL_FLOATS(uint8_t)},
    {NONE, TRUTH(int8_t), CAST(int8_t, uint8_t), NONE, CAST(int8_t, int16_t), CAST(int8_t, int32_t),
     CAST(int8_t, int64_t), TO_ALL_FLOATS(int8_t)},
    {NONE, TRUTH(int16_t), CAST(int16_t, uint8_t), CAST(int16_t, int8_t), NONE, CAST(int16_t, int32_t),
     CAST(int16_t, int64_t), TO_ALL_FLOATS(int16_t)},
    {NONE, TRUTH(int32_t), CAST(int32_t, uint8_t), CAST(int32_t, int8_t), CAST(int32_t, int16_t), NONE,
     CAST(int32_t, int64_t), TO_ALL_FLOATS(int32_t)},
    {NONE, TRUTH(int64_t), CAST(int64_t, uint8_t), CAST(int64_t, int8_t), CAST(int64_t, int16_t),
     CAST(int64_t, int32_t), NONE, TO_ALL_FLOATS(int64_t)},
    {NONE, TRUTH(__half), TO_INTEGERS(__half), NONE, CAST(__half, __nv_bfloat16), CAST(__half, float),
     CAST(__half, double), TO_F8(__half)},
    {NONE, TRUTH(__nv_bfloat16), TO_INTEGERS(__nv_bfloat16), CAST(__nv_bfloat16, __half), NONE,
     CAST(__nv_bfloat16, float), CAST(__nv_bfloat16, double), TO_F8(__nv_bfloat16)},
    {NONE, TRUTH(float), TO_INTEGERS(float), CAST(float, __half), CAST(float, __nv_bfloat16), NONE, CAST(float, double),
     TO_F8(float)},
    {NONE, TRUTH(double), TO_INTEGERS(double), CAST(double, __half), CAST(double, __nv_bfloat16), CAST(double, float),
     NONE, TO_F8(double)},
    {NONE, TRUTH(f8e4m3), TO_INTEGERS(f8e4m3), TO_FLOATS(f8e4m3), NONE, CAST(f8e4m3, f8e5m2)},
    {NONE, TRUTH(f8e5m2), TO_INTEGERS(f8e5m2), TO_FLOATS(f8e5m2), CAST(f8e5m2, f8e4m3), NONE},
};

static bool cast_walk(cuda_kernel_seen *seen, void *context) {
    for (int from = 0; from < DTYPE_COUNT; from++) {
        for (int to = 0; to < DTYPE_COUNT; to++) {
            bool common = cuda_dtype_common((enum dtype)from) && cuda_dtype_common((enum dtype)to);
            if (!space_walk(&table[from][to], common, seen, context)) {
                return false;
            }
        }
    }
    return true;
}

static int cast_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct space_kernels *kernels = &table[launch->inputs[0].dtype][launch->output.dtype];
    if (!kernels->narrow) { /* the same bytes */
        return cuda_kernel_copy.driver(cuda, stream, launch, fault);
    }
    return space_launch(cuda, launch, kernels, fault, stream->stream);
}

const struct cuda_kernel cuda_kernel_cast = {.driver = cast_run, .walk = cast_walk};
