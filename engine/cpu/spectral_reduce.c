/* The reduction of a matrix to a tridiagonal one, or for singular values to a bidiagonal one, and the product of its reflections. */
#include <math.h>

#include "engine/cpu/spectral.h"

/* ---- before the reduction ---- */

/* a's lower triangle column by column: row by row that is the upper one. */
bool spectral_gather_symmetric(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const char *a = operand_matrix(&job->launch->inputs[0], place->number);
    int64_t begin, end, n = job->n;
    copy_columns(n, n, index, &begin, &end);
    bool upper;
    if (job->launch->opcode == OP_EIGH) {
        struct eigh_attributes attributes;
        eigh_attributes_read(&job->launch->attributes, &attributes);
        upper = attributes.upper;
    } else {
        struct eigvalsh_attributes attributes;
        eigvalsh_attributes_read(&job->launch->attributes, &attributes);
        upper = attributes.upper;
    }
    if (upper) {
        memcpy(at(job, place->a, n, 0, begin), a + begin * n * job->size, (size_t)((end - begin) * n * job->size));
        conjugate(job, at(job, place->a, n, 0, begin), (end - begin) * n);
    } else {
        decompose_transpose(job, place->a, n, a, n, n, begin, end);
    }
    for (int64_t j = begin; j < end && job->is_complex; j++) { /* the diagonal is real */
        number_set(job, at(job, place->a, n, j, j) + job->part, 0);
    }
    return true;
}

/* The greater of `most` and the magnitudes of n elements; NaN if one is not finite. */
#define GREATEST(name, T)                                                                                              \
    static double name(const T *x, int64_t n, double most) {                                                           \
        T greatest = 0, zero = 0;                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T magnitude = x[i] < 0 ? -x[i] : x[i];                                                                     \
            greatest = magnitude > greatest ? magnitude : greatest;                                                    \
            zero += x[i] * 0; /* NaN from the first element on that is not finite */                                   \
        }                                                                                                              \
        return zero == 0 ? fmax((double)greatest, most) : (double)NAN;                                                 \
    }
GREATEST(greatest_f32, float)
GREATEST(greatest_f64, double)

#define SCALE(name, T)                                                                                                 \
    static void name(T *x, int64_t n, int exponent) {                                                                  \
        T first = (T)ldexp(1, exponent / 2), second = (T)ldexp(1, exponent - exponent / 2);                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] = x[i] * first * second;                                                                              \
        }                                                                                                              \
    }
SCALE(scale_f32, float)
SCALE(scale_f64, double)

bool spectral_write_nan(const struct place *place) {
    const struct job *job = place->job;
    struct spectral_state *state = state_of(place);
    int64_t first = 0, begin = state->written, end = begin + COPY_ELEMENTS;
    for (unsigned i = 0; i <= job->launch->further; i++) { /* the numbers of all results, one after another */
        const struct operand *out = i == 0 ? &job->launch->output : launch_further(job->launch, i);
        char *to = operand_matrix(out, place->number);
        int64_t n = out->shape[1] * out->shape[2] * (dtype_is_complex((enum dtype)out->dtype) ? 2 : 1);
        for (int64_t k = begin > first ? begin - first : 0; k < least(n, end - first); k++) {
            number_set(job, to + k * job->part, (double)NAN);
        }
        first += n;
    }
    state->written = end;
    return end < first;
}

bool spectral_begin(const struct place *place, int64_t index) {
    (void)index;
    *state_of(place) = (struct spectral_state){.iterating = true, .low = place->job->n, .high = place->job->n - 1};
    return true;
}

bool spectral_measure(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct spectral_state *state = state_of(place);
    int64_t begin, end;
    if (isnan(state->most)) {
        return spectral_write_nan(place);
    }
    copy_columns(job->m, job->n, index, &begin, &end);
    for (int64_t j = begin; j < end && !isnan(state->most); j++) {
        int64_t from = is_svd(job) ? 0 : j;
        const char *column = at(job, place->a, job->m, from, j);
        int64_t parts = (job->m - from) * (job->is_complex ? 2 : 1);
        state->most = job->wide ? greatest_f64((const void *)column, parts, state->most)
                                : greatest_f32((const void *)column, parts, state->most);
    }
    return true;
}

int64_t spectral_measure_again(const struct place *place, int64_t index) {
    (void)index;
    return isnan(state_of(place)->most) ? 1 : 0;
}

