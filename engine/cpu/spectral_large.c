/* The reduction of a large matrix by the formulas of LAPACK's ?latrd and ?labrd, in rounds of parts for several threads.
 *
 * A column of a panel is brought up to date and becomes a reflection. Then the matrix behind it is multiplied by the reflection's vector, some
 * columns in each part, and the vector beside it follows from that. Of a general matrix a row becomes a reflection, too, by which
 * the matrix is multiplied: mostly together with the column's product, since the row follows from that element by element, and its
 * reflection is but a multiple of it with another first element (after Howell, Demmel, Fulton, Hammarling, Marmol: "Cache Efficient
 * Bidiagonalization Using BLAS 2.5 Operators", 2008). When all columns of the panel have theirs, the rest of the matrix is brought up to
 * date, some columns in each part. The extents alone say where parts begin, and their sums are added in their order, so results do not
 * depend on threads.
 */
#include <complex.h>
#include <math.h>

#include "engine/cpu/spectral.h"
#include "engine/cpu/symmetric.h"

enum {
    TILE_COLUMNS = 64, /* of a complex matrix a tile is multiplied from both sides while it is in the cache */
    TILE_ROWS = 512,
    PRODUCT_MOST = 32 << 20,   /* bytes that a part multiplies by a vector: more take long, at memory's rate */
    GENERAL_BYTES = 128 << 10, /* that are multiplied by a column and a row while they are in the cache */
    REST_PARTS = 8,            /* in which the rest is brought up to date, unless they have few columns or take long */
    REST_COLUMNS = 64,
};

/* What a round does. VECTOR, and mostly ROW, deal with the panel's next column, too; then there is no BY_ROW. */
enum { STAGE_COLUMN, STAGE_BY_COLUMN, STAGE_ROW, STAGE_BY_ROW, STAGE_VECTOR, STAGE_REST };

/* How a product is written. */
enum { SET, ADD, SUBTRACT };

/* The panel of b columns from j on; rows and columns count from j on, and `left` of them are left. */
struct panel {
    const struct place *place;
    const struct job *job;
    int64_t j, b, left;
};

static struct panel panel_of(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t j = index * job->spectral.panel;
    return (struct panel){place, job, j, least(job->spectral.panel, job->n - j), job->n - j};
}

static char *a_at(const struct panel *p, int64_t row, int64_t column) {
    return square(p->place, p->j + row, p->j + column);
}

/* The vectors beside the reflections: w of a symmetric matrix or x, and y. */
static char *x_at(const struct panel *p, int64_t row, int64_t column) {
    return at(p->job, part(p->place, p->job->spectral.panel_at[0]), p->job->n, row, column);
}

static char *y_at(const struct panel *p, int64_t row, int64_t column) {
    return at(p->job, part(p->place, p->job->spectral.panel_at[1]), p->job->n, row, column);
}

/* Vectors of reflections from the right, which lie across in the matrix. */
static char *u_at(const struct panel *p, int64_t row, int64_t column) {
    return at(p->job, part(p->place, p->job->spectral.across_at), p->job->n, row, column);
}

/* The sum of a product's part. */
static char *sum_at(const struct panel *p, int64_t which, int64_t row) {
    return at(p->job, part(p->place, p->job->spectral.sums_at), p->job->n, row, which);
}

static char *tau_at(const struct panel *p, int side, int64_t column) {
    return (char *)part(p->place, p->job->spectral.tau_at[side]) + (p->j + column) * p->job->size;
}

static void one_set(const struct job *job, char *element) {
    memcpy(element, job->lapack->one, (size_t)job->size);
}

static double complex value(const struct job *job, const char *element) {
    return CMPLX(number(job, element), job->is_complex ? number(job, element + job->part) : 0);
}

static void value_set(const struct job *job, char *element, double complex to) {
    number_set(job, element, creal(to));
    if (job->is_complex) {
        number_set(job, element + job->part, cimag(to));
    }
}

/* y = op(a) · x, or y is more or less by it. `a` has so many rows and columns as it lies. */
static void times(const struct panel *p, bool transposed, int64_t rows, int64_t columns, const char *a, const char *x,
                  int64_t x_step, int how, char *y, int64_t y_step) {
    const struct lapack *lapack = p->job->lapack;
    const int m = (int)rows, n = (int)columns, lead = (int)p->job->n, x_by = (int)x_step, y_by = (int)y_step;
    lapack->gemv(transposed ? lapack->transposed : "N", &m, &n, how == SUBTRACT ? lapack->less : lapack->one, a, &lead,
                 x, &x_by, how == SET ? lapack->nothing : lapack->one, y, &y_by, 1);
}

