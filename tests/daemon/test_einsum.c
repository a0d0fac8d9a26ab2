/* einsum, tensordot and other sums of products, which the client plans. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
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

TestSuite(einsum, .init = start, .fini = stop, .timeout = 120);

#define EXPECT(tensor, ...)                                                                                            \
    client_expect(tensor, (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float))
#define EINSUM(equation, ...)                                                                                          \
    td_einsum(equation, (int)(sizeof((td_tensor *[]){__VA_ARGS__}) / sizeof(td_tensor *)), (td_tensor *[]){__VA_ARGS__})

static void expect_shape(const td_tensor *x, int rank, const int64_t *shape) {
    cr_assert(x, "%s", td_last_error()->message);
    cr_assert_eq(td_tensor_rank(x), rank);
    if (rank)
        cr_assert_arr_eq(td_tensor_shape(x), shape, (size_t)rank * sizeof *shape);
}

static void expect_refused(const td_tensor *x, int code, const char *words) {
    cr_assert_null(x);
    cr_assert_eq(td_last_error()->code, code, "%s", td_last_error()->message);
    cr_assert(strstr(td_last_error()->message, words), "%s", td_last_error()->message);
}

static td_tensor *ramp(int rank, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= shape[i];
    return td_reshape(client_ramp(client.device, (size_t)n, 0), rank, shape);
}

/* ---- random equations against loops over all indices ---- */

enum {
    OPERANDS = 5,
    NAMES = 5, /* letters */
    DOTTED = 2,
    LABELS = NAMES + DOTTED, /* the last ones are the axes of "..." */
    VALUES = 4096,
};

struct operand {
    int rank, labels[TD_RANK_MAX];
    int64_t shape[TD_RANK_MAX], strides[TD_RANK_MAX];
    float values[VALUES];
};

struct sums {
    int n, rank, labels[TD_RANK_MAX];
    int64_t extents[LABELS];
    struct operand operands[OPERANDS];
    char text[128];
};

static uint64_t state = 11;

static int below(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (unsigned)n);
}

/* Some letters, now and then one twice, and "..." between them. */
static void make_operand(struct sums *s, struct operand *x) {
    int letters = below(4), at = below(3) ? -1 : below(letters + 1), dotted = at < 0 ? 0 : below(DOTTED + 1);
    bool across = below(2);
    int64_t stride = 1;
    size_t used = strlen(s->text);
    x->rank = 0;
    for (int i = 0; i <= letters; i++) {
        if (i == at) {
            used += (size_t)sprintf(s->text + used, "...");
            for (int k = 0; k < dotted; k++)
                x->labels[x->rank++] = LABELS - dotted + k;
        }
        if (i == letters)
            break;
        int label = below(NAMES);
        used += (size_t)sprintf(s->text + used, "%s%c", below(8) ? "" : " ", label % 2 ? 'a' + label : 'A' + label);
        x->labels[x->rank++] = label;
    }
    for (int i = 0; i < x->rank; i++) {
        bool twice = false;
        for (int k = 0; k < x->rank; k++)
            twice |= k != i && x->labels[k] == x->labels[i];
        x->shape[i] = !twice && !below(6) ? 1 : s->extents[x->labels[i]];
    }
    for (int i = 0; i < x->rank; i++) {
        int axis = across ? i : x->rank - 1 - i;
        x->strides[axis] = stride;
        stride *= x->shape[axis];
    }
    cr_assert_leq(stride, VALUES);
    for (int64_t i = 0; i < stride; i++)
        x->values[i] = (float)(below(5) - 2);
}

