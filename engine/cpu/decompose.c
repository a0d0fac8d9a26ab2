/* Decompositions of matrices and linear equations, by LAPACK in blocks of columns.
 *
 * LAPACK has matrices column by column. So a thread copies one matrix after another into its part of the workspace, factors it there
 * in steps of some milliseconds, between which it can be left, and writes the results out. The matrices of a batch are shared out among
 * the threads; one thread factors each of them. Where there are fewer matrices than threads, these share the steps of one matrix after
 * another: those that do not depend on each other run at the same time. Sizes of blocks and strips follow from the shapes alone, so
 * results are the same at any number of threads and wherever a thread was left. */
#include "engine/cpu/decompose.h"

#include <assert.h>
#include <math.h>

enum {
    SHARED_PARTS = 8, /* into which columns are cut for threads that share a matrix, unless they become fewer than */
    SHARED_COLUMNS = 128,
    PIECE = 64, /* rows that are exchanged together */
};
/* Multiplications of a matrix that several threads share. */
static const double shared_work = 3e7;

bool decompose_singular(const struct place *place, int64_t row) {
    struct report *report = place->job->launch->report;
    uint32_t none = STATUS_OK;
    if (atomic_compare_exchange_strong(&report->code, &none, STATUS_SINGULAR)) {
        report->value = place->number * place->job->n + row;
        report->limit = place->job->n;
    }
    return false;
}

/* ---- blocks ---- */

/* One step of decompose_triangle() for b's columns, with op(a) n by n: some rows of b, and what they contribute to the others. Steps go from where the
 * triangle op(a) begins; b is zero up to row `first` in that order. */
