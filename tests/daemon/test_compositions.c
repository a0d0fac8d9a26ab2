/* Functions of the client library that other operations make up. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"

static struct daemon tensord;
static struct client client;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0"});
    client_open(&client, tensord.url, NULL);
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(compositions, .init = start, .fini = stop, .timeout = 120);

#define EXPECT(tensor, ...)                                                                                            \
    client_expect(tensor, (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

/* 0 1 2, 3 4 5 */
static td_tensor *matrix(void) {
    return td_reshape(client_ramp(client.device, 6, 0), TD_SHAPE(2, 3));
}

static td_tensor *indices(int64_t a, int64_t b, int64_t c) {
    return td_upload(client.device, TD_I64, TD_SHAPE(3), (const int64_t[]){a, b, c});
}

static void expect_shape(const td_tensor *x, int rank, const int64_t *shape) {
    cr_assert(x, "%s", td_last_error()->message);
    cr_assert_eq(td_tensor_rank(x), rank);
    cr_assert_arr_eq(td_tensor_shape(x), shape, (size_t)rank * sizeof *shape);
}

Test(compositions, flip_reverses_axes) {
    EXPECT(td_flip(matrix(), TD_AXES(1)), 2, 1, 0, 5, 4, 3);
    EXPECT(td_flip(matrix(), TD_AXES(-2)), 3, 4, 5, 0, 1, 2);
    EXPECT(td_flip(matrix(), TD_ALL_AXES), 5, 4, 3, 2, 1, 0);
    cr_assert_null(td_flip(matrix(), TD_AXES(2)));
    cr_assert_eq(td_last_error()->code, TD_E_INVALID_ARGUMENT);
}

Test(compositions, roll_moves_what_leaves_one_end_to_the_other) {
    EXPECT(td_roll(matrix(), 1, 1), 2, 0, 1, 5, 3, 4);
    EXPECT(td_roll(matrix(), -1, -1), 1, 2, 0, 4, 5, 3);
    EXPECT(td_roll(matrix(), 3, 1), 0, 1, 2, 3, 4, 5);
    EXPECT(td_roll(matrix(), 7, 0), 3, 4, 5, 0, 1, 2);
    EXPECT(td_roll(matrix(), INT64_MIN, 0), 0, 1, 2, 3, 4, 5);
    cr_assert_null(td_roll(matrix(), 1, 2));
}

Test(compositions, moveaxis_keeps_the_other_axes_in_order) {
    td_tensor *x = td_reshape(client_ramp(client.device, 24, 0), TD_SHAPE(2, 3, 4));
    expect_shape(td_moveaxis(x, 1, (const int64_t[]){0}, (const int64_t[]){-1}), TD_SHAPE(3, 4, 2));
    expect_shape(td_moveaxis(x, 2, (const int64_t[]){0, 1}, (const int64_t[]){2, 0}), TD_SHAPE(3, 4, 2));
    expect_shape(td_moveaxis(x, 0, NULL, NULL), TD_SHAPE(2, 3, 4));
    cr_assert_null(td_moveaxis(x, 2, (const int64_t[]){0, 0}, (const int64_t[]){1, 2}));
    cr_assert(strstr(td_last_error()->message, "axis 0 is named twice"), "%s", td_last_error()->message);
}

Test(compositions, tile_repeats_the_whole) {
    EXPECT(td_tile(matrix(), TD_SHAPE(2)), 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5);
    EXPECT(td_tile(matrix(), TD_SHAPE(2, 1)), 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5);
    expect_shape(td_tile(matrix(), TD_SHAPE(2, 1, 3)), TD_SHAPE(2, 2, 9));
    expect_shape(td_tile(matrix(), TD_SHAPE(0, 1)), TD_SHAPE(0, 3));
    cr_assert_null(td_tile(matrix(), TD_SHAPE(-1, 1)));
}

