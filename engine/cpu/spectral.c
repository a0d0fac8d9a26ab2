/* Eigenvalues of symmetric matrices, and singular values.
 *
 * A matrix is scaled by a power of two. LAPACK reduces it in panels to a tridiagonal matrix, or, from its triangle if it is tall, to a
 * bidiagonal one, by reflections from the left and the right. The products of these reflections are the first vectors. Then sweeps of
 * plane rotations make the diagonal: implicit QR iteration with Wilkinson's shift, and Golub's and Kahan's with Demmel's and
 * Kahan's sweep without a shift where the diagonal has zeros (SIAM J. Sci. Stat. Comput. 11, 1990). Both compute in f64, on the diagonals alone.
 * Some sweeps are collected, and then applied to the vectors, some rows at a time, which lie packed so that they stay in the cache
 * meanwhile (after Van Zee, van de Geijn, Quintana-Ortí: "Restructuring the Tridiagonal and Bidiagonal QR Algorithms", 2014).
 *
 * A sweep runs towards the end of its part with the smaller elements, where values come out first. What runs upwards is the mirror image of
 * what runs downwards: for a bidiagonal matrix that is the mirror image of the transpose, so left and right are exchanged. */
#include <math.h>

#include "engine/cpu/decompose.h"
#include "engine/cpu/sweep.h"

enum {
    PANEL_MOST = 32,  /* columns that LAPACK reduces at a time */
    SWEEPS_MOST = 32, /* that are collected */
    SWEEPS_EACH = 60, /* allowed for each value; 2 are usual */
};
/* Rotations of a step without vectors, and multiplications of a step that applies rotations. */
static const int64_t rotations_most = 100000;
static const double rotate_work = 5e7;

enum { LEFT, RIGHT }; /* sides of a singular value decomposition; an eigenvalue's vectors are LEFT */

/* What is kept of a matrix between steps. */
struct state {
    double most;    /* the greatest magnitude; NaN if there is something not finite */
    double norm;    /* the greatest element of the diagonals */
    int exponent;   /* the matrix was scaled by 2^-exponent */
    bool upwards;   /* the direction of sweeps along the part from `low` to `high` */
    bool iterating; /* values are not found yet, or collected sweeps not applied */
    int64_t low, high;
    int64_t sweeps;               /* so far */
    int64_t collected, rotations; /* of the sweeps that are to be applied */
    int64_t applied;              /* blocks of vectors to which they have been */
};

static void *part(const struct place *place, int64_t offset) {
    return place->a + offset;
}

static struct state *state_of(const struct place *place) {
    return part(place, place->job->spectral.state_at);
}

static bool is_svd(const struct job *job) {
    return job->launch->opcode == OP_SVD || job->launch->opcode == OP_SVDVALS;
}

/* The square matrix that is reduced, column by column. */
static char *square(const struct place *place, int64_t row, int64_t column) {
    return at(place->job, part(place, place->job->spectral.square_at), place->job->n, row, column);
}

/* ---- before the reduction ---- */

