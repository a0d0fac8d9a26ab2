/* Derivatives: each rule against central differences, in f64; what a tape keeps and lets go; errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"
#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

static struct daemon tensord;
static struct client client;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
    client_open(&client, tensord.url, NULL);
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(autograd, .init = start, .fini = stop, .timeout = 240);

static void ok(int code) {
    cr_assert_eq(code, 0, "%s", td_last_error()->message);
}

/* ---- against central differences ---- */

enum { ELEMENTS_MOST = 4096 };

#define X(kind) autograd_##kind##_cases,
static const struct autograd_case *const *const lists[] = {AUTOGRAD_LISTS(X)};
#undef X
enum { LISTS = sizeof lists / sizeof *lists };

/* The case behind this one, through all lists: list and place are where to go on, at first 0. NULL: there is none. */
static const struct autograd_case *next_case(unsigned *list, unsigned *place) {
    while (*list < LISTS) {
        const struct autograd_case *row = lists[*list][(*place)++];
        if (row)
            return row;
        ++*list;
        *place = 0;
    }
    return NULL;
}
#define EACH_CASE(row)                                                                                                 \
    for (unsigned list_ = 0, place_ = 0; list_ < LISTS;)                                                               \
        for (const struct autograd_case *row; (row = next_case(&list_, &place_));)

/* The arguments of a case. */
struct arguments {
    int64_t n[AUTOGRAD_INPUTS];
    double values[AUTOGRAD_INPUTS][ELEMENTS_MOST];
};

static void arguments_init(struct arguments *at, const struct autograd_case *row) {
    srand(11);
    for (int i = 0; i < row->n_inputs; i++) {
        at->n[i] = 1;
        for (int axis = 0; axis < row->rank[i]; axis++)
            at->n[i] *= row->shape[i][axis];
        cr_assert_leq(at->n[i], ELEMENTS_MOST);
        for (int64_t k = 0; k < at->n[i]; k++)
            at->values[i][k] = row->low + (row->high - row->low) * (rand() + 0.5) / (RAND_MAX + 1.0);
    }
}

/* Σ w · f(x), with w = cos(0), cos(1), … so that no two elements count alike. */
static td_tensor *weighted(const struct autograd_case *row, td_tensor **x) {
    td_tensor *y = row->function(x);
    cr_assert(y, "%s: %s", op_rows[row->opcode].name, td_last_error()->message);
    int64_t n = (int64_t)(td_tensor_bytes(y) / td_dtype_size(td_tensor_dtype(y)));
    td_tensor *weights = td_reshape(td_cos(td_arange(client.device, td_tensor_dtype(y), 0, (double)n, 1)),
                                    td_tensor_rank(y), td_tensor_shape(y));
    return td_sum(td_multiply(y, weights), TD_ALL_AXES, 0);
}

static void upload(const struct autograd_case *row, const struct arguments *at, td_tensor **x) {
    for (int i = 0; i < row->n_inputs; i++)
        cr_assert(x[i] = td_upload(client.device, TD_F64, row->rank[i], row->shape[i], at->values[i]), "%s",
                  td_last_error()->message);
}

static double value_at(const struct autograd_case *row, const struct arguments *at) {
    td_tensor *x[AUTOGRAD_INPUTS];
    double value;
    td_scope_begin(NULL);
    upload(row, at, x);
    ok(td_fetch(weighted(row, x), &value, sizeof value));
    td_scope_end();
    return value;
}

/* The gradients as the library computes them, all of them fetched. `order` 2: of Σ cos(k) · gradient[k], which is a second derivative. */
static void gradients_of(const struct autograd_case *row, const struct arguments *at, double (*out)[ELEMENTS_MOST]) {
    td_tensor *x[AUTOGRAD_INPUTS], *gradients[AUTOGRAD_INPUTS];
    td_scope_begin(NULL);
    ok(td_tape_begin());
    upload(row, at, x);
    int code = td_gradients(weighted(row, x), row->n_inputs, x, gradients);
    cr_assert_eq(code, 0, "%s: %s", op_rows[row->opcode].name, td_last_error()->message);
    td_tape_end();
    for (int i = 0; i < row->n_inputs; i++)
        ok(td_fetch(gradients[i], out[i], (size_t)at->n[i] * sizeof(double)));
    td_scope_end();
}