/* More axes than a view can have: the same as one axis after another. */
Test(compositions, tile_of_many_axes) {
    td_tensor *x = td_reshape(client_ramp(client.device, 8, 0), TD_SHAPE(1, 2, 1, 2, 1, 2));
    td_tensor *all = td_tile(x, TD_SHAPE(2, 2, 2, 2, 2, 2)), *slow = td_copy(x);
    for (int axis = 0; axis < 6; axis++)
        slow = td_concat((td_tensor *[]){slow, slow}, 2, axis);
    expect_shape(all, TD_SHAPE(2, 4, 2, 4, 2, 4));
    td_tensor *same = td_cast(td_all(td_equal(all, slow), TD_ALL_AXES, 0), TD_F32);
    EXPECT(same, 1);
}

Test(compositions, repeat_repeats_each_element) {
    EXPECT(td_repeat(matrix(), 2, 1), 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5);
    EXPECT(td_repeat(matrix(), 2, 0), 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5);
    expect_shape(td_repeat(matrix(), 0, 0), TD_SHAPE(0, 3));
    cr_assert_null(td_repeat(matrix(), -1, 0));
}

Test(compositions, meshgrid_in_both_orders) {
    td_tensor *vectors[] = {client_ramp(client.device, 2, 0), client_ramp(client.device, 3, 5)}, *grids[2];
    cr_assert_eq(td_meshgrid(2, vectors, 0, grids), TD_OK);
    EXPECT(grids[0], 0, 0, 0, 1, 1, 1);
    EXPECT(grids[1], 5, 6, 7, 5, 6, 7);
    cr_assert_eq(td_meshgrid(2, vectors, 1, grids), TD_OK);
    expect_shape(grids[0], TD_SHAPE(3, 2));
    EXPECT(grids[0], 0, 1, 0, 1, 0, 1);
    EXPECT(grids[1], 5, 5, 6, 6, 7, 7);
    vectors[1] = matrix();
    cr_assert_eq(td_meshgrid(2, vectors, 0, grids), TD_E_SHAPE);
    cr_assert(!grids[0] && !grids[1]);
}

Test(compositions, split_and_unstack_give_views_of_all_parts) {
    td_tensor *parts[3];
    cr_assert_eq(td_split(matrix(), 2, (const int64_t[]){1, 2}, 1, parts), TD_OK);
    EXPECT(parts[0], 0, 3);
    EXPECT(parts[1], 1, 2, 4, 5);
    cr_assert_eq(td_split(matrix(), 2, (const int64_t[]){1, 1}, 1, parts), TD_E_SHAPE);
    cr_assert_null(parts[0]);
    cr_assert_eq(td_unstack(matrix(), -1, parts), TD_OK);
    EXPECT(parts[2], 2, 5);
    expect_shape(parts[0], TD_SHAPE(2));
    cr_assert_eq(td_unstack(matrix(), 2, parts), TD_E_INVALID_ARGUMENT);
}

Test(compositions, diag_makes_matrices_and_reads_them) {
    for (int64_t offset = -3; offset <= 3; offset++) {
        td_tensor *v = client_ramp(client.device, 3, 1), *m = td_diag(v, offset);
        int64_t extent = 3 + (offset < 0 ? -offset : offset);
        expect_shape(m, TD_SHAPE(extent, extent));
        EXPECT(td_diag(m, offset), 1, 2, 3);
        EXPECT(td_sum(m, TD_ALL_AXES, 0), 6);
    }
    expect_shape(td_diag(td_full(client.device, TD_F32, TD_SHAPE(0), 1), 2), TD_SHAPE(2, 2));
}

Test(compositions, masked_fill_and_gather) {
    td_tensor *x = matrix();
    EXPECT(td_masked_fill(x, td_greater(x, td_full(client.device, TD_F32, TD_SCALAR, 2)), -1), 0, 1, 2, -1, -1, -1);
    td_tensor *at = td_reshape(indices(2, 0, 1), TD_SHAPE(1, 3));
    EXPECT(td_gather(x, at, 1), 2, 0, 1);
    EXPECT(td_gather(x, td_reshape(indices(0, 1, 0), TD_SHAPE(3, 1)), 0), 0, 3, 0);
    cr_assert_null(td_gather(x, td_reshape(indices(0, 1, 0), TD_SHAPE(3, 1)), 1));
    cr_assert(strstr(td_last_error()->message, "axis 0 of the indices has extent 3, above 2"), "%s",
              td_last_error()->message);
}