bool spectral_scale(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct spectral_state *state = state_of(place);
    int64_t begin, end;
    int exponent = 0;
    copy_columns(job->m, job->n, index, &begin, &end);
    if (state->most > 0) {
        frexp(state->most, &exponent);
    }
    if (index == 0) {
        state->exponent = exponent;
    }
    for (int64_t j = begin; j < end && exponent != 0; j++) {
        int64_t from = is_svd(job) ? 0 : j;
        char *column = at(job, place->a, job->m, from, j);
        int64_t parts = (job->m - from) * (job->is_complex ? 2 : 1);
        if (job->wide) {
            scale_f64((void *)column, parts, -exponent);
        } else {
            scale_f32((void *)column, parts, -exponent);
        }
    }
    return true;
}

/* Of a tall matrix R alone goes on. */
bool spectral_take_triangle(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end, n = job->n;
    copy_columns(n, n, index, &begin, &end);
    for (int64_t j = begin; j < end; j++) {
        memcpy(square(place, 0, j), at(job, place->a, job->m, 0, j), (size_t)((j + 1) * job->size));
        memset(square(place, 0, j) + (j + 1) * job->size, 0, (size_t)((n - j - 1) * job->size));
    }
    return true;
}

/* ---- reduction ---- */

static char *panel_values(const struct place *place, int64_t offset, int64_t column) {
    return (char *)part(place, offset) + column * place->job->size;
}

/* One panel: LAPACK's ?latrd, and the rest of the matrix less v · wᵀ + w · vᵀ, of complex numbers
 * conjugate transposes. The diagonals are real. */
bool spectral_reduce_symmetric(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    double *values = part(place, plan->values_at), *beside = part(place, plan->beside_at);
    int64_t j = index * plan->panel, b = least(plan->panel, job->n - j), rest = job->n - j - b;
    char *w = part(place, plan->panel_at[0]), *e = part(place, plan->scratch_at);
    const int n = (int)(job->n - j), columns = (int)b, lead = (int)job->n;
    job->lapack->latrd("L", &n, &columns, square(place, j, j), &lead, e, panel_values(place, plan->tau_at[0], j), w,
                       &lead, 1);
    if (rest > 0) {
        const char *v = square(place, j + b, j), *w_rest = w + b * job->size;
        char *c = square(place, j + b, j + b);
        const int left = (int)rest;
        job->lapack->syr2k("L", "N", &left, &columns, job->lapack->less, v, &lead, w_rest, &lead, job->lapack->one, c,
                           &lead, 1, 1);
    }
    for (int64_t i = j; i < j + b; i++) {
        values[i] = number(job, square(place, i, i));
        if (i + 1 < job->n) {
            beside[i] = number(job, e + (i - j) * job->part);
        }
    }
    return true;
}

static void subtract_product(const struct job *job, const char *b_transposed, int64_t n, int64_t k, const char *a,
                             const char *b, char *c) {
    const int lead = (int)job->n, extent = (int)n, depth = (int)k;
    job->lapack->gemm("N", b_transposed, &extent, &extent, &depth, job->lapack->less, a, &lead, b, &lead,
                      job->lapack->one, c, &lead, 1, 1);
}

/* One panel: LAPACK's ?labrd, and the rest of the matrix less v · yᵀ + x · uᵀ, of complex numbers v · yᴴ. */
bool spectral_reduce_general(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    double *values = part(place, plan->values_at), *beside = part(place, plan->beside_at);
    int64_t j = index * plan->panel, b = least(plan->panel, job->n - j), rest = job->n - j - b;
    char *x = part(place, plan->panel_at[0]), *y = part(place, plan->panel_at[1]);
    char *d = part(place, plan->scratch_at), *e = d + PANEL_MOST * job->part;
    const int n = (int)(job->n - j), columns = (int)b, lead = (int)job->n;
    job->lapack->labrd(&n, &n, &columns, square(place, j, j), &lead, d, e, panel_values(place, plan->tau_at[LEFT], j),
                       panel_values(place, plan->tau_at[RIGHT], j), x, &lead, y, &lead);
    if (rest > 0) {
        char *c = square(place, j + b, j + b);
        subtract_product(job, job->lapack->transposed, rest, b, square(place, j + b, j), y + b * job->size, c);
        subtract_product(job, "N", rest, b, x + b * job->size, square(place, j, j + b), c);
    }
    for (int64_t i = 0; i < b; i++) {
        values[j + i] = number(job, d + i * job->part);
        if (j + i + 1 < job->n) {
            beside[j + i] = number(job, e + i * job->part);
        }
    }
    return true;
}

/* ---- the first vectors ---- */

