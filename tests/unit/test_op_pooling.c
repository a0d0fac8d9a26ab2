/* Rules of pooling. */
#include <criterion/criterion.h>

#include "tests/unit/infer.h"

/* ceil_mode, layout, then the lists kernel, stride, padding, dilation with the counts before all but the last. */
Test(op_pooling, extents_are_those_of_pytorch) {
    static const struct infer_case cases[] = {
        {OP_AVG_POOL, "f32(2,6,28,28)", INTS(0, 1, 0, 1, 2, 0), .result = "f32(2,6,14,14)"},
        {OP_AVG_POOL, "f32(2,6,5)", INTS(0, 1, 0, 1, 2, 0), .result = "f32(2,6,2)"},
        {OP_AVG_POOL, "f32(2,6,5)", INTS(1, 1, 0, 1, 2, 0), .result = "f32(2,6,3)"},
        {OP_AVG_POOL, "f32(2,6,5)", INTS(1, 1, 0, 1, 2, 1, 3, 1), .result = "f32(2,6,2)"},
        {OP_AVG_POOL, "f32(2,6,4)", INTS(1, 1, 0, 1, 1, 1, 4), .result = "f32(2,6,1)"},
        {OP_AVG_POOL, "f16(2,9,7,6)", INTS(0, 1, 1, 2, 3, 2, 2, 2, 1, 0), .result = "f16(2,4,6,6)"},
        {OP_ADAPTIVE_AVG_POOL, "f32(2,6,28,17)", INTS(0, 2, 4), .result = "f32(2,6,2,4)"},
        {OP_ADAPTIVE_AVG_POOL, "f32(2,28,17,6)", INTS(1, 7), .result = "f32(2,7,7,6)"},
        {OP_AVG_POOL_GRAD, "f32(2,6,14,14)", INTS(0, 1, 0, 4, 2, 6, 29, 28, 1, 2, 0), .result = "f32(2,6,29,28)"},
        {OP_ADAPTIVE_AVG_POOL_GRAD, "f32(2,6,7,3)", INTS(0, 2, 6, 29, 28), .result = "f32(2,6,29,28)"},
    };
    INFER_CHECK(cases);
}

Test(op_pooling, errors_name_the_rule) {
    static const struct infer_case cases[] = {
        {OP_AVG_POOL, "f32(2,6,28,28)", INTS(0, 1, 0, 0, 0), FAILS(INVALID_ARGUMENT, "kernel has no entries")},
        {OP_AVG_POOL, "f32(2,6,28,28)", INTS(0, 1, 0, 3, 2, 2, 2, 0),
         FAILS(INVALID_ARGUMENT, "kernel has 3 entries for 2 axes")},
        {OP_AVG_POOL, "f32(2,6,28,28)", INTS(0, 1, 0, 1, 2, 0, 2),
         FAILS(INVALID_ARGUMENT, "padding is 2, more than half of a kernel that reaches over 2")},
        {OP_AVG_POOL, "f32(2,6,1,28)", INTS(0, 1, 0, 1, 3, 0),
         FAILS(SHAPE, "a kernel of 3 with dilation 1 is wider than 1 with padding 0")},
        {OP_AVG_POOL, "f32(2,6)", INTS(0, 1, 0, 1, 3, 0), FAILS(SHAPE, "1 to 3 more axes")},
        {OP_AVG_POOL, "f32(2,6,0)", INTS(0, 1, 0, 1, 3, 0), FAILS(SHAPE, "no place in a channel")},
        {OP_AVG_POOL, "i32(2,6,9)", INTS(0, 1, 0, 1, 3, 0), FAILS(DTYPE, NULL)},
        {OP_AVG_POOL_GRAD, "f32(2,6,14,14)", INTS(0, 1, 0, 4, 2, 6, 30, 28, 1, 2, 0),
         FAILS(SHAPE, "the gradient is (2, 6, 14, 14), not (2, 6, 15, 14)")},
        {OP_MAX_POOL_GRAD, "f32(2,6,14) i64(2,6,13)", INTS(0, 0, 3, 2, 6, 28, 1, 2, 0, 0),
         FAILS(SHAPE, "indices are (2, 6, 13), not (2, 6, 14)")},
        {OP_ADAPTIVE_AVG_POOL, "f32(2,6,28,17)", INTS(0, 0), FAILS(INVALID_ARGUMENT, "extents is 0")},
    };
    INFER_CHECK(cases);
}

Test(op_pooling, max_pool_gives_values_and_positions) {
    const struct tensor_type x = {.dtype = DTYPE_BF16, .rank = 4, .shape = {2, 3, 9, 8}};
    const int64_t ints[] = {0, 0, 1, 2, 0, 0}; /* and no dilation */
    struct op_attributes attributes = {.ints = ints, .n_ints = 6};
    struct tensor_type out[2];
    struct fault fault;
    cr_assert_eq(op_infer(OP_MAX_POOL, (const struct tensor_type *[]){&x}, 1, &attributes, out, &fault), STATUS_OK,
                 "%s", fault.message);
    for (int i = 0; i < 2; i++)
        cr_assert(out[i].rank == 4 && out[i].shape[2] == 4 && out[i].shape[3] == 4);
    cr_assert(out[0].dtype == DTYPE_BF16 && out[1].dtype == DTYPE_I64);
}