/* a's lower triangle column by column: row by row that is the upper one. */
static bool gather_symmetric(const struct place *place, int64_t index) {
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

/* All results of a matrix that has no values become NaN; and its further steps are left out. */
static bool write_nan(const struct place *place) {
    const struct job *job = place->job;
    for (unsigned i = 0; i <= job->launch->further; i++) {
        const struct operand *out = i == 0 ? &job->launch->output : launch_further(job->launch, i);
        char *to = operand_matrix(out, place->number);
        int64_t parts = dtype_is_complex((enum dtype)out->dtype) ? 2 : 1;
        for (int64_t k = 0; k < out->shape[1] * out->shape[2] * parts; k++) {
            number_set(job, to + k * job->part, (double)NAN);
        }
    }
    return false;
}

static bool measure(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct state *state = state_of(place);
    int64_t begin, end;
    copy_columns(job->m, job->n, index, &begin, &end);
    if (index == 0) {
        *state = (struct state){.iterating = true, .low = job->n, .high = job->n - 1};
    }
    for (int64_t j = begin; j < end; j++) {
        int64_t from = is_svd(job) ? 0 : j;
        const char *column = at(job, place->a, job->m, from, j);
        int64_t parts = (job->m - from) * (job->is_complex ? 2 : 1);
        state->most = job->wide ? greatest_f64((const void *)column, parts, state->most)
                                : greatest_f32((const void *)column, parts, state->most);
        if (isnan(state->most)) {
            return write_nan(place);
        }
    }
    return true;
}

static bool scale(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct state *state = state_of(place);
    int64_t begin, end;
    copy_columns(job->m, job->n, index, &begin, &end);
    if (index == 0 && state->most > 0) {
        frexp(state->most, &state->exponent);
    }
    for (int64_t j = begin; j < end && state->exponent != 0; j++) {
        int64_t from = is_svd(job) ? 0 : j;
        char *column = at(job, place->a, job->m, from, j);
        int64_t parts = (job->m - from) * (job->is_complex ? 2 : 1);
        if (job->wide) {
            scale_f64((void *)column, parts, -state->exponent);
        } else {
            scale_f32((void *)column, parts, -state->exponent);
        }
    }
    return true;
}

/* Of a tall matrix R alone goes on. */
static bool take_triangle(const struct place *place, int64_t index) {
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
static bool reduce_symmetric(const struct place *place, int64_t index) {
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
static bool reduce_general(const struct place *place, int64_t index) {
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
static bool identity(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end, n = job->n;
    copy_columns(n, n, index, &begin, &end);
    memset(at(job, place->b, n, 0, begin), 0, (size_t)((end - begin) * n * job->size));
    for (int64_t j = begin; j < end; j++) {
        number_set(job, at(job, place->b, n, j, j), 1);
    }
    return true;
}

/* Applies some reflections, the last ones first, whose vectors begin `below` rows under the diagonal, or for RIGHT behind it. */
static bool make_vectors(const struct place *place, int64_t index, int side, int64_t below) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    int64_t steps = divided_up(job->n, plan->reflected), j = (steps - 1 - index) * plan->reflected;
    int64_t first = j + below, left = job->n - first, b = least(plan->reflected, left);
    if (b <= 0) {
        return true;
    }
    const int n = (int)left, k = (int)b, lead = (int)job->n, work = (int)decompose_reflect_work(job->n);
    int info;
    const char *tau = panel_values(place, plan->tau_at[side], j);
    char *c = at(job, place->b, job->n, first, first);
    if (side == RIGHT) {
        job->lapack->ormlq("L", job->lapack->transposed, &n, &n, &k, square(place, j, first), &lead, tau, c, &lead,
                           place->work, &work, &info, 1, 1);
    } else {
        job->lapack->ormqr("L", "N", &n, &n, &k, square(place, first, j), &lead, tau, c, &lead, place->work, &work,
                           &info, 1, 1);
    }
    return true;
}

static bool make_symmetric(const struct place *place, int64_t index) {
    return make_vectors(place, index, LEFT, 1);
}

static bool make_left(const struct place *place, int64_t index) {
    return make_vectors(place, index, LEFT, 0);
}

static bool make_right(const struct place *place, int64_t index) {
    return make_vectors(place, index, RIGHT, 1);
}

/* A block of packed vectors: some rows, column by column. */
static char *block_of(const struct place *place, int side, int64_t block) {
    return (char *)part(place, place->job->spectral.packed_at[side]) + block * place->job->n * CPU_ROTATE_BYTES;
}

/* Packs columns of b. */
static bool pack(const struct place *place, int64_t index, int side) {
    const struct job *job = place->job;
    int64_t begin, end, n = job->n, rows = job->spectral.rows;
    copy_columns(n, n, index, &begin, &end);
    for (int64_t block = 0; block * rows < n; block++) {
        int64_t first = block * rows, bytes = least(rows, n - first) * job->size;
        char *to = block_of(place, side, block);
        for (int64_t j = begin; j < end; j++) {
            memcpy(to + j * CPU_ROTATE_BYTES, at(job, place->b, n, first, j), (size_t)bytes);
            memset(to + j * CPU_ROTATE_BYTES + bytes, 0, (size_t)(CPU_ROTATE_BYTES - bytes));
        }
    }
    return true;
}

static bool pack_left(const struct place *place, int64_t index) {
    return pack(place, index, LEFT);
}

static bool pack_right(const struct place *place, int64_t index) {
    return pack(place, index, RIGHT);
}

/* ---- iteration ---- */

static struct diagonals active_part(const struct place *place) {
    const struct state *state = state_of(place);
    double *values = part(place, place->job->spectral.values_at), *beside = part(place, place->job->spectral.beside_at);
    int64_t n = state->high - state->low + 1;
    return state->upwards ? (struct diagonals){n, -1, values + state->high, beside + state->high - 1}
                          : (struct diagonals){n, 1, values + state->low, beside + state->low};
}

/* Whether the element beside the diagonal at i may be taken for 0. */
static bool negligible(const struct place *place, int64_t i) {
    const struct job *job = place->job;
    const double *values = part(place, job->spectral.values_at), *beside = part(place, job->spectral.beside_at);
    double epsilon = job->wide ? 0x1p-53 : 0x1p-30;
    double side = fabs(beside[i]);
    return side <= epsilon * (fabs(values[i]) + fabs(values[i + 1])) ||
           side <= 0x1p-10 * epsilon * state_of(place)->norm;
}

/* Finds the last part whose elements beside the diagonal all count; false: there is none, and the values are found. */
static bool find_part(const struct place *place) {
    const struct job *job = place->job;
    const double *values = part(place, job->spectral.values_at);
    double *beside = part(place, job->spectral.beside_at);
    struct state *state = state_of(place);
    int64_t end_before = state->low;
    while (state->high > 0 && negligible(place, state->high - 1)) {
        beside[--state->high] = 0;
    }
    if (state->high == 0) {
        return false;
    }
    for (state->low = state->high - 1; state->low > 0 && !negligible(place, state->low - 1);) {
        state->low--;
    }
    if (state->low > 0) {
        beside[state->low - 1] = 0;
    }
    if (state->high < end_before) { /* a new part; the direction of an old one stays */
        state->upwards = fabs(values[state->low]) < fabs(values[state->high]);
    }
    return true;
}

/* Collects sweeps, some of them at most. */
static bool collect_sweeps(const struct place *place) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    struct state *state = state_of(place);
    for (int64_t done = 0; state->collected < SWEEPS_MOST && done < rotations_most;) {
        if (!find_part(place)) {
            state->iterating = false;
            return true;
        }
        if (++state->sweeps > SWEEPS_EACH * job->n) {
            return write_nan(place);
        }
        struct diagonals b = active_part(place);
        char *rotations[2] = {NULL, NULL};
        for (int side = 0; side < 2 && plan->vectors; side++) {
            rotations[side] = (char *)part(place, plan->rotations_at[side]) + 2 * state->rotations * job->part;
            struct cpu_sweep *sweep = (struct cpu_sweep *)part(place, plan->sweeps_at[side]) + state->collected;
            *sweep = (struct cpu_sweep){state->upwards ? state->high : state->low, b.n - 1, b.step, rotations[side]};
        }
        if (is_svd(job)) {
            sweep_general(job->wide, &b, rotations[state->upwards ? RIGHT : LEFT],
                          rotations[state->upwards ? LEFT : RIGHT]);
        } else {
            sweep_symmetric(job->wide, &b, rotations[LEFT]);
        }
        done += b.n;
        state->rotations += plan->vectors ? b.n - 1 : 0;
        state->collected += plan->vectors;
    }
    return true;
}

/* Applies what is collected to some blocks of vectors. */
static void apply_sweeps(const struct place *place) {
    const struct job *job = place->job;
    const struct spectral_plan *plan = &job->spectral;
    const struct cpu_kernels *kernels = job->base.cpu->kernels;
    cpu_rotate_function *rotate = job->wide ? kernels->rotate_f64 : kernels->rotate_f32;
    struct state *state = state_of(place);
    int64_t blocks = divided_up(job->n, plan->rows), all = is_svd(job) ? 2 * blocks : blocks;
    double each = (double)state->rotations * (double)plan->rows * 4, done = 0;
    for (; state->applied < all && (done == 0 || done + each <= rotate_work); done += each) {
        int side = state->applied < blocks ? LEFT : RIGHT;
        char *block = block_of(place, side, state->applied++ - (side == LEFT ? 0 : blocks));
        rotate(block, part(place, plan->sweeps_at[side]), state->collected);
    }
    if (state->applied == all) {
        state->collected = state->rotations = state->applied = 0;
    }
}

static bool iterate(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct state *state = state_of(place);
    (void)index;
    if (state->norm == 0) { /* the first time */
        const double *values = part(place, job->spectral.values_at), *beside = part(place, job->spectral.beside_at);
        for (int64_t i = 0; i < job->n; i++) {
            state->norm = fmax(state->norm, fabs(values[i]));
            state->norm = i + 1 < job->n ? fmax(state->norm, fabs(beside[i])) : state->norm;
        }
        state->iterating = state->norm > 0;
        state->norm = state->iterating ? state->norm : 1;
        return true;
    }
    if (state->collected == SWEEPS_MOST || (!state->iterating && state->collected > 0) || state->applied > 0) {
        apply_sweeps(place);
        return true;
    }
    return collect_sweeps(place);
}

static bool iterate_again(const struct place *place) {
    const struct state *state = state_of(place);
    return state->iterating || state->collected > 0;
}

/* ---- results ---- */

/* Whether value i comes before value j: ascending, or by magnitude descending; equal ones by their places. */
static bool before(const struct job *job, const double *values, int64_t i, int64_t j) {
    double a = is_svd(job) ? -fabs(values[i]) : values[i], b = is_svd(job) ? -fabs(values[j]) : values[j];
    return a < b || (a == b && i < j);
}

static void sink(const struct job *job, const double *values, int64_t *order, int64_t from, int64_t n) {
    int64_t moved = order[from];
    for (int64_t child = 2 * from + 1; child < n; child = 2 * from + 1) {
        child += child + 1 < n && before(job, values, order[child], order[child + 1]);
        if (!before(job, values, moved, order[child])) {
            break;
        }
        order[from] = order[child];
        from = child;
    }
    order[from] = moved;
}

/* The order of the values, by heapsort, and the values themselves. */
static bool write_values(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const double *values = part(place, job->spectral.values_at);
    int64_t *order = part(place, job->spectral.order_at);
    const struct operand *out = job->launch->opcode == OP_SVD ? launch_further(job->launch, 1) : &job->launch->output;
    char *to = operand_matrix(out, place->number);
    (void)index;
    for (int64_t i = 0; i < job->n; i++) {
        order[i] = i;
    }
    for (int64_t i = job->n / 2; i-- > 0;) {
        sink(job, values, order, i, job->n);
    }
    for (int64_t n = job->n; n-- > 1;) {
        int64_t last = order[0];
        order[0] = order[n];
        order[n] = last;
        sink(job, values, order, 0, n);
    }
    for (int64_t i = 0; i < job->n; i++) {
        double value = values[order[i]];
        number_set(job, to + i * job->part, ldexp(is_svd(job) ? fabs(value) : value, state_of(place)->exponent));
    }
    return true;
}

/* Vectors `begin` to `end` - 1 in their order: element i of number q goes to to[i · row + q · column]. The sign of a negative singular value
 * becomes that of its right vector, of which the results have the conjugate. An element has so many PARTS. */
#define UNPACK(name, T, PARTS)                                                                                         \
    static void name(const struct place *place, int side, T *to, int64_t row, int64_t column, int64_t begin,           \
                     int64_t end) {                                                                                    \
        const struct job *job = place->job;                                                                            \
        const double *values = part(place, job->spectral.values_at);                                                   \
        const int64_t *order = part(place, job->spectral.order_at);                                                    \
        int64_t n = job->n, rows = job->spectral.rows, pitch = CPU_ROTATE_BYTES / (int64_t)sizeof(T);                  \
        for (int64_t block = 0; block * rows < n; block++) {                                                           \
            const T *from = (const void *)block_of(place, side, block);                                                \
            int64_t first = block * rows, count = least(rows, n - first);                                              \
            for (int64_t q = begin; q < end; q++) {                                                                    \
                const T *vector = from + order[q] * pitch;                                                             \
                T sign = side == RIGHT && values[order[q]] < 0 ? -1 : 1, other = side == RIGHT ? -sign : sign;         \
                for (int64_t i = 0; i < count; i++) {                                                                  \
                    T *element = to + ((first + i) * row + q * column) * (PARTS);                                      \
                    element[0] = sign * vector[i * (PARTS)];                                                           \
                    element[(PARTS)-1] = (PARTS) == 1 ? element[0] : other * vector[i * (PARTS) + (PARTS)-1];          \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
UNPACK(unpack_f32, float, 1)
UNPACK(unpack_f64, double, 1)
UNPACK(unpack_c64, float, 2)
UNPACK(unpack_c128, double, 2)

static void unpack(const struct place *place, int64_t index, int side, char *to, int64_t row, int64_t column) {
    const struct job *job = place->job;
    int64_t begin, end;
    copy_columns(job->n, job->n, index, &begin, &end);
    if (job->wide) {
        (job->is_complex ? unpack_c128 : unpack_f64)(place, side, (void *)to, row, column, begin, end);
    } else {
        (job->is_complex ? unpack_c64 : unpack_f32)(place, side, (void *)to, row, column, begin, end);
    }
}

static bool write_eigenvectors(const struct place *place, int64_t index) {
    unpack(place, index, LEFT, operand_matrix(launch_further(place->job->launch, 1), place->number), place->job->n, 1);
    return true;
}

/* The vectors of the lesser extent: Vᴴ, or of what was factored across U. */
static bool write_right(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    char *u = operand_matrix(&job->launch->output, place->number);
    char *vh = operand_matrix(launch_further(job->launch, 2), place->number);
    unpack(place, index, RIGHT, job->across ? u : vh, job->across ? job->n : 1, job->across ? 1 : job->n);
    return true;
}

/* Those of the greater extent, if the matrix is square. */
static bool write_left(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    char *u = operand_matrix(&job->launch->output, place->number);
    char *vh = operand_matrix(launch_further(job->launch, 2), place->number);
    unpack(place, index, LEFT, job->across ? vh : u, job->across ? 1 : job->n, job->across ? job->n : 1);
    return true;
}

/* Else they are the rotated vectors of R, with zeros below, and the QR decomposition's reflections are applied to them. */
static bool begin_left(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end;
    copy_columns(job->b_rows, job->r, index, &begin, &end);
    for (int64_t j = begin; j < end; j++) {
        memset(at(job, place->b, job->b_rows, 0, j), 0, (size_t)(job->b_rows * job->size));
        if (j >= job->n) {
            number_set(job, at(job, place->b, job->b_rows, j, j), 1);
        }
    }
    return true;
}

static bool fill_left(const struct place *place, int64_t index) {
    unpack(place, index, LEFT, place->b, 1, place->job->b_rows);
    return true;
}

static bool reflect_left(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t block = job->blocks - 1 - index % job->blocks, column = index / job->blocks * job->strip;
    decompose_reflect(place, false, block, at(job, place->b, job->b_rows, block * job->block, column), job->b_rows,
                      least(job->strip, job->r - column));
    return true;
}

static bool scatter_left(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end;
    if (!job->across) {
        return decompose_scatter(place, index);
    }
    copy_columns(job->b_rows, job->r, index, &begin, &end);
    memcpy(operand_matrix(launch_further(job->launch, 2), place->number) + begin * job->b_rows * job->size,
           at(job, place->b, job->b_rows, 0, begin), (size_t)((end - begin) * job->b_rows * job->size));
    return true;
}

/* ---- the plan ---- */

/* Columns of a panel. For each column LAPACK multiplies the whole rest of the matrix by a vector, at memory's rate, and for a general matrix its
 * transpose, too; so a multiplication counts for 16, or for 64. */
static int64_t panel_extent(const struct job *job) {
    double n = (double)job->n, wanted = STEP_WORK / ((is_svd(job) ? 64 : 16) * n * n);
    int64_t panel = wanted < 2 ? 2 : wanted < PANEL_MOST ? (int64_t)wanted : PANEL_MOST;
    return least(panel, job->n);
}

void spectral_init(struct job *job) {
    struct spectral_plan *plan = &job->spectral;
    int opcode = job->launch->opcode;
    if (opcode != OP_EIGH && opcode != OP_EIGVALSH && !is_svd(job)) {
        return;
    }
    double n = (double)job->n;
    plan->vectors = opcode == OP_EIGH || opcode == OP_SVD;
    plan->panel = panel_extent(job);
    plan->panels = plan->panel ? divided_up(job->n, plan->panel) : 0;
    plan->reflected = step_extent(4 * n * n, job->n, PANEL_MOST);
    plan->rows = CPU_ROTATE_BYTES / job->size;
    if (plan->vectors) {
        const struct operand *left =
            opcode == OP_SVD && job->across ? launch_further(job->launch, 2) : &job->launch->output;
        job->b_rows = job->m;
        job->r = opcode == OP_EIGH ? job->n : left->shape[job->across ? 1 : 2];
    }
}

static void phases_right(struct job *job, int64_t copies) {
    job_phase(job, identity, copies);
    job_phase(job, make_right, divided_up(job->n, job->spectral.reflected));
    job_phase(job, pack_right, copies);
}

static void phases_left(struct job *job, int64_t copies) {
    job_phase(job, identity, copies);
    job_phase(job, is_svd(job) ? make_left : make_symmetric, divided_up(job->n, job->spectral.reflected));
    job_phase(job, pack_left, copies);
}

void spectral_phases(struct job *job) {
    const struct spectral_plan *plan = &job->spectral;
    int64_t all = copy_steps(job->m, job->n), copies = copy_steps(job->n, job->n);
    bool svd = is_svd(job), tall = job->m > job->n;
    if (job->n == 0 && job->r == 0) {
        return;
    }
    job_phase(job, svd ? decompose_gather : gather_symmetric, all);
    job_phase(job, measure, all);
    job_phase(job, scale, all);
    if (tall) {
        job_phase(job, decompose_qr_block, job->blocks);
        job_phase(job, take_triangle, copies);
    }
    job_phase(job, svd ? reduce_general : reduce_symmetric, plan->panels);
    if (plan->vectors && job->n > 0) {
        phases_left(job, copies);
        if (svd) {
            phases_right(job, copies);
        }
    }
    if (job->n > 0) {
        job_phase(job, iterate, 1);
        job->phases[job->n_phases - 1].again = iterate_again;
        job_phase(job, write_values, 1);
    }
    if (job->launch->opcode == OP_EIGH) {
        job_phase(job, write_eigenvectors, copies);
    } else if (job->launch->opcode == OP_SVD) {
        job_phase(job, write_right, copies);
        if (!tall) {
            job_phase(job, write_left, copies);
            return;
        }
        int64_t b = copy_steps(job->b_rows, job->r);
        job_phase(job, begin_left, b);
        job_phase(job, fill_left, copies);
        job_phase(job, reflect_left, job->blocks * job->strips);
        job_phase(job, scatter_left,
                  job->across ? b : copy_steps(job->launch->output.shape[2], job->launch->output.shape[1]));
    }
}

int64_t spectral_place(struct job *job, int64_t from) {
    struct spectral_plan *plan = &job->spectral;
    int64_t n = job->n, column = rounded(n * job->size), numbers = rounded(n * (int64_t)sizeof(double));
    if (plan->panel == 0) {
        return from;
    }
    plan->square_at = job->m > n ? from : 0; /* 0: it is a itself */
    from += job->m > n ? rounded(n * n * job->size) : 0;
    plan->state_at = from;
    plan->scratch_at = plan->state_at + rounded(sizeof(struct state));
    plan->values_at = plan->scratch_at + rounded(2 * PANEL_MOST * job->size);
    plan->beside_at = plan->values_at + numbers;
    plan->order_at = plan->beside_at + numbers;
    from = plan->order_at + numbers;
    for (int side = 0; side < 2; side++) {
        plan->tau_at[side] = from;
        plan->panel_at[side] = plan->tau_at[side] + column;
        from = plan->panel_at[side] + rounded(n * plan->panel * job->size);
        if (!plan->vectors) {
            continue;
        }
        plan->packed_at[side] = from;
        plan->rotations_at[side] = from + divided_up(n, plan->rows) * n * CPU_ROTATE_BYTES;
        plan->sweeps_at[side] = plan->rotations_at[side] + rounded(2 * SWEEPS_MOST * n * job->size);
        from = plan->sweeps_at[side] + rounded(SWEEPS_MOST * (int64_t)sizeof(struct cpu_sweep));
    }
    return from;
}
