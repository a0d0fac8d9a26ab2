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

/* The first n equations of op(a), or the last ones in reverse order, of which `first` is the first element: from row to row they are `down` elements
 * apart, from column to column `along`. */
#define EQUATIONS(name, T)                                                                                             \
    static void name(int64_t n, const T *first, int64_t down, int64_t along, T *rows, T *diagonal) {                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            for (int64_t k = 0; k < i; k++) {                                                                          \
                rows[i * CPU_TRIANGLE_MAX + k] = first[i * down + k * along];                                          \
            }                                                                                                          \
            diagonal[i] = first[i * down + i * along];                                                                 \
        }                                                                                                              \
    }
EQUATIONS(equations_f32, float)
EQUATIONS(equations_f64, double)

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
    const char *corner = a + first * (down + along) * size;
    if (job->wide) {
        equations_f64(n, (const void *)corner, by * down, by * along, (void *)rows, (void *)diagonal);
    } else {
        equations_f32(n, (const void *)corner, by * down, by * along, (void *)rows, (void *)diagonal);
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
    if (job->is_complex || !job->base.cpu->kernels->triangle[job->wide]) {
        triangle_blas(job, &t, right ? n : m, right ? m : n, a, b, b_stride);
    } else {
        triangle_part(job, &t, right ? n : m, right ? m : n, a, b, b_stride);
    }
}

/* ---- reflections ---- */

static struct reflections reflections_of(const struct place *place, int64_t block) {
    const struct job *job = place->job;
    int64_t j = block * job->block;
    return (struct reflections){.m = job->m - j,
                                .b = least(job->block, job->k - j),
                                .v_stride = job->m,
                                .t_stride = job->block,
                                .v = at(job, place->a, job->m, j, j),
                                .t = place->t + block * job->block * job->block * job->size};
}

/* c = factor · op(a) · b, or that is added to c. */
static void multiply(const struct job *job, const void *factor, bool a_transposed, int64_t m, int64_t n, int64_t k,
                     const char *a, int64_t a_stride, const char *b, int64_t b_stride, char *c, int64_t c_stride,
                     bool add) {
    const struct lapack *lapack = job->lapack;
    const int rows = (int)m, columns = (int)n, depth = (int)k;
    const int a_lead = (int)a_stride, b_lead = (int)b_stride, c_lead = (int)c_stride;
    lapack->gemm(a_transposed ? lapack->transposed : "N", "N", &rows, &columns, &depth, factor, a, &a_lead, b, &b_lead,
                 add ? lapack->one : lapack->nothing, c, &c_lead, 1, 1);
}

/* v's first rows, a lower triangle whose diagonal is 1, with zeros above. */
static void triangle_copy(const struct job *job, const struct reflections *r, char *to) {
    memset(to, 0, (size_t)(r->b * r->b * job->size));
    for (int64_t i = 0; i < r->b; i++) {
        char *diagonal = to + i * (r->b + 1) * job->size;
        number_set(job, diagonal, 1);
        memcpy(diagonal + job->size, r->v + (i * r->v_stride + i + 1) * job->size,
               (size_t)((r->b - i - 1) * job->size));
    }
}

/* Parts of a thread's own memory: the triangle of v, and two of a block's rows by REFLECTED columns. */
static char *work_part(const struct place *place, int part) {
    const struct job *job = place->job;
    return place->work + (part > 0 ? job->block + (part - 1) * REFLECTED : 0) * job->block * job->size;
}

void decompose_reflect_by(const struct place *place, const struct reflections *r, bool transposed, char *c,
                          int64_t c_rows, int64_t columns) {
    const struct job *job = place->job;
    int64_t b = r->b, rest = r->m - b;
    const char *below = r->v + b * job->size;
    char *first = work_part(place, 0), *products = work_part(place, 1), *factors = work_part(place, 2);
    const void *one = job->lapack->one;
    triangle_copy(job, r, first);
    for (int64_t column = 0; column < columns; column += REFLECTED) {
        int64_t n = least(REFLECTED, columns - column);
        char *own = c + column * c_rows * job->size, *own_below = own + b * job->size;
        multiply(job, one, true, b, n, b, first, b, own, c_rows, products, b, false);
        if (rest > 0) {
            multiply(job, one, true, b, n, rest, below, r->v_stride, own_below, c_rows, products, b, true);
        }
        multiply(job, one, transposed, b, n, b, r->t, r->t_stride, products, b, factors, b, false);
        decompose_subtract(job, false, false, b, n, b, first, b, factors, b, own, c_rows);
        if (rest > 0) {
            decompose_subtract(job, false, false, rest, n, b, below, r->v_stride, factors, b, own_below, c_rows);
        }
    }
}

