/* Elementwise operations: one kernel (elementwise.cuh) for each formula and dtype; those of formulas with few layouts are in
 * elementwise_few.cu. What is computed stands in engine/device/formula.h,
 * which the CPU shares; which formulas there are, and which of them computes an operation, in lists made of its description. */
#include "engine/cuda/elementwise_formula.cuh"

namespace {

/* clang-format off */
OP_FORMULAS_ALL(FORMULA)
OP_FORMULAS_ALL_HALF(FORMULA_HALF)
/* clang-format on */

/* Moves elements as they are, so that their size is all that counts. */
template <typename T> struct where {
    enum { inputs = 3, parameters = 0 };
    typedef uint8_t first;
    typedef T second, third, result;
    OPERATION T apply(uint8_t condition, T a, T b) {
        return condition ? a : b;
    }
};

/* ---- the kernels by formula, and the formulas by opcode and dtype ---- */

/* clang-format off */
#define NAME(name, inputs, parameters, dtype, result) KERNEL_##name##_##dtype,
#define NAME_HALF(name, inputs, parameters, dtype, result) KERNEL_##name##_##dtype = KERNEL_##name##_f32,
enum kernel {
    KERNEL_NONE, /* 0: where the table says nothing */
    KERNEL_WHERE_1,
    KERNEL_WHERE_2,
    KERNEL_WHERE_4,
    KERNEL_WHERE_8,
    KERNEL_WHERE_16,
    OP_FORMULAS_ALL(NAME)
    OP_FORMULAS_ALL_HALF(NAME)
    KERNEL_FEW, /* from here on: in elementwise_few */
    KERNEL_FEW_BEFORE = KERNEL_FEW - 1,
    OP_FORMULAS_FEW(NAME)
    OP_FORMULAS_FEW_HALF(NAME_HALF)
};

#define KERNELS(name, inputs, parameters, dtype, result)                                                               \
    elementwise_kernels<applied<of_##name##_##dtype, inputs, parameters, FORMULA_TYPE_##dtype, FORMULA_TYPE_##result>>(),
const struct space_kernels kernels[] = {
    space_kernels(),
    elementwise_kernels<where<uint8_t>>(),
    elementwise_kernels<where<uint16_t>>(),
    elementwise_kernels<where<uint32_t>>(),
    elementwise_kernels<where<uint64_t>>(),
    elementwise_kernels<where<ulonglong2>>(),
    OP_FORMULAS_ALL(KERNELS)
    OP_FORMULAS_ALL_HALF(KERNELS)
};
static_assert(sizeof kernels / sizeof *kernels == KERNEL_FEW, "they are in the order of their numbers");

struct kernel_table {
    uint16_t kernel[OP_PLACES_ELEMENTWISE][DTYPE_COUNT];
};

#define ENTRY(ID, DTYPE, formula) table.kernel[OP_PLACE_##ID][DTYPE_##DTYPE] = KERNEL_##formula;
#define WHERE(ID, dtype, text, bytes, kind) table.kernel[OP_PLACE_WHERE][dtype] = KERNEL_WHERE_##bytes;
constexpr struct kernel_table table_make() {
    struct kernel_table table = {};
    OP_FORMULA_TABLE(ENTRY)
    DTYPE_TABLE(WHERE)
    return table;
}
/* clang-format on */
constexpr struct kernel_table table = table_make();

/* By number. Its `narrow` is NULL if there is none. */
const struct space_kernels *kernels_at(unsigned number) {
    return number < KERNEL_FEW ? &kernels[number] : &elementwise_few[number - KERNEL_FEW];
}

const struct space_kernels *table_find(unsigned opcode, enum dtype dtype) {
    const struct space_kernels *found = kernels_at(table.kernel[op_place(opcode)][dtype]);
    return found->narrow ? found : nullptr;
}

} // namespace

static bool elementwise_has(unsigned opcode, enum dtype dtype) {
    return table_find(opcode, dtype) != nullptr;
}

static bool elementwise_walk(cuda_kernel_seen *seen, void *context) {
    for (const auto &row : table.kernel) {
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
            if (!space_walk(kernels_at(row[dtype]), cuda_dtype_common((enum dtype)dtype), seen, context)) {
                return false;
            }
        }
    }
    return true;
}

/* By the dtype of the last input: where's first one is its condition. */
static int elementwise_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                           struct fault *fault) {
    enum dtype dtype = (enum dtype)launch->inputs[launch->n_inputs - 1].dtype;
    return space_launch(cuda, launch, table_find(launch->opcode, dtype), fault, stream->stream);
}

CUDA_KERNELS_FOUND(elementwise_found, elementwise_has)

const struct cuda_kernel cuda_kernel_elementwise = {{.dtypes = elementwise_found}, elementwise_run, elementwise_walk};