static void triangular_step(const struct job *job, bool upper, bool transposed, bool unit, int64_t n, int64_t columns,
                            const char *a, int64_t a_stride, char *b, int64_t b_stride, int64_t index, int64_t first) {
    bool down = upper == transposed;
    int64_t begin = index * job->solved, end = least(begin + job->solved, n);
    begin = begin > first ? begin : first;
    int64_t rows = end - begin, rest = n - end;
    if (rows <= 0) {
        return;
    }
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

/* The same where a block's first step is for the columns of the next block, and the others are for those behind. */
int64_t decompose_further_columns(const struct job *job, int64_t index, int64_t *begin, int64_t *end) {
    int64_t steps = block_steps(job), block = index / steps, step = index % steps;
    int64_t next = least((block + 1) * job->block, job->k);
    *begin = step == 0 ? next : next + job->block + (step - 1) * job->update;
    *end = least(*begin + (step == 0 ? job->block : job->update), job->n);
    return block;
}

/* The elimination of a block of columns. */
static void lu_panel(const struct place *place, int64_t block) {
    const struct job *job = place->job;
    int64_t j = block * job->block, b = least(job->block, job->k - j);
    const int rows = (int)(job->m - j), columns = (int)b, lead = (int)job->m;
    int info, *pivots = place->pivots + j;
    job->lapack->getrf(&rows, &columns, at(job, place->a, job->m, j, j), &lead, pivots, &info);
    for (int64_t i = 0; i < b; i++) {
        pivots[i] += (int)j; /* from 1 on, as LAPACK counts */
    }
}

/* The row exchanges `from` to `to` - 1 of some columns of a matrix. */
static void rows_exchange(const struct place *place, char *columns, int64_t rows, int64_t n, int64_t from, int64_t to) {
    const int extent = (int)n, lead = (int)rows, first = (int)from + 1, last = (int)to, one = 1;
    if (n > 0 && to > from) {
        place->job->lapack->laswp(&extent, columns, &lead, &first, &last, place->pivots, &one);
    }
}

static bool lu_first(const struct place *place, int64_t index) {
    lu_panel(place, index);
    return true;
}

/* What an eliminated block does to columns behind it. Those of the next block are eliminated at once, so that no thread waits for that. */
static bool lu_block(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end, block = decompose_further_columns(job, index, &begin, &end), columns = end - begin;
    int64_t j = block * job->block, b = least(job->block, job->k - j), rest = job->m - j - b;
    if (columns <= 0) {
        return true;
    }
    char *top = at(job, place->a, job->m, j, begin);
    rows_exchange(place, at(job, place->a, job->m, 0, begin), job->m, columns, j, j + b);
    decompose_triangle(job, false, false, false, true, b, columns, at(job, place->a, job->m, j, j), job->m, top,
                       job->m);
    if (rest > 0) {
        decompose_subtract(job, false, false, rest, columns, b, at(job, place->a, job->m, j + b, j), job->m, top,
                           job->m, at(job, place->a, job->m, j + b, begin), job->m);
    }
    if (index % block_steps(job) == 0 && block + 1 < job->blocks) {
        lu_panel(place, block + 1);
    }
    return true;
}

/* The row exchanges of later blocks, in the columns of one. */
static bool lu_exchange(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t j = index * job->block, to = least(j + job->block, job->k);
    rows_exchange(place, at(job, place->a, job->m, 0, j), job->m, to - j, to, job->k);
    return true;
}

/* Which rows the exchanges put where. */
static bool lu_order(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    (void)index;
    for (int64_t i = 0; i < job->m; i++) {
        place->order[i] = (int)i;
    }
    for (int64_t i = 0; i < job->k; i++) {
        int other = place->pivots[i] - 1, row = place->order[i];
        place->order[i] = place->order[other];
        place->order[other] = row;
    }
    return true;
}

/* A singular matrix has a pivot of 0. */
static bool pivots_check(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    (void)index;
    for (int64_t i = 0; i < job->k; i++) {
        if (is_zero(job, at(job, place->a, job->m, i, i))) {
            return decompose_singular(place, i);
        }
    }
    return true;
}

/* Steps of b's strips: b becomes U⁻¹ · L⁻¹ · P⁻¹ · b. For an inverse b is the identity, of whose columns L⁻¹ leaves zeros above the diagonal,
 * and the exchanges come last, as those of columns. */
static bool lu_solve(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    bool inverse = job->launch->opcode == OP_INV;
    int64_t j = index % job->strips * job->strip, step = index / job->strips, columns = least(job->strip, job->r - j);
    char *b = at(job, place->b, job->b_rows, 0, j);
    bool upper = step >= job->solves;
    if (step == 0 && !inverse) {
        rows_exchange(place, b, job->b_rows, columns, 0, job->n);
    }
    triangular_step(job, upper, false, !upper, job->n, columns, place->a, job->m, b, job->b_rows,
                    upper ? step - job->solves : step, inverse && !upper ? j : 0);
    return true;
}

/* b's columns exchanged, row by row: pieces of them are collected first, so that whole vectors are written. */
static bool inverse_write(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    _Alignas(64) char pieces[TILE * PIECE * sizeof(struct cpu_pair)];
    int64_t begin, end, n = job->n;
    copy_columns(n, n, index, &begin, &end);
    char *out = operand_matrix(&job->launch->output, place->number);
    int *from = (int *)(void *)place->work; /* the column of b that is column order[i] */
    for (int64_t i = 0; i < n; i++) {
        from[place->order[i]] = (int)i;
    }
    for (int64_t row = begin; row < end; row += PIECE) {
        int64_t rows = least(PIECE, end - row);
        for (int64_t i = 0; i < n; i += TILE) {
            int64_t columns = least(TILE, n - i);
            for (int64_t k = 0; k < columns; k++) {
                memcpy(pieces + k * PIECE * job->size, at(job, place->b, job->b_rows, row, from[i + k]),
                       (size_t)(rows * job->size));
            }
            decompose_transpose(job, out + (row * n + i) * job->size, n, pieces, PIECE, columns, 0, rows);
        }
    }
    return true;
}

static bool qr_first(const struct place *place, int64_t index) {
    decompose_reflections(place, index);
    return true;
}

/* A block's reflections of columns behind it. Those of the next block become reflections at once. */
static bool qr_block(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t begin, end, block = decompose_further_columns(job, index, &begin, &end);
    if (end > begin) {
        decompose_reflect(place, true, block, at(job, place->a, job->m, block * job->block, begin), job->m,
                          end - begin);
    }
    if (index % block_steps(job) == 0 && block + 1 < job->blocks) {
        decompose_reflections(place, block + 1);
    }
    return true;
}

void decompose_qr_phases(struct job *job) {
    job_phase(job, qr_first, job->blocks > 0);
    job_phase_together(job, qr_block, job->blocks * block_steps(job), block_steps(job));
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

/* All blocks, of strips of b's columns. */
static bool qr_apply(const struct place *place, int64_t index) {
    const struct job *job = place->job;
    int64_t block = index / job->strips, column = index % job->strips * job->strip;
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
    int64_t column = index % job->strips * job->strip;
    triangular_step(job, true, job->across, false, job->n, least(job->strip, job->r - column), place->a, job->m,
                    at(job, place->b, job->b_rows, 0, column), job->b_rows, index / job->strips, 0);
    return true;
}

/* ---- the job ---- */

/* A determinant needs L no more. */
static void phases_lu(struct job *job) {
    job_phase(job, lu_first, job->blocks > 0);
    job_phase_together(job, lu_block, job->blocks * block_steps(job), block_steps(job));
    if (job->launch->opcode != OP_DET && job->launch->opcode != OP_SLOGDET) {
        job_phase_together(job, lu_exchange, job->blocks, job->blocks);
    }
}

static void job_phases(struct job *job) {
    const struct launch *launch = job->launch;
    int64_t a = copy_steps(job->m, job->n), b = copy_steps(job->b_rows, job->r);
    int64_t out = copy_steps(launch->output.shape[2], launch->output.shape[1]);
    int64_t blocks = job->blocks * block_steps(job), solves = job->strips * job->solves;
    struct triangular_solve_attributes triangle;
    switch (launch->opcode) {
    case OP_EIGH:
    case OP_EIGVALSH:
    case OP_SVD:
    case OP_SVDVALS:
        spectral_phases(job);
        return;
    case OP_CHOLESKY:
        job_phase_together(job, decompose_cholesky_copy, a, a);
        job_phase(job, decompose_cholesky_first, blocks > 0);
        job_phase_together(job, decompose_cholesky_block, blocks, block_steps(job));
        return;
    case OP_TRIANGULAR_SOLVE:
        triangular_solve_attributes_read(&launch->attributes, &triangle);
        job_phase(job, decompose_triangular_check, !triangle.unit_diagonal);
        job_phase_together(job, decompose_triangular_strip, solves, job->strips);
        return;
    default:
        job_phase_together(job, decompose_gather, a, a);
    }
    int64_t write = copy_steps(job->m + job->n, job->m), applies = job->strips * job->blocks;
    switch (launch->opcode) {
    case OP_LU:
        phases_lu(job);
        job_phase(job, lu_order, 1);
        job_phase_together(job, decompose_lu_write, write, write);
        return;
    case OP_DET:
    case OP_SLOGDET:
        phases_lu(job);
        job_phase(job, decompose_det_write, 1);
        return;
    case OP_INV:
        phases_lu(job);
        job_phase(job, pivots_check, 1);
        job_phase(job, lu_order, 1);
        job_phase_together(job, decompose_identity, b, b);
        job_phase_together(job, lu_solve, 2 * solves, job->strips);
        job_phase_together(job, inverse_write, out, out);
        return;
    case OP_SOLVE:
        phases_lu(job);
        job_phase(job, pivots_check, 1);
        job_phase_together(job, decompose_gather_b, b, b);
        job_phase_together(job, lu_solve, 2 * solves, job->strips);
        job_phase_together(job, decompose_scatter, out, out);
        return;
    case OP_QR:
        decompose_qr_phases(job);
        job_phase_together(job, decompose_identity, b, b);
        job_phase_together(job, qr_make_q, job->blocks * update_steps(job, job->r), update_steps(job, job->r));
        job_phase_together(job, decompose_scatter, out, out);
        write = copy_steps(job->n, launch_further(launch, 1)->shape[1]);
        job_phase_together(job, decompose_r_write, write, write);
        return;
    case OP_LSTSQ:
        decompose_qr_phases(job);
        job_phase(job, pivots_check, 1);
        job_phase_together(job, decompose_gather_b, b, b);
        job_phase_together(job, job->across ? qr_solve : qr_apply, job->across ? solves : applies, job->strips);
        job_phase_together(job, job->across ? qr_apply : qr_solve, job->across ? applies : solves, job->strips);
        job_phase_together(job, decompose_scatter, out, out);
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

/* So many columns for a thread that shares them with others. */
static int64_t shared_extent(int64_t columns, int64_t most) {
    int64_t each = divided_up(columns, SHARED_PARTS * TILE) * TILE;
    return least(most, each > SHARED_COLUMNS ? each : SHARED_COLUMNS);
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
    job->update = shared_extent(job->n, job->update);
    double column = opcode == OP_LSTSQ || opcode == OP_SVD ? 2 * m * (double)job->block : each * n * n;
    job->strip = step_extent(column, job->r, INT_MAX / 8 * 8);
    if (opcode != OP_LSTSQ && opcode != OP_SVD &&
        column * BLOCK_LEAST > STEP_WORK) { /* cut into rows, so it may be wide */
        job->strip = least(job->r, BLOCK_MOST);
    }
    job->strip = shared_extent(job->r, job->strip);
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
    job->across |= launch->opcode == OP_DET || launch->opcode == OP_SLOGDET; /* a transpose has the same determinant */
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
    job->shared = job->batch < most && cube >= shared_work;
    job->base.lane_bytes = job->shared ? 0 : sizeof(struct round);
    if (job->shared) {
        job->threads = most;
        job->base.parts = job->base.lanes_most = most;
    }
    if (job->launch->opcode == OP_CHOLESKY || job->launch->opcode == OP_TRIANGULAR_SOLVE) {
        return;
    }
    bool reflections = job->launch->opcode == OP_QR || job->launch->opcode == OP_LSTSQ || job->spectral.panel > 0;
    int64_t work_elements = reflections ? decompose_reflect_work(job) : 0;
    if (job->launch->opcode == OP_INV) {
        work_elements = job->n; /* numbers of columns */
    }
    job->b_at = rounded(job->m * job->n * job->size);
    job->t_at = job->b_at + rounded(job->b_rows * job->r * job->size);
    job->pivots_at = job->t_at + rounded(reflections ? job->blocks * job->block * job->block * job->size : 0);
    job->order_at = job->pivots_at + rounded(job->k * (int64_t)sizeof(int));
    job->work_at = spectral_place(job, job->order_at + rounded(job->m * (int64_t)sizeof(int)));
    job->work_bytes = rounded(work_elements * job->size);
    job->place_bytes = job->work_at + job->work_bytes; /* behind it come those of further threads */
}

/* Of all threads: each has a place, or they share one but for `work`. */
static int64_t job_bytes(const struct job *job) {
    return job->shared ? job->place_bytes + (int64_t)(job->threads - 1) * job->work_bytes
                       : job->place_bytes * (int64_t)job->threads;
}

static struct place place_of(const struct job *job, unsigned lane) {
    char *memory = job->workspace + (job->shared ? 0 : lane * job->place_bytes);
    return (struct place){.job = job,
                          .a = memory,
                          .b = memory + job->b_at,
                          .t = memory + job->t_at,
                          .work = memory + job->work_at + (job->shared ? lane * job->work_bytes : 0),
                          .pivots = (int *)(void *)(memory + job->pivots_at),
                          .order = (int *)(void *)(memory + job->order_at)};
}

/* The phase of step number *index of a matrix, which becomes the step's number in it. */
static const struct phase *phase_of(const struct job *job, int64_t *index) {
    const struct phase *phase = job->phases;
    for (; *index >= phase->count; phase++) {
        *index -= phase->count;
    }
    return phase;
}

/* ---- a matrix whose steps are shared ---- */

static void steps_begin(struct job *job, int64_t begin) {
    int64_t index = begin;
    job->step_begin = begin;
    job->steps_now = phase_of(job, &index)->together;
    job->base.parts = (unsigned)job->steps_now;
}

static bool shared_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    struct place place = place_of(job, lane->number);
    int64_t index = job->step_begin;
    const struct phase *phase = phase_of(job, &index);
    place.number = job->matrix;
    place.part = phase->again ? lane->part : 0;
    if (!phase->step(&place, phase->again ? index : index + lane->part)) {
        atomic_store_explicit(&job->left_out, true, memory_order_relaxed);
    }
    return true;
}

/* The parts of the step's next round. */
static int64_t shared_parts(const struct job *job) {
    struct place place = place_of(job, 0);
    int64_t index = job->step_begin;
    const struct phase *phase = phase_of(job, &index);
    place.number = job->matrix;
    return phase->again ? phase->again(&place, index) : 0;
}

static bool shared_again(struct cpu_job *base) {
    struct job *job = (struct job *)base;
    bool left_out = atomic_load_explicit(&job->left_out, memory_order_relaxed);
    int64_t parts = left_out ? 0 : shared_parts(job), next = job->step_begin + job->steps_now;
    if (parts > 0) {
        base->parts = (unsigned)parts;
        return true;
    }
    if (left_out || next >= job->steps) {
        atomic_store_explicit(&job->left_out, false, memory_order_relaxed);
        job->matrix++;
        next = 0;
    }
    if (job->matrix >= job->batch) {
        return false;
    }
    steps_begin(job, next);
    return true;
}

/* ---- whole matrices ---- */

/* The steps of one matrix, from *position and *round on. False: it is left. */
static bool job_matrix(struct job *job, struct place *place, int64_t *position, struct round *round) {
    while (*position < job->steps) {
        int64_t index = *position;
        const struct phase *phase = phase_of(job, &index);
        place->part = round->part;
        if (!phase->step(place, index)) {
            *position = job->steps;
            *round = (struct round){.parts = 1};
        } else if (++round->part == round->parts) {
            int64_t parts = phase->again ? phase->again(place, index) : 0;
            *position += parts == 0;
            *round = (struct round){.parts = parts > 0 ? parts : 1};
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
    struct place place = place_of(job, lane->number);
    int64_t position = lane->position % job->steps;
    struct round round = {.parts = 1};
    if (lane->left) {
        memcpy(&round, lane->state, sizeof round);
    }
    for (place.number = begin + lane->position / job->steps; place.number < end; place.number++) {
        bool ended = job_matrix(job, &place, &position, &round);
        if (!ended || (place.number + 1 < end && cpu_job_stops(base))) {
            lane->position = (place.number - begin) * job->steps + (ended ? job->steps : position);
            memcpy(lane->state, &round, sizeof round);
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
    job.base.run = job.shared ? shared_part : job_part;
    job.base.again = job.shared ? shared_again : NULL;
    job.workspace = launch->workspace;
    double work = (double)job.batch * (double)(job.m * job.n) * (double)(job.k + job.r);
    if (job.steps == 0) {
        return STATUS_OK;
    }
    if (cpu_job_keep(&job.base, sizeof job, work, begun)) {
        if (job.shared && *begun != &cpu->waiting) { /* it has places for all threads */
            steps_begin((struct job *)*begun, 0);
        }
        return STATUS_OK;
    }
    assert(!job.shared); /* it has too much work not to be kept */
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
    return (uint64_t)job_bytes(&job);
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
