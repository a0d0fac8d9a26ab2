/* Decompositions and linear equations, one matrix after another, in complex long double. The scale of a result is its largest magnitude times
 * the condition of what was factored: errors are proportional to both. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

typedef long double _Complex number;

/* A matrix, row by row. */
struct matrix {
    int64_t rows, columns;
    number *f;
};

static struct matrix matrix_create(int64_t rows, int64_t columns) {
    return (struct matrix){rows, columns, calloc((size_t)(rows * columns) + 1, sizeof(number))};
}

static number *at(const struct matrix *x, int64_t row, int64_t column) {
    return &x->f[row * x->columns + column];
}

static struct matrix matrix_of(const struct values *x, int64_t which) {
    struct matrix out = matrix_create(x->shape[x->rank - 2], x->shape[x->rank - 1]);
    int64_t count = out.rows * out.columns;
    for (int64_t k = 0; k < count; k++)
        out.f[k] = CMPLXL(x->f[which * count + k], x->im ? x->im[which * count + k] : 0);
    return out;
}

static struct matrix transposed(const struct matrix *x) {
    struct matrix out = matrix_create(x->columns, x->rows);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            *at(&out, j, i) = *at(x, i, j);
    return out;
}

static struct matrix conjugate(const struct matrix *x) {
    struct matrix out = matrix_create(x->rows, x->columns);
    for (int64_t k = 0; k < x->rows * x->columns; k++)
        out.f[k] = conjl(x->f[k]);
    return out;
}

static struct matrix identity(int64_t rows, int64_t columns) {
    struct matrix out = matrix_create(rows, columns);
    for (int64_t i = 0; i < rows && i < columns; i++)
        *at(&out, i, i) = 1;
    return out;
}

/* The largest sum of magnitudes of a row. */
static long double norm(const struct matrix *x) {
    long double most = 0;
    for (int64_t i = 0; i < x->rows; i++) {
        long double sum = 0;
        for (int64_t j = 0; j < x->columns; j++)
            sum += cabsl(*at(x, i, j));
        most = fmaxl(most, sum);
    }
    return most;
}

/* ---- elimination ---- */

static void exchange_rows(struct matrix *x, int64_t a, int64_t b) {
    for (int64_t j = 0; j < x->columns; j++) {
        number value = *at(x, a, j);
        *at(x, a, j) = *at(x, b, j);
        *at(x, b, j) = value;
    }
}

/* By which the pivot is chosen, as in LAPACK. */
static long double size_of(number x) {
    return fabsl(creall(x)) + fabsl(cimagl(x));
}

/* L and U in the place of a, and the same exchanges in `order`. Returns the number of exchanges. */
static int eliminate(struct matrix *a, struct matrix *order) {
    int exchanges = 0;
    for (int64_t k = 0; k < a->rows && k < a->columns; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < a->rows; i++)
            if (size_of(*at(a, i, k)) > size_of(*at(a, pivot, k)))
                pivot = i;
        if (pivot != k) {
            exchanges++;
            exchange_rows(a, k, pivot);
            exchange_rows(order, k, pivot);
        }
        for (int64_t i = k + 1; i < a->rows && *at(a, k, k) != 0; i++) {
            number factor = *at(a, i, k) /= *at(a, k, k);
            for (int64_t j = k + 1; j < a->columns; j++)
                *at(a, i, j) -= factor * *at(a, k, j);
        }
    }
    return exchanges;
}

/* b becomes the solution for a triangular matrix, of which nothing else is read. */
static void substitute(const struct matrix *a, bool upper, bool unit, struct matrix *b) {
    int64_t n = a->columns;
    for (int64_t step = 0; step < n; step++) {
        int64_t i = upper ? n - 1 - step : step;
        for (int64_t c = 0; c < b->columns; c++) {
            number value = *at(b, i, c);
            for (int64_t j = upper ? i + 1 : 0; j < (upper ? n : i); j++)
                value -= *at(a, i, j) * *at(b, j, c);
            *at(b, i, c) = unit ? value : value / *at(a, i, i);
        }
    }
}