/* Some elements of large arguments, all of small ones. */
static void check_case(const struct autograd_case *row) {
    static struct arguments at;
    static double gradients[AUTOGRAD_INPUTS][ELEMENTS_MOST];
    const double h = 1e-5;
    arguments_init(&at, row);
    gradients_of(row, &at, gradients);
    for (int i = 0; i < row->n_inputs; i++) {
        for (int64_t k = 0; k < at.n[i]; k += 1 + at.n[i] / 24) {
            double x = at.values[i][k];
            at.values[i][k] = x + h;
            double above = value_at(row, &at);
            at.values[i][k] = x - h;
            double below = value_at(row, &at);
            at.values[i][k] = x;
            double expected = (above - below) / (2 * h), got = gradients[i][k];
            cr_assert(fabs(got - expected) <= 1e-6 * (1 + fabs(expected)),
                      "%s, %s: d/d input %d [%d] is %.10g, differences say %.10g", op_rows[row->opcode].name, row->what,
                      i, (int)k, got, expected);
        }
    }
}

Test(autograd, each_rule_agrees_with_central_differences) {
    EACH_CASE(row)
    check_case(row);
}

/* Outer tape: the gradients' own derivative, for the cases that are smooth. */
static double slope_at(const struct autograd_case *row, const struct arguments *at, bool fetch_second, int of,
                       double *second) {
    td_tensor *x[AUTOGRAD_INPUTS], *gradients[AUTOGRAD_INPUTS], *again[AUTOGRAD_INPUTS];
    double value;
    td_scope_begin(NULL);
    ok(td_tape_begin());
    upload(row, at, x);
    ok(td_tape_begin());
    ok(td_gradients(weighted(row, x), row->n_inputs, x, gradients));
    td_tape_end();
    td_tensor *sum = td_sum(td_sin(gradients[of]), TD_ALL_AXES, 0);
    ok(td_fetch(sum, &value, sizeof value));
    if (fetch_second) {
        int code = td_gradients(sum, row->n_inputs, x, again);
        cr_assert_eq(code, 0, "%s: %s", op_rows[row->opcode].name, td_last_error()->message);
        ok(td_fetch(again[0], second, (size_t)at->n[0] * sizeof(double)));
    }
    td_tape_end();
    td_scope_end();
    return value;
}

Test(autograd, second_derivatives_of_smooth_functions) {
    static struct arguments at;
    static double second[ELEMENTS_MOST];
    const double h = 1e-5;
    EACH_CASE(row) {
        if (!row->smooth)
            continue;
        for (int of = 0; of < row->n_inputs; of++) {
            arguments_init(&at, row);
            slope_at(row, &at, true, of, second);
            for (int64_t k = 0; k < at.n[0]; k += 1 + at.n[0] / 4) {
                double x = at.values[0][k];
                at.values[0][k] = x + h;
                double above = slope_at(row, &at, false, of, NULL);
                at.values[0][k] = x - h;
                double below = slope_at(row, &at, false, of, NULL);
                at.values[0][k] = x;
                double expected = (above - below) / (2 * h);
                cr_assert(fabs(second[k] - expected) <= 1e-5 * (1 + fabs(expected)),
                          "%s, %s: [%d] is %.10g, differences say %.10g", op_rows[row->opcode].name, row->what, (int)k,
                          second[k], expected);
            }
        }
    }
}

/* A new rule without a case is named here. */
Test(autograd, each_rule_has_a_case) {
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++) {
        bool found = false;
        EACH_CASE(row)
        found |= row->opcode == opcode;
        if (op_rows[opcode].derivative == OP_DERIVATIVE_RULE)
            cr_expect(found, "%s has a rule and no case", op_rows[opcode].name);
    }
}

static bool is_among(const struct autograd_case *const *rows, unsigned opcode) {
    while (*rows && (*rows)->opcode != opcode)
        rows++;
    return *rows;
}

/* Also without a complex input an operation may have complex results. */
Test(autograd, each_rule_of_complex_numbers_has_a_case) {
    const uint32_t complex = 1U << DTYPE_C64 | 1U << DTYPE_C128;
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++)
        if (op_rows[opcode].derivative == OP_DERIVATIVE_RULE && ((op_rows[opcode].dtypes | op_taken(opcode)) & complex))
            cr_expect(is_among(autograd_complex_cases, opcode) || is_among(autograd_complex_matrices_cases, opcode),
                      "%s takes complex numbers and has a rule, and no case of them", op_rows[opcode].name);
}

