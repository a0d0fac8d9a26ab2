#include "tests/unit/slice_table.h"

#include <criterion/criterion.h>

Test(op_slice, agrees_with_python) {
    for (size_t i = 0; i < sizeof(slice_table) / sizeof(slice_table[0]); i++) {
        const struct slice_row *row = &slice_table[i];
        struct op_slice slice;
        cr_assert_eq(op_slice(row->extent, row->start, row->stop, row->step, &slice, NULL), STATUS_OK);
        cr_assert_eq(slice.count, row->count, "row %zu: %ld elements, not %ld", i, (long)slice.count, (long)row->count);
        cr_assert_eq(slice.start, row->first, "row %zu: first is %ld, not %ld", i, (long)slice.start, (long)row->first);
        if (row->count > 0) {
            cr_assert_eq(slice.start + (slice.count - 1) * slice.step, row->last, "row %zu", i);
        }
    }
}

Test(op_slice, a_step_of_zero_is_refused) {
    struct fault fault;
    struct op_slice slice = {.count = 77};
    cr_assert_eq(op_slice(10, 0, 5, 0, &slice, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(op_slice(-1, 0, 5, 1, &slice, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(slice.count, 77);
}

/* An engine multiplies strides with these: they must never leave the tensor. */
Test(op_slice, extreme_numbers_stay_within_the_axis) {
    const int64_t extremes[] = {INT64_MIN, INT64_MIN + 1, -2, -1, 0, 1, 2, INT64_MAX - 1, INT64_MAX};
    const size_t n = sizeof(extremes) / sizeof(extremes[0]);
    for (size_t i = 0; i < n * n * n * 4; i++) {
        const int64_t extents[] = {0, 1, 7, INT64_MAX};
        int64_t extent = extents[i % 4], step = extremes[i / 4 % n];
        struct op_slice slice;
        if (op_slice(extent, extremes[i / 4 / n % n], extremes[i / 4 / n / n], step, &slice, NULL) != STATUS_OK) {
            cr_assert_eq(step, 0);
            continue;
        }
        cr_assert_geq(slice.count, 0);
        cr_assert_leq(slice.count, extent);
        if (slice.count > 0) {
            __int128 last = (__int128)slice.start + (__int128)(slice.count - 1) * slice.step;
            cr_assert(slice.start >= 0 && slice.start < extent && last >= 0 && last < extent);
        }
    }
}