/* The condition of a triangle's leading square. */
static long double condition(const struct matrix *a, bool upper, bool unit) {
    int64_t n = a->rows < a->columns ? a->rows : a->columns;
    struct matrix own = matrix_create(n, n), inverse = identity(n, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            *at(&own, i, j) = i == j && unit ? 1 : (upper ? j >= i : j <= i) ? *at(a, i, j) : 0;
    substitute(&own, upper, unit, &inverse);
    long double product = norm(&own) * norm(&inverse);
    free(own.f);
    free(inverse.f);
    return isfinite(product) && product > 1 ? product : n && !isfinite(product) ? INFINITY : 1;
}

/* Solves a · x = b in place; returns the condition. */
static long double solve(struct matrix *a, struct matrix *b) {
    eliminate(a, b);
    substitute(a, false, true, b);
    substitute(a, true, false, b);
    return condition(a, false, true) * condition(a, true, false);
}

/* ---- reflections ---- */

/* Householder's reflections, whose vectors are w in column k from row k on: I + w wᴴ · factor, and its inverse, with the conjugate factor. */
struct reflections {
    struct matrix vectors, factors;
};

static void reflections_free(struct reflections *reflections) {
    free(reflections->vectors.f);
    free(reflections->factors.f);
}

static void reflect(const struct reflections *reflections, int64_t k, bool inverse, struct matrix *x) {
    const struct matrix *w = &reflections->vectors;
    number given = *at(&reflections->factors, 0, k), factor = inverse ? conjl(given) : given;
    for (int64_t j = 0; j < x->columns && factor != 0; j++) {
        number product = 0;
        for (int64_t i = k; i < x->rows; i++)
            product += conjl(*at(w, i, k)) * *at(x, i, j);
        for (int64_t i = k; i < x->rows; i++)
            *at(x, i, j) += factor * product * *at(w, i, k);
    }
}

/* a becomes R, whose diagonal is real: of column k, whose first element is a, the reflection makes b with |b| the column's length and the sign
 * opposite to that of a's real part; w is the column less that, and the factor of the inverse, which makes R, 1 / (b · (a - b)). */
static struct reflections triangulate(struct matrix *a) {
    struct reflections out = {matrix_create(a->rows, a->columns), matrix_create(1, a->columns)};
    for (int64_t k = 0; k < a->rows && k < a->columns; k++) {
        long double squares = 0, rest = fabsl(cimagl(*at(a, k, k)));
        for (int64_t i = k; i < a->rows; i++) {
            squares += creall(*at(a, i, k) * conjl(*at(a, i, k)));
            rest += i > k ? cabsl(*at(a, i, k)) : 0;
        }
        if (rest == 0) /* nothing to reflect, as in LAPACK: then the sign stays */
            continue;
        long double b = -copysignl(sqrtl(squares), creall(*at(a, k, k)));
        for (int64_t i = k; i < a->rows; i++)
            *at(&out.vectors, i, k) = *at(a, i, k);
        *at(&out.vectors, k, k) -= b;
        *at(&out.factors, 0, k) = conjl(1 / (b * *at(&out.vectors, k, k)));
        reflect(&out, k, true, a);
    }
    return out;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Of a matrix with more columns than rows, aᴴ = Q · R: a = Rᴴ · Qᴴ, and x = Q · R⁻ᴴ · b. */
static long double least_squares(const struct matrix *a, const struct matrix *b, struct matrix *x) {
    bool across = a->rows < a->columns;
    struct matrix turned = transposed(a), r = conjugate(&turned);
    if (!across) {
        free(r.f);
        r = matrix_create(a->rows, a->columns);
        memcpy(r.f, a->f, (size_t)(a->rows * a->columns) * sizeof *r.f);
    }
    struct reflections reflections = triangulate(&r);
    struct matrix work = matrix_create(r.rows, b->columns);
    memcpy(work.f, b->f, (size_t)(b->rows * b->columns) * sizeof *work.f);
    int64_t n = r.columns;
    struct matrix square = matrix_create(n, n);
    memcpy(square.f, r.f, (size_t)(n * n) * sizeof *square.f);
    long double conditioned = condition(&square, true, false);
    if (across) {
        struct matrix lower = transposed(&square), own = conjugate(&lower);
        substitute(&own, false, false, &work);
        for (int64_t k = n; k-- > 0;)
            reflect(&reflections, k, false, &work);
        free(lower.f);
        free(own.f);
    } else {
        for (int64_t k = 0; k < n; k++)
            reflect(&reflections, k, true, &work);
        substitute(&square, true, false, &work);
    }
    memcpy(x->f, work.f, (size_t)(x->rows * x->columns) * sizeof *x->f);
    free(turned.f);
    free(r.f);
    free(work.f);
    free(square.f);
    reflections_free(&reflections);
    return conditioned * conditioned;
}

/* ---- requests ---- */

/* Puts a matrix into `out`, which has so many elements for each. */
static void put(struct values *out, int64_t which, const struct matrix *x, long double conditioned) {
    int64_t count = x->rows * x->columns;
    long double most = 0;
    for (int64_t k = 0; k < count; k++)
        most = fmaxl(most, cabsl(x->f[k]));
    for (int64_t k = 0; k < count; k++) {
        out->f[which * count + k] = value_round(out->dtype, creall(x->f[k]));
        if (out->im)
            out->im[which * count + k] = value_round(out->dtype, cimagl(x->f[k]));
        out->scale[which * count + k] = conditioned * most;
    }
}

static struct values *create_of(enum dtype dtype, const struct values *a, int axes, int64_t rows, int64_t columns) {
    int64_t shape[VALUES_RANK_MAX];
    memcpy(shape, a->shape, sizeof shape);
    shape[a->rank - 2] = rows;
    shape[a->rank - 1] = columns;
    struct values *out = values_create(dtype, a->rank - 2 + axes, shape);
    values_scaled(out, (double)(a->shape[a->rank - 2] + a->shape[a->rank - 1]));
    return out;
}

static struct values *create(const struct values *a, int axes, int64_t rows, int64_t columns) {
    return create_of(a->dtype, a, axes, rows, columns);
}

/* One result of one matrix. */
static struct matrix factor(const struct reference_request *r, struct matrix *a, long double *conditioned) {
    int64_t m = a->rows, n = a->columns, k = least(m, n);
    struct matrix out;
    *conditioned = 1;
    if (r->opcode == OP_CHOLESKY) {
        struct cholesky_attributes given;
        cholesky_attributes_read(&r->attributes, &given);
        out = matrix_create(n, n);
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = j; i < n; i++) {
                number sum = given.upper ? conjl(*at(a, j, i)) : *at(a, i, j);
                for (int64_t l = 0; l < j; l++)
                    sum -= *at(&out, i, l) * conjl(*at(&out, j, l));
                *at(&out, i, j) = i == j ? sqrtl(creall(sum)) : sum / creall(*at(&out, j, j));
            }
        *conditioned = condition(&out, false, false);
        *conditioned *= *conditioned;
        if (given.upper) {
            struct matrix lower = out, turned = transposed(&lower);
            out = conjugate(&turned);
            free(lower.f);
            free(turned.f);
        }
        return out;
    }
    if (r->opcode == OP_QR) {
        struct qr_attributes given;
        qr_attributes_read(&r->attributes, &given);
        int64_t width = given.mode == OP_QR_MODE_COMPLETE ? m : k;
        struct reflections reflections = triangulate(a);
        *conditioned = condition(a, true, false);
        if (r->output == 0) {
            out = identity(m, width);
            for (int64_t j = k; j-- > 0;)
                reflect(&reflections, j, false, &out);
        } else {
            out = matrix_create(width, n);
            for (int64_t i = 0; i < width; i++)
                for (int64_t j = i; j < n; j++)
                    *at(&out, i, j) = *at(a, i, j);
        }
        reflections_free(&reflections);
        return out;
    }
    struct matrix order = identity(m, m);
    int exchanges = eliminate(a, &order);
    *conditioned = condition(a, false, true) * condition(a, true, false);
    switch (r->opcode) {
    case OP_INV:
        substitute(a, false, true, &order);
        substitute(a, true, false, &order);
        return order;
    case OP_LU:
        if (r->output == 0) {
            out = transposed(&order);
            break;
        }
        out = r->output == 1 ? matrix_create(m, k) : matrix_create(k, n);
        for (int64_t i = 0; i < out.rows; i++)
            for (int64_t j = 0; j < out.columns; j++)
                *at(&out, i, j) = r->output == 1 ? (i > j ? *at(a, i, j) : i == j) : i <= j ? *at(a, i, j) : 0;
        break;
    default: { /* det, slogdet */
        number product = exchanges % 2 ? -1 : 1;
        long double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            product *= *at(a, i, i);
            sum += logl(cabsl(*at(a, i, i)));
        }
        out = matrix_create(1, 1);
        out.f[0] = r->opcode == OP_DET ? product : r->output == 1 ? sum : product == 0 ? 0 : product / cabsl(product);
        if (r->opcode == OP_SLOGDET &&
            r->output == 1) /* an error of the determinant's magnitude, beside the logarithm's own */
            *conditioned *= 1 + 1 / fmaxl(fabsl(sum), 1e-6L);
    }
    }
    free(order.f);
    return out;
}

