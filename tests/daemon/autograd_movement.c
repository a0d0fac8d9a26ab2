#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define EACH(...) (td_tensor *[]){__VA_ARGS__}, sizeof((td_tensor *[]){__VA_ARGS__}) / sizeof(td_tensor *)
#define PAD(x, mode, ...) td_pad(x, TD_SHAPE(__VA_ARGS__), TD_PAD_MODE_##mode, 3)

/* x[::-1, 4:-1:-2, 1::3] and more: steps that reach the last element, and that do not. */
static td_tensor *slices(td_tensor **x) {
    td_tensor *y = td_square(x[0]);
    td_tensor *back = td_slices(y, TD_SHAPE(TD_NONE, TD_NONE, -1, 4, 0, -2, 1, TD_NONE, 3));
    td_tensor *forth = td_slices(y, TD_SHAPE(0, 2, 2, 1, -1, 3, -1, TD_NONE, -3));
    return td_add(td_sum(back, TD_ALL_AXES, 0), td_multiply(forth, forth));
}
static const struct autograd_case slices_case = {OP_SLICE,   "steps along three axes", slices, -2, 2, true, 1, {3},
                                                 {{2, 5, 7}}};

static td_tensor *nothing(td_tensor **x) {
    return td_add(td_sum(td_slice(x[0], 1, 2, 2, 1), TD_ALL_AXES, 0), td_square(x[0]));
}
static const struct autograd_case nothing_case = {OP_SLICE, "a slice without elements", nothing, -2, 2, true, 1, {2},
                                                  {{2, 3}}};

static td_tensor *permuted(td_tensor **x) {
    return td_permute(td_square(x[0]), TD_AXES(2, 0, -2));
}
static const struct autograd_case permuted_case = {OP_PERMUTE_DIMS, "three axes", permuted, -2, 2, true, 1, {3},
                                                   {{2, 3, 4}}};

static td_tensor *joined(td_tensor **x) {
    return td_concat(EACH(td_square(x[0]), x[1], td_square(x[0])), -2);
}
static const struct autograd_case joined_case = {
    OP_CONCAT, "different extents, one tensor twice", joined, -2, 2, true, 2, {3, 3}, {{2, 3, 2}, {2, 1, 2}}};

/* Above, on and below the diagonal, of axes in any order, and beyond the matrix. */
#define DIAGONAL(name, offset, axis1, axis2)                                                                           \
    static td_tensor *diagonal_##name(td_tensor **x) {                                                                 \
        return td_diagonal(td_square(x[0]), offset, axis1, axis2);                                                     \
    }                                                                                                                  \
    static const struct autograd_case diagonal_##name##_case = {                                                       \
        OP_DIAGONAL, "diagonal " #offset ", axes " #axis1 " and " #axis2, diagonal_##name, -2, 2, true, 1, {3},        \
        {{3, 2, 4}}};
DIAGONAL(middle, 0, -2, -1)
DIAGONAL(above, 1, 0, 2)
DIAGONAL(far, 2, 0, -1)
DIAGONAL(below, -2, 2, 0)
DIAGONAL(inner, -2, 2, 1)

static td_tensor *diagonal_beyond(td_tensor **x) {
    return td_add(td_square(x[0]), td_sum(td_diagonal(x[0], 9, 0, 1), TD_ALL_AXES, 0));
}
static const struct autograd_case diagonal_beyond_case = {
    OP_DIAGONAL, "beyond the matrix", diagonal_beyond, -2, 2, true, 1, {2}, {{2, 3}}};

#define ONE(X)                                                                                                         \
    X(reshape, RESHAPE, -2, 2, true, td_reshape(td_square(x[0]), TD_SHAPE(3, 2)))                                      \
    X(matrix_transpose, MATRIX_TRANSPOSE, -2, 2, true, td_transpose(td_square(x[0])))                                  \
    X(broadcast_to, BROADCAST_TO, -2, 2, true, td_broadcast_to(td_square(x[0]), TD_SHAPE(4, 2, 3)))                    \
    X(squeeze, SQUEEZE, -2, 2, true, td_squeeze(td_reshape(td_square(x[0]), TD_SHAPE(1, 6, 1)), TD_AXES(0, -1)))       \
    X(expand_dims, EXPAND_DIMS, -2, 2, true, td_expand_dims(td_square(x[0]), -2))                                      \
    X(slice, SLICE, -2, 2, true, td_slice(td_square(x[0]), -1, 1, TD_NONE, 1))                                         \
    X(flip, SLICE, -2, 2, true, td_flip(td_square(x[0]), TD_ALL_AXES))                                                 \
    X(pad, PAD, -2, 2, true, PAD(td_square(x[0]), CONSTANT, 1, 0, 2, 1))                                               \
    X(pad_reflect, PAD, -2, 2, true, PAD(td_square(x[0]), REFLECT, 1, 1, 2, 1))                                        \
    X(pad_reflect_end, PAD, -2, 2, true, PAD(td_square(x[0]), REFLECT, 0, 1, 0, 2))                                    \
    X(pad_edge, PAD, -2, 2, true, PAD(td_square(x[0]), EDGE, 3, 0, 2, 4))                                              \
    X(pad_wrap, PAD, -2, 2, true, PAD(td_square(x[0]), WRAP, 2, 1, 1, 3))                                              \
    X(tril, TRIL, -2, 2, true, td_tril(td_square(x[0]), 1))                                                            \
    X(triu, TRIU, -2, 2, true, td_triu(td_square(x[0]), -1))                                                           \
    X(diag, DIAGONAL, -2, 2, true, td_diag(td_diagonal(td_exp(x[0]), 1, 0, 1), -1))
#define TWO(X)                                                                                                         \
    X(concat, CONCAT, -2, 2, true, td_concat(EACH(x[0], td_expand_dims(td_square(x[1]), 0)), 0))                       \
    X(stack, STACK, -2, 2, true, td_stack(EACH(td_square(x[0]), td_add(x[0], td_square(x[1])), td_exp(x[0])), -1))     \
    X(stack_first, STACK, -2, 2, true, td_stack(EACH(td_square(x[1]), td_exp(x[1])), 0))

ONE(AUTOGRAD_FUNCTION)
TWO(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)
TWO(AUTOGRAD_TWO)

const struct autograd_case *const autograd_movement_cases[] = {&slices_case,
                                                               &nothing_case,
                                                               &permuted_case,
                                                               &joined_case,
                                                               &diagonal_middle_case,
                                                               &diagonal_above_case,
                                                               &diagonal_far_case,
                                                               &diagonal_below_case,
                                                               &diagonal_inner_case,
                                                               &diagonal_beyond_case,
                                                               ONE(AUTOGRAD_ROW) TWO(AUTOGRAD_ROW) NULL};