Test(compositions, where_into_takes_the_place_of_x) {
    td_tensor *x = td_keep(matrix()), *was, *one = td_full(client.device, TD_F32, TD_SCALAR, 1);
    td_tensor *wide = td_full(client.device, TD_F32, TD_SHAPE(2, 2, 3), 1);
    cr_assert(!td_where_into(&x, td_greater(x, one), td_full(client.device, TD_F32, TD_SHAPE(2, 1), 9)));
    EXPECT(x, 0, 1, 9, 9, 9, 9);
    was = x;
    cr_assert_eq(td_where_into(&x, td_greater(wide, one), one), TD_E_SHAPE);
    cr_assert(strstr(td_last_error()->message, "the mask does not broadcast to x's shape"));
    cr_assert_eq(td_where_into(&x, td_greater(x, one), wide), TD_E_SHAPE);
    cr_assert(strstr(td_last_error()->message, "the value does not broadcast to x's shape"));
    cr_assert_eq(td_where_into(&x, td_greater(x, one), td_full(client.device, TD_F64, TD_SCALAR, 1)), TD_E_DTYPE);
    cr_assert(strstr(td_last_error()->message, "a value of f64 is none of f32"), "%s", td_last_error()->message);
    cr_assert(td_where_into(&x, NULL, one) && td_where_into(&x, x, NULL));
    cr_assert_eq(td_where_into(NULL, x, one), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(x, was);
    EXPECT(x, 0, 1, 9, 9, 9, 9);
    td_release(x);
}

Test(compositions, index_add_and_copy_take_slices) {
    td_tensor *x = matrix(), *one = td_full(client.device, TD_F32, TD_SCALAR, 1);
    EXPECT(td_index_add(x, 1, indices(2, 0, 2), one), 1, 1, 4, 4, 4, 7);
    EXPECT(td_index_copy(x, -1, indices(2, 0, 2), matrix()), 1, 1, 2, 4, 4, 5);
    cr_assert_null(td_index_add(x, 1, td_reshape(indices(2, 0, 2), TD_SHAPE(1, 3)), one));
    cr_assert_null(td_index_add(x, 2, indices(0, 0, 0), one));
}

Test(compositions, embedding_takes_rows_and_its_gradient_adds_them_up) {
    td_tensor *at = td_reshape(indices(1, 0, 1), TD_SHAPE(3, 1)), *rows = td_embedding(matrix(), at);
    expect_shape(rows, TD_SHAPE(3, 1, 3));
    EXPECT(rows, 3, 4, 5, 0, 1, 2, 3, 4, 5);
    EXPECT(td_embedding_grad(rows, at, 3, -1), 0, 1, 2, 6, 8, 10, 0, 0, 0);
    EXPECT(td_embedding_grad(rows, at, 2, 1), 0, 1, 2, 0, 0, 0);
    cr_assert_null(td_embedding(td_reshape(matrix(), TD_SHAPE(6)), at));
    cr_assert_null(td_embedding_grad(matrix(), at, 2, -1));
    cr_assert(!td_embedding(NULL, NULL) && !td_embedding_grad(NULL, NULL, 2, 0));
}

Test(compositions, clip_grad_norm_scales_all_gradients_by_one_norm) {
    td_tensor *x = matrix(), *half = td_cast(td_full(client.device, TD_F32, TD_SHAPE(2), 3), TD_F16), *clipped[2];
    td_tensor *gradients[] = {x, half}; /* 0² + … + 5² + 3² + 3² = 73 */
    EXPECT(td_multiply(td_clip_grad_norm(2, gradients, 1, INFINITY, clipped), x), 0, 5, 10, 15, 20, 25);
    EXPECT(td_round(td_multiply(clipped[0], td_full(client.device, TD_F32, TD_SCALAR, 5.00001))), 0, 1, 2, 3, 4, 5);
    td_tensor *norm = td_clip_grad_norm(2, gradients, 100, 2, clipped);
    EXPECT(td_round(td_square(norm)), 73);
    EXPECT(clipped[0], 0, 1, 2, 3, 4, 5);
    EXPECT(td_cast(clipped[1], TD_F32), 3, 3);
    gradients[1] = NULL;
    cr_assert(!td_clip_grad_norm(2, gradients, 1, 2, clipped) && !clipped[0] && !clipped[1]);
}

Test(compositions, bincount_counts_and_weighs) {
    EXPECT(td_cast(td_bincount(indices(2, 0, 2), NULL, 4), TD_F32), 1, 0, 2, 0);
    EXPECT(td_bincount(indices(2, 0, 2), client_ramp(client.device, 3, 1), 3), 2, 0, 4);
    client_expect_failure(td_bincount(indices(2, 0, 9), NULL, 4), TD_E_OUT_OF_RANGE);
}

Test(compositions, searchsorted_with_a_sorter) {
    td_tensor *x = td_flip(client_ramp(client.device, 5, 0), TD_ALL_AXES);
    td_tensor *at = td_searchsorted(x, client_ramp(client.device, 3, 1), 0, td_argsort(x, 0, 0));
    EXPECT(td_cast(at, TD_F32), 1, 2, 3);
}

Test(compositions, unique_gives_all_that_the_standard_asks_for) {
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(2, 3), (const float[]){3, 1, 3, 2, 1, 3});
    td_tensor *values, *indices, *inverse, *counts, *count;
    cr_assert_eq(td_unique(x, &values, &indices, &inverse, &counts, &count), TD_OK, "%s", td_last_error()->message);
    EXPECT(td_cast(count, TD_F32), 3);
    EXPECT(values, 1, 2, 3, 0, 0, 0);
    EXPECT(td_cast(indices, TD_F32), 1, 3, 0, 0, 0, 0);
    EXPECT(td_cast(counts, TD_F32), 2, 1, 3, 0, 0, 0);
    expect_shape(inverse, TD_SHAPE(2, 3));
    EXPECT(td_cast(inverse, TD_F32), 2, 0, 2, 1, 0, 2);
    cr_assert_eq(td_unique(x, &values, NULL, NULL, NULL, &count), TD_OK);
    EXPECT(td_slice(values, 0, 0, 3, 1), 1, 2, 3);
    cr_assert_eq(td_unique(td_cast(x, TD_I16), &values, NULL, NULL, &counts, &count), TD_OK); /* which is sorted */
    EXPECT(td_cast(values, TD_F32), 1, 2, 3, 0, 0, 0);
    EXPECT(td_cast(counts, TD_F32), 2, 1, 3, 0, 0, 0);
    EXPECT(td_cast(count, TD_F32), 3);
    cr_assert_eq(td_unique(td_upload(client.device, TD_I16, TD_SHAPE(0), ""), &values, NULL, NULL, NULL, &count),
                 TD_OK);
    EXPECT(td_cast(count, TD_F32), 0);
    cr_assert(td_unique(NULL, &values, NULL, NULL, NULL, NULL));
    cr_assert_null(values);
}