/* The result's labels: those that occur once, or any choice of all. */
static void make_result(struct sums *s, bool arrow) {
    int times[LABELS] = {0}, first = LABELS;
    bool dots = strstr(s->text, "...") != NULL;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->operands[i].rank; k++) {
            int label = s->operands[i].labels[k];
            times[label]++;
            if (label >= NAMES && label < first)
                first = label;
        }
    s->rank = 0;
    if (arrow)
        strcat(s->text, " ->");
    if (dots && (!arrow || below(4))) {
        if (arrow)
            strcat(s->text, "...");
        for (int label = first; label < LABELS; label++)
            s->labels[s->rank++] = label;
    }
    int offset = arrow ? below(NAMES) : 0;
    for (int i = 0; i < NAMES; i++) {
        /* upper-case letters, which even labels have, come first */
        int label = arrow ? (i + offset) % NAMES : i < (NAMES + 1) / 2 ? 2 * i : 2 * (i - (NAMES + 1) / 2) + 1;
        if (arrow ? times[label] && below(2) : times[label] == 1) {
            if (arrow)
                sprintf(s->text + strlen(s->text), "%c", label % 2 ? 'a' + label : 'A' + label);
            s->labels[s->rank++] = label;
        }
    }
}

static td_tensor *upload(const struct operand *x, td_dtype dtype) {
    int64_t shape[TD_RANK_MAX], axes[TD_RANK_MAX];
    bool across = x->rank && x->strides[0] == 1;
    for (int i = 0; i < x->rank; i++) {
        axes[i] = across ? x->rank - 1 - i : i;
        shape[i] = x->shape[axes[i]];
    }
    return td_cast(td_permute(td_upload(client.device, TD_F32, x->rank, shape, x->values), x->rank, axes), dtype);
}

/* The extents that the operands really have. */
static void take_extents(struct sums *s) {
    for (int label = 0; label < LABELS; label++)
        s->extents[label] = 1;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->operands[i].rank; k++)
            if (s->operands[i].shape[k] != 1)
                s->extents[s->operands[i].labels[k]] = s->operands[i].shape[k];
}

static void add_all(const struct sums *s, float *out) {
    int64_t all = 1, index[LABELS];
    for (int label = 0; label < LABELS; label++)
        all *= s->extents[label];
    for (int64_t number = 0; number < all; number++) {
        int64_t left = number, place = 0;
        float product = 1;
        for (int label = 0; label < LABELS; label++) {
            index[label] = left % s->extents[label];
            left /= s->extents[label];
        }
        for (int i = 0; i < s->n; i++) {
            const struct operand *x = &s->operands[i];
            int64_t at = 0;
            for (int k = 0; k < x->rank; k++)
                at += x->shape[k] == 1 ? 0 : index[x->labels[k]] * x->strides[k];
            product *= x->values[at];
        }
        for (int i = 0; i < s->rank; i++)
            place = place * s->extents[s->labels[i]] + index[s->labels[i]];
        out[place] += product;
    }
}

/* Small integers, so that every order of sums is exact. */
Test(einsum, random_equations_are_what_loops_compute) {
    static struct sums s;
    static float expected[VALUES * 64], got[VALUES * 64];
    static const td_dtype dtypes[] = {TD_F32, TD_F64, TD_I32, TD_I64};
    for (int round = 0; round < 500; round++) {
        td_tensor *operands[OPERANDS];
        td_scope_begin("equation");
        s.n = 1 + below(OPERANDS);
        s.text[0] = 0;
        for (int label = 0; label < LABELS; label++)
            s.extents[label] = below(40) ? 1 + below(3) : 0;
        for (int i = 0; i < s.n; i++) {
            if (i)
                strcat(s.text, ",");
            make_operand(&s, &s.operands[i]);
        }
        make_result(&s, below(3));
        take_extents(&s);
        td_dtype dtype = dtypes[below(4)];
        for (int i = 0; i < s.n; i++)
            operands[i] = upload(&s.operands[i], i && !below(4) ? TD_I32 : dtype);
        td_tensor *result = td_einsum(s.text, s.n, operands);
        cr_assert(result, "%s: %s", s.text, td_last_error()->message);
        int64_t shape[TD_RANK_MAX], count = 1;
        for (int i = 0; i < s.rank; i++)
            count *= shape[i] = s.extents[s.labels[i]];
        expect_shape(result, s.rank, shape);
        cr_assert_eq(td_tensor_dtype(result), td_tensor_dtype(operands[0]), "%s", s.text);
        memset(expected, 0, (size_t)count * sizeof *expected);
        add_all(&s, expected);
        cr_assert_eq(td_fetch(td_cast(result, TD_F32), got, (size_t)count * sizeof *got), TD_OK, "%s: %s", s.text,
                     td_last_error()->message);
        for (int64_t i = 0; i < count; i++)
            cr_assert_eq(got[i], expected[i], "%s: element %lld is %g, not %g", s.text, (long long)i, (double)got[i],
                         (double)expected[i]);
        td_scope_end();
    }
}