/* n is no f16: 70000 is beyond its values, and a gradient that is divided by it would be 0. */
Test(autograd, a_mean_of_many_halves_has_a_slope) {
    double slope;
    ok(td_tape_begin());
    td_tensor *x = td_full(client.device, TD_F16, TD_SHAPE(70000), 1), *g;
    ok(td_gradients(td_mean(x, TD_ALL_AXES, 0), 1, &x, &g));
    ok(td_fetch(td_cast(td_max(g, TD_ALL_AXES, 0), TD_F64), &slope, sizeof slope));
    cr_assert(fabs(slope * 70000 - 1) < 0.01, "%g", slope); /* f16 has few bits there */
    td_tape_end();
}

/* ---- tensors without elements ---- */

/* Of an x of shape (2, 0). */
#define EMPTY(X)                                                                                                       \
    X(td_slice(x, 1, TD_NONE, TD_NONE, -2))                                                                            \
    X(td_slice(x, 0, TD_NONE, TD_NONE, -1))                                                                            \
    X(td_permute(x, TD_AXES(1, 0)))                                                                                    \
    X(td_concat((td_tensor *[]){x, one, x}, 3, 1))                                                                     \
    X(td_stack((td_tensor *[]){x, x}, 2, 2))                                                                           \
    X(td_diagonal(x, 0, 0, 1))                                                                                         \
    X(td_pad(x, TD_SHAPE(1, 0, 1, 1), TD_PAD_MODE_CONSTANT, 0))                                                        \
    X(td_tril(x, 0))                                                                                                   \
    X(td_take(x, none, 1))                                                                                             \
    X(td_take_along_axis(x, td_reshape(none, TD_SHAPE(1, 0)), 1))                                                      \
    X(td_scatter(x, td_reshape(none, TD_SHAPE(1, 0)), x, 1))                                                           \
    X(td_scatter_add(x, td_reshape(none, TD_SHAPE(1, 0)), x, 1))                                                       \
    X(td_masked_select(x, td_less(x, x), &all[0], &all[1]) ? NULL : all[0])                                            \
    X(td_unique_runs(td_reshape(x, TD_SHAPE(-1)), none, &all[0], &all[1], &all[2], &all[3], &all[4]) ? NULL : all[0])  \
    X(td_sort(x, 1, 0))                                                                                                \
    X(td_topk(x, 0, 1, 1, &all[0], &all[1]) ? NULL : all[0])                                                           \
    X(td_cumulative_sum(x, 1, 1))                                                                                      \
    X(td_cumulative_prod(x, 1, 1))                                                                                     \
    X(td_cumulative_prod(x, 0, 0))                                                                                     \
    X(td_cummax(x, 1, &all[0], &all[1]) ? NULL : all[0])                                                               \
    X(td_logcumsumexp(x, 1))                                                                                           \
    X(td_dropout(x, 0.5, 1))                                                                                           \
    X(td_sum(x, TD_AXES(1), 0))                                                                                        \
    X(td_prod(x, TD_AXES(1), 0))                                                                                       \
    X(td_mean(x, TD_ALL_AXES, 0))                                                                                      \
    X(td_max(x, TD_AXES(0), 0))                                                                                        \
    X(td_var(x, TD_AXES(1), 0, 0))                                                                                     \
    X(td_std(x, TD_AXES(1), 1, 0))                                                                                     \
    X(td_logsumexp(x, TD_AXES(1), 0))                                                                                  \
    X(td_vector_norm(x, TD_AXES(1), 2, 0))

