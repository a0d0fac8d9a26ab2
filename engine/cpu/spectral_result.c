/* Values in their order, and the vectors that belong to them. */
#include <math.h>

#include "engine/cpu/spectral.h"

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
bool spectral_write_values(const struct place *place, int64_t index) {
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
            const T *from = (const void *)spectral_block(place, side, block);                                          \
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

bool spectral_write_eigenvectors(const struct place *place, int64_t index) {
    unpack(place, index, LEFT, operand_matrix(launch_further(place->job->launch, 1), place->number), place->job->n, 1);
    return true;
}

/* The vectors of the lesser extent: Vᴴ, or of what was factored across U. */
bool spectral_write_right(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    char *u = operand_matrix(&job->launch->output, place->number);
    char *vh = operand_matrix(launch_further(job->launch, 2), place->number);
    unpack(place, index, RIGHT, job->across ? u : vh, job->across ? job->n : 1, job->across ? 1 : job->n);
    return true;
}

/* Those of the greater extent, if the matrix is square. */
bool spectral_write_left(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    char *u = operand_matrix(&job->launch->output, place->number);
    char *vh = operand_matrix(launch_further(job->launch, 2), place->number);
    unpack(place, index, LEFT, job->across ? vh : u, job->across ? 1 : job->n, job->across ? job->n : 1);
    return true;
}

/* Else they are the rotated vectors of R, with zeros below, and the QR decomposition's reflections are applied to them. */
bool spectral_begin_left(const struct place *place, int64_t index) {
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

bool spectral_fill_left(const struct place *place, int64_t index) {
    unpack(place, index, LEFT, place->b, 1, place->job->b_rows);
    return true;
}

bool spectral_reflect_left(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t block = job->blocks - 1 - index / job->strips, column = index % job->strips * job->strip;
    decompose_reflect(place, false, block, at(job, place->b, job->b_rows, block * job->block, column), job->b_rows,
                      least(job->strip, job->r - column));
    return true;
}

bool spectral_scatter_left(const struct place *place, int64_t index) {
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