Test(einsum, a_chain_of_many_operands) {
    td_tensor *chain[12], *product = NULL;
    for (int i = 0; i < 12; i++) {
        chain[i] = td_subtract(ramp(TD_SHAPE(2, 2)), td_full(client.device, TD_F32, TD_SCALAR, i % 3));
        product = product ? td_matmul(product, chain[i]) : chain[i];
    }
    td_tensor *result = td_einsum("ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am", 12, chain);
    expect_shape(result, TD_SHAPE(2, 2));
    EXPECT(td_cast(td_all(td_equal(result, product), TD_ALL_AXES, 0), TD_F32), 1);
}

/* In the other order an intermediate result would have 2^40 elements, which no device has memory for. */
Test(einsum, the_order_keeps_intermediate_results_small) {
    int64_t n = 1 << 20;
    td_tensor *column = td_full(client.device, TD_F32, TD_SHAPE(n, 1), 1);
    td_tensor *row = td_full(client.device, TD_F32, TD_SHAPE(1, n), 1);
    EXPECT(td_slice(EINSUM("ab,bc,cd->a", column, row, column), 0, 5, 7, 1), (float)n, (float)n);
    td_tensor *two = td_full(client.device, TD_F32, TD_SHAPE(n, 2), 1);
    EXPECT(td_slice(EINSUM("ab,cb,cd->a", two, two, column), 0, 5, 7, 1), 2 * (float)n, 2 * (float)n);
}

Test(einsum, what_is_no_equation_is_refused) {
    td_tensor *x = ramp(TD_SHAPE(2, 3)), *y = ramp(TD_SHAPE(3, 3)), *many[65];
    expect_refused(EINSUM("ij", x, y), TD_E_INVALID_ARGUMENT, "einsum: \"ij\" is for fewer operands");
    expect_refused(EINSUM("ij,jk,kl", x, y), TD_E_INVALID_ARGUMENT, "is for more operands");
    expect_refused(EINSUM("ij,jk->ik->i", x, y), TD_E_INVALID_ARGUMENT, "goes on behind the result");
    expect_refused(EINSUM("i1", x), TD_E_INVALID_ARGUMENT, "other characters");
    expect_refused(EINSUM("i-j", x), TD_E_INVALID_ARGUMENT, "other characters");
    expect_refused(EINSUM("i..j", x), TD_E_INVALID_ARGUMENT, "other characters");
    expect_refused(EINSUM("...i...", x), TD_E_INVALID_ARGUMENT, "\"...\" twice");
    expect_refused(EINSUM("ij->ii", x), TD_E_INVALID_ARGUMENT, "the letter i twice");
    expect_refused(EINSUM("ij->ik", x), TD_E_INVALID_ARGUMENT, "the letter k which no operand has");
    expect_refused(EINSUM("abcdefghi", x), TD_E_INVALID_ARGUMENT, "more letters");
    expect_refused(EINSUM("i", x), TD_E_SHAPE, "\"i\" has 1 letters for operand 0, which is (2, 3)");
    expect_refused(EINSUM("...ijk", x), TD_E_SHAPE, "at least 3 letters");
    expect_refused(EINSUM("ij,ij", x, y), TD_E_SHAPE,
                   "axis 0 of operand 1 has extent 3, and an earlier axis of its name 2");
    expect_refused(EINSUM("ii", x), TD_E_SHAPE, "extents 2 and 3");
    expect_refused(EINSUM("ij", td_cast(x, TD_BOOL)), TD_E_DTYPE, "einsum: bool");
    expect_refused(EINSUM("ij,ij", td_cast(x, TD_I64), td_cast(x, TD_U64)), TD_E_DTYPE, "i64 and u64 do not promote");
    expect_refused(td_einsum(NULL, 1, &x), TD_E_INVALID_ARGUMENT, "no equation");
    expect_refused(td_einsum("", 0, &x), TD_E_INVALID_ARGUMENT, "0 operands");
    for (int i = 0; i < 65; i++)
        many[i] = x;
    expect_refused(td_einsum("ij", 65, many), TD_E_INVALID_ARGUMENT, "65 operands");
    td_tensor *wide = td_full(client.device, TD_F32, TD_SHAPE(2, 2, 2, 2, 2), 1);
    expect_refused(EINSUM("abcde,fghij", wide, wide), TD_E_INVALID_ARGUMENT, "more letters that occur once");
    expect_refused(EINSUM("...,abcde->...abcd", wide, wide), TD_E_SHAPE, "9 axes, 8 are possible");
    EXPECT(EINSUM("abcde,fghij->", wide, wide), 1024);
}