#define EMPTY_CHECK(expression)                                                                                        \
    {                                                                                                                  \
        ok(td_tape_begin());                                                                                           \
        td_tensor *x = td_full(client.device, TD_F64, TD_SHAPE(2, 0), 0), *g, *y = expression;                         \
        cr_assert(y, "%s: %s", #expression, td_last_error()->message);                                                 \
        cr_assert_eq(td_gradients(y, 1, &x, &g), 0, "%s: %s", #expression, td_last_error()->message);                  \
        cr_assert(td_tensor_rank(g) == 2 && td_tensor_shape(g)[0] == 2 && td_tensor_shape(g)[1] == 0, "%s",            \
                  #expression);                                                                                        \
        ok(td_sync(client.device));                                                                                    \
        cr_assert_eq(td_fetch(g, NULL, 0), 0, "%s: %s", #expression, td_last_error()->message);                        \
        td_tape_end();                                                                                                 \
    }

Test(autograd, tensors_without_elements_have_gradients_without_elements) {
    td_tensor *all[5], *none = td_full(client.device, TD_I64, TD_SHAPE(0), 0);
    td_tensor *one = td_full(client.device, TD_F64, TD_SHAPE(2, 1), 1);
    EMPTY(EMPTY_CHECK)
}

/* ---- the tape ---- */

static td_tensor *vector(double a, double b, double c) {
    return td_upload(client.device, TD_F64, TD_SHAPE(3), (const double[]){a, b, c});
}

static void expect(td_tensor *x, double a, double b, double c) {
    double got[3];
    ok(td_fetch(x, got, sizeof got));
    cr_assert(fabs(got[0] - a) + fabs(got[1] - b) + fabs(got[2] - c) < 1e-12, "%g %g %g", got[0], got[1], got[2]);
}

Test(autograd, what_the_program_releases_is_kept_for_the_rules) {
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *g;
    td_tensor *squares = td_square(x), *y = td_multiply(squares, squares);
    td_release(squares);
    ok(td_sync(client.device));
    ok(td_gradients(y, 1, &x, &g));
    td_release(y);
    expect(g, 4, 32, 108);
    td_tape_end();
    expect(g, 4, 32, 108);
    td_release(g), td_release(x);
}

static bool holds_bytes(const Tensord__Status *status, const void *bytes) {
    return status_device(status, "cpu:0")->memory_live >= *(const uint64_t *)bytes;
}

Test(autograd, the_end_of_a_tape_lets_go) {
    ok(td_sync(client.device));
    const struct status_baseline before = {.device = "cpu:0", .live = 0, .sessions = 1};
    for (int i = 0; i < 3; i++) {
        ok(td_tape_begin());
        td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(1 << 20), 2), *y = td_exp(x), *z = td_multiply(y, y);
        td_release(y), td_release(z);
        td_release(x);
        ok(td_sync(client.device));
        status_until(tensord.url, holds_bytes, &(uint64_t){before.live + (4 << 20)}, 30000); /* exp's result */
        td_tape_end();
        ok(td_sync(client.device));
        cr_assert(status_settles(tensord.url, &before, 30000));
    }
}

Test(autograd, several_uses_add_up_and_constants_stop) {
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *other = vector(5, 5, 5), *all[3], *xs[] = {x, other, x};
    td_tensor *y = td_add(td_multiply(x, td_stop_gradient(x)), td_add(x, x));
    ok(td_gradients(y, 3, xs, all));
    expect(all[0], 3, 4, 5);
    expect(all[1], 0, 0, 0);
    expect(all[2], 3, 4, 5);
    td_tensor *place = td_argmax(x, TD_AXES(0), 0); /* a position is a constant */
    td_tensor *g, *z = td_multiply(x, td_cast(place, TD_F64));
    ok(td_gradients(z, 1, &x, &g));
    expect(g, 2, 2, 2);
    td_tape_end();
}

Test(autograd, a_gradient_goes_back_to_the_device_that_it_came_from) {
    td_device *other;
    ok(td_device_open(client.connection, "cpu:1", &other));
    ok(td_tape_begin());
    td_tensor *x = vector(1, 2, 3), *g;
    td_tensor *there = td_square(td_copy_to(x, other));
    ok(td_gradients(there, 1, &x, &g));
    cr_assert_eq(td_tensor_device(g), client.device);
    expect(g, 2, 4, 6);
    td_device_close(other);
    cr_assert_eq(td_gradients(td_copy(x), 1, &x, &g), 0, "what was on the closed device is not on the way");
    td_tape_end();
}

static void expect_size(const td_tape *tape, size_t operations, size_t bytes) {
    size_t found;
    cr_assert_eq(td_tape_size(tape, &found), operations);
    cr_assert_eq(found, bytes);
}

Test(autograd, a_tape_notes_while_it_is_entered_and_forgets) {
    td_tape *tape = td_tape_create();
    cr_assert_not_null(tape);
    td_tensor *x = vector(1, 2, 3), *g;
    td_tape_enter(tape);
    td_tensor *a = td_square(x), *y = td_multiply(a, x), *other = td_exp(x), *after = td_add(a, other);
    td_tape_leave(tape);
    td_tensor *outside = td_square(x);
    cr_assert(!td_tape_has(tape, outside) && td_tape_has(tape, after));
    expect_size(tape, 4, 4 * 24);
    ok(td_tape_begin()); /* one around it sees what td_gradients() enqueues */
    td_tape_enter(tape);
    ok(td_gradients(y, 1, &x, &g));
    td_tape_leave(tape);
    expect(g, 3, 12, 27);
    td_tape_end();
    int depends[2];
    ok(td_tape_depends(tape, y, 2, (td_tensor *[]){x, other}, depends));
    cr_assert(depends[0] && !depends[1]);
    ok(td_tape_keep(tape, 2, (td_tensor *[]){y, after}));
    expect_size(tape, 4, 4 * 24);
    ok(td_tape_drop_before(tape, y)); /* and what uses a: `after` */
    expect_size(tape, 1, 24);
    cr_assert(!td_tape_has(tape, after) && td_tape_has(tape, other) && td_tape_has(tape, x));
    td_tape_enter(tape);
    td_tensor *last = td_multiply(other, x);
    ok(td_gradients(last, 1, &x, &g));
    td_tape_leave(tape);
    expect(g, 2 * exp(1), 3 * exp(2), 4 * exp(3));
    ok(td_tape_keep(tape, 1, &other));
    expect_size(tape, 1, 24);
    ok(td_tape_drop_after(tape, x));
    expect_size(tape, 0, 0);
    td_tape_destroy(tape);
}

Test(autograd, a_suspended_tape_notes_nothing) {
    td_tensor *x = vector(1, 2, 3), *g;
    ok(td_tape_begin());
    td_tape *suspended = td_tape_suspend();
    td_tensor *constant = td_square(x);
    td_tape_resume(suspended);
    ok(td_gradients(td_multiply(constant, x), 1, &x, &g));
    expect(g, 1, 4, 9);
    td_tape_end();
}

Test(autograd, errors_say_what_to_do) {
    td_tensor *x = vector(1, 2, 3), *g = x;
    cr_assert_eq(td_gradients(x, 1, &x, &g), TD_E_INVALID_ARGUMENT);
    cr_assert_null(g);
    cr_assert(strstr(td_last_error()->message, "td_tape_begin"), "%s", td_last_error()->message);
    ok(td_tape_begin());
    cr_assert_eq(td_gradients(x, 1, &x, &g), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_gradients(td_reshape(x, TD_SHAPE(5)), 1, &x, &g), TD_E_SHAPE, "the error that made y NULL stays");
    td_tensor *whole = td_cast(x, TD_I64);
    cr_assert_eq(td_gradients(whole, 1, &x, &g), TD_E_DTYPE);
    td_tape_end();
    td_tape_end();
}

/* PyTorch's convention: of |z|² it is 2z, and of the real part of a product with c the conjugate of c. */
Test(autograd, gradients_by_complex_numbers) {
    const float values[] = {1, 2, -3, 4};
    float got[4];
    ok(td_tape_begin());
    td_tensor *z = td_upload(client.device, TD_C64, TD_SHAPE(2), values), *g;
    td_tensor *squares = td_square(td_abs(z));
    ok(td_gradients(squares, 1, &z, &g));
    cr_assert_eq(td_tensor_dtype(g), TD_C64);
    ok(td_fetch(g, got, sizeof got));
    for (int i = 0; i < 4; i++)
        cr_assert(fabsf(got[i] - 2 * values[i]) < 1e-5F, "%g", (double)got[i]);
    td_tensor *c = td_full_complex(client.device, TD_C64, 0, NULL, 5, 7);
    ok(td_gradients(td_real(td_multiply(z, c)), 1, &z, &g));
    ok(td_fetch(g, got, sizeof got));
    cr_assert(got[0] == 5 && got[1] == -7 && got[2] == 5 && got[3] == -7);
    cr_assert_eq(td_gradients(z, 1, &z, &g), TD_E_DTYPE);
    cr_assert_eq(td_gradients(td_multiply(z, c), 1, &z, &g), TD_E_DTYPE,
                 "the real function that is meant is not known");
    ok(td_gradients(squares, 1, &c, &g));
    ok(td_fetch(g, got, 8));
    cr_assert(got[0] == 0 && got[1] == 0);
    td_tape_end();
}

static td_tensor *adjoint(td_tensor *x) {
    return td_conj(td_transpose(x));
}

/* The gradient of a real diagonal may have imaginary parts, which must not come through. */
Test(autograd, gradients_by_hermitian_matrices_are_hermitian) {
    double difference;
    td_tensor *values, *vectors, *g;
    ok(td_tape_begin());
    td_tensor *x = td_complex(td_uniform(client.device, TD_F64, TD_SHAPE(3, 3), 7, -1, 1),
                              td_uniform(client.device, TD_F64, TD_SHAPE(3, 3), 8, -1, 1));
    td_tensor *a = td_add(td_matmul(x, adjoint(x)), td_eye(client.device, TD_F64, 3, 3, 0));
    ok(td_eigh(a, 0, &values, &vectors));
    td_tensor *const all[] = {td_imag(td_exp(td_cholesky(a, 0))), td_imag(td_exp(td_cholesky(a, 1))), td_eigvalsh(a, 1),
                              td_abs(vectors)};
    for (int i = 0; i < 4; i++) {
        ok(td_gradients(all[i], 1, &a, &g));
        ok(td_fetch(td_max(td_abs(td_subtract(g, adjoint(g))), TD_ALL_AXES, 0), &difference, sizeof difference));
        cr_assert(difference < 1e-12, "%d: %g", i, difference);
    }
    td_tape_end();
}

/* Small whole numbers, which every float has exactly. */
Test(autograd, products_of_narrow_floats_have_gradients_of_their_dtype) {
    for (int kind = 0; kind < 3; kind++) {
        const td_dtype dtype = (const td_dtype[]){TD_F8E4M3, TD_F16, TD_BF16}[kind];
        ok(td_tape_begin());
        td_tensor *x = td_cast(vector(1, 2, 3), dtype), *weight = td_cast(vector(1, 4, 2), dtype), *xs[] = {x, weight},
                  *g[2];
        ok(td_gradients(td_linear(td_reshape(x, TD_SHAPE(1, 3)), weight, NULL, TD_ACTIVATION_RELU), 2, xs, g));
        cr_assert_eq(td_tensor_dtype(g[0]), dtype);
        expect(td_cast(g[0], TD_F64), 1, 4, 2);
        expect(td_cast(g[1], TD_F64), 1, 2, 3);
        ok(td_gradients(td_matmul(x, weight), 2, xs, g));
        expect(td_cast(g[0], TD_F64), 1, 4, 2);
        expect(td_cast(g[1], TD_F64), 1, 2, 3);
        td_tape_end();
    }
}

static void expect_refused(td_tensor *y, td_tensor *x, const char *why) {
    td_tensor *g = x;
    cr_assert_eq(td_gradients(y, 1, &x, &g), TD_E_UNSUPPORTED);
    cr_assert_null(g);
    cr_assert(strstr(td_last_error()->message, why), "%s", td_last_error()->message);
}

Test(autograd, what_has_no_derivative_is_refused_and_not_zero) {
    td_tensor *q, *r, *g;
    ok(td_tape_begin());
    td_tensor *tall = td_uniform(client.device, TD_F64, TD_SHAPE(4, 2), 7, 0, 1);
    ok(td_qr(tall, TD_QR_MODE_COMPLETE, &q, &r));
    expect_refused(r, tall, "reduced mode");
    td_tensor *scores = td_uniform(client.device, TD_F64, TD_SHAPE(3), 7, 0, 1), *weight = vector(1, 2, 3);
    td_tensor *target = td_full(client.device, TD_I64, 0, NULL, 1);
    ok(td_tape_begin());
    td_tensor *loss = td_cross_entropy(scores, target, weight, -100, TD_REDUCTION_SUM, 0);
    ok(td_gradients(loss, 1, &scores, &g));
    td_tape_end();
    expect_refused(g, weight, "weights of classes");
    td_tape_end();
}

/* As it is when a program forgets the end. */
static void *forgets(void *x) {
    td_tape_begin();
    td_release(td_multiply(x, x));
    return NULL;
}

Test(autograd, a_thread_that_ends_ends_its_tapes) {
    ok(td_sync(client.device));
    const struct status_baseline before = {.device = "cpu:0", .live = 0, .sessions = 1};
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(1 << 20), 2);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, forgets, x), 0);
    pthread_join(thread, NULL);
    td_release(x);
    ok(td_sync(client.device));
    cr_assert(status_settles(tensord.url, &before, 30000));
}