/* 2+i -1 2+i 2-i -1: complex numbers by their real parts, and of equal ones by their imaginary parts. */
Test(compositions, unique_of_complex_numbers) {
    const float parts[] = {2, 1, -1, 0, 2, 1, 2, -1, -1, -0.0F};
    td_tensor *x = td_upload(client.device, TD_C64, TD_SHAPE(5), parts), *values, *indices, *inverse, *counts, *count;
    cr_assert_eq(td_unique(x, &values, &indices, &inverse, &counts, &count), TD_OK, "%s", td_last_error()->message);
    EXPECT(td_cast(count, TD_F32), 3);
    EXPECT(td_real(values), -1, 2, 2, 0, 0);
    EXPECT(td_imag(values), 0, -1, 1, 0, 0);
    EXPECT(td_cast(indices, TD_F32), 1, 3, 0, 0, 0);
    EXPECT(td_cast(inverse, TD_F32), 2, 0, 2, 1, 0);
    EXPECT(td_cast(counts, TD_F32), 2, 1, 2, 0, 0);
}

Test(compositions, diff_takes_differences_again_and_again) {
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(2, 3), (const float[]){1, 4, 9, 2, 2, 5});
    EXPECT(td_diff(x, 1, -1, NULL, NULL), 3, 5, 0, 3);
    EXPECT(td_diff(x, 2, 1, NULL, NULL), 2, 3);
    EXPECT(td_diff(x, 1, 0, NULL, NULL), 1, -2, -4);
    EXPECT(td_diff(x, 0, 0, NULL, NULL), 1, 4, 9, 2, 2, 5);
    EXPECT(td_diff(x, 1, 0, td_full(client.device, TD_F32, TD_SHAPE(1, 3), 1), td_slice(x, 0, 0, 1, 1)), 0, 3, 8, 1, -2,
           -4, -1, 2, 4);
    expect_shape(td_diff(x, 7, 1, NULL, NULL), TD_SHAPE(2, 0));
    EXPECT(td_cast(td_diff(td_greater(x, td_full(client.device, TD_F32, TD_SCALAR, 3)), 1, 1, NULL, NULL), TD_F32), 1,
           0, 0, 1);
    cr_assert_null(td_diff(x, 1, 2, NULL, NULL));
    cr_assert_null(td_diff(x, -1, 0, NULL, NULL));
    cr_assert_null(td_diff(NULL, 1, 0, NULL, NULL));
}