/* The part of the triangle that joins the reflections of two halves: -t1 · (v1ᵀ · v2) · t2. */
static void reflections_join(const struct place *place, const struct reflections *left, const struct reflections *right,
                             char *t) {
    const struct job *job = place->job;
    int64_t size = job->size, rest = right->m - right->b;
    char *first = work_part(place, 0), *products = work_part(place, 1), *factors = work_part(place, 2);
    const char *beside = left->v + left->b * size; /* v1 where v2 begins */
    const void *one = job->lapack->one;
    triangle_copy(job, right, first);
    multiply(job, one, true, left->b, right->b, right->b, beside, left->v_stride, first, right->b, products, left->b,
             false);
    if (rest > 0) {
        multiply(job, one, true, left->b, right->b, rest, beside + right->b * size, left->v_stride,
                 right->v + right->b * size, right->v_stride, products, left->b, true);
    }
    multiply(job, one, false, left->b, right->b, right->b, products, left->b, right->t, right->t_stride, factors,
             left->b, false);
    multiply(job, job->lapack->less, false, left->b, right->b, left->b, left->t, left->t_stride, factors, left->b, t,
             left->t_stride, false);
}

/* Halves, of which the first one's reflections are applied to the second. */
static void reflections_make(const struct place *place, const struct reflections *r) {
    const struct job *job = place->job;
    int64_t size = job->size, half = divided_up(divided_up(r->b, CPU_REFLECT_MAX), 2) * CPU_REFLECT_MAX;
    if (r->b <= CPU_REFLECT_MAX) {
        job->base.cpu->kernels->reflect[job->wide](r->m, r->b, r->v, r->v_stride, r->t, r->t_stride);
        return;
    }
    struct reflections left = *r, right = *r;
    left.b = half;
    right.m -= half;
    right.b -= half;
    right.v += half * (r->v_stride + 1) * size;
    right.t += half * (r->t_stride + 1) * size;
    reflections_make(place, &left);
    decompose_reflect_by(place, &left, true, r->v + half * r->v_stride * size, r->v_stride, right.b);
    reflections_make(place, &right);
    reflections_join(place, &left, &right, r->t + half * r->t_stride * size);
}

void decompose_reflections(const struct place *place, int64_t block) {
    const struct job *job = place->job;
    const struct reflections r = reflections_of(place, block);
    memset(r.t, 0, (size_t)(job->block * job->block * job->size)); /* nothing else is below the diagonal */
    if (job->is_complex) {
        const int rows = (int)r.m, columns = (int)r.b, lead = (int)r.v_stride, t_lead = (int)r.t_stride;
        int info;
        job->lapack->geqrt3(&rows, &columns, r.v, &lead, r.t, &t_lead, &info);
    } else {
        reflections_make(place, &r);
    }
}

void decompose_reflect(const struct place *place, bool transposed, int64_t block, char *c, int64_t c_rows,
                       int64_t columns) {
    const struct reflections r = reflections_of(place, block);
    decompose_reflect_by(place, &r, transposed, c, c_rows, columns);
}

/* Column by column: -tau · t · (vᴴ · the column's own vector) above the diagonal, where t is that of the columns before. */
void decompose_join(const struct place *place, const struct reflections *r, const char *tau) {
    const struct job *job = place->job;
    const struct lapack *lapack = job->lapack;
    int64_t size = job->size, b = r->b, rest = r->m - b;
    char *first = work_part(place, 0), *products = work_part(place, 1), *less = work_part(place, 2);
    const char *below = r->v + b * size;
    const int t_lead = (int)r->t_stride, one = 1;
    triangle_copy(job, r, first);
    multiply(job, lapack->one, true, b, b, b, first, b, first, b, products, b, false);
    if (rest > 0) {
        multiply(job, lapack->one, true, b, b, rest, below, r->v_stride, below, r->v_stride, products, b, true);
    }
    for (int64_t i = 0; i < b; i++) {
        const int before = (int)i;
        char *column = r->t + i * r->t_stride * size;
        memset(column, 0, (size_t)(b * size));
        memcpy(column + i * size, tau + i * size, (size_t)size);
        number_set(job, less, -number(job, tau + i * size));
        if (job->is_complex) {
            number_set(job, less + job->part, -number(job, tau + i * size + job->part));
        }
        if (i > 0) {
            lapack->gemv("N", &before, &before, less, r->t, &t_lead, products + i * b * size, &one, lapack->nothing,
                         column, &one, 1);
        }
    }
}