static int part_of(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    (void)state;
    outputs[0] = td_real(inputs[0]);
    return outputs[0] ? 0 : td_last_error()->code;
}

static int refuses(void *state, const td_backward *call) {
    (void)state;
    call->input_gradients[0] = td_exp(call->output_gradients[0]);
    return TD_E_UNSUPPORTED;
}

/* exp's and multiply's rules have run when the program's own refuses: no gradient of theirs stays. */
Test(autograd, after_an_error_nothing_stays) {
    const struct status_baseline nothing = {.device = "cpu:0", .live = 0, .sessions = 1};
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(1 << 18), 2);
    td_tensor *w = td_full(client.device, TD_F32, TD_SHAPE(1 << 18), 3);
    ok(td_tape_begin());
    td_tensor *xs[] = {x, w}, *gradients[2];
    const td_gradient_rule rule = {.name = "part", .forward = part_of, .backward = refuses};
    td_tensor *number = td_cast(x, TD_C64), *part, *power = td_exp(w);
    ok(td_custom_gradient(&rule, NULL, 1, &number, 1, &part));
    td_tensor *y = td_multiply(part, power);
    cr_assert_eq(td_gradients(y, 2, xs, gradients), TD_E_UNSUPPORTED);
    cr_assert(strstr(td_last_error()->message, "part: "), "%s", td_last_error()->message);
    cr_assert(!gradients[0] && !gradients[1]);
    cr_assert_null(td_add(gradients[0], x));
    cr_assert_eq(td_last_error()->code, TD_E_UNSUPPORTED, "who passes the NULL on keeps the error");
    td_tensor *all[] = {number, part, power, y, x, w};
    for (int i = 0; i < 6; i++)
        td_release(all[i]);
    td_tape_end();
    ok(td_sync(client.device));
    cr_assert(status_settles(tensord.url, &nothing, 30000));
}

