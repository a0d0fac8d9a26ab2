/* Decompositions and linear equations. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/device/cases.h"

enum { SIDE_LARGE = 150 }; /* some blocks of columns */

/* A shape that ends in rows by columns, with up to two axes of a batch. */
static int matrices(struct suite *suite, int64_t rows, int64_t columns, int64_t shape[VALUES_RANK_MAX]) {
    int rank = suite_chance(suite, 60) ? 0 : 1 + (int)suite_below(suite, 2);
    for (int i = 0; i < rank; i++)
        shape[i] = suite_below(suite, 4);
    shape[rank] = rows;
    shape[rank + 1] = columns;
    return rank + 2;
}

static int64_t side(struct suite *suite) {
    return suite_chance(suite, 4) ? 0 : 1 + suite_below(suite, suite_chance(suite, 90) ? 12 : 40);
}

/* Matrices that are regular almost surely, half of them stored transposed. */
static struct sample regular(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape) {
    bool across = suite_chance(suite, 50);
    int64_t stored[VALUES_RANK_MAX];
    memcpy(stored, shape, (size_t)rank * sizeof *stored);
    stored[rank - 2] = shape[rank - (across ? 1 : 2)];
    stored[rank - 1] = shape[rank - (across ? 2 : 1)];
    struct values *x = values_create(dtype, rank, stored);
    for (int64_t k = 0; k < x->count; k++) {
        x->f[k] = value_round(dtype, (long double)(suite_below(suite, 1 << 21) - (1 << 20)) / (1 << 18));
        if (x->im)
            x->im[k] = value_round(dtype, (long double)(suite_below(suite, 1 << 21) - (1 << 20)) / (1 << 18));
    }
    struct sample made = suite_upload(suite, x);
    if (!across)
        return made;
    struct sample view = suite_unary(suite, OP_MATRIX_TRANSPOSE, &made);
    suite_free(suite, &made);
    return view;
}

static void factor_once(struct suite *suite, unsigned opcode, struct sample *x, struct op_packed attributes,
                        unsigned outputs) {
    const struct sample *input = x;
    struct sample results[3];
    suite_run_several(suite,
                      &(struct suite_call){.opcode = opcode, .n_inputs = 1, .inputs = &input, .attributes = attributes},
                      results, outputs);
    for (unsigned i = 0; i < outputs; i++)
        case_settle(suite, &results[i]);
    suite_free(suite, x);
}

/* Dtypes of matrices of some blocks. */
static const enum dtype large_dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_C128};
enum { LARGE_DTYPES = sizeof large_dtypes / sizeof *large_dtypes };

/* What `square` says, or any extents; and matrices of some blocks. */
static void factor_many(struct suite *suite, const struct op_case *row, bool square, unsigned outputs,
                        struct op_packed (*attributes)(struct suite *suite)) {
    int64_t shape[VALUES_RANK_MAX];
    for (int i = 0; i < SUITE_REPEAT(150); i++) {
        int64_t m = side(suite), n = square ? m : side(suite);
        int rank = matrices(suite, m, n, shape);
        struct sample x = regular(suite, op_case_dtype(suite, row), rank, shape);
        factor_once(suite, row->opcode, &x, attributes ? attributes(suite) : (struct op_packed){.n_ints = 0}, outputs);
    }
    for (int i = 0; i < LARGE_DTYPES; i++) {
        int64_t m = SUITE_REPEAT(SIDE_LARGE), n = square ? m : m + (i == 1 ? 31 : -m / 3);
        struct sample x = regular(suite, large_dtypes[i], 2, (int64_t[]){m, n});
        factor_once(suite, row->opcode, &x, attributes ? attributes(suite) : (struct op_packed){.n_ints = 0}, outputs);
    }
}

static void case_lu(struct suite *suite, const struct op_case *row) {
    factor_many(suite, row, false, 3, NULL);
}

static void case_inv(struct suite *suite, const struct op_case *row) {
    factor_many(suite, row, true, 1, NULL);
}

static void case_slogdet(struct suite *suite, const struct op_case *row) {
    factor_many(suite, row, true, 2, NULL);
}

static struct op_packed any_mode(struct suite *suite) {
    return SUITE_ATTRIBUTES(qr, .mode = suite_chance(suite, 50) ? OP_QR_MODE_COMPLETE : OP_QR_MODE_REDUCED);
}

static void case_qr(struct suite *suite, const struct op_case *row) {
    factor_many(suite, row, false, 2, any_mode);
}

/* Positive definite matrices: x · xᴴ + n. The triangle that is not read is NaN. */
static struct sample definite(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, bool upper) {
    struct values *x = values_create(dtype, rank, shape), *out = values_create(dtype, rank, shape);
    int64_t n = shape[rank - 1], batch = n ? x->count / (n * n) : 0;
    suite_fill(suite, x, FILL_ORDINARY);
    for (int64_t b = 0; b < batch; b++) {
        const long double *own = x->f + b * n * n, *other = x->im ? x->im + b * n * n : NULL;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                long double sum = i == j ? (long double)n : 0, imaginary = 0;
                for (int64_t k = 0; k < n; k++) {
                    sum += own[i * n + k] * own[j * n + k] + (other ? other[i * n + k] * other[j * n + k] : 0);
                    imaginary += other ? other[i * n + k] * own[j * n + k] - own[i * n + k] * other[j * n + k] : 0;
                }
                bool read = upper ? j >= i : j <= i;
                out->f[(b * n + i) * n + j] = read ? value_round(dtype, sum) : (long double)NAN;
                if (other)
                    out->im[(b * n + i) * n + j] = read ? value_round(dtype, i == j ? 0 : imaginary) : (long double)NAN;
            }
    }
    values_destroy(x);
    return suite_upload(suite, out);
}

