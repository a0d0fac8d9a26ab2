/* In which dtypes a kernel may be asked for: what `tensorctl ops` measures devices by. */
#include <criterion/criterion.h>

#include "proto/ops/op.h"

#define BIT(name) (UINT32_C(1) << DTYPE_##name)

static uint32_t of_kind(enum dtype_kind kind) {
    uint32_t mask = 0;
    for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
        mask |= dtype_kind((enum dtype)dtype) == kind ? UINT32_C(1) << dtype : 0;
    return mask;
}

/* Those that these cover at least; others may join. */
Test(op_presented, operations_are_asked_for_the_dtypes_that_their_rules_give) {
    const uint32_t ints = of_kind(DTYPE_KIND_INT), floats = BIT(F16) | BIT(BF16) | BIT(F32) | BIT(F64);
    const struct {
        unsigned opcode;
        uint32_t presented;
    } rows[] = {
        {OP_FULL, BIT(BOOL) | ints | floats},
        {OP_EYE, BIT(BOOL) | ints | floats},
        {OP_ARANGE, ints | floats},
        {OP_UNIFORM, floats},
        {OP_CAST, BIT(BOOL) | ints | floats},
        {OP_ADD, BIT(BOOL) | ints | floats},
        {OP_SUBTRACT, ints | floats},
        {OP_DIVIDE, floats},
        {OP_EQUAL, BIT(BOOL) | ints | floats},
        {OP_LOGICAL_AND, BIT(BOOL)},
        {OP_EXP, floats},
        {OP_WHERE, BIT(BOOL) | ints | floats},
        {OP_SUM, BIT(I64) | BIT(U64) | floats},
        {OP_MEAN, floats},
        {OP_ANY, BIT(BOOL)},
        {OP_SOFTMAX, floats},
        {OP_MATMUL, ints | floats},
        {OP_TAKE, BIT(I64)},
        {OP_TAKE_ALONG_AXIS, BIT(I64)},
        {OP_ONE_HOT, BIT(I64)},
    };
    const uint32_t old = BIT(BOOL) | ints | floats;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(op_presented(rows[i].opcode) & old, rows[i].presented, "%s: %x, not %x",
                     op_info(rows[i].opcode)->name, op_presented(rows[i].opcode), rows[i].presented);
}

/* An operation that is missed here would never be seen to be missing on a device. */
/* Not what kernels are given: those get i64 for a sum of bool. */
Test(op_presented, operations_take_more_than_their_kernels) {
    const uint32_t f8 = UINT32_C(1) << DTYPE_F8E4M3 | UINT32_C(1) << DTYPE_F8E5M2;
    const uint32_t every = (UINT32_C(1) << DTYPE_COUNT) - 2, most = every & ~f8;
    const uint32_t ints = of_kind(DTYPE_KIND_INT);
    static const unsigned opcodes[] = {OP_SUM, OP_DIVIDE, OP_LOGICAL_AND, OP_EXP, OP_MEAN, OP_EQUAL};
    for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
        cr_expect_eq(op_taken(opcodes[i]), most, "%s: %x", op_info(opcodes[i])->name, op_taken(opcodes[i]));
    }
    cr_expect_eq(op_taken(OP_TAKE), every, "%x", op_taken(OP_TAKE));
    cr_expect_eq(op_taken(OP_RESHAPE), every);
    cr_expect_eq(op_taken(OP_NEGATIVE) & ints, ints);
    cr_expect_eq(op_taken(OP_NEGATIVE) & UINT32_C(1) << DTYPE_BOOL, 0);
    cr_expect_eq(op_taken(OP_UNIFORM) & ints, 0);
    cr_expect_eq(op_taken(OP_CODE_MAX), 0);
}

Test(op_presented, every_operation_that_a_device_runs_has_some) {
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++) {
        const struct op_info *info = op_info(opcode);
        bool kernel = info && info->family != OP_FAMILY_FREE && info->family != OP_FAMILY_VIEW &&
                      info->family != OP_FAMILY_JOIN && !op_is_clients(info);
        cr_expect_eq(op_presented(opcode) != 0, kernel, "operation %u, %s", opcode, info ? info->name : "none");
    }
}
