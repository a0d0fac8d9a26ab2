/* Elementwise operations: one kernel (elementwise.cuh) for each formula and dtype. What is computed stands in engine/device/formula.h,
 * which the CPU shares; which formulas there are, and which of them computes an operation, in lists made of its description. */
#include "engine/cuda/elementwise.cuh"

namespace {

#define OPERATION static __device__ __forceinline__
#define FORMULA_TYPE_f16 __half
#define FORMULA_TYPE_bf16 __nv_bfloat16

/* ---- formulas as types: those of halves are f32's ---- */

#define FORMULA_OF_1(name, T)                                                                                          \
    struct of_##name {                                                                                                 \
        OPERATION auto of(T a) {                                                                                       \
            return formula_##name(a);                                                                                  \
        }                                                                                                              \
    };
#define FORMULA_OF_2(name, T)                                                                                          \
    struct of_##name {                                                                                                 \
        OPERATION auto of(T a, T b) {                                                                                  \
            return formula_##name(a, b);                                                                               \
        }                                                                                                              \
    };
#define FORMULA(name, inputs, dtype, result) FORMULA_OF_##inputs(name##_##dtype, FORMULA_TYPE_##dtype)
#define FORMULA_HALF(name, inputs, dtype, result) typedef of_##name##_f32 of_##name##_##dtype;
OP_FORMULAS(FORMULA)
OP_FORMULAS_HALF(FORMULA_HALF)

/* ---- what the kernel is a template over ---- */

template <class O, typename T, typename R> struct apply_1 {
    enum { inputs = 1 };
    typedef T first, second, third;
    typedef R result;
    OPERATION R apply(T a, T, T) {
        return number_store<R>::from(O::of(number_widen(a)));
    }
};

template <class O, typename T, typename R> struct apply_2 {
    enum { inputs = 2 };
    typedef T first, second, third;
    typedef R result;
    OPERATION R apply(T a, T b, T) {
        return number_store<R>::from(O::of(number_widen(a), number_widen(b)));
    }
};

/* Moves elements as they are, so that their size is all that counts. */
template <typename T> struct where {
    enum { inputs = 3 };
    typedef uint8_t first;
    typedef T second, third, result;
    OPERATION T apply(uint8_t condition, T a, T b) {
        return condition ? a : b;
    }
};

/* ---- the kernels by formula, and the formulas by opcode and dtype ---- */

/* clang-format off */
#define NAME(name, inputs, dtype, result) KERNEL_##name##_##dtype,
enum kernel {
    KERNEL_NONE, /* 0: where the table says nothing */
    KERNEL_WHERE_1,
    KERNEL_WHERE_2,
    KERNEL_WHERE_4,
    KERNEL_WHERE_8,
    OP_FORMULAS(NAME)
    OP_FORMULAS_HALF(NAME)
    KERNEL_COUNT
};
static_assert(KERNEL_COUNT <= 65536, "a kernel's number has 16 bits");

#define KERNELS(name, inputs, dtype, result)                                                                           \
    elementwise_kernels<apply_##inputs<of_##name##_##dtype, FORMULA_TYPE_##dtype, FORMULA_TYPE_##result>>(),
const struct space_kernels kernels[] = {
    space_kernels(),
    elementwise_kernels<where<uint8_t>>(),
    elementwise_kernels<where<uint16_t>>(),
    elementwise_kernels<where<uint32_t>>(),
    elementwise_kernels<where<uint64_t>>(),
    OP_FORMULAS(KERNELS)
    OP_FORMULAS_HALF(KERNELS)
};
static_assert(sizeof kernels / sizeof *kernels == KERNEL_COUNT, "they are in the order of their numbers");

struct kernel_table {
    uint16_t kernel[OP_CODE_MAX][DTYPE_COUNT];
};

#define ENTRY(ID, DTYPE, formula) table.kernel[OP_##ID][DTYPE_##DTYPE] = KERNEL_##formula;
#define WHERE(NAME, value, text, bytes, kind) table.kernel[OP_WHERE][value] = KERNEL_WHERE_##bytes;
constexpr struct kernel_table table_make() {
    struct kernel_table table = {};
    OP_FORMULA_TABLE(ENTRY)
    DTYPE_TABLE(WHERE)
    return table;
}
/* clang-format on */
constexpr struct kernel_table table = table_make();

const struct space_kernels *table_find(unsigned opcode, enum dtype dtype) {
    bool known = opcode < OP_CODE_MAX && dtype > DTYPE_INVALID && dtype < DTYPE_COUNT;
    const struct space_kernels *found = &kernels[known ? table.kernel[opcode][dtype] : 0];
    return found->narrow ? found : nullptr;
}

} // namespace

static bool elementwise_has(unsigned opcode, enum dtype dtype) {
    return table_find(opcode, dtype) != nullptr;
}

static bool elementwise_walk(cuda_kernel_seen *seen, void *context) {
    for (const auto &row : table.kernel) {
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
            if (!space_walk(&kernels[row[dtype]], cuda_dtype_common((enum dtype)dtype), seen, context)) {
                return false;
            }
        }
    }
    return true;
}

/* By the dtype of the last input: where's first one is its condition. */
static int elementwise_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    enum dtype dtype = (enum dtype)launch->inputs[launch->n_inputs - 1].dtype;
    return space_launch(cuda, launch, table_find(launch->opcode, dtype), fault, stream->stream);
}

CUDA_KERNELS_FOUND(elementwise_found, elementwise_has)

const struct cuda_kernel cuda_kernel_elementwise = {{.dtypes = elementwise_found}, elementwise_run, elementwise_walk};
