/* Matrices into the workspace, column by column, and results out of it. */
#include <complex.h>
#include <math.h>

#include "engine/cpu/decompose.h"

/* ---- copies ---- */

#define TRANSPOSE(name, T)                                                                                             \
    static void name(T *z, int64_t z_stride, const T *x, int64_t x_stride, int64_t rows, int64_t begin, int64_t end) { \
        for (int64_t i0 = 0; i0 < rows; i0 += TILE) {                                                                  \
            for (int64_t j0 = begin; j0 < end; j0 += TILE) {                                                           \
                int64_t i_end = least(i0 + TILE, rows), j_end = least(j0 + TILE, end);                                 \
                for (int64_t j = j0; j < j_end; j++) {                                                                 \
                    for (int64_t i = i0; i < i_end; i++) {                                                             \
                        z[j * z_stride + i] = x[i * x_stride + j];                                                     \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
TRANSPOSE(transpose_4, uint32_t)
TRANSPOSE(transpose_8, uint64_t)
TRANSPOSE(transpose_16, struct cpu_pair)

static void transpose(const struct job *job, char *z, int64_t z_stride, const char *x, int64_t x_stride, int64_t rows,
                      int64_t begin, int64_t end) {
    if (job->size == 4) {
        transpose_4((void *)z, z_stride, (const void *)x, x_stride, rows, begin, end);
    } else if (job->size == 8) {
        transpose_8((void *)z, z_stride, (const void *)x, x_stride, rows, begin, end);
    } else {
        transpose_16((void *)z, z_stride, (const void *)x, x_stride, rows, begin, end);
    }
}

/* Blocks of whole vectors in registers, where the device has a kernel for them. */
void decompose_transpose(const struct job *job, char *z, int64_t z_stride, const char *x, int64_t x_stride,
                         int64_t rows, int64_t begin, int64_t end) {
    cpu_turn_function *turn = job->size > 8 ? NULL : job->base.cpu->kernels->turn[job->size == 8 ? 3 : 2];
    int64_t size = job->size, vector = turn ? 64 / size : 1;
    int64_t whole = turn ? rows / vector * vector : 0, to = begin + (end - begin) / vector * vector;
    for (int64_t j = begin; j < to && turn; j += vector) {
        for (int64_t i = 0; i < whole; i += vector) {
            turn(x + (i * x_stride + j) * size, x_stride * size, z + (j * z_stride + i) * size, z_stride * size);
        }
    }
    transpose(job, z, z_stride, x, x_stride, whole, to, end);
    transpose(job, z + whole * size, z_stride, x + whole * x_stride * size, x_stride, rows - whole, begin, end);
}

/* Columns of a step: whole tiles, where there are so many. */
static int64_t copied_columns(int64_t rows) {
    int64_t columns = COPY_ELEMENTS / rows;
    return columns >= TILE ? columns / TILE * TILE : columns > 0 ? columns : 1;
}

int64_t copy_steps(int64_t rows, int64_t columns) {
    return rows && columns ? divided_up(columns, copied_columns(rows)) : 0;
}

void copy_columns(int64_t rows, int64_t columns, int64_t index, int64_t *begin, int64_t *end) {
    int64_t each = copied_columns(rows);
    *begin = index * each;
    *end = least(*begin + each, columns);
}

/* a into the workspace, column by column. */
bool decompose_gather(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const char *a = operand_matrix(&job->launch->inputs[0], place->number);
    int64_t begin, end;
    copy_columns(job->m, job->n, index, &begin, &end);
    if (job->across) { /* a's rows are the columns that are factored */
        memcpy(at(job, place->a, job->m, 0, begin), a + begin * job->m * job->size,
               (size_t)((end - begin) * job->m * job->size));
        if (job->launch->opcode == OP_LSTSQ) {
            conjugate(job, at(job, place->a, job->m, 0, begin), (end - begin) * job->m);
        }
    } else {
        decompose_transpose(job, place->a, job->m, a, job->n, job->m, begin, end);
    }
    return true;
}

/* b likewise; more rows than it has, for lstsq, are 0. */
bool decompose_gather_b(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct operand *b = &job->launch->inputs[1];
    int64_t begin, end, rows = b->shape[1];
    copy_columns(job->b_rows, job->r, index, &begin, &end);
    decompose_transpose(job, place->b, job->b_rows, operand_matrix(b, place->number), job->r, rows, begin, end);
    for (int64_t j = begin; j < end; j++) {
        memset(at(job, place->b, job->b_rows, rows, j), 0, (size_t)((job->b_rows - rows) * job->size));
    }
    return true;
}

/* b becomes the first columns of the identity. */
bool decompose_identity(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end;
    copy_columns(job->b_rows, job->r, index, &begin, &end);
    memset(at(job, place->b, job->b_rows, 0, begin), 0, (size_t)((end - begin) * job->b_rows * job->size));
    for (int64_t j = begin; j < end; j++) {
        number_set(job, at(job, place->b, job->b_rows, j, j), 1);
    }
    return true;
}

/* The first rows of b are the first output. */
bool decompose_scatter(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct operand *out = &job->launch->output;
    int64_t rows = out->shape[1], columns = out->shape[2], begin, end;
    copy_columns(columns, rows, index, &begin, &end);
    decompose_transpose(job, operand_matrix(out, place->number), columns, place->b, job->b_rows, columns, begin, end);
    return true;
}

/* ---- results ---- */

/* Rows `begin` to `end` - 1 of the upper triangle of a, with zeros below the diagonal. */
static void upper_write(const struct place *place, char *to, int64_t begin, int64_t end) {
    const struct job *job = place->job;
    int64_t n = job->n, size = job->size, filled = least(end, job->k), first = least(begin, n);
    if (filled > begin) {
        decompose_transpose(job, to + first * size, n, at(job, place->a, job->m, 0, first), job->m, n - first, begin,
                            filled);
    }
    for (int64_t i = begin; i < end; i++) {
        memset(to + i * n * size, 0, (size_t)((i < filled ? i : n) * size));
    }
}

/* The same of the lower triangle, whose diagonal is 1. */
static void lower_write(const struct place *place, char *to, int64_t begin, int64_t end) {
    const struct job *job = place->job;
    int64_t k = job->k, size = job->size;
    decompose_transpose(job, to, k, place->a, job->m, least(end, k), begin, end);
    for (int64_t i = begin; i < end && i < k; i++) {
        char *diagonal = to + (i * k + i) * size;
        memset(diagonal, 0, (size_t)((k - i) * size));
        number_set(job, diagonal, 1);
    }
}

/* Rows of P, L and U. */
bool decompose_lu_write(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct launch *launch = job->launch;
    char *p = operand_matrix(&launch->output, place->number);
    char *l = operand_matrix(launch_further(launch, 1), place->number);
    char *u = operand_matrix(launch_further(launch, 2), place->number);
    const int *order = place->order;
    int64_t begin, end;
    copy_columns(job->m + job->n, job->m, index, &begin, &end);
    memset(p + begin * job->m * job->size, 0, (size_t)((end - begin) * job->m * job->size));
    for (int64_t i = 0; i < job->m; i++) {
        if (order[i] >= begin && order[i] < end) {
            number_set(job, p + (order[i] * job->m + i) * job->size, 1);
        }
    }
    lower_write(place, l, begin, end);
    upper_write(place, u, begin, least(end, job->k));
    return true;
}

/* The determinant is the product of the pivots; its sign that of their signs, which of a complex number is the number divided by its
 * magnitude. */
bool decompose_det_write(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct launch *launch = job->launch;
    double complex product = 1, sign = 1;
    double sum = 0;
    (void)index;
    for (int64_t i = 0; i < job->n; i++) {
        const char *element = at(job, place->a, job->m, i, i);
        double complex pivot = CMPLX(number(job, element), job->is_complex ? number(job, element + job->part) : 0);
        double size = job->is_complex ? cabs(pivot) : fabs(creal(pivot)),
               turn = place->pivots[i] == (int)i + 1 ? 1 : -1;
        product = job->is_complex ? turn * product * pivot : CMPLX(turn * creal(product) * creal(pivot), 0);
        sum += log(size);
        sign = size == 0
                   ? 0
                   : CMPLX(turn / size * creal(sign * pivot), job->is_complex ? turn / size * cimag(sign * pivot) : 0);
    }
    bool none = isnan(creal(product)) || isnan(cimag(product));
    double complex result = launch->opcode == OP_DET ? product : none ? CMPLX(NAN, job->is_complex ? NAN : 0) : sign;
    char *out = operand_matrix(&launch->output, place->number);
    number_set(job, out, creal(result));
    if (job->is_complex) {
        number_set(job, out + job->part, cimag(result));
    }
    if (launch->opcode == OP_SLOGDET) {
        number_set(job, operand_matrix(launch_further(launch, 1), place->number), sum);
    }
    return true;
}

/* R, row by row. */
bool decompose_r_write(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct operand *out = launch_further(job->launch, 1);
    char *r = operand_matrix(out, place->number);
    int64_t begin, end;
    copy_columns(job->n, out->shape[1], index, &begin, &end);
    upper_write(place, r, begin, end);
    return true;
}
