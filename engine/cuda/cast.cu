/* Casts between all dtypes: the kernel of elementwise.cuh with a conversion of engine/device/formula.h. Both operands may be
 * strided. */
#include <type_traits>

#include "engine/cuda/elementwise.cuh"

namespace {

/* f16, bf16 and f8 are widened first; narrow integers widen to int32_t by themselves, whether they have a sign or not. */
template <typename T, typename R> struct cast {
    enum { inputs = 1, parameters = 0 };
    typedef T first, second, third;
    typedef R result;
    static __device__ __forceinline__ R apply(T a, T, T) {
        return number_cast<R>::from(number_widen(a));
    }
};

/* Casts that jobs use all the time have a kernel for operands without gaps; such kernels for all casts would be too many to load. */
template <typename T> constexpr bool cast_common() {
    return std::is_same<T, __half>::value || std::is_same<T, __nv_bfloat16>::value || std::is_same<T, float>::value;
}

/* Everything except zero is true, also a NaN. */
template <typename T> struct cast_truth {
    enum { inputs = 1, parameters = 0 };
    typedef T first, second, third;
    typedef uint8_t result;
    static __device__ __forceinline__ uint8_t apply(T a, T, T) {
        return number_truth(number_widen(a));
    }
};

template <typename T> struct cast_signed { typedef T type; };
template <> struct cast_signed<uint8_t> { typedef int8_t type; };
template <> struct cast_signed<uint16_t> { typedef int16_t type; };
template <> struct cast_signed<uint32_t> { typedef int32_t type; };
template <> struct cast_signed<uint64_t> { typedef int64_t type; };

/* ---- the table, by the dtype from which and that to which; a copy where there is no kernel ---- */

/* Between integers the sizes count, and where they grow the sign: kernels of signed integers do the others as well. */
template <enum dtype from, enum dtype to> constexpr struct space_kernels cast_kernels() {
    typedef typename number_element<from>::type T;
    typedef typename number_element<to>::type R;
    constexpr bool complex_from = from == DTYPE_C64 || from == DTYPE_C128;
    constexpr bool complex_to = to == DTYPE_C64 || to == DTYPE_C128;
    if constexpr (from == to || (complex_from && !complex_to && to != DTYPE_BOOL)) {
        return space_kernels();        /* the same bytes, or there is no such cast */
    } else if constexpr (complex_to) { /* rare: in one version */
        return {elementwise_kernel<cast<T, R>, 1>, elementwise_kernel<cast<T, R>, 1>, nullptr, 1};
    } else if constexpr (to == DTYPE_BOOL) {
        return elementwise_kernels<cast_truth<typename cast_signed<T>::type>, false>();
    } else if constexpr (!std::is_integral<T>::value || !std::is_integral<R>::value) {
        return elementwise_kernels < cast<T, R>, cast_common<T>() && cast_common<R>() > ();
    } else if constexpr (sizeof(T) == sizeof(R)) {
        return space_kernels();
    } else if constexpr (sizeof(T) > sizeof(R)) {
        return elementwise_kernels<cast<typename cast_signed<T>::type, typename cast_signed<R>::type>, false>();
    } else {
        return elementwise_kernels<cast<T, typename cast_signed<R>::type>, false>();
    }
}

struct cast_row {
    struct space_kernels to[DTYPE_COUNT];
};

#define TO(NAME, value, text, bytes, kind) row.to[DTYPE_##NAME] = cast_kernels<from, DTYPE_##NAME>();
template <enum dtype from> constexpr struct cast_row cast_row_make() {
    struct cast_row row = {};
    DTYPE_TABLE(TO)
    return row;
}

struct cast_table {
    struct cast_row from[DTYPE_COUNT];
};

#define FROM(NAME, value, text, bytes, kind) made.from[DTYPE_##NAME] = cast_row_make<DTYPE_##NAME>();
constexpr struct cast_table table_make() {
    struct cast_table made = {};
    DTYPE_TABLE(FROM)
    return made;
}

constexpr struct cast_table table = table_make();

} // namespace

static bool cast_walk(cuda_kernel_seen *seen, void *context) {
    for (int from = 0; from < DTYPE_COUNT; from++) {
        for (int to = 0; to < DTYPE_COUNT; to++) {
            bool common = cuda_dtype_common((enum dtype)from) && cuda_dtype_common((enum dtype)to);
            if (!space_walk(&table.from[from].to[to], common, seen, context)) {
                return false;
            }
        }
    }
    return true;
}

static int cast_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct space_kernels *kernels = &table.from[launch->inputs[0].dtype].to[launch->output.dtype];
    if (!kernels->narrow) { /* the same bytes */
        return cuda_kernel_copy.driver(cuda, stream, launch, fault);
    }
    return space_launch(cuda, launch, kernels, fault, stream->stream);
}

const struct cuda_kernel cuda_kernel_cast = {.driver = cast_run, .walk = cast_walk};
