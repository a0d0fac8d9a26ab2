#include "proto/ops/shape.h"

#include <criterion/criterion.h>
#include <string.h>

static struct fault fault;

static int make(struct tensor_type *type, int64_t dtype, size_t rank, const int64_t *shape) {
    return type_make(type, dtype, shape, rank, &fault);
}
#define SHAPE(...)                                                                                                     \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]) {                                            \
        __VA_ARGS__                                                                                                    \
    }

Test(shape, a_type_counts_its_elements_and_bytes) {
    struct tensor_type type;
    cr_assert_eq(make(&type, DTYPE_F32, SHAPE(2, 3, 4)), STATUS_OK);
    cr_assert_eq(type_elements(&type), 24);
    cr_assert_eq(type_bytes(&type), 96);
}

Test(shape, a_scalar_has_one_element_and_an_empty_tensor_none) {
    struct tensor_type type;
    cr_assert_eq(make(&type, DTYPE_F64, 0, NULL), STATUS_OK);
    cr_assert_eq(type_bytes(&type), 8);
    cr_assert_eq(make(&type, DTYPE_F64, SHAPE(5, 0, 7)), STATUS_OK);
    cr_assert_eq(type_elements(&type), 0);
}

Test(shape, bad_types_are_refused_and_leave_the_output_alone) {
    struct tensor_type type = {.dtype = DTYPE_I8, .rank = 7};
    const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    cr_assert_eq(make(&type, 0, SHAPE(2)), STATUS_DTYPE);
    cr_assert_eq(make(&type, DTYPE_COUNT, SHAPE(2)), STATUS_DTYPE);
    cr_assert_eq(make(&type, INT64_C(1) << 32 | DTYPE_F32, SHAPE(2)), STATUS_DTYPE);
    cr_assert_eq(make(&type, DTYPE_F32, 9, nine), STATUS_SHAPE);
    cr_assert_eq(make(&type, DTYPE_F32, 1000000000, nine), STATUS_SHAPE);
    cr_assert_eq(make(&type, DTYPE_F32, SHAPE(2, -1)), STATUS_SHAPE);
    cr_assert_eq(make(&type, DTYPE_F32, SHAPE(INT64_MIN)), STATUS_SHAPE);
    cr_assert_eq(type.dtype, DTYPE_I8);
    cr_assert_eq(type.rank, 7);
}

Test(shape, products_beyond_63_bits_are_refused_and_the_last_that_fits_is_not) {
    struct tensor_type type;
    cr_assert_eq(make(&type, DTYPE_U8, SHAPE(INT64_MAX)), STATUS_OK);
    cr_assert_eq(make(&type, DTYPE_I16, SHAPE(INT64_MAX)), STATUS_SHAPE);
    cr_assert_eq(make(&type, DTYPE_F64, SHAPE(INT64_C(1) << 30, INT64_C(1) << 29)), STATUS_OK);
    cr_assert_eq(make(&type, DTYPE_F64, SHAPE(INT64_C(1) << 30, INT64_C(1) << 30)), STATUS_SHAPE);
    cr_assert_eq(make(&type, DTYPE_U8, SHAPE(INT64_C(1) << 32, INT64_C(1) << 32)), STATUS_SHAPE);
}

Test(shape, an_empty_axis_does_not_hide_an_overflow) {
    struct tensor_type type;
    cr_assert_eq(make(&type, DTYPE_U8, SHAPE(0, INT64_C(1) << 32, INT64_C(1) << 32)), STATUS_SHAPE);
}

Test(shape, broadcasting_stretches_ones_and_missing_axes) {
    struct tensor_type a, b, out;
    make(&a, DTYPE_F32, SHAPE(8, 1, 6, 1));
    make(&b, DTYPE_F32, SHAPE(7, 1, 5));
    cr_assert_eq(shape_broadcast(&out, &a, &b, &fault), STATUS_OK);
    char text[SHAPE_TEXT_MAX];
    cr_assert_str_eq(shape_text(&out, text), "(8, 7, 6, 5)");
    make(&a, DTYPE_F32, SHAPE(1));
    make(&b, DTYPE_F32, SHAPE(0));
    cr_assert_eq(shape_broadcast(&a, &a, &b, &fault), STATUS_OK, "the output may be an input");
    cr_assert_str_eq(shape_text(&a, text), "(0,)");
}

Test(shape, what_does_not_broadcast_is_named) {
    struct tensor_type a, b, out;
    make(&a, DTYPE_F32, SHAPE(2, 3));
    make(&b, DTYPE_F32, SHAPE(4, 3));
    cr_assert_eq(shape_broadcast(&out, &a, &b, &fault), STATUS_SHAPE);
    cr_assert_str_eq(fault.message, "cannot broadcast (2, 3) with (4, 3)");
    make(&b, DTYPE_F32, SHAPE(0));
    cr_assert_eq(shape_broadcast(&out, &a, &b, &fault), STATUS_SHAPE);
}

Test(shape, axes_count_from_both_ends) {
    int axis = 99;
    cr_assert_eq(shape_axis(-3, 3, &axis, &fault), STATUS_OK);
    cr_assert_eq(axis, 0);
    cr_assert_eq(shape_axis(2, 3, &axis, &fault), STATUS_OK);
    cr_assert_eq(axis, 2);
    const int64_t bad[] = {3, -4, INT64_MIN, INT64_MAX, INT64_C(1) << 32};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(shape_axis(bad[i], 3, &axis, &fault), STATUS_INVALID_ARGUMENT);
    }
    cr_assert_eq(shape_axis(0, 0, &axis, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(axis, 2);
}

Test(shape, text_is_as_python_writes_it) {
    struct tensor_type type = {.dtype = DTYPE_F32, .rank = 0};
    char text[SHAPE_TEXT_MAX];
    cr_assert_str_eq(shape_text(&type, text), "()");
    make(&type, DTYPE_F32, SHAPE(4));
    cr_assert_str_eq(shape_text(&type, text), "(4,)");
    make(&type, DTYPE_F32, SHAPE(2, 3));
    cr_assert_str_eq(shape_text(&type, text), "(2, 3)");
}

Test(shape, the_longest_text_fits) {
    struct tensor_type type = {.dtype = DTYPE_F32, .rank = SHAPE_RANK_MAX};
    char text[SHAPE_TEXT_MAX];
    for (int i = 0; i < SHAPE_RANK_MAX; i++) {
        type.shape[i] = INT64_MIN;
    }
    shape_text(&type, text);
    cr_assert_eq(text[strlen(text) - 1], ')');
}

Test(shape, equality_looks_at_rank_extents_and_dtype) {
    struct tensor_type a, b;
    make(&a, DTYPE_F32, SHAPE(2, 3));
    make(&b, DTYPE_F64, SHAPE(2, 3));
    cr_assert(shape_equal(&a, &b));
    cr_assert_not(type_equal(&a, &b));
    make(&b, DTYPE_F32, SHAPE(2, 3, 1));
    cr_assert_not(shape_equal(&a, &b));
}
