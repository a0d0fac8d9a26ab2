/* Eigenvalues and singular values. Values are compared with the reference's; vectors are not unique, so a device's are checked by what they
 * must fulfil: the bound is that of values, relative to the greatest one. */
#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/cases.h"
#include "tests/device/tolerance.h"

enum { SIDE_LARGE = 110 }; /* some panels */

enum content { ORDINARY, ZERO, EQUAL, REPEATED, GRADED, HUGE_OR_TINY, NOT_FINITE, CONTENTS };

static int64_t side(struct suite *suite) {
    return suite_chance(suite, 4) ? 0 : 1 + suite_below(suite, suite_chance(suite, 85) ? 10 : 36);
}

static int with_batch(struct suite *suite, int64_t rows, int64_t columns, int64_t shape[VALUES_RANK_MAX]) {
    int rank = suite_chance(suite, 60) ? 0 : 1 + (int)suite_below(suite, 2);
    for (int i = 0; i < rank; i++)
        shape[i] = suite_below(suite, 4);
    shape[rank] = rows;
    shape[rank + 1] = columns;
    return rank + 2;
}

static bool is_wide(enum dtype dtype) {
    return dtype == DTYPE_F64 || dtype == DTYPE_C128;
}

/* Element i, j of a matrix, or its imaginary part. */
static long double element(struct suite *suite, enum dtype dtype, enum content content, int64_t i, int64_t j) {
    long double random = (long double)(suite_below(suite, 1 << 21) - (1 << 20)) / (1 << 18);
    switch (content) {
    case ZERO:
        return 0;
    case EQUAL: /* rank 1 */
        return 3;
    case REPEATED:
        return i == j ? (long double)(i % 3) - 1 : 0;
    case GRADED:
        return ldexpl(random, (int)-(i + j));
    case HUGE_OR_TINY: /* squares overflow or vanish */
        return ldexpl(random, (i + j) % 7 == 0 ? 0 : is_wide(dtype) ? 600 : 100);
    default:
        return random;
    }
}

/* Stored as it is or transposed. */
static struct sample matrices(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape,
                              enum content content) {
    bool across = suite_chance(suite, 50);
    int64_t stored[VALUES_RANK_MAX];
    memcpy(stored, shape, (size_t)rank * sizeof *stored);
    stored[rank - 2] = shape[rank - (across ? 1 : 2)];
    stored[rank - 1] = shape[rank - (across ? 2 : 1)];
    struct values *x = values_create(dtype, rank, stored);
    int64_t rows = stored[rank - 2], columns = stored[rank - 1];
    long double factor =
        content == HUGE_OR_TINY && suite_chance(suite, 50) ? is_wide(dtype) ? 0x1p-1200L : 0x1p-200L : 1;
    for (int64_t k = 0; k < x->count; k++) {
        x->f[k] = value_round(dtype, factor * element(suite, dtype, content, k / columns % rows, k % columns));
        if (x->im)
            x->im[k] = value_round(dtype, factor * element(suite, dtype, content, k / columns % rows, k % columns));
    }
    if (content == NOT_FINITE && x->count)
        x->f[suite_below(suite, x->count)] = suite_chance(suite, 50) ? (long double)NAN : -(long double)INFINITY;
    struct sample made = suite_upload(suite, x);
    if (!across)
        return made;
    struct sample view = suite_unary(suite, OP_MATRIX_TRANSPOSE, &made);
    suite_free(suite, &made);
    return view;
}

/* ---- what must be fulfilled ---- */

struct checked {
    struct suite *suite;
    const struct sample *result; /* for words */
    long double bound;           /* relative to the greatest value */
};

static struct checked checked_of(struct suite *suite, const struct sample *result, int64_t m, int64_t n) {
    long double epsilon = is_wide(result->values->dtype) ? 0x1p-53L : 0x1p-24L;
    return (struct checked){suite, result,
                            tolerance_of(result->opcode)->accumulate * (2 + sqrtl((long double)(m + n))) * epsilon};
}

typedef long double _Complex number;

static void check_near(const struct checked *c, const char *what, int64_t matrix, int64_t i, int64_t j, number got,
                       number expected, long double scale) {
    if (!(cabsl(got - expected) <= c->bound * scale))
        suite_fail(c->suite,
                   "%s: %s: matrix %lld at [%lld, %lld]: got %.17Lg %+.17Lgi, expected %.17Lg %+.17Lgi, bound %.3Lg",
                   c->result->story, what, (long long)matrix, (long long)i, (long long)j, creall(got), cimagl(got),
                   creall(expected), cimagl(expected), c->bound * scale);
}

