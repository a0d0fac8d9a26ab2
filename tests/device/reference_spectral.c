/* Eigenvalues and singular values by Jacobi's rotations in long double, one pair after another. Vectors are some of those that fulfil the
 * contract: the suite checks a device's vectors by what they must fulfil, and the values by these.
 *
 * A complex matrix A + Bi is the real matrix [A, -B; B, A], which has each value twice. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

enum { SWEEPS = 80 };

/* n rows of m numbers; `turned` goes through the same rotations. */
struct rows {
    int64_t n, m;
    long double *f, *turned;
};

static void rotate(long double *x, long double *y, int64_t step, int64_t n, long double c, long double s) {
    for (int64_t i = 0; i < n; i++) {
        long double a = x[i * step], b = y[i * step];
        x[i * step] = c * a - s * b;
        y[i * step] = s * a + c * b;
    }
}

/* Cosine and sine of the rotation that makes `between` 0. */
static void angle(long double a, long double b, long double between, long double *c, long double *s) {
    long double theta = (b - a) / (2 * between);
    long double t = copysignl(1, theta) / (fabsl(theta) + sqrtl(theta * theta + 1));
    *c = 1 / sqrtl(t * t + 1);
    *s = t * *c;
}

/* A symmetric matrix becomes diagonal. */
static void diagonalise(struct rows *a) {
    int64_t n = a->n;
    long double norm = 0;
    for (int64_t k = 0; k < n * n; k++)
        norm = fmaxl(norm, fabsl(a->f[k]));
    bool rotated = true;
    for (int sweep = 0; sweep < SWEEPS && rotated; sweep++) {
        rotated = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                long double c, s, between = a->f[p * n + q];
                if (fabsl(between) <= norm * 1e-20L)
                    continue;
                rotated = true;
                angle(a->f[p * n + p], a->f[q * n + q], between, &c, &s);
                rotate(a->f + p * n, a->f + q * n, 1, n, c, s);
                rotate(a->f + p, a->f + q, n, n, c, s);
                rotate(a->turned + p * n, a->turned + q * n, 1, n, c, s);
                a->f[p * n + q] = a->f[q * n + p] = 0;
            }
    }
}

static long double dot(const long double *x, const long double *y, int64_t n) {
    long double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* All rows become orthogonal. */
static void orthogonalise(struct rows *a) {
    long double all = dot(a->f, a->f, a->n * a->m), least = all * 1e-40L;
    bool rotated = true;
    for (int sweep = 0; sweep < SWEEPS && rotated; sweep++) {
        rotated = false;
        for (int64_t p = 0; p < a->n; p++)
            for (int64_t q = p + 1; q < a->n; q++) {
                long double *x = a->f + p * a->m, *y = a->f + q * a->m, c, s;
                long double xx = dot(x, x, a->m), yy = dot(y, y, a->m), xy = dot(x, y, a->m);
                if (fminl(xx, yy) <= least || fabsl(xy) <= 1e-18L * sqrtl(xx) * sqrtl(yy))
                    continue;
                rotated = true;
                angle(xx, yy, xy, &c, &s);
                rotate(x, y, 1, a->m, c, s);
                rotate(a->turned + p * a->n, a->turned + q * a->n, 1, a->n, c, s);
            }
    }
}

static bool all_finite(const long double *x, int64_t n) {
    bool all = true;
    for (int64_t i = 0; i < n; i++)
        all &= isfinite(x[i]) != 0;
    return all;
}

/* order[i]: the place of value i, ascending or descending. */
static void rank(const long double *values, int64_t n, bool descending, int64_t *order) {
    for (int64_t i = 0; i < n; i++) {
        order[i] = 0;
        for (int64_t j = 0; j < n; j++)
            order[i] +=
                (descending ? values[j] > values[i] : values[j] < values[i]) || (values[j] == values[i] && j < i);
    }
}

static enum dtype real_of(enum dtype dtype) {
    return dtype == DTYPE_C64 ? DTYPE_F32 : dtype == DTYPE_C128 ? DTYPE_F64 : dtype;
}

/* Values are real, matrices have a's dtype. */
static struct values *create(const struct values *a, int axes, int64_t rows, int64_t columns) {
    int64_t shape[VALUES_RANK_MAX];
    memcpy(shape, a->shape, sizeof shape);
    shape[a->rank - 2] = rows;
    if (axes == 2)
        shape[a->rank - 1] = columns;
    struct values *out = values_create(axes == 2 ? a->dtype : real_of(a->dtype), a->rank - 2 + axes, shape);
    values_scaled(out, (double)(a->shape[a->rank - 2] + a->shape[a->rank - 1]));
    return out;
}

static struct rows rows_create(int64_t n, int64_t m) {
    struct rows x = {n, m, calloc((size_t)(n * m) + 1, sizeof(long double)),
                     calloc((size_t)(n * n) + 1, sizeof(long double))};
    for (int64_t i = 0; i < n; i++)
        x.turned[i * n + i] = 1;
    return x;
}

/* Values of matrix `number`, with the greatest magnitude as their scale. */
static void put_values(struct values *out, int64_t number, const long double *values, const int64_t *order, int64_t n) {
    long double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxl(most, fabsl(values[i]));
    for (int64_t i = 0; i < n; i++) {
        out->f[number * n + order[i]] = value_round(out->dtype, values[i]);
        out->scale[number * n + order[i]] = most;
    }
}

static void put_nan(struct values *out, int64_t number, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out->f[number * count + i] = (long double)NAN;
        if (out->im)
            out->im[number * count + i] = (long double)NAN;
    }
}