/* Of Σ h by the inputs' one value, of which all inputs are made. */
static double second_derivative_of_layer(td_dtype dtype, bool gru) {
    double second;
    td_tensor *all[5], *g, *again;
    ok(td_tape_begin());
    td_tensor *value = td_full(client.device, dtype, TD_SHAPE(1, 1, 1), 0.5);
    ok(td_tape_begin());
    td_tensor *x = td_broadcast_to(value, TD_SHAPE(3, 1, 1)), *h = td_reshape(value, TD_SHAPE(1, 1));
    td_tensor *weight = td_broadcast_to(h, TD_SHAPE(gru ? 3 : 4, 1));
    if (gru)
        ok(td_gru(x, h, weight, weight, NULL, NULL, 0, &all[0], &all[1], &all[2]));
    else
        ok(td_lstm(x, h, h, weight, weight, NULL, NULL, 0, &all[0], &all[1], &all[2], &all[3], &all[4]));
    ok(td_gradients(all[0], 1, &value, &g));
    td_tape_end();
    ok(td_gradients(g, 1, &value, &again));
    cr_assert_eq(td_tensor_dtype(again), dtype);
    ok(td_fetch(td_cast(again, TD_F64), &second, sizeof second));
    td_tape_end();
    return second;
}

Test(autograd, second_derivatives_of_layers_of_halves_are_those_of_floats) {
    for (int gru = 0; gru < 2; gru++) {
        double expected = second_derivative_of_layer(TD_F64, gru), f16 = second_derivative_of_layer(TD_F16, gru),
               bf16 = second_derivative_of_layer(TD_BF16, gru);
        cr_assert(fabs(f16 / expected - 1) < 0.01 && fabs(bf16 / expected - 1) < 0.08, "%g %g %g", expected, f16, bf16);
    }
}