/* A matrix of a batch: the element at place k of it. */
struct elements {
    const long double *f, *im;
};
static struct elements elements_of(const struct values *x, int64_t from) {
    return (struct elements){x->f + from, x->im ? x->im + from : NULL};
}
static number get(const struct elements *x, int64_t k) {
    return CMPLXL(x->f[k], x->im ? x->im[k] : 0);
}

/* `count` vectors of n elements: element i of vector k is x[i · along + k · across]. */
static void check_orthonormal(const struct checked *c, const char *what, int64_t matrix, const struct elements *x,
                              int64_t count, int64_t n, int64_t along, int64_t across) {
    for (int64_t a = 0; a < count; a++)
        for (int64_t b = a; b < count; b++) {
            number sum = 0;
            for (int64_t i = 0; i < n; i++)
                sum += conjl(get(x, i * along + a * across)) * get(x, i * along + b * across);
            check_near(c, what, matrix, a, b, sum, a == b, 1);
        }
}

/* True: all numbers are NaN, as they must be where the matrix is not finite. */
static bool check_nan(const struct checked *c, int64_t matrix, bool expected, const long double *x, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (isnan(x[i]) != expected)
            suite_fail(c->suite, "%s: matrix %lld: element %lld is %Lg", c->result->story, (long long)matrix,
                       (long long)i, x[i]);
    return expected;
}

static long double greatest(const long double *values, int64_t n) {
    long double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxl(most, fabsl(values[i]));
    return most;
}

static void check_order(const struct checked *c, int64_t matrix, const long double *values, int64_t n, int sign) {
    for (int64_t i = 1; i < n; i++)
        if (sign * values[i] < sign * values[i - 1])
            suite_fail(c->suite, "%s: matrix %lld: value %lld is out of order", c->result->story, (long long)matrix,
                       (long long)i);
}

/* The number of NaN where the matrix is not finite: of both parts of vectors. */
static int check_vectors_nan(const struct checked *c, int64_t matrix, bool expected, const struct elements *x,
                             int64_t count) {
    return check_nan(c, matrix, expected, x->f, count) + (x->im ? check_nan(c, matrix, expected, x->im, count) : 0);
}

/* Element i, j of the Hermitian matrix of which one triangle is read, and of the diagonal the real parts. */
static number hermitian(const struct elements *x, int64_t n, bool upper, int64_t i, int64_t j) {
    bool read = upper ? j >= i : j <= i;
    number element = get(x, read ? i * n + j : j * n + i);
    return i == j ? creall(element) : read ? element : conjl(element);
}

static void check_eigen(const struct checked *c, const struct values *a, const struct values *w, const struct values *v,
                        bool upper) {
    int64_t n = a->shape[a->rank - 1], batch = n ? a->count / (n * n) : 0;
    for (int64_t matrix = 0; matrix < batch; matrix++) {
        const struct elements x = elements_of(a, matrix * n * n), vectors = elements_of(v, matrix * n * n);
        const long double *values = w->f + matrix * n;
        long double norm = greatest(values, n);
        bool broken = false;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                number element = hermitian(&x, n, upper, i, j);
                broken |= !isfinite(creall(element)) || !isfinite(cimagl(element));
            }
        if (check_nan(c, matrix, broken, values, n) + check_vectors_nan(c, matrix, broken, &vectors, n * n))
            continue;
        check_order(c, matrix, values, n, 1);
        check_orthonormal(c, "Vᴴ · V", matrix, &vectors, n, n, n, 1);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < n; k++) {
                number sum = 0;
                for (int64_t j = 0; j < n; j++)
                    sum += hermitian(&x, n, upper, i, j) * get(&vectors, j * n + k);
                check_near(c, "a · V", matrix, i, k, sum, get(&vectors, i * n + k) * values[k], norm);
            }
    }
}