static void case_cholesky(struct suite *suite, const struct op_case *row) {
    int64_t shape[VALUES_RANK_MAX];
    for (int i = 0; i < SUITE_REPEAT(150); i++) {
        bool upper = suite_chance(suite, 50);
        int64_t n = i < 4 ? SIDE_LARGE : side(suite);
        int rank = matrices(suite, n, n, shape);
        struct sample x =
            definite(suite, op_case_dtype(suite, row), i < 4 ? 2 : rank, i < 4 ? (int64_t[]){n, n} : shape, upper);
        factor_once(suite, OP_CHOLESKY, &x, SUITE_ATTRIBUTES(cholesky, .upper = upper), 1);
    }
}

static void equations_once(struct suite *suite, unsigned opcode, struct sample *a, struct sample *b,
                           struct op_packed attributes) {
    const struct sample *inputs[] = {a, b};
    struct sample result = suite_run(
        suite, &(struct suite_call){.opcode = opcode, .n_inputs = 2, .inputs = inputs, .attributes = attributes});
    case_settle(suite, &result);
    suite_free(suite, a);
    suite_free(suite, b);
}

/* Right sides of matrices with `rows` rows: one vector, or batches that broadcast with those of `shape`. */
static struct sample right_side(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, int64_t rows) {
    int64_t b[VALUES_RANK_MAX];
    if (suite_chance(suite, 30))
        return suite_input(suite, dtype, 1, &rows, FILL_ORDINARY);
    int batch = suite_narrower(suite, rank - 2, shape, b);
    b[batch++] = rows;
    b[batch++] = suite_below(suite, 9);
    return suite_input(suite, dtype, batch, b, FILL_ORDINARY);
}

static void case_equations(struct suite *suite, const struct op_case *row) {
    int64_t shape[VALUES_RANK_MAX];
    for (int i = 0; i < SUITE_REPEAT(200); i++) {
        int64_t m = side(suite), n = row->opcode == OP_SOLVE ? m : side(suite);
        int rank = matrices(suite, m, n, shape);
        struct sample a = regular(suite, op_case_dtype(suite, row), rank, shape);
        struct sample b = right_side(suite, op_case_dtype(suite, row), rank, shape, m);
        equations_once(suite, row->opcode, &a, &b, (struct op_packed){.n_ints = 0});
    }
    for (int i = 0; i < LARGE_DTYPES; i++) {
        int64_t m = SUITE_REPEAT(SIDE_LARGE), n = row->opcode == OP_SOLVE ? m : i == 1 ? m + 20 : m - m / 6;
        struct sample a = regular(suite, large_dtypes[i], 2, (int64_t[]){m, n});
        struct sample b = suite_input(suite, large_dtypes[i], 2, (int64_t[]){m, 7}, FILL_ORDINARY);
        equations_once(suite, row->opcode, &a, &b, (struct op_packed){.n_ints = 0});
    }
}

/* Triangles with a diagonal near one; the other half, and a diagonal that is not read, are NaN. */
static struct sample triangle(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, bool upper,
                              bool unit) {
    struct values *x = values_create(dtype, rank, shape);
    int64_t n = shape[rank - 1];
    suite_fill(suite, x, FILL_NEAR_ONE);
    for (int64_t k = 0; k < x->count; k++) {
        int64_t i = k / n % n, j = k % n;
        bool unread = i == j ? unit : upper ? j < i : j > i;
        if (unread)
            x->f[k] = (long double)NAN;
        else if (i != j)
            x->f[k] = value_round(dtype, x->f[k] / (long double)n);
        if (x->im)
            x->im[k] = unread ? (long double)NAN : value_round(dtype, x->im[k] / (long double)n);
    }
    return suite_upload(suite, x);
}

static void case_triangular_solve(struct suite *suite, const struct op_case *row) {
    int64_t shape[VALUES_RANK_MAX];
    for (int i = 0; i < SUITE_REPEAT(200); i++) {
        bool upper = suite_chance(suite, 50), unit = suite_chance(suite, 30);
        int64_t n = i < 2 ? SIDE_LARGE : side(suite);
        int rank = matrices(suite, n, n, shape);
        struct sample a = triangle(suite, op_case_dtype(suite, row), rank, shape, upper, unit);
        struct sample b = right_side(suite, op_case_dtype(suite, row), rank, shape, n);
        equations_once(suite, OP_TRIANGULAR_SOLVE, &a, &b,
                       SUITE_ATTRIBUTES(triangular_solve, .upper = upper, .unit_diagonal = unit));
    }
}

const struct op_case op_case_cholesky = {case_cholesky, OP_CHOLESKY, FILL_ORDINARY};
const struct op_case op_case_lu = {case_lu, OP_LU, FILL_ORDINARY};
const struct op_case op_case_qr = {case_qr, OP_QR, FILL_ORDINARY};
const struct op_case op_case_solve = {case_equations, OP_SOLVE, FILL_ORDINARY};
const struct op_case op_case_triangular_solve = {case_triangular_solve, OP_TRIANGULAR_SOLVE, FILL_ORDINARY};
const struct op_case op_case_inv = {case_inv, OP_INV, FILL_ORDINARY};
const struct op_case op_case_det = {case_inv, OP_DET, FILL_ORDINARY};
const struct op_case op_case_slogdet = {case_slogdet, OP_SLOGDET, FILL_ORDINARY};
const struct op_case op_case_lstsq = {case_equations, OP_LSTSQ, FILL_ORDINARY};