static struct values *reference_factor(const struct reference_request *r) {
    const struct values *a = r->inputs[0];
    struct values *out = NULL;
    if (a->rank < 2)
        return NULL;
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1], k = least(m, n), batch = 1;
    if (r->opcode != OP_LU && r->opcode != OP_QR && m != n)
        return NULL;
    struct qr_attributes given = {.mode = OP_QR_MODE_REDUCED};
    if (r->opcode == OP_QR)
        qr_attributes_read(&r->attributes, &given);
    int64_t width = given.mode == OP_QR_MODE_COMPLETE ? m : k;
    enum dtype real = a->dtype == DTYPE_C64 ? DTYPE_F32 : a->dtype == DTYPE_C128 ? DTYPE_F64 : a->dtype;
    if (r->opcode == OP_DET || r->opcode == OP_SLOGDET)
        out = create_of(r->output == 1 ? real : a->dtype, a, 0, 1, 1);
    else if (r->opcode == OP_LU)
        out = r->output == 0 ? create(a, 2, m, m) : r->output == 1 ? create(a, 2, m, k) : create(a, 2, k, n);
    else if (r->opcode == OP_QR)
        out = r->output == 0 ? create(a, 2, m, width) : create(a, 2, width, n);
    else
        out = create(a, 2, n, n);
    for (int i = 0; i < a->rank - 2; i++)
        batch *= a->shape[i];
    for (int64_t which = 0; which < batch; which++) {
        struct matrix x = matrix_of(a, which);
        long double conditioned;
        struct matrix result = factor(r, &x, &conditioned);
        put(out, which, &result, conditioned);
        free(x.f);
        free(result.f);
    }
    return out;
}

