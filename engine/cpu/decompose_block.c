/* Products, triangles of equations and reflections on blocks of columns, of which decompositions are made. */
#include "engine/cpu/decompose.h"

enum { SIDES = 64 }; /* right sides that are solved together */

void decompose_subtract(const struct job *job, bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k,
                        const char *a, int64_t a_stride, const char *b, int64_t b_stride, char *c, int64_t c_stride) {
    const struct lapack *lapack = job->lapack;
    const int rows = (int)m, columns = (int)n, depth = (int)k;
    const int a_lead = (int)a_stride, b_lead = (int)b_stride, c_lead = (int)c_stride;
    lapack->gemm(a_transposed ? lapack->transposed : "N", b_transposed ? lapack->transposed : "N", &rows, &columns,
                 &depth, lapack->less, a, &a_lead, b, &b_lead, lapack->one, c, &c_lead, 1, 1);
}

/* ---- triangles ---- */

/* op(a) · x = b, or from the right x · op(a) = b. */
struct triangle {
    bool right, upper, transposed, unit;
    bool forward; /* the first ones are solved first */
    int64_t a_stride;
};

/* A triangle of CPU_TRIANGLE_MAX equations at most. */
static void triangle_small(const struct job *job, const struct triangle *t, int64_t n, int64_t sides, const char *a,
                           char *b, int64_t b_stride) {
    _Alignas(64) char rows[CPU_TRIANGLE_MAX * CPU_TRIANGLE_MAX * 8], diagonal[CPU_TRIANGLE_MAX * 8],
        x[CPU_TRIANGLE_MAX * SIDES * 8];
    cpu_triangle_function *solve = job->base.cpu->kernels->triangle[job->wide];
    int64_t size = job->size, down = t->a_stride, along = 1; /* from row to row of op(a), and from column to column */
    if (t->transposed == t->right) {
        down = 1;
        along = t->a_stride;
    }
    int64_t first = t->forward ? 0 : n - 1, by = t->forward ? 1 : -1;
    for (int64_t i = 0; i < n; i++) {
        const char *row = a + ((first + i * by) * down + first * along) * size;
        for (int64_t k = 0; k < i; k++) {
            memcpy(rows + (i * CPU_TRIANGLE_MAX + k) * size, row + k * by * along * size, (size_t)size);
        }
        memcpy(diagonal + i * size, row + i * by * along * size, (size_t)size);
    }
    const void *divisors = t->unit ? NULL : diagonal;
    if (t->right) {
        solve(n, sides, rows, divisors, b + first * b_stride * size, by * b_stride);
        return;
    }
    for (int64_t side = 0; side < sides; side += SIDES) {
        int64_t some = least(SIDES, sides - side);
        char *own = b + side * b_stride * size;
        decompose_transpose(job, x, SIDES, own, b_stride, some, 0, n);
        solve(n, some, rows, divisors, x + first * SIDES * size, by * SIDES);
        decompose_transpose(job, own, b_stride, x, SIDES, n, 0, some);
    }
}

static void triangle_blas(const struct job *job, const struct triangle *t, int64_t n, int64_t sides, const char *a,
                          char *b, int64_t b_stride) {
    const struct lapack *lapack = job->lapack;
    const int rows = (int)(t->right ? sides : n), columns = (int)(t->right ? n : sides);
    const int a_lead = (int)t->a_stride, b_lead = (int)b_stride;
    lapack->trsm(t->right ? "R" : "L", t->upper ? "U" : "L", t->transposed ? lapack->transposed : "N",
                 t->unit ? "U" : "N", &rows, &columns, lapack->one, a, &a_lead, b, &b_lead, 1, 1, 1, 1);
}

/* Halves of the triangle, one behind the other, and the product between them. */
static void triangle_part(const struct job *job, const struct triangle *t, int64_t n, int64_t sides, const char *a,
                          char *b, int64_t b_stride) {
    if (n <= CPU_TRIANGLE_MAX) {
        triangle_small(job, t, n, sides, a, b, b_stride);
        return;
    }
    int64_t size = job->size, half = divided_up(divided_up(n, CPU_TRIANGLE_MAX), 2) * CPU_TRIANGLE_MAX;
    int64_t from = t->forward ? 0 : half, to = t->forward ? half : 0;
    int64_t solved = t->forward ? half : n - half, left = n - solved, b_step = t->right ? b_stride : 1;
    char *known = b + from * b_step * size, *unknown = b + to * b_step * size;
    triangle_part(job, t, solved, sides, a + (from * t->a_stride + from) * size, known, b_stride);
    /* What multiplies the known ones has their columns, or of a transposed triangle their rows; from the right the other way round. */
    bool across = t->transposed != t->right;
    const char *factors = a + (across ? to * t->a_stride + from : from * t->a_stride + to) * size;
    if (t->right) {
        decompose_subtract(job, false, t->transposed, sides, left, solved, known, b_stride, factors, t->a_stride,
                           unknown, b_stride);
    } else {
        decompose_subtract(job, t->transposed, false, left, sides, solved, factors, t->a_stride, known, b_stride,
                           unknown, b_stride);
    }
    triangle_part(job, t, left, sides, a + (to * t->a_stride + to) * size, unknown, b_stride);
}

