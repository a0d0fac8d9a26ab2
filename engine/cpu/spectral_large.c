/* The reduction of a matrix so large that LAPACK's ?latrd or ?labrd would take long for one panel: the same formulas, in steps.
 *
 * A column of a panel, and of a general matrix a row, is brought up to date and becomes a reflection. Then the matrix behind it is
 * multiplied by the reflection's vector, some columns at a time, and the vector beside it follows from that. When all columns of the
 * panel have theirs, the rest of the matrix is brought up to date, some columns at a time. */
#include <complex.h>

#include "engine/cpu/spectral.h"

enum {
    TILE_COLUMNS = 64, /* of a symmetric matrix a tile is multiplied from both sides while it is in the cache */
    TILE_ROWS = 512,
};

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

static char *tau_at(const struct panel *p, int side, int64_t column) {
    return (char *)part(p->place, p->job->spectral.tau_at[side]) + (p->j + column) * p->job->size;
}

static void one_set(const struct job *job, char *element) {
    memcpy(element, job->lapack->one, (size_t)job->size);
}

static double complex value(const struct job *job, const char *element) {
    return CMPLX(number(job, element), job->is_complex ? number(job, element + job->part) : 0);
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

/* The conjugates of n elements of a row, n up to PANEL_MOST, one behind another. */
static const char *row_conjugated(const struct panel *p, const char *row, int64_t n) {
    const struct job *job = p->job;
    char *to = part(p->place, job->spectral.scratch_at);
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * job->size, row + i * job->n * job->size, (size_t)job->size);
    }
    conjugate(job, to, n);
    return to;
}

static void row_conjugate(const struct panel *p, char *row, int64_t n) {
    for (int64_t i = 0; i < n && p->job->is_complex; i++) {
        conjugate(p->job, row + i * p->job->n * p->job->size, 1);
    }
}

/* n elements become a reflection's vector, whose first element is 1; returns what it leaves of them. */
static double reflection(const struct panel *p, int64_t n, char *first, char *rest, int64_t step, char *tau) {
    const int extent = (int)n, by = (int)step;
    p->job->lapack->larfg(&extent, first, rest, &by, tau);
    double left = number(p->job, first);
    one_set(p->job, first);
    return left;
}

static void scale(const struct panel *p, int64_t n, const char *factor, char *x) {
    const int extent = (int)n, one = 1;
    p->job->lapack->scal(&extent, factor, x, &one);
}

/* Where a step ends that goes through columns of so many rows, some `elements`, from column `done` on. */
static int64_t strip_end(int64_t elements, int64_t rows, int64_t done, int64_t end) {
    int64_t columns = elements / rows / 8 * 8;
    return least(done + (columns > 8 ? columns : 8), end);
}

/* A column's stages have ended: the next column, the rest of the matrix, or the next panel. */
static void column_end(const struct panel *p, struct spectral_state *state) {
    bool more = ++state->column < p->b;
    state->stage = more || p->b == p->left ? STAGE_COLUMN : STAGE_REST;
    state->column = more ? state->column : 0;
    state->done = p->b;
}

/* The column has become a reflection: the columns behind it are multiplied by its vector, if there are any. */
static void column_reflected(const struct panel *p, struct spectral_state *state) {
    state->done = state->column + 1;
    state->stage = STAGE_BY_COLUMN;
    if (state->done == p->left) {
        column_end(p, state);
    }
}

bool spectral_reduce_again(const struct place *place) {
    const struct spectral_state *state = state_of(place);
    return state->stage != STAGE_COLUMN || state->column > 0;
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
        beside[p->j + i] =
            reflection(p, rest, a_at(p, i + 1, i), a_at(p, least(i + 2, p->left - 1), i), 1, tau_at(p, LEFT, i));
        memset(x_at(p, i + 1, i), 0, (size_t)(rest * job->size));
    }
}

