/* Decompositions of matrices and linear equations, by LAPACK in blocks of columns.
 *
 * LAPACK has matrices column by column. So a thread copies one matrix after another into its part of the workspace, factors it there
 * in steps of some milliseconds, between which it can be left, and writes the results out. The matrices of a batch are shared out among
 * the threads; one thread factors each of them. Sizes of blocks and strips follow from the shapes alone, so results are the same at any
 * number of threads and wherever a thread was left. */
#include "engine/cpu/decompose.h"

#include <complex.h>
#include <math.h>

static bool singular(const struct place *place, int64_t row) {
    struct report *report = place->job->launch->report;
    uint32_t none = STATUS_OK;
    if (atomic_compare_exchange_strong(&report->code, &none, STATUS_SINGULAR)) {
        report->value = place->number * place->job->n + row;
        report->limit = place->job->n;
    }
    return false;
}

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

void decompose_transpose(const struct job *job, char *z, int64_t z_stride, const char *x, int64_t x_stride,
                         int64_t rows, int64_t begin, int64_t end) {
    if (job->size == 4) {
        transpose_4((void *)z, z_stride, (const void *)x, x_stride, rows, begin, end);
    } else if (job->size == 8) {
        transpose_8((void *)z, z_stride, (const void *)x, x_stride, rows, begin, end);
    } else {
        transpose_16((void *)z, z_stride, (const void *)x, x_stride, rows, begin, end);
    }
}

int64_t copy_steps(int64_t rows, int64_t columns) {
    return rows && columns ? divided_up(columns, COPY_ELEMENTS / rows > 0 ? COPY_ELEMENTS / rows : 1) : 0;
}