/* Of values in their order, each of them twice: one of each. */
static void halve(long double *values, int64_t *order, int64_t n) {
    long double *sorted = calloc((size_t)(2 * n) + 1, sizeof *sorted);
    for (int64_t i = 0; i < 2 * n; i++)
        sorted[order[i]] = values[i];
    for (int64_t i = 0; i < n; i++) {
        values[i] = sorted[2 * i];
        order[i] = i;
    }
    free(sorted);
}

/* Element i, j of the real matrix of twice the extents, whose first quarter is rows by columns. */
static long double doubled(const struct values *a, int64_t from, int64_t rows, int64_t columns, int64_t i, int64_t j) {
    int64_t k = from + i % rows * columns + j % columns;
    bool down = i >= rows, along = j >= columns;
    return down == along ? a->f[k] : down ? a->im[k] : -a->im[k];
}

static struct values *eigen(const struct reference_request *r, bool upper) {
    const struct values *a = r->inputs[0];
    int64_t n = a->rank < 2 ? 0 : a->shape[a->rank - 1], batch = 1;
    if (a->rank < 2 || a->shape[a->rank - 2] != n)
        return NULL;
    struct values *out = create(a, r->output == 0 ? 1 : 2, n, n);
    for (int i = 0; i < a->rank - 2; i++)
        batch *= a->shape[i];
    int64_t twice = a->im ? 2 * n : n;
    long double *values = calloc((size_t)twice + 1, sizeof *values);
    int64_t *order = calloc((size_t)twice + 1, sizeof *order);
    for (int64_t number = 0; number < batch; number++) {
        struct rows x = rows_create(twice, twice);
        for (int64_t i = 0; i < twice; i++)
            for (int64_t j = 0; j < twice; j++) {
                int64_t row = i % n, column = j % n;
                bool read = upper ? column >= row : column <= row;
                x.f[i * twice + j] = row == column && (i < n) != (j < n) ? 0
                                     : read                              ? doubled(a, number * n * n, n, n, i, j)
                                                                         : doubled(a, number * n * n, n, n, j, i);
            }
        if (!all_finite(x.f, twice * twice)) {
            put_nan(out, number, r->output == 0 ? n : n * n);
        } else {
            diagonalise(&x);
            for (int64_t i = 0; i < twice; i++)
                values[i] = x.f[i * twice + i];
            rank(values, twice, false, order);
            if (a->im)
                halve(values, order, n);
            if (r->output == 0)
                put_values(out, number, values, order, n);
            for (int64_t k = 0; k < n * n && r->output == 1 && !a->im; k++) /* of complex ones the type alone counts */
                out->f[number * n * n + k % n * n + order[k / n]] = value_round(out->dtype, x.turned[k]);
        }
        free(x.f);
        free(x.turned);
    }
    free(values);
    free(order);
    return out;
}

/* Of U and Vᵀ alone the type counts: they are checked by what they must fulfil. */
static struct values *singular(const struct reference_request *r, bool full) {
    const struct values *a = r->inputs[0];
    int64_t batch = 1;
    if (a->rank < 2)
        return NULL;
    int64_t rows = a->shape[a->rank - 2], columns = a->shape[a->rank - 1], n = rows < columns ? rows : columns;
    int64_t m = rows < columns ? columns : rows;
    if (r->opcode == OP_SVD && r->output != 1)
        return r->output == 0 ? create(a, 2, rows, full ? rows : n) : create(a, 2, full ? columns : n, columns);
    struct values *out = create(a, 1, n, 0);
    for (int i = 0; i < a->rank - 2; i++)
        batch *= a->shape[i];
    int64_t parts = a->im ? 2 : 1, wide = parts * m, twice = parts * n;
    long double *values = calloc((size_t)twice + 1, sizeof *values);
    int64_t *order = calloc((size_t)twice + 1, sizeof *order);
    for (int64_t number = 0; number < batch; number++) {
        struct rows x = rows_create(twice, wide);
        for (int64_t i = 0; i < twice; i++)
            for (int64_t j = 0; j < wide; j++)
                x.f[i * wide + j] =
                    rows < columns ? doubled(a, number * m * n, n, m, i, j) : doubled(a, number * m * n, m, n, j, i);
        if (!all_finite(x.f, twice * wide)) {
            put_nan(out, number, n);
        } else {
            orthogonalise(&x);
            for (int64_t i = 0; i < twice; i++)
                values[i] = sqrtl(dot(x.f + i * wide, x.f + i * wide, wide));
            rank(values, twice, true, order);
            if (a->im)
                halve(values, order, n);
            put_values(out, number, values, order, n);
        }
        free(x.f);
        free(x.turned);
    }
    free(values);
    free(order);
    return out;
}

struct values *reference_spectral(const struct reference_request *r) {
    struct eigh_attributes eigh = {.upper = false};
    struct eigvalsh_attributes eigvalsh = {.upper = false};
    struct svd_attributes svd = {.full_matrices = false};
    switch (r->opcode) {
    case OP_EIGH:
        eigh_attributes_read(&r->attributes, &eigh);
        return eigen(r, eigh.upper);
    case OP_EIGVALSH:
        eigvalsh_attributes_read(&r->attributes, &eigvalsh);
        return eigen(r, eigvalsh.upper);
    case OP_SVD:
        svd_attributes_read(&r->attributes, &svd);
        return singular(r, svd.full_matrices);
    default:
        return singular(r, false);
    }
}