/* c (m, n) less a · op(b) of the panel's columns. */
static void subtract(const struct panel *p, int64_t m, int64_t n, const char *a, bool transposed, const char *b,
                     char *c) {
    const struct lapack *lapack = p->job->lapack;
    const int rows = (int)m, columns = (int)n, depth = (int)p->b, lead = (int)p->job->n;
    lapack->gemm("N", transposed ? lapack->transposed : "N", &rows, &columns, &depth, lapack->less, a, &lead, b, &lead,
                 lapack->one, c, &lead, 1, 1);
}

/* What of the scratch is kept from one round to the next. */
static char *kept(const struct panel *p, int which) {
    return (char *)part(p->place, p->job->spectral.scratch_at) + which * PANEL_MOST * p->job->size;
}

/* The conjugates of n elements of a row, n up to PANEL_MOST, one behind another. */
static void row_keep(const struct panel *p, const char *row, int64_t n, char *to) {
    const struct job *job = p->job;
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * job->size, row + i * job->n * job->size, (size_t)job->size);
    }
    conjugate(job, to, n);
}

static const char *row_conjugated(const struct panel *p, const char *row, int64_t n) {
    row_keep(p, row, n, part(p->place, p->job->spectral.scratch_at));
    return part(p->place, p->job->spectral.scratch_at);
}

/* n elements become a reflection's vector, whose first element is 1; returns what it leaves of them. */
static double reflection(const struct panel *p, int64_t n, char *first, char *tau) {
    const int extent = (int)n, by = 1;
    p->job->lapack->larfg(&extent, first, n > 1 ? first + p->job->size : first, &by, tau);
    double left = number(p->job, first);
    one_set(p->job, first);
    return left;
}

static void scale(const struct panel *p, int64_t n, const char *factor, char *x) {
    const int extent = (int)n, one = 1;
    p->job->lapack->scal(&extent, factor, x, &one);
}

/* ---- parts ---- */

int64_t spectral_products(const struct job *job, int64_t elements) {
    int64_t each = least(divided_up(elements, PRODUCTS_MOST), PRODUCT_MOST / job->size);
    return divided_up(elements, each > job->spectral.product ? each : job->spectral.product);
}

#define ADD_SUM(name, T)                                                                                               \
    static void name(int64_t n, const T *x, T *sum) {                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum[i] += x[i];                                                                                            \
        }                                                                                                              \
    }
ADD_SUM(add_f32, float)
ADD_SUM(add_f64, double)

/* sum, of n elements, and x; or it becomes x. */
static void sum_up(const struct job *job, int64_t n, const char *x, bool set, char *sum) {
    int64_t parts = n * (job->is_complex ? 2 : 1);
    if (set) {
        memcpy(sum, x, (size_t)(n * job->size));
    } else if (job->wide) {
        add_f64(parts, (const void *)x, (void *)sum);
    } else {
        add_f32(parts, (const void *)x, (void *)sum);
    }
}

/* Columns of a part that brings the rest of the matrix up to date. */
static int64_t rest_columns(const struct panel *p) {
    int64_t rest = p->left - p->b, each = divided_up(rest, REST_PARTS * 8) * 8;
    int64_t most = p->job->spectral.updated / rest / 8 * 8;
    each = each > REST_COLUMNS ? each : REST_COLUMNS;
    return least(each, most > 8 ? most : 8);
}

static int64_t rest_begin(const struct panel *p, int64_t which) {
    return least(p->b + which * rest_columns(p), p->left);
}

/* The next round has so many parts. */
static int64_t stage_set(struct spectral_state *state, int stage, int64_t parts) {
    state->stage = stage;
    return parts;
}

/* The panel has no further column, and maybe the matrix has no rest. */
static int64_t panel_end(const struct panel *p, struct spectral_state *state) {
    state->column = 0;
    return p->b < p->left ? stage_set(state, STAGE_REST, divided_up(p->left - p->b, rest_columns(p)))
                          : stage_set(state, STAGE_COLUMN, 0);
}