/* A row with NaN is not taken for one that sees no key. */
Test(autograd, gradients_of_attention_carry_nan_on) {
    double got[2];
    td_tensor *result, *logsumexp, *by[2];
    ok(td_tape_begin());
    td_tensor *q = td_full(client.device, TD_F64, TD_SHAPE(1, 2), NAN);
    td_tensor *k = td_full(client.device, TD_F64, TD_SHAPE(2, 2), 1), *v = vector(1, 2, 3);
    td_tensor *mask = td_full(client.device, TD_F64, TD_SHAPE(1, 2), 0);
    v = td_reshape(td_slice(v, 0, 0, 2, 1), TD_SHAPE(2, 1));
    ok(td_scaled_dot_product_attention(q, k, v, mask, 0, 0, &result, &logsumexp));
    ok(td_gradients(result, 2, (td_tensor *[]){mask, v}, by));
    for (int i = 0; i < 2; i++) {
        ok(td_fetch(by[i], got, sizeof got));
        cr_assert(isnan(got[0]) && isnan(got[1]), "%d: %g %g", i, got[0], got[1]);
    }
    td_tape_end();
}

/* ---- tensors without elements ---- */

struct empty {
    const char *what;
    td_tensor *(*function)(td_tensor *x, td_tensor *weight);
    int x_rank, weight_rank;
    int64_t x[4], weight[4];
};