/* ---- other sums of products ---- */

Test(einsum, outer_and_kron) {
    td_tensor *x = client_ramp(client.device, 3, 1), *y = client_ramp(client.device, 2, 5);
    EXPECT(td_outer(x, y), 5, 6, 10, 12, 15, 18);
    expect_shape(td_outer(x, y), TD_SHAPE(3, 2));
    expect_refused(td_outer(x, ramp(TD_SHAPE(2, 2))), TD_E_SHAPE, "outer: (3,) x (2, 2): both must have rank 1");
    EXPECT(td_kron(y, x), 5, 10, 15, 6, 12, 18);
    td_tensor *k = td_kron(ramp(TD_SHAPE(2, 2)), td_eye(client.device, TD_F32, 2, 2, 0));
    expect_shape(k, TD_SHAPE(4, 4));
    EXPECT(k, 0, 0, 1, 0, 0, 0, 0, 1, 2, 0, 3, 0, 0, 2, 0, 3);
    expect_shape(td_kron(ramp(TD_SHAPE(2, 1, 3)), ramp(TD_SHAPE(5, 2))), TD_SHAPE(2, 5, 6));
    td_tensor *wide = td_full(client.device, TD_F32, TD_SHAPE(2, 2, 2, 2, 2), 1);
    expect_refused(td_kron(wide, wide), TD_E_SHAPE, "kron: (2, 2, 2, 2, 2) x (2, 2, 2, 2, 2)");
}

Test(einsum, vecdot_broadcasts_the_other_axes) {
    td_tensor *x = ramp(TD_SHAPE(2, 3)), *y = client_ramp(client.device, 3, 1);
    EXPECT(td_vecdot(x, y, -1), 8, 26);
    EXPECT(td_vecdot(x, x, -2), 9, 17, 29);
    expect_shape(td_vecdot(ramp(TD_SHAPE(4, 1, 3)), x, -1), TD_SHAPE(4, 2));
    EXPECT(td_vecdot(y, y, -1), 14);
    EXPECT(td_vecdot(ramp(TD_SHAPE(2, 1)), ramp(TD_SHAPE(2, 1)), -1), 0, 1);
    EXPECT(td_cast(td_vecdot(td_cast(x, TD_I8), td_cast(x, TD_I8), -1), TD_F32), 5, 50);
    expect_refused(td_vecdot(x, y, 0), TD_E_INVALID_ARGUMENT, "vecdot: (2, 3) x (3,): axis 0 is not -1 to -1");
    expect_refused(td_vecdot(x, y, -2), TD_E_INVALID_ARGUMENT, "axis -2");
    expect_refused(td_vecdot(x, ramp(TD_SHAPE(2, 1)), -1), TD_E_SHAPE, "the extents of the axis differ");
    expect_refused(td_vecdot(x, ramp(TD_SHAPE(3, 3)), -1), TD_E_SHAPE, "the other axes do not broadcast");
    td_tensor *wide = ramp(TD_SHAPE(1, 2, 1, 2, 1, 2, 2, 3));
    expect_shape(td_vecdot(wide, wide, -1), 7, (const int64_t[]){1, 2, 1, 2, 1, 2, 2});
}