void copy_columns(int64_t rows, int64_t columns, int64_t index, int64_t *begin, int64_t *end) {
    int64_t each = COPY_ELEMENTS / rows > 0 ? COPY_ELEMENTS / rows : 1;
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
static bool gather_b(const struct place *place, int64_t index) {
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

/* ---- blocks ---- */

/* One step of decompose_triangle() for b's columns, with op(a) n by n: some rows of b, and what they contribute to the others. Steps go from where the
 * triangle op(a) begins. */
static void triangular_step(const struct job *job, bool upper, bool transposed, bool unit, int64_t n, int64_t columns,
                            const char *a, int64_t a_stride, char *b, int64_t b_stride, int64_t index) {
    bool down = upper == transposed;
    int64_t begin = index * job->solved, end = least(begin + job->solved, n), rows = end - begin, rest = n - end;
    int64_t row = down ? begin : rest, to = down ? end : 0;
    char *solved = b + row * job->size;
    decompose_triangle(job, false, upper, transposed, unit, rows, columns, a + (row * a_stride + row) * job->size,
                       a_stride, solved, b_stride);
    if (rest > 0) {
        const char *side = a + (transposed ? to * a_stride + row : row * a_stride + to) * job->size;
        decompose_subtract(job, transposed, false, rest, columns, rows, side, a_stride, solved, b_stride,
                           b + to * job->size, b_stride);
    }
}

/* Step `index` of blocks, of which each has some steps for all columns: the block, and from which column to which one the step goes. */
static int64_t update_columns(const struct job *job, int64_t index, int64_t columns, int64_t *begin, int64_t *end) {
    int64_t steps = update_steps(job, columns);
    *begin = index % steps * job->update;
    *end = least(*begin + job->update, columns);
    return index / steps;
}

/* One block of columns of the elimination, or some other columns: their row exchanges, and the rest of the matrix. */
static bool lu_block(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end, j = update_columns(job, index, job->n, &begin, &end) * job->block;
    int64_t b = least(job->block, job->k - j), right = begin > j + b ? begin : j + b;
    int rows = (int)(job->m - j), columns = (int)b, lead = (int)job->m, info, *pivots = place->pivots + j;
    if (begin == 0) {
        job->lapack->getrf(&rows, &columns, at(job, place->a, job->m, j, j), &lead, pivots, &info);
    }
    const int one = 1, n_left = (int)(least(end, j) - begin), n_right = (int)(end - right);
    if (n_left > 0) {
        job->lapack->laswp(&n_left, at(job, place->a, job->m, j, begin), &lead, &one, &columns, pivots, &one);
    }
    if (n_right > 0) {
        char *top = at(job, place->a, job->m, j, right);
        job->lapack->laswp(&n_right, top, &lead, &one, &columns, pivots, &one);
        decompose_triangle(job, false, false, false, true, b, n_right, at(job, place->a, job->m, j, j), job->m, top,
                           job->m);
        if (job->m > j + b) {
            decompose_subtract(job, false, false, job->m - j - b, n_right, b, at(job, place->a, job->m, j + b, j),
                               job->m, top, job->m, at(job, place->a, job->m, j + b, right), job->m);
        }
    }
    for (int64_t i = 0; i < b && end == job->n; i++) {
        pivots[i] += (int)j; /* from 1 on, as LAPACK counts */
    }
    return true;
}

/* A singular matrix has a pivot of 0. */
static bool pivots_check(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    (void)index;
    for (int64_t i = 0; i < job->k; i++) {
        if (is_zero(job, at(job, place->a, job->m, i, i))) {
            return singular(place, i);
        }
    }
    return true;
}

/* Strips of b's columns, and for each of them steps: b becomes U⁻¹ · L⁻¹ · P⁻¹ · b. */
static bool lu_solve(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t j = index / (2 * job->solves) * job->strip, step = index % (2 * job->solves);
    int64_t columns = least(job->strip, job->r - j);
    char *b = at(job, place->b, job->b_rows, 0, j);
    bool upper = step >= job->solves;
    if (step == 0) {
        const int width = (int)columns, lead = (int)job->b_rows, one = 1, last = (int)job->n;
        job->lapack->laswp(&width, b, &lead, &one, &last, place->pivots, &one);
    }
    triangular_step(job, upper, false, !upper, job->n, columns, place->a, job->m, b, job->b_rows,
                    upper ? step - job->solves : step);
    return true;
}

/* One block of columns of a QR decomposition, and its reflections of the columns behind. */
void decompose_reflect(const struct place *place, bool transposed, int64_t block, char *c, int64_t c_rows,
                       int64_t columns) {
    const struct job *job = place->job;
    int64_t j = block * job->block, b = least(job->block, job->k - j);
    const int m = (int)(job->m - j), n = (int)columns, k = (int)b, lead = (int)job->m, c_lead = (int)c_rows;
    const int work = (int)decompose_reflect_work(job->n > job->r ? job->n : job->r);
    int info;
    job->lapack->ormqr("L", transposed ? job->lapack->transposed : "N", &m, &n, &k, at(job, place->a, job->m, j, j),
                       &lead, place->tau + j * job->size, c, &c_lead, place->work, &work, &info, 1, 1);
}

bool decompose_qr_block(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end, block = update_columns(job, index, job->n, &begin, &end);
    int64_t j = block * job->block, b = least(job->block, job->k - j), right = begin > j + b ? begin : j + b;
    const int rows = (int)(job->m - j), columns = (int)b, lead = (int)job->m, work = BLOCK_MOST * (int)job->n;
    int info;
    if (begin == 0) {
        job->lapack->geqrf(&rows, &columns, at(job, place->a, job->m, j, j), &lead, place->tau + j * job->size,
                           place->work, &work, &info);
    }
    if (end > right) {
        decompose_reflect(place, true, block, at(job, place->a, job->m, j, right), job->m, end - right);
    }
    return true;
}

/* The last reflections come first; they change neither the rows nor, of the identity, the columns before their own. */
static bool qr_make_q(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end, block = job->blocks - 1 - update_columns(job, index, job->r, &begin, &end);
    int64_t j = block * job->block, column = begin > j ? begin : j;
    if (end > column) {
        decompose_reflect(place, false, block, at(job, place->b, job->b_rows, j, column), job->b_rows, end - column);
    }
    return true;
}

/* Strips of b's columns, and for each of them all blocks. */
static bool qr_apply(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t block = index % job->blocks, column = index / job->blocks * job->strip;
    if (job->across) {
        block = job->blocks - 1 - block;
    }
    decompose_reflect(place, !job->across, block, at(job, place->b, job->b_rows, block * job->block, column),
                      job->b_rows, least(job->strip, job->r - column));
    return true;
}

/* b becomes R⁻¹ · b, or of a matrix with more columns than rows the inverse of the conjugate transpose of R, times b. */
static bool qr_solve(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t column = index / job->solves * job->strip;
    triangular_step(job, true, job->across, false, job->n, least(job->strip, job->r - column), place->a, job->m,
                    at(job, place->b, job->b_rows, 0, column), job->b_rows, index % job->solves);
    return true;
}

/* ---- results ---- */

/* One element of a triangle: from a if the triangle has it, else 1 or 0. */
static void triangle_write(const struct place *place, char *to, int64_t i, int64_t j, bool has, double other) {
    const struct job *job = place->job;
    if (has) {
        memcpy(to, at(job, place->a, job->m, i, j), (size_t)job->size);
    } else {
        memset(to, 0, (size_t)job->size);
        number_set(job, to, other);
    }
}

/* Rows of P, L and U. */
static bool lu_write(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct launch *launch = job->launch;
    char *p = operand_matrix(&launch->output, place->number);
    char *l = operand_matrix(launch_further(launch, 1), place->number);
    char *u = operand_matrix(launch_further(launch, 2), place->number);
    int *order = (int *)(void *)place->work; /* order[i]: the row of a that is row i of L · U */
    int64_t begin, end;
    copy_columns(job->m + job->n, job->m, index, &begin, &end);
    for (int64_t i = 0; i < job->m; i++) {
        order[i] = (int)i;
    }
    for (int64_t i = 0; i < job->k; i++) {
        int other = place->pivots[i] - 1, row = order[i];
        order[i] = order[other];
        order[other] = row;
    }
    memset(p + begin * job->m * job->size, 0, (size_t)((end - begin) * job->m * job->size));
    for (int64_t i = 0; i < job->m; i++) {
        if (order[i] >= begin && order[i] < end) {
            number_set(job, p + (order[i] * job->m + i) * job->size, 1);
        }
    }
    for (int64_t i = begin; i < end; i++) {
        for (int64_t j = 0; j < job->k; j++) {
            triangle_write(place, l + (i * job->k + j) * job->size, i, j, i > j, i == j);
        }
        for (int64_t j = 0; j < job->n && i < job->k; j++) {
            triangle_write(place, u + (i * job->n + j) * job->size, i, j, i <= j, 0);
        }
    }
    return true;
}

/* The determinant is the product of the pivots; its sign that of their signs, which of a complex number is the number divided by its
 * magnitude. */
static bool det_write(const struct place *place, int64_t index) {
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
static bool qr_write_r(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct operand *out = launch_further(job->launch, 1);
    char *r = operand_matrix(out, place->number);
    int64_t begin, end;
    copy_columns(job->n, out->shape[1], index, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        for (int64_t j = 0; j < job->n; j++) {
            triangle_write(place, r + (i * job->n + j) * job->size, i, j, i <= j && i < job->k, 0);
        }
    }
    return true;
}

/* ---- without copies: row by row in the result's memory ---- */

/* Of the triangle that is factored, a copy; of the other one zeros. */
static bool cholesky_copy(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct cholesky_attributes attributes;
    cholesky_attributes_read(&job->launch->attributes, &attributes);
    const char *a = operand_matrix(&job->launch->inputs[0], place->number);
    char *out = operand_matrix(&job->launch->output, place->number);
    int64_t begin, end, n = job->n;
    copy_columns(n, n, index, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t from = attributes.upper ? i : 0, to = attributes.upper ? n : i + 1;
        memset(out + i * n * job->size, 0, (size_t)(n * job->size));
        memcpy(out + (i * n + from) * job->size, a + (i * n + from) * job->size, (size_t)((to - from) * job->size));
    }
    return true;
}

/* A lower triangle row by row is an upper one column by column, and its conjugate transpose there is what it is multiplied by. Of block j:
 * what the blocks before contribute, its own factor, and the rest of its rows or columns, of which each step has some. */
static bool cholesky_block(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const struct lapack *lapack = job->lapack;
    struct cholesky_attributes attributes;
    cholesky_attributes_read(&job->launch->attributes, &attributes);
    char *out = operand_matrix(&job->launch->output, place->number);
    int64_t begin, end, n = job->n, j = update_columns(job, index, n, &begin, &end) * job->block;
    int64_t b = least(job->block, n - j), right = begin > j + b ? begin : j + b, rest = end - right;
    bool upper = !attributes.upper; /* column by column */
    char *diagonal = at(job, out, n, j, j), *side = upper ? at(job, out, n, j, right) : at(job, out, n, right, j);
    const char *before = upper ? at(job, out, n, 0, j) : at(job, out, n, j, 0);
    const char *far = upper ? at(job, out, n, 0, right) : at(job, out, n, right, 0);
    const char *part = upper ? "U" : "L";
    const int order = (int)b, lead = (int)n, depth = (int)j;
    int info = 0;
    if (begin == 0) {
        lapack->syrk(part, upper ? lapack->transposed : "N", &order, &depth, lapack->less, before, &lead, lapack->one,
                     diagonal, &lead, 1, 1);
        lapack->potrf(part, &order, diagonal, &lead, &info, 1);
    }
    if (info > 0) {
        return singular(place, j + info - 1);
    }
    if (rest <= 0) {
        return true;
    }
    int64_t m = upper ? b : rest, columns = upper ? rest : b;
    decompose_subtract(job, upper, !upper, m, columns, j, upper ? before : far, n, upper ? far : before, n, side, n);
    decompose_triangle(job, !upper, upper, true, false, m, columns, diagonal, n, side, n);
    return true;
}

/* Strips of columns, and for each of them steps of rows; the first one looks at the diagonal. */
static bool triangular_strip(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct triangular_solve_attributes attributes;
    triangular_solve_attributes_read(&job->launch->attributes, &attributes);
    const char *a = operand_matrix(&job->launch->inputs[0], place->number);
    const char *b = operand_matrix(&job->launch->inputs[1], place->number);
    char *out = operand_matrix(&job->launch->output, place->number);
    int64_t n = job->n, r = job->r, step = index % job->solves, j = index / job->solves * job->strip;
    int64_t columns = least(job->strip, r - j), begin = step * job->solved, end = least(begin + job->solved, n);
    for (int64_t i = 0; i < n && index == 0 && !attributes.unit_diagonal; i++) {
        if (is_zero(job, a + i * (n + 1) * job->size)) {
            return singular(place, i);
        }
    }
    for (int64_t i = 0; i < n && step == 0; i++) {
        memcpy(out + (i * r + j) * job->size, b + (i * r + j) * job->size, (size_t)(columns * job->size));
    }
    /* Column by column all three are transposed. */
    bool down = !attributes.upper;
    int64_t rows = end - begin, rest = n - end, row = down ? begin : rest, to = down ? end : 0;
    char *solved = out + (row * r + j) * job->size;
    decompose_triangle(job, true, down, false, attributes.unit_diagonal, columns, rows, a + row * (n + 1) * job->size,
                       n, solved, r);
    if (rest > 0) {
        decompose_subtract(job, false, false, columns, rest, rows, solved, r, a + (to * n + row) * job->size, n,
                           out + (to * r + j) * job->size, r);
    }
    return true;
}

/* ---- the job ---- */

static void job_phases(struct job *job) {
    const struct launch *launch = job->launch;
    int64_t a = copy_steps(job->m, job->n), b = copy_steps(job->b_rows, job->r);
    int64_t out = copy_steps(launch->output.shape[2], launch->output.shape[1]);
    int64_t blocks = job->blocks * update_steps(job, job->n), solves = job->strips * job->solves;
    switch (launch->opcode) {
    case OP_EIGH:
    case OP_EIGVALSH:
    case OP_SVD:
    case OP_SVDVALS:
        spectral_phases(job);
        return;
    case OP_CHOLESKY:
        job_phase(job, cholesky_copy, a);
        job_phase(job, cholesky_block, blocks);
        return;
    case OP_TRIANGULAR_SOLVE:
        job_phase(job, triangular_strip, solves);
        return;
    default:
        job_phase(job, decompose_gather, a);
    }
    switch (launch->opcode) {
    case OP_LU:
        job_phase(job, lu_block, blocks);
        job_phase(job, lu_write, copy_steps(job->m + job->n, job->m));
        return;
    case OP_DET:
    case OP_SLOGDET:
        job_phase(job, lu_block, blocks);
        job_phase(job, det_write, 1);
        return;
    case OP_SOLVE:
    case OP_INV:
        job_phase(job, lu_block, blocks);
        job_phase(job, pivots_check, 1);
        job_phase(job, launch->opcode == OP_INV ? decompose_identity : gather_b, b);
        job_phase(job, lu_solve, 2 * solves);
        job_phase(job, decompose_scatter, out);
        return;
    case OP_QR:
        job_phase(job, decompose_qr_block, blocks);
        job_phase(job, decompose_identity, b);
        job_phase(job, qr_make_q, job->blocks * update_steps(job, job->r));
        job_phase(job, decompose_scatter, out);
        job_phase(job, qr_write_r, copy_steps(job->n, launch_further(launch, 1)->shape[1]));
        return;
    case OP_LSTSQ:
        job_phase(job, decompose_qr_block, blocks);
        job_phase(job, pivots_check, 1);
        job_phase(job, gather_b, b);
        job_phase(job, job->across ? qr_solve : qr_apply, job->across ? solves : job->strips * job->blocks);
        job_phase(job, job->across ? qr_apply : qr_solve, job->across ? job->strips * job->blocks : solves);
        job_phase(job, decompose_scatter, out);
        return;
    default:
        return;
    }
}

int64_t step_extent(double each, int64_t extent, int64_t most) {
    double wanted = each > 0 ? STEP_WORK / each : (double)most;
    int64_t rounded = wanted < BLOCK_LEAST ? BLOCK_LEAST : wanted < (double)most ? (int64_t)wanted / 8 * 8 : most;
    return extent < rounded ? extent : rounded;
}

/* Blocks, strips and steps: of some 10 ms each. A block is so wide that it alone, or with the whole matrix, takes no longer; the rest of a large
 * matrix is brought up to date some columns at a time. */
static void job_steps(struct job *job) {
    int opcode = job->launch->opcode;
    bool reflects = opcode == OP_QR || opcode == OP_LSTSQ || opcode == OP_SVD || opcode == OP_SVDVALS;
    double each = job->is_complex ? 4 : 1, m = each * (double)job->m, n = (double)job->n;
    double panel = (reflects ? 4 : 1) * m, update = reflects ? 2 * m : m;
    int64_t alone = step_extent(sqrt(STEP_WORK * panel), job->k, BLOCK_MOST);
    job->block = step_extent(m * n, job->k, BLOCK_MOST);
    job->block = job->block > alone ? job->block : alone;
    job->blocks = job->block ? divided_up(job->k, job->block) : 0;
    job->update = step_extent(update * (double)job->block, INT_MAX / 8 * 8, INT_MAX / 8 * 8);
    double column = opcode == OP_LSTSQ || opcode == OP_SVD ? 2 * m * (double)job->block : each * n * n;
    job->strip = step_extent(column, job->r, INT_MAX / 8 * 8);
    if (opcode != OP_LSTSQ && opcode != OP_SVD &&
        column * BLOCK_LEAST > STEP_WORK) { /* cut into rows, so it may be wide */
        job->strip = least(job->r, BLOCK_MOST);
    }
    job->strips = job->strip ? divided_up(job->r, job->strip) : 0;
    double row = each * n * (double)job->strip;
    job->solved = row * n <= STEP_WORK ? job->n : step_extent(row, job->n, INT_MAX / 8 * 8);
    job->solves = job->solved ? divided_up(job->n, job->solved) : 0;
}

static void job_init(struct job *job, struct cpu *cpu, const struct launch *launch) {
    const struct operand *a = &launch->inputs[0], *out = &launch->output;
    enum dtype dtype = (enum dtype)a->dtype;
    *job = (struct job){.base.cpu = cpu, .launch = launch, .is_complex = dtype_is_complex(dtype)};
    job->wide = dtype_real(dtype) == DTYPE_F64;
    job->size = (int64_t)dtype_size(dtype);
    job->part = job->wide ? 8 : 4;
    job->lapack = &cpu->blas.lapack[job->is_complex ? LAPACK_C64 + job->wide : LAPACK_F32 + job->wide];
    job->batch = a->shape[0];
    job->across = (launch->opcode == OP_LSTSQ || launch->opcode == OP_SVD || launch->opcode == OP_SVDVALS) &&
                  a->shape[1] < a->shape[2];
    job->m = a->shape[job->across ? 2 : 1];
    job->n = a->shape[job->across ? 1 : 2];
    job->k = least(job->m, job->n);
    if (launch->n_inputs == 2) {
        job->r = launch->inputs[1].shape[2];
        job->b_rows = job->m;
    } else if (launch->opcode == OP_INV || launch->opcode == OP_QR) {
        job->r = out->shape[2];
        job->b_rows = job->m;
    }
    spectral_init(job);
    job_steps(job);
    job_phases(job);
}

/* Threads, and the parts of each one's place. */
static void job_plan(struct job *job) {
    double cube = (double)job->m * (double)job->n * (double)(job->k + job->r),
           work = (double)job->batch * (cube + 4096);
    unsigned parts = cpu_parts(job->base.cpu, work), most = job->base.cpu->team.threads;
    job->threads = parts < most ? parts : most;
    job->threads = job->batch < job->threads ? (unsigned)job->batch : job->threads;
    job->base.parts = job->batch < parts ? (unsigned)job->batch : parts;
    job->base.lanes_most = job->threads;
    if (job->launch->opcode == OP_CHOLESKY || job->launch->opcode == OP_TRIANGULAR_SOLVE) {
        return;
    }
    bool reflections = job->launch->opcode == OP_QR || job->launch->opcode == OP_LSTSQ || job->spectral.panel > 0;
    int64_t widest = job->n > job->r ? job->n : job->r,
            work_elements = reflections ? decompose_reflect_work(widest) : 0;
    if (job->launch->opcode == OP_LU) {
        work_elements = job->m;
    }
    job->b_at = rounded(job->m * job->n * job->size);
    job->tau_at = job->b_at + rounded(job->b_rows * job->r * job->size);
    job->work_at = job->tau_at + rounded(job->k * job->size);
    job->pivots_at = job->work_at + rounded(work_elements * job->size);
    job->place_bytes = spectral_place(job, job->pivots_at + rounded(job->k * (int64_t)sizeof(int)));
}

/* The steps of one matrix, from *position on. False: it is left. */
static bool job_matrix(struct job *job, const struct place *place, int64_t *position) {
    while (*position < job->steps) {
        int64_t index = *position;
        const struct phase *phase = job->phases;
        for (; index >= phase->count; phase++) {
            index -= phase->count;
        }
        if (!phase->step(place, index)) {
            *position = job->steps;
        } else if (!phase->again || !phase->again(place)) {
            ++*position;
        }
        if (*position < job->steps && cpu_job_stops(&job->base)) {
            return false;
        }
    }
    *position = 0;
    return true;
}

static bool job_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t begin = cpu_part_begin(job->batch, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->batch, lane->part + 1, base->parts);
    char *memory = job->workspace + lane->number * job->place_bytes;
    struct place place = {.job = job,
                          .a = memory,
                          .b = memory + job->b_at,
                          .tau = memory + job->tau_at,
                          .work = memory + job->work_at,
                          .pivots = (int *)(void *)(memory + job->pivots_at)};
    int64_t position = lane->position % job->steps;
    for (place.number = begin + lane->position / job->steps; place.number < end; place.number++) {
        if (!job_matrix(job, &place, &position)) {
            lane->position = (place.number - begin) * job->steps + position;
            return false;
        }
        if (place.number + 1 < end && cpu_job_stops(base)) {
            lane->position = (place.number + 1 - begin) * job->steps;
            return false;
        }
    }
    return true;
}

static int decompose_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct job job;
    (void)fault;
    job_init(&job, cpu, launch);
    job_plan(&job);
    job.base.run = job_part;
    job.workspace = launch->workspace;
    double work = (double)job.batch * (double)(job.m * job.n) * (double)(job.k + job.r);
    if (job.steps == 0 || cpu_job_keep(&job.base, sizeof job, work, begun)) {
        return STATUS_OK;
    }
    job.base.parts = job.base.parts < job.threads ? job.base.parts : job.threads; /* each part has one thread's place */
    cpu_job_run(&job.base);
    return STATUS_OK;
}

static int decompose_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    (void)device;
    for (unsigned i = 0; i < launch->n_inputs; i++) {
        for (int axis = 1; axis < 3; axis++) {
            if (launch->inputs[i].shape[axis] > INT_MAX / (BLOCK_MOST + 64)) {
                return fault_set(fault, STATUS_UNSUPPORTED, "a cpu device factors no matrices so large");
            }
        }
    }
    return STATUS_OK;
}