#define FIRST TD_LAYOUT_CHANNELS_FIRST
#define NO_LIST 0, (const int64_t *)NULL
#define LAYERS(X)                                                                                                      \
    X(conv, 3, 3, 0, 2, 4, 3, 2, 2, td_conv(x, w, NULL, NO_LIST, NO_LIST, NO_LIST, 1, FIRST))                          \
    X(conv_transpose, 3, 3, 0, 2, 4, 2, 3, 2,                                                                          \
      td_conv_transpose(x, w, NULL, NO_LIST, NO_LIST, NO_LIST, NO_LIST, 1, FIRST))                                     \
    X(avg_pool, 3, 1, 0, 2, 4, 1, 1, 1, td_multiply(w, td_avg_pool(x, TD_SHAPE(2), NO_LIST, NO_LIST, 0, 1, FIRST)))    \
    X(layer_norm, 2, 1, 0, 4, 1, 4, 1, 1, td_layer_norm(x, w, NULL, 1, 0.01))                                          \
    X(rms_norm, 2, 1, 0, 4, 1, 4, 1, 1, td_rms_norm(x, w, 1, 0.01))                                                    \
    X(group_norm, 3, 1, 0, 4, 2, 4, 1, 1, td_group_norm(x, w, NULL, 2, 0.01))                                          \
    X(batch_norm_inference, 2, 1, 0, 4, 1, 4, 1, 1, td_batch_norm_inference(x, w, w, w, w, 1, 0.01))                   \
    X(log_softmax, 2, 1, 0, 4, 1, 4, 1, 1, td_log_softmax(td_multiply(x, w), 0))                                       \
    X(no_keys, 2, 2, 0, 2, 1, 3, 2, 1, attention_of(w, x))                                                             \
    X(no_rows, 2, 2, 0, 2, 1, 3, 2, 1, attention_of(x, w))

static td_tensor *attention_of(td_tensor *q, td_tensor *k) {
    td_tensor *result = NULL, *logsumexp = NULL;
    td_scaled_dot_product_attention(q, k, k, NULL, 0, 0, &result, &logsumexp);
    return result;
}

#define X(name, rank, weight_rank, a, b, c, d, e, f, expression)                                                       \
    static td_tensor *empty_##name(td_tensor *x, td_tensor *w) {                                                       \
        return expression;                                                                                             \
    }
LAYERS(X)
#undef X
#define X(name, rank, weight_rank, a, b, c, d, e, f, expression)                                                       \
    {#name, empty_##name, rank, weight_rank, {a, b, c}, {d, e, f}},
static const struct empty empties[] = {LAYERS(X)};
#undef X

/* The gradient of the one has no elements, that of the other is zeros: also the second ones, by way of the first. */
Test(autograd, tensors_without_elements_add_nothing) {
    for (size_t i = 0; i < sizeof empties / sizeof *empties; i++) {
        const struct empty *row = &empties[i];
        double got[16];
        td_tensor *inputs[2], *first[2], *second[2];
        ok(td_tape_begin());
        inputs[0] = td_full(client.device, TD_F64, row->x_rank, row->x, 1);
        inputs[1] = td_full(client.device, TD_F64, row->weight_rank, row->weight, 1);
        ok(td_tape_begin());
        td_tensor *y = td_sum(row->function(inputs[0], inputs[1]), TD_ALL_AXES, 0);
        cr_assert_eq(td_gradients(y, 2, inputs, first), 0, "%s: %s", row->what, td_last_error()->message);
        td_tape_end();
        td_tensor *sum = td_add(td_sum(first[0], TD_ALL_AXES, 0), td_sum(first[1], TD_ALL_AXES, 0));
        cr_assert_eq(td_gradients(sum, 2, inputs, second), 0, "%s: %s", row->what, td_last_error()->message);
        td_tape_end();
        cr_assert_eq(td_tensor_bytes(first[0]), 0);
        cr_assert_eq(td_tensor_bytes(second[0]), 0);
        for (int k = 0; k < 2; k++) {
            td_tensor *by_weight = k ? second[1] : first[1];
            cr_assert_eq(td_tensor_bytes(by_weight), td_tensor_bytes(inputs[1]));
            ok(td_fetch(by_weight, got, td_tensor_bytes(by_weight)));
            for (size_t j = 0; j < td_tensor_bytes(by_weight) / sizeof *got; j++)
                cr_assert_eq(got[j], 0, "%s: %g", row->what, got[j]);
        }
    }
}
