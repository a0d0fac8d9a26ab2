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