static uint64_t decompose_workspace(struct device *device, const struct launch *launch) {
    struct job job;
    job_init(&job, (struct cpu *)device, launch);
    job_plan(&job);
    return (uint64_t)job.place_bytes * job.threads;
}

static int decompose_needs(struct device *device, enum dtype dtype, struct fault *fault) {
    (void)dtype;
    return cpu_needs_blas((struct cpu *)device, fault);
}

#define DECOMPOSE                                                                                                      \
    { {.needs = decompose_needs, .accepts = decompose_accepts, .workspace = decompose_workspace}, decompose_run }
const struct cpu_kernel cpu_kernel_cholesky = DECOMPOSE;
const struct cpu_kernel cpu_kernel_lu = DECOMPOSE;
const struct cpu_kernel cpu_kernel_qr = DECOMPOSE;
const struct cpu_kernel cpu_kernel_solve = DECOMPOSE;
const struct cpu_kernel cpu_kernel_triangular_solve = DECOMPOSE;
const struct cpu_kernel cpu_kernel_inv = DECOMPOSE;
const struct cpu_kernel cpu_kernel_det = DECOMPOSE;
const struct cpu_kernel cpu_kernel_slogdet = DECOMPOSE;
const struct cpu_kernel cpu_kernel_lstsq = DECOMPOSE;
const struct cpu_kernel cpu_kernel_eigh = DECOMPOSE;
const struct cpu_kernel cpu_kernel_eigvalsh = DECOMPOSE;
const struct cpu_kernel cpu_kernel_svd = DECOMPOSE;
const struct cpu_kernel cpu_kernel_svdvals = DECOMPOSE;