Test(einsum, tensordot_takes_a_number_of_axes_or_two_lists) {
    td_tensor *x = ramp(TD_SHAPE(2, 3)), *y = ramp(TD_SHAPE(3, 2));
    EXPECT(td_tensordot(x, y, 1, NULL, NULL), 10, 13, 28, 40);
    EXPECT(td_tensordot(x, y, 2, (const int64_t[]){0, 1}, (const int64_t[]){-1, 0}), 0 + 2 + 8 + 3 + 12 + 25);
    EXPECT(td_tensordot(x, x, 1, (const int64_t[]){0}, (const int64_t[]){0}), 9, 12, 15, 12, 17, 22, 15, 22, 29);
    expect_shape(td_tensordot(x, y, 0, NULL, NULL), TD_SHAPE(2, 3, 3, 2));
    expect_shape(td_tensordot(ramp(TD_SHAPE(2, 1, 3)), ramp(TD_SHAPE(1, 3, 4)), 2, NULL, NULL), TD_SHAPE(2, 4));
    expect_refused(td_tensordot(x, x, 1, NULL, NULL), TD_E_SHAPE,
                   "tensordot: (2, 3) x (2, 3): axis 1 and axis 0: 3 != 2");
    expect_refused(td_tensordot(x, ramp(TD_SHAPE(1, 2)), 1, NULL, NULL), TD_E_SHAPE, "3 != 1");
    expect_refused(td_tensordot(x, y, 3, NULL, NULL), TD_E_INVALID_ARGUMENT, "3 axes, and operand 0 has rank 2");
    expect_refused(td_tensordot(x, y, 1, (const int64_t[]){0}, NULL), TD_E_INVALID_ARGUMENT, "one list is NULL");
    expect_refused(td_tensordot(x, y, 2, (const int64_t[]){0, -2}, (const int64_t[]){1, 1}), TD_E_INVALID_ARGUMENT,
                   "axis 0 of operand 0 is named twice");
    td_tensor *wide = td_full(client.device, TD_F32, TD_SHAPE(2, 2, 2, 2, 2), 1);
    expect_refused(td_tensordot(wide, wide, 0, NULL, NULL), TD_E_SHAPE, "more axes");
    expect_shape(td_tensordot(wide, wide, 1, NULL, NULL), TD_SHAPE(2, 2, 2, 2, 2, 2, 2, 2));
}

Test(einsum, trace_and_cross) {
    EXPECT(td_trace(ramp(TD_SHAPE(2, 3, 3)), 1), 6, 24);
    td_tensor *x = ramp(TD_SHAPE(2, 3)), *y = td_upload(client.device, TD_F32, TD_SHAPE(3), (const float[]){1, -2, 4});
    EXPECT(td_cross(x, y, -1), 8, 2, -1, 26, -7, -10);
    EXPECT(td_cross(td_transpose(x), td_transpose(x), -2), 0, 0, 0, 0, 0, 0);
    expect_refused(td_cross(x, x, -2), TD_E_SHAPE, "cross: (2, 3) x (2, 3): the extents of the axis are not 3");
    expect_refused(td_cross(x, x, 1), TD_E_INVALID_ARGUMENT, "axis 1");
}

/* Products of infinity and 0, which only the elements that have them show. */
Test(einsum, a_cross_product_of_special_values) {
    float got[3];
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(3), (const float[]){INFINITY, 1, 0});
    td_tensor *y = td_upload(client.device, TD_F32, TD_SHAPE(3), (const float[]){-0.0F, 1, 0});
    cr_assert_eq(td_fetch(td_cross(x, y, -1), got, sizeof got), TD_OK, "%s", td_last_error()->message);
    cr_expect(got[0] == 0 && isnan(got[1]) && isinf(got[2]) && got[2] > 0, "%g %g %g", (double)got[0], (double)got[1],
              (double)got[2]);
}