/* What follows the end of a column, of its vector, or of what is behind the panel. `parts` says how many compute a column's products. */
static int64_t panel_next(const struct panel *p, struct spectral_state *state,
                          int64_t parts(const struct panel *p, int64_t i)) {
    if (state->stage == STAGE_REST) {
        return stage_set(state, STAGE_COLUMN, 0);
    }
    if (state->stage != STAGE_COLUMN) {
        state->column++;
    }
    if (state->column == p->b || state->column + 1 == p->left) {
        return panel_end(p, state);
    }
    return stage_set(state, STAGE_BY_COLUMN, parts(p, state->column));
}

/* ---- symmetric: a less v · wᵀ + w · vᵀ, of complex numbers conjugate transposes ---- */

static void symmetric_column(const struct panel *p, int64_t i) {
    const struct job *job = p->job;
    double *values = part(p->place, job->spectral.values_at), *beside = part(p->place, job->spectral.beside_at);
    int64_t rest = p->left - i - 1;
    char *diagonal = a_at(p, i, i);
    times(p, false, rest + 1, i, a_at(p, i, 0), row_conjugated(p, x_at(p, i, 0), i), 1, SUBTRACT, diagonal, 1);
    times(p, false, rest + 1, i, x_at(p, i, 0), row_conjugated(p, a_at(p, i, 0), i), 1, SUBTRACT, diagonal, 1);
    values[p->j + i] = number(job, diagonal);
    if (job->is_complex) {
        number_set(job, diagonal + job->part, 0);
    }
    if (rest > 0) {
        beside[p->j + i] = reflection(p, rest, a_at(p, i + 1, i), tau_at(p, LEFT, i));
    }
}

static int64_t symmetric_products(const struct panel *p, int64_t i) {
    int64_t rest = p->left - i - 1;
    return spectral_products(p->job, rest * rest / 2 + 1);
}

/* Parts have equal areas of the triangle behind column i. */
static int64_t symmetric_begin(const struct panel *p, int64_t i, int64_t which) {
    int64_t rest = p->left - i - 1, parts = symmetric_products(p, i);
    if (which == parts) {
        return p->left;
    }
    return i + 1 + (int64_t)((double)rest * (1 - sqrt(1 - (double)which / (double)parts))) / 8 * 8;
}

/* Some columns of the lower triangle, and what lies across from them, times column i. */
static void symmetric_product(const struct panel *p, int64_t i, int64_t which) {
    const struct job *job = p->job;
    const int lead = (int)job->n, one = 1;
    int64_t begin = symmetric_begin(p, i, which), end = symmetric_begin(p, i, which + 1);
    memset(sum_at(p, which, begin), 0, (size_t)((p->left - begin) * job->size));
    if (!job->is_complex) {
        const struct cpu_symmetric *symmetric = job->base.cpu->kernels->symmetric;
        (job->wide ? symmetric->f64 : symmetric->f32)(p->left - begin, end - begin, a_at(p, begin, begin), lead,
                                                      a_at(p, begin, i), sum_at(p, which, begin));
        return;
    }
    for (int64_t c = begin; c < end; c += TILE_COLUMNS) {
        int64_t columns = least(TILE_COLUMNS, end - c);
        const int order = (int)columns;
        job->lapack->symv("L", &order, job->lapack->one, a_at(p, c, c), &lead, a_at(p, c, i), &one, job->lapack->one,
                          sum_at(p, which, c), &one, 1);
        for (int64_t r = c + columns; r < p->left; r += TILE_ROWS) {
            int64_t rows = least(TILE_ROWS, p->left - r);
            times(p, false, rows, columns, a_at(p, r, c), a_at(p, c, i), 1, ADD, sum_at(p, which, r), 1);
            times(p, true, rows, columns, a_at(p, r, c), a_at(p, r, i), 1, ADD, sum_at(p, which, c), 1);
        }
    }
}

/* Part 0 multiplies the panel's vectors by column i: they, too, are beside w of it. */
static void symmetric_part(const struct panel *p, int64_t i, int64_t which) {
    int64_t rest = p->left - i - 1;
    const char *v = a_at(p, i + 1, i);
    if (which > 0) {
        symmetric_product(p, i, which - 1);
        return;
    }
    times(p, true, rest, i, x_at(p, i + 1, 0), v, 1, SET, x_at(p, 0, i), 1);
    times(p, true, rest, i, a_at(p, i + 1, 0), v, 1, SET, kept(p, KEPT_PRODUCTS), 1);
}