static void check_singular(const struct checked *c, const struct values *a, const struct values *u,
                           const struct values *s, const struct values *vh) {
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1], k = m < n ? m : n, batch = 1;
    int64_t left = u->shape[u->rank - 1], right = vh->shape[vh->rank - 2];
    for (int i = 0; i < a->rank - 2; i++)
        batch *= a->shape[i];
    for (int64_t matrix = 0; matrix < batch; matrix++) {
        const struct elements x = elements_of(a, matrix * m * n), l = elements_of(u, matrix * m * left),
                              r = elements_of(vh, matrix * right * n);
        const long double *values = s->f + matrix * k;
        long double norm = greatest(values, k);
        bool broken = false;
        for (int64_t e = 0; e < m * n; e++)
            broken |= !isfinite(x.f[e]) || (x.im && !isfinite(x.im[e]));
        if (check_nan(c, matrix, broken, values, k) + check_vectors_nan(c, matrix, broken, &l, m * left) +
            check_vectors_nan(c, matrix, broken, &r, right * n))
            continue;
        check_order(c, matrix, values, k, -1);
        if (k && values[k - 1] < 0)
            suite_fail(c->suite, "%s: matrix %lld has a negative value", c->result->story, (long long)matrix);
        check_orthonormal(c, "Uᴴ · U", matrix, &l, left, m, left, 1);
        check_orthonormal(c, "Vᴴ · V", matrix, &r, right, n, 1, n);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                number sum = 0;
                for (int64_t q = 0; q < k; q++)
                    sum += get(&l, i * left + q) * values[q] * get(&r, q * n + j);
                check_near(c, "U · S · Vᴴ", matrix, i, j, sum, get(&x, i * n + j), norm);
            }
    }
}

/* ---- the operations ---- */

static void run_once(struct suite *suite, const struct op_case *row, enum dtype dtype, int rank, const int64_t *shape,
                     enum content content) {
    bool option = suite_chance(suite, 50);
    struct sample x = matrices(suite, dtype, rank, shape, content), results[3];
    const struct sample *input = &x;
    struct suite_call call = {.opcode = row->opcode, .n_inputs = 1, .inputs = &input};
    unsigned outputs = row->opcode == OP_SVD ? 3 : row->opcode == OP_EIGH ? 2 : 1, values = row->opcode == OP_SVD;
    struct values *got[3];
    if (row->opcode == OP_SVD)
        call.attributes = SUITE_ATTRIBUTES(svd, .full_matrices = option);
    else if (row->opcode == OP_EIGH)
        call.attributes = SUITE_ATTRIBUTES(eigh, .upper = option);
    else if (row->opcode == OP_EIGVALSH)
        call.attributes = SUITE_ATTRIBUTES(eigvalsh, .upper = option);
    suite_run_several(suite, &call, results, outputs);
    suite_check(suite, &results[values]);
    for (unsigned i = 0; i < outputs; i++)
        got[i] = suite_get(suite, &results[i]);
    struct checked c = checked_of(suite, &results[0], shape[rank - 2], shape[rank - 1]);
    if (row->opcode == OP_SVD)
        check_singular(&c, x.values, got[0], got[1], got[2]);
    else if (row->opcode == OP_EIGH)
        check_eigen(&c, x.values, got[0], got[1], option);
    for (unsigned i = 0; i < outputs; i++) {
        values_destroy(got[i]);
        suite_free(suite, &results[i]);
    }
    suite_free(suite, &x);
}

static void case_spectral(struct suite *suite, const struct op_case *row) {
    bool square = row->opcode == OP_EIGH || row->opcode == OP_EIGVALSH;
    int64_t shape[VALUES_RANK_MAX];
    for (int i = 0; i < SUITE_REPEAT(150); i++) {
        int64_t m = side(suite), n = square ? m : side(suite);
        int rank = with_batch(suite, m, n, shape);
        enum content content = suite_chance(suite, 50) ? ORDINARY : (enum content)suite_below(suite, CONTENTS);
        run_once(suite, row, op_case_dtype(suite, row), rank, shape, content);
    }
    static const enum dtype large[] = {DTYPE_F32, DTYPE_F64, DTYPE_C64, DTYPE_C128};
    for (int i = 0; i < 4; i++) {
        int64_t m = SUITE_REPEAT(SIDE_LARGE), n = square ? m : i == 0 ? m : i == 1 ? m + 31 : m / 2;
        run_once(suite, row, large[i], 2, (int64_t[]){m, n}, i == 3 ? EQUAL : ORDINARY);
    }
}

const struct op_case op_case_eigh = {case_spectral, OP_EIGH, FILL_ORDINARY};
const struct op_case op_case_eigvalsh = {case_spectral, OP_EIGVALSH, FILL_ORDINARY};
const struct op_case op_case_svd = {case_spectral, OP_SVD, FILL_ORDINARY};
const struct op_case op_case_svdvals = {case_spectral, OP_SVDVALS, FILL_ORDINARY};