Test(einsum, norms_and_powers_of_matrices) {
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(2, 2), (const float[]){3, -1, 0, -4});
    EXPECT(td_matrix_norm(x, TD_MATRIX_NORM_1, 0), 5);
    EXPECT(td_matrix_norm(x, TD_MATRIX_NORM_LEAST_1, 0), 3);
    EXPECT(td_matrix_norm(x, TD_MATRIX_NORM_INF, 0), 4);
    expect_shape(td_matrix_norm(x, TD_MATRIX_NORM_INF, 1), TD_SHAPE(1, 1));
    EXPECT(td_square(td_matrix_norm(td_multiply(x, x), TD_MATRIX_NORM_FROBENIUS, 0)), 338);
    expect_refused(td_matrix_norm(client_ramp(client.device, 3, 0), TD_MATRIX_NORM_1, 0), TD_E_SHAPE,
                   "matrix_norm: (3,): it is no matrix");
    expect_refused(td_matrix_norm(x, (td_matrix_norm_order)8, 0), TD_E_INVALID_ARGUMENT, "order 8");
    EXPECT(td_matrix_power(x, 3), 27, -13, 0, -64);
    EXPECT(td_matrix_power(x, 6), 729, 481, 0, 4096);
    EXPECT(td_matrix_power(x, 0), 1, 0, 0, 1);
    td_tensor *d = td_upload(client.device, TD_F32, TD_SHAPE(2, 2), (const float[]){2, 0, 0, 4});
    EXPECT(td_matrix_power(d, -2), 0.25f, 0, 0, 0.0625f);
    EXPECT(td_matrix_power(td_eye(client.device, TD_F32, 2, 2, 0), INT64_MIN), 1, 0, 0, 1);
    expect_refused(td_matrix_power(ramp(TD_SHAPE(2, 3)), 2), TD_E_SHAPE, "matrix_power: (2, 3)");
}

/* ---- by singular values ---- */

static double near(td_tensor *x) {
    double value = NAN;
    cr_assert_eq(td_fetch(td_cast(x, TD_F64), &value, sizeof value), TD_OK, "%s", td_last_error()->message);
    return value;
}

/* The greatest difference of two tensors' elements. */
static double apart(td_tensor *a, td_tensor *b) {
    return near(td_max(td_abs(td_subtract(a, b)), TD_ALL_AXES, 0));
}

Test(einsum, norms_rank_and_inverse_by_singular_values) {
    /* rows (3, 0), (0, -4), (0, 0): the singular values are 4 and 3 */
    td_tensor *x = td_upload(client.device, TD_F64, TD_SHAPE(3, 2), (const double[]){3, 0, 0, -4, 0, 0});
    cr_expect_float_eq(near(td_matrix_norm(x, TD_MATRIX_NORM_2, 0)), 4, 1e-12);
    cr_expect_float_eq(near(td_matrix_norm(x, TD_MATRIX_NORM_LEAST_2, 1)), 3, 1e-12);
    cr_expect_float_eq(near(td_matrix_norm(x, TD_MATRIX_NORM_NUCLEAR, 0)), 7, 1e-12);
    expect_shape(td_matrix_norm(x, TD_MATRIX_NORM_2, 1), TD_SHAPE(1, 1));
    static const td_matrix_norm_order greatest[] = {TD_MATRIX_NORM_1, TD_MATRIX_NORM_2, TD_MATRIX_NORM_INF};
    for (unsigned i = 0; i < 3; i++) {
        cr_expect_eq(near(td_matrix_norm(td_full(client.device, TD_F64, TD_SHAPE(0, 3), 1), greatest[i], 0)), 0);
        cr_expect_eq(near(td_matrix_norm(td_full(client.device, TD_F64, TD_SHAPE(3, 0), 1), greatest[i], 1)), 0);
    }
    expect_refused(td_matrix_norm(td_full(client.device, TD_F64, TD_SHAPE(3, 0), 1), TD_MATRIX_NORM_LEAST_2, 0),
                   TD_E_SHAPE, "min");
    cr_expect_eq(near(td_matrix_rank(x, -1)), 2);
    cr_expect_eq(near(td_matrix_rank(x, 0.9)), 1);
    cr_expect_eq(near(td_matrix_rank(td_full(client.device, TD_F64, TD_SHAPE(4, 7), 3), -1)), 1);
    cr_expect_eq(near(td_sum(td_matrix_rank(td_full(client.device, TD_F32, TD_SHAPE(5, 0, 2), 3), -1), TD_ALL_AXES, 0)),
                 0);
    td_tensor *a = td_normal(client.device, TD_F64, TD_SHAPE(2, 5, 3), 4, 0, 1), *p = td_pinv(a, -1);
    expect_shape(p, TD_SHAPE(2, 3, 5));
    cr_expect_lt(apart(td_matmul(td_matmul(a, p), a), a), 1e-12);
    cr_expect_lt(apart(td_matmul(p, a), td_eye(client.device, TD_F64, 3, 3, 0)), 1e-12);
    /* of rank 1: the transpose over the square of the only singular value */
    td_tensor *one = td_full(client.device, TD_F64, TD_SHAPE(2, 3), 2);
    cr_expect_lt(apart(td_pinv(one, -1), td_full(client.device, TD_F64, TD_SHAPE(3, 2), 2.0 / 24)), 1e-14);
    expect_refused(td_pinv(client_ramp(client.device, 3, 0), -1), TD_E_SHAPE, "(3,) is no matrix");
    expect_refused(td_matrix_rank(td_cast(x, TD_I32), -1), TD_E_DTYPE, "i32");
}