static void symmetric_vector(const struct panel *p, int64_t i) {
    const struct job *job = p->job;
    int64_t rest = p->left - i - 1;
    char *v = a_at(p, i + 1, i), *w = x_at(p, i + 1, i), *tau = tau_at(p, LEFT, i);
    char *factor = part(p->place, job->spectral.scratch_at);
    for (int64_t which = 0, parts = symmetric_products(p, i); which < parts; which++) {
        int64_t begin = symmetric_begin(p, i, which);
        sum_up(job, p->left - begin, sum_at(p, which, begin), which == 0, x_at(p, begin, i));
    }
    times(p, false, rest, i, a_at(p, i + 1, 0), x_at(p, 0, i), 1, SUBTRACT, w, 1);
    times(p, false, rest, i, x_at(p, i + 1, 0), kept(p, KEPT_PRODUCTS), 1, SUBTRACT, w, 1);
    scale(p, rest, tau, w);
    times(p, true, rest, 1, w, v, 1, SET, factor, 1);
    value_set(job, factor, -0.5 * value(job, tau) * value(job, factor));
    times(p, false, rest, 1, v, factor, 1, ADD, w, 1);
}

static void symmetric_rest(const struct panel *p, int64_t which) {
    const struct lapack *lapack = p->job->lapack;
    int64_t begin = rest_begin(p, which), end = rest_begin(p, which + 1);
    const int order = (int)(end - begin), depth = (int)p->b, lead = (int)p->job->n;
    lapack->syr2k("L", "N", &order, &depth, lapack->less, a_at(p, begin, 0), &lead, x_at(p, begin, 0), &lead,
                  lapack->one, a_at(p, begin, begin), &lead, 1, 1);
    if (end < p->left) {
        int64_t rows = p->left - end, columns = end - begin;
        subtract(p, rows, columns, a_at(p, end, 0), true, x_at(p, begin, 0), a_at(p, end, begin));
        subtract(p, rows, columns, x_at(p, end, 0), true, a_at(p, begin, 0), a_at(p, end, begin));
    }
}

bool spectral_reduce_symmetric_large(const struct place *place, int64_t index) {
    const struct panel p = panel_of(place, index);
    const struct spectral_state *state = state_of(place);
    int64_t i = state->column;
    switch (state->stage) {
    case STAGE_COLUMN:
        symmetric_column(&p, i);
        break;
    case STAGE_BY_COLUMN:
        symmetric_part(&p, i, place->part);
        break;
    case STAGE_VECTOR:
        symmetric_vector(&p, i);
        if (i + 1 < p.b) {
            symmetric_column(&p, i + 1);
        }
        break;
    default:
        symmetric_rest(&p, place->part);
    }
    return true;
}

/* One more, which multiplies what the panel has. */
static int64_t symmetric_parts(const struct panel *p, int64_t i) {
    return 1 + symmetric_products(p, i);
}

int64_t spectral_symmetric_again(const struct place *place, int64_t index) {
    const struct panel p = panel_of(place, index);
    struct spectral_state *state = state_of(place);
    return state->stage == STAGE_BY_COLUMN ? stage_set(state, STAGE_VECTOR, 1) : panel_next(&p, state, symmetric_parts);
}

/* ---- general: a less v · yᵀ + x · uᵀ, of complex numbers conjugate transposes ---- */

static void general_column(const struct panel *p, int64_t i) {
    double *values = part(p->place, p->job->spectral.values_at);
    int64_t rows = p->left - i;
    char *diagonal = a_at(p, i, i);
    times(p, false, rows, i, a_at(p, i, 0), row_conjugated(p, y_at(p, i, 0), i), 1, SUBTRACT, diagonal, 1);
    times(p, false, rows, i, x_at(p, i, 0), row_conjugated(p, u_at(p, i, 0), i), 1, SUBTRACT, diagonal, 1);
    values[p->j + i] = reflection(p, rows, diagonal, tau_at(p, LEFT, i));
}

/* What the parts of column i's round need besides: the panel's vectors times the column, and what the columns before do to row i. */
static void general_prepare(const struct panel *p, int64_t i) {
    int64_t rows = p->left - i;
    times(p, true, rows, i, a_at(p, i, 0), a_at(p, i, i), 1, SET, y_at(p, 0, i), 1);
    times(p, true, rows, i, x_at(p, i, 0), a_at(p, i, i), 1, SET, kept(p, KEPT_PRODUCTS), 1);
    row_keep(p, a_at(p, i, 0), i, kept(p, KEPT_A));
    row_keep(p, x_at(p, i, 0), i, kept(p, KEPT_X));
}

