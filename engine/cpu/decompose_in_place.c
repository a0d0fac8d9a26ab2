/* Cholesky decompositions and triangles of equations: without copies, row by row in the result's memory. */
#include "engine/cpu/decompose.h"

/* Of the triangle that is factored, a copy; of the other one zeros. */
bool decompose_cholesky_copy(const struct place *place, int64_t index) {
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

/* A lower triangle row by row is an upper one column by column, and its conjugate transpose there is what it is multiplied by. */
static bool cholesky_upper(const struct job *job) {
    struct cholesky_attributes attributes;
    cholesky_attributes_read(&job->launch->attributes, &attributes);
    return !attributes.upper;
}

/* The factor of a diagonal block, less what the blocks before contribute. */
static bool cholesky_diagonal(const struct place *place, int64_t block) {
    const struct job *job = place->job;
    const struct lapack *lapack = job->lapack;
    char *out = operand_matrix(&job->launch->output, place->number);
    int64_t n = job->n, j = block * job->block;
    bool upper = cholesky_upper(job);
    char *diagonal = at(job, out, n, j, j);
    const char *before = upper ? at(job, out, n, 0, j) : at(job, out, n, j, 0), *part = upper ? "U" : "L";
    const int order = (int)least(job->block, n - j), lead = (int)n, depth = (int)j;
    int info = 0;
    lapack->syrk(part, upper ? lapack->transposed : "N", &order, &depth, lapack->less, before, &lead, lapack->one,
                 diagonal, &lead, 1, 1);
    lapack->potrf(part, &order, diagonal, &lead, &info, 1);
    return info > 0 ? decompose_singular(place, j + info - 1) : true;
}

bool decompose_cholesky_first(const struct place *place, int64_t index) {
    return cholesky_diagonal(place, index);
}

/* Behind the diagonal block: some of its rows or columns, less what the blocks before contribute. With those of the next block comes its
 * diagonal. */
bool decompose_cholesky_block(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    char *out = operand_matrix(&job->launch->output, place->number);
    int64_t begin, end, n = job->n, block = decompose_further_columns(job, index, &begin, &end), j = block * job->block;
    int64_t b = least(job->block, n - j), rest = end - begin;
    if (rest <= 0) {
        return true;
    }
    bool upper = cholesky_upper(job);
    char *diagonal = at(job, out, n, j, j), *side = upper ? at(job, out, n, j, begin) : at(job, out, n, begin, j);
    const char *before = upper ? at(job, out, n, 0, j) : at(job, out, n, j, 0);
    const char *far = upper ? at(job, out, n, 0, begin) : at(job, out, n, begin, 0);
    int64_t m = upper ? b : rest, columns = upper ? rest : b;
    if (j > 0) {
        decompose_subtract(job, upper, !upper, m, columns, j, upper ? before : far, n, upper ? far : before, n, side,
                           n);
    }
    decompose_triangle(job, !upper, upper, true, false, m, columns, diagonal, n, side, n);
    return index % block_steps(job) > 0 || cholesky_diagonal(place, block + 1);
}

bool decompose_triangular_check(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    const char *a = operand_matrix(&job->launch->inputs[0], place->number);
    (void)index;
    for (int64_t i = 0; i < job->n; i++) {
        if (is_zero(job, a + i * (job->n + 1) * job->size)) {
            return decompose_singular(place, i);
        }
    }
    return true;
}

/* Steps of rows, of strips of columns. */
bool decompose_triangular_strip(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    struct triangular_solve_attributes attributes;
    triangular_solve_attributes_read(&job->launch->attributes, &attributes);
    const char *a = operand_matrix(&job->launch->inputs[0], place->number);
    const char *b = operand_matrix(&job->launch->inputs[1], place->number);
    char *out = operand_matrix(&job->launch->output, place->number);
    int64_t n = job->n, r = job->r, step = index / job->strips, j = index % job->strips * job->strip;
    int64_t columns = least(job->strip, r - j), begin = step * job->solved, end = least(begin + job->solved, n);
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