static struct values *reference_equations(const struct reference_request *r) {
    const struct values *a = r->inputs[0], *b = r->inputs[1];
    int64_t shape[VALUES_RANK_MAX], a_shape[VALUES_RANK_MAX], b_shape[VALUES_RANK_MAX];
    enum dtype dtype = reference_promote(a->dtype, b->dtype);
    bool vector = b->rank == 1;
    int rank, own = vector ? 1 : 2;
    if (a->rank < 2 || b->rank < 1 ||
        !reference_broadcast(a->rank - 2, a->shape, b->rank - own, b->shape, &rank, shape))
        return NULL;
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1];
    if (b->shape[b->rank - own] != m || (r->opcode != OP_LSTSQ && m != n))
        return NULL;
    int64_t columns = vector ? 1 : b->shape[b->rank - 1], batch = 1;
    memcpy(a_shape, shape, sizeof shape);
    memcpy(b_shape, shape, sizeof shape);
    for (int i = 0; i < rank; i++)
        batch *= shape[i];
    a_shape[rank] = b_shape[rank] = m;
    a_shape[rank + 1] = n;
    b_shape[rank + 1] = columns;
    shape[rank] = n;
    shape[rank + 1] = columns;
    struct values *out = values_create(dtype, rank + own, shape);
    values_scaled(out, (double)(m + n));
    struct values *all_a = reference_broadcast_to(a, rank + 2, a_shape),
                  *all_b = reference_broadcast_to(b, rank + own, b_shape);
    for (int64_t which = 0; which < batch; which++) {
        struct matrix x = matrix_of(all_a, which), y = matrix_create(m, columns), result = matrix_create(n, columns);
        for (int64_t k = 0; k < m * columns; k++)
            y.f[k] = CMPLXL(all_b->f[which * m * columns + k], all_b->im ? all_b->im[which * m * columns + k] : 0);
        long double conditioned;
        if (r->opcode == OP_LSTSQ) {
            conditioned = least_squares(&x, &y, &result);
        } else {
            struct triangular_solve_attributes given = {.upper = false};
            if (r->opcode == OP_TRIANGULAR_SOLVE)
                triangular_solve_attributes_read(&r->attributes, &given);
            if (r->opcode == OP_TRIANGULAR_SOLVE) {
                substitute(&x, given.upper, given.unit_diagonal, &y);
                conditioned = condition(&x, given.upper, given.unit_diagonal);
            } else {
                conditioned = solve(&x, &y);
            }
            memcpy(result.f, y.f, (size_t)(n * columns) * sizeof *result.f);
        }
        put(out, which, &result, conditioned);
        free(x.f);
        free(y.f);
        free(result.f);
    }
    values_destroy(all_a);
    values_destroy(all_b);
    return out;
}

struct values *reference_decompose(const struct reference_request *r) {
    if (r->opcode == OP_EIGH || r->opcode == OP_EIGVALSH || r->opcode == OP_SVD || r->opcode == OP_SVDVALS)
        return reference_spectral(r);
    return r->n_inputs == 2 ? reference_equations(r) : reference_factor(r);
}