static int64_t general_products(const struct panel *p, int64_t i) {
    return spectral_products(p->job, (p->left - i) * (p->left - i - 1));
}

/* Parts have equal numbers of the columns behind column i. */
static int64_t general_begin(const struct panel *p, int64_t i, int64_t which) {
    int64_t rest = p->left - i - 1, parts = general_products(p, i);
    return which == parts ? p->left : i + 1 + rest * which / parts / 8 * 8;
}

/* Elements of y beside column i, which are those of the product of the matrix and the column, less what the panel's vectors contribute; then
 * row i there; and the product of the matrix and the row, while these columns are in the cache. */
static void general_part(const struct panel *p, int64_t i, int64_t which) {
    const struct job *job = p->job;
    int64_t begin = general_begin(p, i, which), end = general_begin(p, i, which + 1), rest = p->left - i - 1;
    int64_t some = GENERAL_BYTES / job->size / (rest + 1) / 8 * 8, each = some > 8 ? some : 8;
    memset(y_at(p, begin, i), 0, (size_t)((end - begin) * job->size));
    times(p, false, end - begin, i, y_at(p, begin, 0), y_at(p, 0, i), 1, SUBTRACT, y_at(p, begin, i), 1);
    times(p, false, end - begin, i, u_at(p, begin, 0), kept(p, KEPT_PRODUCTS), 1, SUBTRACT, y_at(p, begin, i), 1);
    times(p, false, end - begin, i, y_at(p, begin, 0), kept(p, KEPT_A), 1, SUBTRACT, u_at(p, begin, i), 1);
    times(p, false, end - begin, i, u_at(p, begin, 0), kept(p, KEPT_X), 1, SUBTRACT, u_at(p, begin, i), 1);
    memset(sum_at(p, which, i + 1), 0, (size_t)(rest * job->size));
    for (int64_t c = begin; c < end; c += each) {
        int64_t columns = least(each, end - c);
        char *y = y_at(p, c, i), *row = u_at(p, c, i);
        times(p, true, rest + 1, columns, a_at(p, i, c), a_at(p, i, i), 1, ADD, y, 1);
        scale(p, columns, tau_at(p, LEFT, i), y);
        times(p, false, columns, 1, y, job->lapack->one, 1, SUBTRACT, row, 1);
        times(p, false, rest, columns, a_at(p, i + 1, c), row, 1, ADD, sum_at(p, which, i + 1), 1);
    }
}

/* The product of some columns and row i's reflection. */
static void general_row_part(const struct panel *p, int64_t i, int64_t which) {
    int64_t begin = general_begin(p, i, which), columns = general_begin(p, i, which + 1) - begin;
    times(p, false, p->left - i - 1, columns, a_at(p, i + 1, begin), u_at(p, begin, i), 1, SET, sum_at(p, which, i + 1),
          1);
}

/* The conjugates of the panel's rows become the columns of u, where they lie one behind another. */
static void rows_take(const struct panel *p) {
    decompose_transpose(p->job, u_at(p, 0, 0), p->job->n, a_at(p, 0, 0), p->job->n, p->left, 0, p->b);
    for (int64_t i = 0; i < p->b; i++) {
        conjugate(p->job, u_at(p, 0, i), p->left);
    }
}

/* The same back, behind the diagonal. */
static void rows_give(const struct panel *p) {
    const struct job *job = p->job;
    for (int64_t i = 0; i < p->b; i++) {
        for (int64_t k = i + 1; k < p->b; k++) {
            memcpy(a_at(p, i, k), u_at(p, k, i), (size_t)job->size);
            conjugate(job, a_at(p, i, k), 1);
        }
    }
    if (p->b < p->left) {
        decompose_transpose(job, a_at(p, 0, p->b), job->n, u_at(p, p->b, 0), job->n, p->b, 0, p->left - p->b);
    }
    for (int64_t k = p->b; k < p->left; k++) {
        conjugate(job, a_at(p, 0, k), p->b);
    }
}

static void general_sum(const struct panel *p, int64_t i) {
    int64_t rest = p->left - i - 1;
    for (int64_t which = 0, parts = general_products(p, i); which < parts; which++) {
        sum_up(p->job, rest, sum_at(p, which, i + 1), which == 0, x_at(p, i + 1, i));
    }
}