/* The columns from `begin` to `end` - 1 of the lower triangle, and what lies across from them, times column i. */
static void symmetric_strip(const struct panel *p, int64_t i, int64_t begin, int64_t end) {
    const struct lapack *lapack = p->job->lapack;
    const int lead = (int)p->job->n, one = 1;
    for (int64_t c = begin; c < end; c += TILE_COLUMNS) {
        int64_t columns = least(TILE_COLUMNS, end - c);
        const int order = (int)columns;
        lapack->symv("L", &order, lapack->one, a_at(p, c, c), &lead, a_at(p, c, i), &one, lapack->one, x_at(p, c, i),
                     &one, 1);
        for (int64_t r = c + columns; r < p->left; r += TILE_ROWS) {
            int64_t rows = least(TILE_ROWS, p->left - r);
            times(p, false, rows, columns, a_at(p, r, c), a_at(p, c, i), 1, ADD, x_at(p, r, i), 1);
            times(p, true, rows, columns, a_at(p, r, c), a_at(p, r, i), 1, ADD, x_at(p, c, i), 1);
        }
    }
}

static void symmetric_vector(const struct panel *p, int64_t i) {
    const struct job *job = p->job;
    int64_t rest = p->left - i - 1;
    char *v = a_at(p, i + 1, i), *w = x_at(p, i + 1, i), *above = x_at(p, 0, i), *tau = tau_at(p, LEFT, i);
    char *factor = part(p->place, job->spectral.scratch_at);
    times(p, true, rest, i, x_at(p, i + 1, 0), v, 1, SET, above, 1);
    times(p, false, rest, i, a_at(p, i + 1, 0), above, 1, SUBTRACT, w, 1);
    times(p, true, rest, i, a_at(p, i + 1, 0), v, 1, SET, above, 1);
    times(p, false, rest, i, x_at(p, i + 1, 0), above, 1, SUBTRACT, w, 1);
    scale(p, rest, tau, w);
    times(p, true, rest, 1, w, v, 1, SET, factor, 1);
    double complex by = -0.5 * value(job, tau) * value(job, factor);
    number_set(job, factor, creal(by));
    if (job->is_complex) {
        number_set(job, factor + job->part, cimag(by));
    }
    times(p, false, rest, 1, v, factor, 1, ADD, w, 1);
}

static void symmetric_rest(const struct panel *p, int64_t begin, int64_t end) {
    const struct lapack *lapack = p->job->lapack;
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
    const struct spectral_plan *plan = &place->job->spectral;
    const struct panel p = panel_of(place, index);
    struct spectral_state *state = state_of(place);
    int64_t i = state->column, end;
    switch (state->stage) {
    case STAGE_COLUMN:
        symmetric_column(&p, i);
        column_reflected(&p, state);
        break;
    case STAGE_BY_COLUMN:
        end = strip_end(plan->piece, p.left - state->done, state->done, p.left);
        symmetric_strip(&p, i, state->done, end);
        state->done = end;
        state->stage = end < p.left ? STAGE_BY_COLUMN : STAGE_VECTOR;
        break;
    case STAGE_VECTOR:
        symmetric_vector(&p, i);
        column_end(&p, state);
        break;
    default:
        end = strip_end(plan->updated, p.left - state->done, state->done, p.left);
        symmetric_rest(&p, state->done, end);
        state->done = end;
        state->stage = end < p.left ? STAGE_REST : STAGE_COLUMN;
    }
    return true;
}

/* ---- general: a less v · yᵀ + x · uᵀ, of complex numbers v · yᴴ ---- */

static void general_column(const struct panel *p, int64_t i) {
    double *values = part(p->place, p->job->spectral.values_at);
    int64_t rows = p->left - i;
    char *diagonal = a_at(p, i, i);
    times(p, false, rows, i, a_at(p, i, 0), row_conjugated(p, y_at(p, i, 0), i), 1, SUBTRACT, diagonal, 1);
    times(p, false, rows, i, x_at(p, i, 0), a_at(p, 0, i), 1, SUBTRACT, diagonal, 1);
    values[p->j + i] = reflection(p, rows, diagonal, a_at(p, least(i + 1, p->left - 1), i), 1, tau_at(p, LEFT, i));
}

