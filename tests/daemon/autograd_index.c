#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

/* Indices of rank 1 and 2 on the device of x. */
#define I1(x, ...)                                                                                                     \
    td_upload(td_tensor_device(x), TD_I64, TD_SHAPE(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})
#define I2(x, rows, columns, ...)                                                                                      \
    td_upload(td_tensor_device(x), TD_I64, TD_SHAPE(rows, columns), (int64_t[]){__VA_ARGS__})

/* Both broadcast: x over the indices' rows, the indices over x's last axis. */
static td_tensor *along_broadcast(td_tensor **x) {
    td_tensor *indices = td_reshape(I2(x[0], 2, 3, 1, 1, 0, 1, 0, 1), TD_SHAPE(2, 3, 1));
    return td_take_along_axis(td_square(x[0]), indices, -2);
}
static const struct autograd_case along_broadcast_case = {
    OP_TAKE_ALONG_AXIS, "broadcast to each other", along_broadcast, -2, 2, true, 1, {3}, {{1, 2, 2}}};

static td_tensor *taken(td_tensor **x) {
    return td_take(td_exp(x[0]), I1(x[0], 2, 0, 2, 2), -2);
}
static const struct autograd_case taken_case = {OP_TAKE, "of a middle axis", taken, -2, 2, true, 1, {3}, {{2, 4, 2}}};

static td_tensor *taken_none(td_tensor **x) {
    td_tensor *none = td_full(td_tensor_device(x[0]), TD_I64, TD_SHAPE(0), 0);
    return td_add(td_square(x[0]), td_sum(td_take(x[0], none, 0), TD_ALL_AXES, 0));
}
static const struct autograd_case taken_none_case = {OP_TAKE, "no indices", taken_none, -2, 2, true, 1, {1}, {{3}}};

/* Element 1 is written twice: the first value does not count. */
static td_tensor *scattered(td_tensor **x) {
    return td_scatter(td_square(x[0]), I2(x[0], 1, 3, 1, 3, 1), td_exp(x[1]), -1);
}
static const struct autograd_case scattered_case = {
    OP_SCATTER, "indices that are the same", scattered, -2, 2, true, 2, {2, 2}, {{2, 4}, {2, 3}}};

static td_tensor *scattered_broadcast(td_tensor **x) {
    return td_scatter(td_square(x[0]), I2(x[0], 3, 1, 0, 2, 0), td_exp(x[1]), 0);
}
static const struct autograd_case scattered_broadcast_case = {
    OP_SCATTER, "values and indices that broadcast", scattered_broadcast, -2, 2, true, 2, {2, 1}, {{4, 2}, {2}}};

static td_tensor *added(td_tensor **x) {
    return td_scatter_add(td_square(x[0]), I2(x[0], 2, 3, 1, 3, 1, 0, 0, 2), td_exp(x[1]), -1);
}
static const struct autograd_case added_case = {
    OP_SCATTER_ADD, "indices that are the same", added, -2, 2, true, 2, {2, 2}, {{2, 4}, {2, 3}}};

static td_tensor *added_broadcast(td_tensor **x) {
    return td_exp(td_scatter_add(td_square(x[0]), I2(x[0], 3, 1, 0, 2, 0), td_exp(x[1]), 0));
}
static const struct autograd_case added_broadcast_case = {
    OP_SCATTER_ADD, "values and indices that broadcast", added_broadcast, -1, 1, true, 2, {2, 1}, {{4, 2}, {2}}};

/* The number of elements that the mask selects does not matter, behind them are zeros. */
static td_tensor *selected(td_tensor **x) {
    td_tensor *mask = td_cast(I2(x[0], 3, 1, 0, 1, 1), TD_BOOL), *values, *count;
    if (td_masked_select(td_square(x[0]), mask, &values, &count))
        return NULL;
    return td_exp(values);
}
static const struct autograd_case selected_case = {
    OP_MASKED_SELECT, "broadcast to each other", selected, -2, 2, true, 1, {3}, {{2, 1, 2}}};

/* Elements that are equal: the first one of a run stands for it. */
static td_tensor *runs(td_tensor **x) {
    td_tensor *sorted = td_sort(td_concat((td_tensor *[]){x[0], x[0]}, 2, 0), 0, 0), *all[5];
    td_tensor *positions = td_arange(td_tensor_device(x[0]), TD_I64, 0, 8, 1);
    if (td_unique_runs(sorted, positions, &all[0], &all[1], &all[2], &all[3], &all[4]))
        return NULL;
    return td_exp(all[0]);
}
static const struct autograd_case runs_case = {OP_UNIQUE_RUNS, "each element twice", runs, -2, 2, true, 1, {1}, {{4}}};

/* The result is longer than the counts' sum, or shorter. */
static td_tensor *repeated(td_tensor **x) {
    td_tensor *result;
    return td_repeat_each(td_square(x[0]), I1(x[0], 2, 0, 3, 1), 8, 1, &result, NULL) ? NULL : td_exp(result);
}
static const struct autograd_case repeated_case = {
    OP_REPEAT_EACH, "with zeros behind the last", repeated, -1, 1, true, 1, {3}, {{2, 4, 2}}};

static td_tensor *repeated_less(td_tensor **x) {
    td_tensor *result;
    return td_repeat_each(td_square(x[0]), I1(x[0], 2, -1, 3), 4, -1, &result, NULL) ? NULL : td_exp(result);
}
static const struct autograd_case repeated_less_case = {
    OP_REPEAT_EACH, "of which some do not fit", repeated_less, -1, 1, true, 1, {2}, {{2, 3}}};

#define ONE(X)                                                                                                         \
    X(take, TAKE, -2, 2, true, td_take(td_square(x[0]), I1(x[0], 1, 0, 1), 0))                                         \
    X(take_along, TAKE_ALONG_AXIS, -2, 2, true, td_take_along_axis(td_exp(x[0]), I2(x[0], 2, 2, 1, 2, 0, 0), -1))      \
    X(gather, TAKE_ALONG_AXIS, -2, 2, true, td_gather(td_square(x[0]), I2(x[0], 1, 2, 1, 0), 0))

ONE(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)

const struct autograd_case *const autograd_index_cases[] = {
    &along_broadcast_case, &taken_case,           &taken_none_case, &scattered_case, &scattered_broadcast_case,
    &added_case,           &added_broadcast_case, &selected_case,   &runs_case,      &repeated_case,
    &repeated_less_case,   ONE(AUTOGRAD_ROW) NULL};