Test(compositions, repeat_each_by_counts_that_the_device_has) {
    td_tensor *x = matrix(), *counts = td_upload(client.device, TD_U8, TD_SHAPE(3), (const uint8_t[]){2, 0, 1}),
              *result;
    td_tensor *total;
    cr_assert_eq(td_repeat_each(x, counts, 5, 1, &result, &total), TD_OK, "%s", td_last_error()->message);
    EXPECT(result, 0, 0, 2, 0, 0, 3, 3, 5, 0, 0);
    EXPECT(td_cast(total, TD_F32), 3);
    cr_assert_eq(td_repeat_each(x, counts, 2, -1, &result, NULL), TD_OK); /* shorter than x */
    EXPECT(result, 0, 0, 3, 3);
    td_tensor *none = td_upload(client.device, TD_U8, TD_SHAPE(3), (const uint8_t[]){1, 0, 0});
    cr_assert_eq(td_repeat_each(x, none, 2, 1, &result, NULL), TD_OK); /* and zeros behind the last one */
    EXPECT(result, 0, 0, 3, 0);
    cr_assert_eq(td_repeat_each(x, counts, 2, 0, &result, &total), TD_E_SHAPE);
    cr_assert(!result && !total);
    cr_assert_eq(td_repeat_each(x, counts, -1, 1, &result, NULL), TD_E_INVALID_ARGUMENT);
    cr_assert(td_repeat_each(NULL, counts, 1, 1, &result, NULL));
    cr_assert(td_repeat_each(x, NULL, 1, 1, &result, NULL));
}

Test(compositions, linspace_of_complex_numbers) {
    td_tensor *x = td_linspace_complex(client.device, TD_C64, 0, 1, 2, -3, 5, 1);
    EXPECT(td_real(x), 0, 0.5F, 1, 1.5F, 2);
    EXPECT(td_imag(x), 1, 0, -1, -2, -3);
    EXPECT(td_cast(td_real(td_linspace_complex(client.device, TD_C128, 0, 1, 2, 3, 2, 0)), TD_F32), 0, 1);
    cr_assert_null(td_linspace_complex(client.device, TD_F32, 0, 1, 2, 3, 2, 0));
    cr_assert_eq(td_last_error()->code, TD_E_DTYPE);
}

/* Parts go in as they are: a product with i would make NaN of infinity. */
Test(compositions, complex_numbers_of_any_parts) {
    const float parts[] = {0, INFINITY, -0.0F, NAN};
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(4), parts), *z = td_complex(td_flip(x, TD_ALL_AXES), x);
    float got[8];
    cr_assert_eq(td_fetch(z, got, sizeof got), TD_OK, "%s", td_last_error()->message);
    for (int i = 0; i < 4; i++) {
        float re = parts[3 - i], im = parts[i];
        cr_expect(isnan(re) ? isnan(got[2 * i]) : got[2 * i] == re && signbit(got[2 * i]) == signbit(re));
        cr_expect(isnan(im) ? isnan(got[2 * i + 1]) : got[2 * i + 1] == im && signbit(got[2 * i + 1]) == signbit(im));
    }
}