void decompose_triangle(const struct job *job, bool right, bool upper, bool transposed, bool unit, int64_t m, int64_t n,
                        const char *a, int64_t a_stride, char *b, int64_t b_stride) {
    const struct triangle t = {.right = right,
                               .upper = upper,
                               .transposed = transposed,
                               .unit = unit,
                               .forward = (upper == transposed) != right,
                               .a_stride = a_stride};
    if (m == 0 || n == 0) {
        return;
    }
    if (job->is_complex) {
        triangle_blas(job, &t, right ? n : m, right ? m : n, a, b, b_stride);
    } else {
        triangle_part(job, &t, right ? n : m, right ? m : n, a, b, b_stride);
    }
}

/* ---- reflections ---- */

static char *block_t(const struct place *place, int64_t block) {
    return place->t + block * place->job->block * place->job->block * place->job->size;
}

void decompose_reflections(const struct place *place, int64_t block) {
    const struct job *job = place->job;
    int64_t j = block * job->block, b = least(job->block, job->k - j);
    const int rows = (int)(job->m - j), columns = (int)b, lead = (int)job->m, t_lead = (int)job->block;
    int info;
    char *t = block_t(place, block);
    memset(t, 0, (size_t)(job->block * job->block * job->size)); /* LAPACK leaves out what is below the diagonal */
    job->lapack->geqrt3(&rows, &columns, at(job, place->a, job->m, j, j), &lead, t, &t_lead, &info);
}

/* c = op(a) · b, or c += op(a) · b. */
static void multiply(const struct job *job, bool a_transposed, int64_t m, int64_t n, int64_t k, const char *a,
                     int64_t a_stride, const char *b, int64_t b_stride, char *c, int64_t c_stride, bool add) {
    const struct lapack *lapack = job->lapack;
    const int rows = (int)m, columns = (int)n, depth = (int)k;
    const int a_lead = (int)a_stride, b_lead = (int)b_stride, c_lead = (int)c_stride;
    lapack->gemm(a_transposed ? lapack->transposed : "N", "N", &rows, &columns, &depth, lapack->one, a, &a_lead, b,
                 &b_lead, add ? lapack->one : lapack->nothing, c, &c_lead, 1, 1);
}

/* v's first rows, a lower triangle whose diagonal is 1, with zeros above. */
static void triangle_copy(const struct job *job, int64_t b, const char *v, char *to) {
    memset(to, 0, (size_t)(b * b * job->size));
    for (int64_t i = 0; i < b; i++) {
        char *diagonal = to + i * (b + 1) * job->size;
        number_set(job, diagonal, 1);
        memcpy(diagonal + job->size, v + (i * job->m + i + 1) * job->size, (size_t)((b - i - 1) * job->size));
    }
}

void decompose_reflect(const struct place *place, bool transposed, int64_t block, char *c, int64_t c_rows,
                       int64_t columns) {
    const struct job *job = place->job;
    int64_t j = block * job->block, b = least(job->block, job->k - j), rest = job->m - j - b;
    const char *v = at(job, place->a, job->m, j, j), *below = v + b * job->size;
    char *first = place->work, *products = first + job->block * job->block * job->size,
         *factors = products + job->block * REFLECTED * job->size;
    triangle_copy(job, b, v, first);
    for (int64_t column = 0; column < columns; column += REFLECTED) {
        int64_t n = least(REFLECTED, columns - column);
        char *own = c + column * c_rows * job->size, *own_below = own + b * job->size;
        multiply(job, true, b, n, b, first, b, own, c_rows, products, b, false);
        if (rest > 0) {
            multiply(job, true, b, n, rest, below, job->m, own_below, c_rows, products, b, true);
        }
        multiply(job, transposed, b, n, b, block_t(place, block), job->block, products, b, factors, b, false);
        decompose_subtract(job, false, false, b, n, b, first, b, factors, b, own, c_rows);
        if (rest > 0) {
            decompose_subtract(job, false, false, rest, n, b, below, job->m, factors, b, own_below, c_rows);
        }
    }
}