/* A complex matrix times its pseudoinverse is the identity, products of vectors conjugate the first, and norms are real. */
Test(einsum, complex_matrices) {
    td_tensor *parts[] = {td_normal(client.device, TD_F64, TD_SHAPE(5, 3), 4, 0, 1),
                          td_normal(client.device, TD_F64, TD_SHAPE(5, 3), 5, 0, 1)};
    td_tensor *a = td_complex(parts[0], parts[1]), *p = td_pinv(a, -1);
    cr_expect_lt(apart(td_matmul(p, a), td_eye(client.device, TD_C128, 3, 3, 0)), 1e-12);
    cr_expect_eq(near(td_matrix_rank(a, -1)), 3);
    cr_expect_lt(apart(td_matrix_norm(a, TD_MATRIX_NORM_FROBENIUS, 0),
                       td_sqrt(td_sum(td_add(td_square(parts[0]), td_square(parts[1])), TD_ALL_AXES, 0))),
                 1e-12);
    td_tensor *square = td_matmul(td_conj(td_transpose(a)), a), *inverse = td_matrix_power(square, -1);
    cr_expect_lt(apart(td_matmul(square, inverse), td_eye(client.device, TD_C128, 3, 3, 0)), 1e-11);
    td_tensor *x = td_upload(client.device, TD_C64, TD_SHAPE(2), (const float[]){1, 2, 0, -1});
    td_tensor *y = td_upload(client.device, TD_C64, TD_SHAPE(2), (const float[]){3, 0, 2, 1});
    EXPECT(td_real(td_vecdot(x, y, -1)), 2); /* (1 - 2i) · 3 + i · (2 + i) */
    EXPECT(td_imag(td_vecdot(x, y, -1)), -4);
    EXPECT(td_vector_norm(x, TD_ALL_AXES, INFINITY, 0), 2.236068F);
}

Test(einsum, null_is_passed_on) {
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert_null(td_full(client.device, TD_U8, TD_SHAPE(2), 300));
    int code = td_last_error()->code;
    cr_assert(!td_outer(NULL, x) && !td_vecdot(x, NULL, -1) && !td_tensordot(NULL, NULL, 0, NULL, NULL));
    cr_assert(!EINSUM("i,i", x, NULL) && !td_trace(NULL, 0) && !td_cross(NULL, x, -1) && !td_kron(x, NULL));
    cr_assert(!td_matrix_norm(NULL, TD_MATRIX_NORM_2, 0) && !td_matrix_power(NULL, 2) && !td_pinv(NULL, -1));
    cr_assert_null(td_matrix_rank(NULL, 1));
    cr_assert_eq(td_last_error()->code, code);
}