/* The leading n by n of b becomes the identity. */
bool spectral_identity(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end, n = job->n;
    copy_columns(n, n, index, &begin, &end);
    memset(at(job, place->b, n, 0, begin), 0, (size_t)((end - begin) * n * job->size));
    for (int64_t j = begin; j < end; j++) {
        number_set(job, at(job, place->b, n, j, j), 1);
    }
    return true;
}

/* Some reflections, whose vectors begin `below` rows under the diagonal. */
static struct reflections reflections_of(const struct place *place, int64_t block, int64_t below) {
    const struct job *job = place->job;
    int64_t b = job->spectral.reflected, j = block * b, left = job->n - j - below;
    return (struct reflections){.m = left,
                                .b = least(b, left),
                                .v_stride = job->n,
                                .t_stride = b,
                                .v = square(place, j + below, j),
                                .t = (char *)part(place, job->spectral.joined_at) + block * b * b * job->size};
}

static bool join(const struct place *place, int64_t block, int side, int64_t below) {
    const struct spectral_plan *plan = &place->job->spectral;
    const struct reflections r = reflections_of(place, block, below);
    if (r.b > 0) {
        decompose_join(place, &r, panel_values(place, plan->tau_at[side], block * plan->reflected));
    }
    return true;
}

bool spectral_join_symmetric(const struct place *place, int64_t index) {
    return join(place, index, LEFT, 1);
}

bool spectral_join_left(const struct place *place, int64_t index) {
    return join(place, index, LEFT, 0);
}

/* The vectors of reflections from the right lie as rows, and as conjugates; below the diagonal they become columns. */
bool spectral_join_right(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t n = job->n, j = index * job->spectral.reflected, end = least(j + job->spectral.reflected, n);
    for (int64_t row = j + 1; row < end; row++) {
        for (int64_t column = j; column < row; column++) {
            memcpy(square(place, row, column), square(place, column, row), (size_t)job->size);
        }
    }
    if (end < n) {
        decompose_transpose(job, square(place, end, j), n, square(place, j, end), n, n - end, 0, end - j);
    }
    for (int64_t column = j; column < end; column++) {
        conjugate(job, square(place, 0, column) + (column + 1) * job->size, n - column - 1);
    }
    return join(place, index, RIGHT, 1);
}

/* Applies some reflections, the last ones first, to some columns. */
static bool make_vectors(const struct place *place, int64_t index, int64_t below) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    int64_t blocks = divided_up(job->n, plan->reflected), strips = divided_up(job->n, plan->made);
    int64_t block = blocks - 1 - index / strips, begin = index % strips * plan->made;
    const struct reflections r = reflections_of(place, block, below);
    int64_t first = block * plan->reflected + below, column = begin > first ? begin : first;
    int64_t columns = least(begin + plan->made, job->n) - column;
    if (r.b > 0 && columns > 0) {
        decompose_reflect_by(place, &r, false, at(job, place->b, job->n, first, column), job->n, columns);
    }
    return true;
}

bool spectral_make_symmetric(const struct place *place, int64_t index) {
    return make_vectors(place, index, 1);
}

bool spectral_make_left(const struct place *place, int64_t index) {
    return make_vectors(place, index, 0);
}

bool spectral_make_right(const struct place *place, int64_t index) {
    return make_vectors(place, index, 1);
}

char *spectral_block(const struct place *place, int side, int64_t block) {
    return (char *)part(place, place->job->spectral.packed_at[side]) + block * place->job->n * CPU_ROTATE_BYTES;
}

/* Packs columns of b. */
static bool pack(const struct place *place, int64_t index, int side) {
    const struct job *job = place->job;
    int64_t begin, end, n = job->n, rows = job->spectral.rows;
    copy_columns(n, n, index, &begin, &end);
    for (int64_t block = 0; block * rows < n; block++) {
        int64_t first = block * rows, bytes = least(rows, n - first) * job->size;
        char *to = spectral_block(place, side, block);
        for (int64_t j = begin; j < end; j++) {
            memcpy(to + j * CPU_ROTATE_BYTES, at(job, place->b, n, first, j), (size_t)bytes);
            memset(to + j * CPU_ROTATE_BYTES + bytes, 0, (size_t)(CPU_ROTATE_BYTES - bytes));
        }
    }
    return true;
}

bool spectral_pack_left(const struct place *place, int64_t index) {
    return pack(place, index, LEFT);
}

bool spectral_pack_right(const struct place *place, int64_t index) {
    return pack(place, index, RIGHT);
}