/* x beside row i, whose product with the matrix is known, then the next column, if the panel has one. */
static void general_vector(const struct panel *p, int64_t i) {
    int64_t rest = p->left - i - 1;
    char *u = u_at(p, i + 1, i), *x = x_at(p, i + 1, i);
    times(p, true, rest, i + 1, y_at(p, i + 1, 0), u, 1, SET, x_at(p, 0, i), 1);
    times(p, true, rest, i, u_at(p, i + 1, 0), u, 1, SET, kept(p, KEPT_PRODUCTS), 1);
    times(p, false, rest, i + 1, a_at(p, i + 1, 0), x_at(p, 0, i), 1, SUBTRACT, x, 1);
    times(p, false, rest, i, x_at(p, i + 1, 0), kept(p, KEPT_PRODUCTS), 1, SUBTRACT, x, 1);
    scale(p, rest, tau_at(p, RIGHT, i), x);
    if (i + 1 < p->b) {
        general_column(p, i + 1);
        general_prepare(p, i + 1);
    }
    if (i + 1 == p->b || i + 2 == p->left) { /* there is no further row */
        rows_give(p);
    }
}

/* Row i becomes a reflection, (row - beta · e₁) / (alpha - beta), and of the product with the row the one with that follows. False: the row is so
 * small that its product is not exact, and the reflection must be multiplied. */
static bool general_row(const struct panel *p, int64_t i) {
    const struct job *job = p->job;
    double *beside = part(p->place, job->spectral.beside_at);
    int64_t rest = p->left - i - 1;
    char *u = u_at(p, i + 1, i), *x = x_at(p, i + 1, i), *factor = part(p->place, job->spectral.scratch_at);
    double complex alpha = value(job, u);
    double beta = beside[p->j + i] = reflection(p, rest, u, tau_at(p, RIGHT, i));
    if (value(job, tau_at(p, RIGHT, i)) == 0) {
        memset(x, 0, (size_t)(rest * job->size)); /* it will be multiplied by tau */
    } else if (fabs(beta) < (job->wide ? 0x1p-900 : 0x1p-90)) {
        return false;
    } else {
        general_sum(p, i);
        value_set(job, factor, beta);
        times(p, false, rest, 1, a_at(p, i + 1, i + 1), factor, 1, SUBTRACT, x, 1);
        value_set(job, factor, 1 / (alpha - beta));
        scale(p, rest, factor, x);
    }
    general_vector(p, i);
    return true;
}

static void general_rest(const struct panel *p, int64_t which) {
    int64_t begin = rest_begin(p, which), columns = rest_begin(p, which + 1) - begin, rows = p->left - p->b;
    char *c = a_at(p, p->b, begin);
    subtract(p, rows, columns, a_at(p, p->b, 0), true, y_at(p, begin, 0), c);
    subtract(p, rows, columns, x_at(p, p->b, 0), true, u_at(p, begin, 0), c);
}

bool spectral_reduce_general_large(const struct place *place, int64_t index) {
    const struct panel p = panel_of(place, index);
    struct spectral_state *state = state_of(place);
    int64_t i = state->column;
    switch (state->stage) {
    case STAGE_COLUMN:
        rows_take(&p);
        general_column(&p, i);
        general_prepare(&p, i);
        break;
    case STAGE_BY_COLUMN:
        general_part(&p, i, place->part);
        break;
    case STAGE_ROW:
        state->multiplied = general_row(&p, i);
        break;
    case STAGE_BY_ROW:
        general_row_part(&p, i, place->part);
        break;
    case STAGE_VECTOR:
        general_sum(&p, i);
        general_vector(&p, i);
        break;
    default:
        general_rest(&p, place->part);
    }
    return true;
}

int64_t spectral_general_again(const struct place *place, int64_t index) {
    const struct panel p = panel_of(place, index);
    struct spectral_state *state = state_of(place);
    if (state->stage == STAGE_BY_COLUMN) {
        return stage_set(state, STAGE_ROW, 1);
    }
    if (state->stage == STAGE_ROW && !state->multiplied) {
        return stage_set(state, STAGE_BY_ROW, general_products(&p, state->column));
    }
    return state->stage == STAGE_BY_ROW ? stage_set(state, STAGE_VECTOR, 1) : panel_next(&p, state, general_products);
}