/* Numbers whose products 64 bits cannot hold are refused; none of them is computed with. */
Test(compositions, huge_numbers_are_refused) {
    int64_t huge = INT64_C(1) << 40;
    td_tensor *cube = td_reshape(client_ramp(client.device, 8, 0), TD_SHAPE(1, 2, 1, 2, 1, 2));
    td_tensor *none = td_full(client.device, TD_F32, TD_SHAPE(0, 3), 1);
    cr_assert_null(td_tile(cube, TD_SHAPE(huge, huge, huge, huge, huge, huge)));
    expect_shape(td_tile(none, TD_SHAPE(1, 2)), TD_SHAPE(0, 6));
    cr_assert_null(td_tile(matrix(), TD_SHAPE(INT64_MAX, INT64_MAX)));
    cr_assert_null(td_repeat(matrix(), INT64_MAX, 0));
    cr_assert_null(td_repeat(matrix(), INT64_MAX / 4, 0));
    cr_assert_null(td_diag(client_ramp(client.device, 3, 0), INT64_MIN));
    cr_assert_null(td_diag(client_ramp(client.device, 3, 0), INT32_MAX));
    EXPECT(td_roll(client_ramp(client.device, 3, 0), INT64_MIN, 0), 2, 0, 1);
    EXPECT(td_roll(client_ramp(client.device, 3, 0), INT64_MAX, 0), 2, 0, 1);
}

/* NULL is passed on, with the error that made it. */
Test(compositions, null_is_passed_on) {
    td_tensor *parts[2];
    cr_assert_null(td_full(client.device, TD_U8, TD_SHAPE(2), 300));
    int code = td_last_error()->code;
    cr_assert(!td_flip(NULL, TD_AXES(0)) && !td_roll(NULL, 1, 0) && !td_tile(NULL, TD_SHAPE(2)) &&
              !td_repeat(NULL, 2, 0));
    cr_assert(!td_diag(NULL, 0) && !td_masked_fill(NULL, NULL, 0) && !td_gather(NULL, NULL, 0));
    cr_assert(!td_index_add(NULL, 0, NULL, NULL) && !td_bincount(NULL, NULL, 3) && !td_moveaxis(NULL, 0, NULL, NULL));
    cr_assert(!td_pad(NULL, 0, NULL, TD_PAD_MODE_EDGE, 0) && !td_searchsorted(NULL, NULL, 0, NULL));
    cr_assert(td_unstack(NULL, 0, parts) && td_split(NULL, 1, (const int64_t[]){1}, 0, parts));
    cr_assert(td_split(NULL, 2, NULL, 0, parts) && td_split(NULL, 0, NULL, 0, NULL));
    cr_assert_eq(td_last_error()->code, code);
}

/* ---- Fourier transforms ---- */

#define PLAIN TD_FFT_NORM_BACKWARD