/* y beside column i, of which the product with the matrix is known; then row i, which is kept as its conjugate until x is known, too. */
static void general_row(const struct panel *p, int64_t i) {
    const struct job *job = p->job;
    double *beside = part(p->place, job->spectral.beside_at);
    int64_t rest = p->left - i - 1, lead = job->n;
    char *v = a_at(p, i, i), *y = y_at(p, i + 1, i), *above = y_at(p, 0, i), *u = a_at(p, i, i + 1);
    times(p, true, rest + 1, i, a_at(p, i, 0), v, 1, SET, above, 1);
    times(p, false, rest, i, y_at(p, i + 1, 0), above, 1, SUBTRACT, y, 1);
    times(p, true, rest + 1, i, x_at(p, i, 0), v, 1, SET, above, 1);
    times(p, true, i, rest, a_at(p, 0, i + 1), above, 1, SUBTRACT, y, 1);
    scale(p, rest, tau_at(p, LEFT, i), y);
    row_conjugate(p, u, rest);
    times(p, false, rest, i + 1, y_at(p, i + 1, 0), row_conjugated(p, a_at(p, i, 0), i + 1), 1, SUBTRACT, u, lead);
    times(p, true, i, rest, a_at(p, 0, i + 1), row_conjugated(p, x_at(p, i, 0), i), 1, SUBTRACT, u, lead);
    beside[p->j + i] = reflection(p, rest, u, a_at(p, i, least(i + 2, p->left - 1)), lead, tau_at(p, RIGHT, i));
    memset(x_at(p, i + 1, i), 0, (size_t)(rest * job->size));
}

static void general_vector(const struct panel *p, int64_t i) {
    int64_t rest = p->left - i - 1, lead = p->job->n;
    char *u = a_at(p, i, i + 1), *x = x_at(p, i + 1, i), *above = x_at(p, 0, i);
    times(p, true, rest, i + 1, y_at(p, i + 1, 0), u, lead, SET, above, 1);
    times(p, false, rest, i + 1, a_at(p, i + 1, 0), above, 1, SUBTRACT, x, 1);
    times(p, false, i, rest, a_at(p, 0, i + 1), u, lead, SET, above, 1);
    times(p, false, rest, i, x_at(p, i + 1, 0), above, 1, SUBTRACT, x, 1);
    scale(p, rest, tau_at(p, RIGHT, i), x);
    row_conjugate(p, u, rest);
}

bool spectral_reduce_general_large(const struct place *place, int64_t index) {
    const struct spectral_plan *plan = &place->job->spectral;
    const struct panel p = panel_of(place, index);
    struct spectral_state *state = state_of(place);
    int64_t i = state->column, done = state->done;
    switch (state->stage) {
    case STAGE_COLUMN:
        general_column(&p, i);
        column_reflected(&p, state);
        break;
    case STAGE_BY_COLUMN:
        state->done = strip_end(plan->piece, p.left - i, done, p.left);
        times(&p, true, p.left - i, state->done - done, a_at(&p, i, done), a_at(&p, i, i), 1, SET, y_at(&p, done, i),
              1);
        state->stage = state->done < p.left ? STAGE_BY_COLUMN : STAGE_ROW;
        break;
    case STAGE_ROW:
        general_row(&p, i);
        state->done = i + 1;
        state->stage = STAGE_BY_ROW;
        break;
    case STAGE_BY_ROW:
        state->done = strip_end(plan->piece, p.left - i, done, p.left);
        times(&p, false, p.left - i - 1, state->done - done, a_at(&p, i + 1, done), a_at(&p, i, done), p.job->n, ADD,
              x_at(&p, i + 1, i), 1);
        state->stage = state->done < p.left ? STAGE_BY_ROW : STAGE_VECTOR;
        break;
    case STAGE_VECTOR:
        general_vector(&p, i);
        column_end(&p, state);
        break;
    default:
        state->done = strip_end(plan->updated, p.left - p.b, done, p.left);
        subtract(&p, p.left - p.b, state->done - done, a_at(&p, p.b, 0), true, y_at(&p, done, 0), a_at(&p, p.b, done));
        subtract(&p, p.left - p.b, state->done - done, x_at(&p, p.b, 0), false, a_at(&p, 0, done), a_at(&p, p.b, done));
        state->stage = state->done < p.left ? STAGE_REST : STAGE_COLUMN;
    }
    return true;
}