Test(compositions, transforms_along_several_axes) {
    /* 0 1 2 3, 4 5 6 7: exact, since all roots of unity are */
    td_tensor *x = td_reshape(client_ramp(client.device, 8, 0), TD_SHAPE(2, 4));
    EXPECT(td_real(td_fftn(x, TD_ALL_AXES, NULL, PLAIN)), 28, -4, -4, -4, -16, 0, 0, 0);
    EXPECT(td_imag(td_fftn(x, TD_AXES(0, 1), NULL, PLAIN)), 0, 4, 0, -4, 0, 0, 0, 0);
    EXPECT(td_real(td_fftn(x, 1, (const int64_t[]){-1}, NULL, PLAIN)), 6, -2, -2, -2, 22, -2, -2, -2);
    EXPECT(td_real(td_fftn(x, TD_AXES(1), (const int64_t[]){2}, PLAIN)), 1, -1, 9, -1);
    EXPECT(td_real(td_ifftn(td_fftn(x, TD_ALL_AXES, NULL, PLAIN), TD_ALL_AXES, NULL, PLAIN)), 0, 1, 2, 3, 4, 5, 6, 7);
    EXPECT(td_real(td_rfftn(x, TD_ALL_AXES, NULL, PLAIN)), 28, -4, -4, -16, 0, 0);
    EXPECT(td_irfftn(td_rfftn(x, TD_ALL_AXES, NULL, PLAIN), TD_ALL_AXES, NULL, PLAIN), 0, 1, 2, 3, 4, 5, 6, 7);
    EXPECT(td_irfftn(td_rfftn(x, TD_AXES(1, 0), NULL, PLAIN), TD_AXES(1, 0), NULL, PLAIN), 0, 1, 2, 3, 4, 5, 6, 7);
    EXPECT(td_hfft(td_ihfft(x, 4, -1, PLAIN), 4, -1, PLAIN), 0, 1, 2, 3, 4, 5, 6, 7);
    cr_assert_null(td_fftn(x, TD_AXES(0, -2), NULL, PLAIN));
    cr_assert_null(td_rfftn(x, TD_AXES(2), NULL, PLAIN));
    cr_assert_null(td_fftn(td_full(client.device, TD_F32, TD_SCALAR, 1), TD_ALL_AXES, NULL, PLAIN));
    cr_assert_null(td_irfftn(x, TD_ALL_AXES, NULL, PLAIN));
}

Test(compositions, frequencies_and_their_order) {
    EXPECT(td_fftfreq(client.device, TD_F32, 5, 0.5), 0, 0.4F, 0.8F, -0.8F, -0.4F);
    EXPECT(td_fftfreq(client.device, TD_F32, 4, 1), 0, 0.25, -0.5, -0.25);
    EXPECT(td_fftfreq(client.device, TD_F32, 1, 1), 0);
    EXPECT(td_rfftfreq(client.device, TD_F32, 5, 0.5), 0, 0.4F, 0.8F);
    EXPECT(td_rfftfreq(client.device, TD_F32, 4, 1), 0, 0.25, 0.5);
    cr_assert_null(td_fftfreq(client.device, TD_F32, 0, 1));
    cr_assert_null(td_rfftfreq(client.device, TD_F32, 4, 0));
    EXPECT(td_fftshift(td_fftfreq(client.device, TD_F32, 5, 0.2), TD_ALL_AXES), -2, -1, 0, 1, 2);
    EXPECT(td_ifftshift(td_fftshift(matrix(), TD_ALL_AXES), TD_ALL_AXES), 0, 1, 2, 3, 4, 5);
    EXPECT(td_fftshift(matrix(), TD_AXES(1)), 2, 0, 1, 5, 3, 4);
    EXPECT(td_ifftshift(matrix(), TD_AXES(-1)), 1, 2, 0, 4, 5, 3);
    cr_assert_null(td_fftshift(matrix(), TD_AXES(2)));
}

/* A step releases the handles of what it replaces, and can do so once. */
Test(compositions, a_step_refuses_a_tensor_that_it_would_replace_twice) {
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(2), 4),
              *gradient = td_full(client.device, TD_F32, TD_SHAPE(2), 2);
    td_tensor *twice[] = {x, x}, *gradients[] = {gradient, gradient}, *once[] = {x}, *same[] = {x};
    cr_assert_eq(td_sgd(2, twice, gradients, NULL, 0.5, 0, 0, 0), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->message, "twice"), "%s", td_last_error()->message);
    cr_assert_eq(td_sgd(1, once, gradients, same, 0.5, 0.9, 0, 0), TD_E_INVALID_ARGUMENT);
    cr_assert(twice[0] == x && twice[1] == x && once[0] == x && same[0] == x);
    cr_assert_eq(td_sgd(1, once, gradients, NULL, 0.5, 0, 0, 0), 0, "%s", td_last_error()->message);
    EXPECT(once[0], 3, 3);
    cr_assert_eq(td_sgd(1, once, once, NULL, 0.5, 0, 0, 0), 0, "%s", td_last_error()->message); /* its own gradient */
    EXPECT(once[0], 1.5, 1.5);
}
