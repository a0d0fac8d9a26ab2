/* Matrix products. Each batch's result is cut into a grid of rectangles. The grid, and into which steps the depth is cut, follow from the shapes
 * alone, since libraries add up in another order at other edges: so results are the same at any number of threads. A rectangle of f32, f64 or complex numbers is "direct" if BLAS can
 * read its operands as they are. Any other rectangle is computed block by block from packed copies: matrices with odd strides or
 * with extents beyond an int; f16, bf16 and f8, in f32; integers and bool, in the device's own kernels; bf16 as it is by oneDNN, where the
 * processor has instructions for it.
 *
 * Linear is a product with one more pass over each piece, or over each block while it is still in f32, which adds the bias and applies the
 * activation. */
#include "engine/cpu/matmul.h"

#include <string.h>

#include "engine/cpu/walk.h"

enum { DOTS_PIECE = 1 << 18 }; /* elements of a batch of dot products between two looks whether to stop */

/* Where row or column number `at` of a grid begins. The divisions of what is not divided would be most of the time of a batch of dot products. */
static inline int64_t matmul_edge(int64_t n, int64_t at, int64_t grid) {
    return grid == 1 ? n * at : n / grid * at + least(at, n % grid);
}

/* *number becomes its quotient by `by`; returns the remainder. */
static inline int64_t divided_off(int64_t *number, int64_t by) {
    int64_t whole = *number;
    if (by == 1) {
        return 0;
    }
    *number = whole / by;
    return whole % by;
}

/* A row times a column, of real floats which follow one another in both: in a batch of such BLAS would take most of its time for other things. Products
 * are added up in f64. False: they are not like that. */
static bool dot_direct(const struct matmul_job *job, const struct matrix *a, const struct matrix *b,
                       const struct matrix *c, bool add) {
    const bool wide = job->dtype == DTYPE_F64;
    if (a->rows != 1 || b->columns != 1 || a->column_stride != 1 || b->row_stride != 1 ||
        !(wide || job->dtype == DTYPE_F32)) {
        return false;
    }
    double sum = job->base.cpu->kernels->attention[wide].dot(a->columns, a->data, b->data);
    if (wide) {
        *(double *)(void *)c->data = add ? *(double *)(void *)c->data + sum : sum;
    } else {
        *(float *)(void *)c->data = (float)(add ? (double)*(float *)(void *)c->data + sum : sum);
    }
    return true;
}

/* A piece of a run of strips, from *position on; moves that on. BLAS can read the operands. */
static void piece_direct(const struct matmul_job *job, const struct matrix *a, const struct matrix *b,
                         const struct matrix *c, int64_t first_column, int64_t run, int64_t *position) {
    int64_t first = matmul_edge(job->strips, run, job->runs),
            strips = matmul_edge(job->strips, run + 1, job->runs) - first;
    int64_t step = *position, strip = divided_off(&step, strips);
    int64_t taken = least(cpu_job_shares(&job->base) ? job->apart : job->together, strips - strip);
    int64_t at = step * job->depth, depth = step + 1 < job->steps ? job->depth : job->k - at;
    int64_t row = (first + strip) * job->strip;
    int64_t rows = first + strip + taken < job->strips ? taken * job->strip : c->rows - row;
    *position += taken;
    struct matrix left = matrix_part(a, row, rows, at, depth, job->size);
    struct matrix right = matrix_part(b, at, depth, 0, b->columns, job->size);
    struct matrix result = matrix_part(c, row, rows, 0, c->columns, job->size);
    if (!dot_direct(job, &left, &right, &result, at > 0)) {
        matrix_multiply(&job->base.cpu->blas, job->dtype, &left, &right, &result, at > 0);
    }
    if (step + 1 == job->steps && job->finish) {
        matmul_finish(job, &result, first_column);
    }
}

/* The same of a rectangle that is packed. */
static void piece_packed(struct matmul_job *job, const struct matrix *a, const struct matrix *b, const struct matrix *c,
                         int64_t first_column, bool kept, char *blocks, int64_t *position) {
    int64_t at = *position * job->depth;
    bool last = ++*position == job->steps;
    matmul_multiply_packed(job, a, b, c, at, last ? job->k : at + job->depth, kept, blocks);
    if (last) {
        matmul_finish_packed(job, c, first_column, blocks + job->c_block);
    }
}

/* A run of a rectangle's strips, by its number: of which rectangle, in which batch. */
struct place {
    int64_t run, row, column, batch;
};

/* Of products of bf16 rectangles that have the same part of b follow one another. */
static struct place job_place(const struct matmul_job *job, int64_t number) {
    struct place place;
    place.run = divided_off(&number, job->runs);
    if (job->bf16) {
        place.row = divided_off(&number, job->grid_rows);
    }
    place.column = divided_off(&number, job->grid_columns);
    if (!job->bf16) {
        place.row = divided_off(&number, job->grid_rows);
    }
    place.batch = number;
    return place;
}

/* Whether a thread that has computed the run before this one has its part of b packed. */
static bool job_has_kept(const struct matmul_job *job, int64_t number) {
    if (!job->bf16_keeps) {
        return false;
    }
    struct place this = job_place(job, number), last = job_place(job, number - 1);
    return this.column == last.column &&
           (this.batch == last.batch || matmul_batch(job->b, this.batch).data == matmul_batch(job->b, last.batch).data);
}

/* One run of a rectangle's strips, from *position on, which counts their steps. False: it is left there. */
static bool job_run(struct matmul_job *job, int64_t number, bool kept, struct cpu_lane *lane, int64_t *position) {
    struct place at = job_place(job, number);
    int64_t strips = matmul_edge(job->strips, at.run + 1, job->runs) - matmul_edge(job->strips, at.run, job->runs);
    int64_t i = matmul_edge(job->m, at.row, job->grid_rows), i_end = matmul_edge(job->m, at.row + 1, job->grid_rows);
    int64_t j = matmul_edge(job->n, at.column, job->grid_columns),
            j_end = matmul_edge(job->n, at.column + 1, job->grid_columns);
    struct matrix a = matmul_batch(job->a, at.batch), b = matmul_batch(job->b, at.batch),
                  c = matmul_batch(job->c, at.batch);
    c.row_stride = job->n; /* of one row the stride may be anything */
    c.column_stride = 1;
    a = matrix_part(&a, i, i_end - i, 0, job->k, operand_size(job->a));
    b = matrix_part(&b, 0, job->k, j, j_end - j, operand_size(job->b));
    c = matrix_part(&c, i, i_end - i, j, j_end - j, job->size);
    for (int64_t end = job->steps * strips; *position < end;) {
        if (job->direct) {
            piece_direct(job, &a, &b, &c, j, at.run, position);
        } else {
            piece_packed(job, &a, &b, &c, j, kept, job->workspace + lane->number * job->blocks, position);
        }
        if (*position < end && cpu_job_stops(&job->base)) {
            return false;
        }
    }
    *position = 0;
    return true;
}

/* The runs of a part. lane->position counts the steps of the strips of all of them. */
static bool matmul_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct matmul_job *job = (struct matmul_job *)base;
    int64_t runs = job->batches * job->grid_rows * job->grid_columns * job->runs;
    int64_t begin = cpu_part_begin(runs, lane->part, base->parts);
    int64_t end = cpu_part_begin(runs, lane->part + 1, base->parts);
    int64_t whole = job->steps * divided_up(job->strips, job->runs), position = lane->position % whole;
    for (int64_t i = begin + lane->position / whole; i < end; i++) {
        if (!job_run(job, i, i > begin && job_has_kept(job, i), lane, &position)) {
            lane->position = (i - begin) * whole + position;
            return false;
        }
    }
    return true;
}

/* Whether the product is a batch of dot products as dot_direct() takes them, each in one step. */
static bool job_is_dots(const struct matmul_job *job) {
    const int last = job->a->rank - 1;
    return job->direct && !job->finish && job->m == 1 && job->n == 1 && job->steps == 1 && last > 1 &&
           (job->dtype == DTYPE_F32 || job->dtype == DTYPE_F64) && job->a->strides[last] == 1 &&
           job->b->strides[last - 1] == 1;
}

/* The same results as those of matmul_part(), whose search for each batch would take longer than a short product. */
static bool dots_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct matmul_job *job = (const struct matmul_job *)base;
    const struct operand *const operands[] = {job->c, job->a, job->b};
    const bool wide = job->dtype == DTYPE_F64;
    char *const origin[] = {job->c->data, job->a->data, job->b->data};
    struct walk walk = {.rank = job->a->rank - 2, .arrays = 3};
    memcpy(walk.shape, job->c->shape, (size_t)walk.rank * sizeof *walk.shape);
    for (int k = 0; k < 3; k++) {
        walk_array(&walk, k, operands[k]->strides, 0, job->size);
    }
    const int last = walk.rank - 1;
    const int64_t steps[] = {walk.strides[0][last], walk.strides[1][last], walk.strides[2][last]};
    int64_t begin = cpu_part_begin(job->batches, lane->part, base->parts) + lane->position, since = 0;
    int64_t end = cpu_part_begin(job->batches, lane->part + 1, base->parts);
    walk_seek(&walk, origin, begin);
    for (int64_t n; begin < end; begin += n) {
        n = least(least(walk.shape[last] - walk.index[last], end - begin), DOTS_PIECE / job->k + 1);
        char *c = walk.at[0], *a = walk.at[1], *b = walk.at[2];
        for (int64_t i = 0; i < n; i++, c += steps[0], a += steps[1], b += steps[2]) {
            const double sum = base->cpu->kernels->attention[wide].dot(job->k, a, b);
            if (wide) {
                *(double *)(void *)c = sum;
            } else {
                *(float *)(void *)c = (float)sum;
            }
        }
        walk_advance(&walk, n);
        lane->position += n;
        since += n * job->k;
        if (since >= DOTS_PIECE && begin + n < end) {
            since = 0;
            if (cpu_job_stops(base)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- a depth of 0 ---- */

/* A product of depth 0: zeros, and of linear activation(bias) in each row. */
static bool fill_part(struct cpu_job *base, struct cpu_lane *lane) {
    _Alignas(8) char block[BLOCK_COLUMNS * sizeof(double)];
    struct matmul_job *job = (struct matmul_job *)base;
    int64_t columns = (job->n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS, blocks = job->batches * job->m * columns;
    int64_t end = cpu_part_begin(blocks, lane->part + 1, base->parts);
    for (int64_t i = cpu_part_begin(blocks, lane->part, base->parts); i < end; i++) {
        int64_t row = i / columns, j = i % columns * BLOCK_COLUMNS, width = least(BLOCK_COLUMNS, job->n - j);
        struct matrix made = {block, 1, width, width, 1};
        struct matrix target = {(char *)job->c->data + (row * job->n + j) * job->size, 1, width, width, 1};
        memset(block, 0, sizeof block);
        if (job->finish) {
            matmul_finish(job, &made, j);
            matrix_convert(job->base.cpu, job->finished, &made, job->dtype, &target);
        } else {
            memset(target.data, 0, (size_t)(width * job->size));
        }
    }
    return true;
}

static void job_fill(struct matmul_job *job, struct cpu_job **begun) {
    int64_t blocks = job->batches * job->m * ((job->n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS);
    double work = (double)blocks * (BLOCK_COLUMNS * 16 + 256);
    job->base.run = fill_part;
    job->base.parts = cpu_parts(job->base.cpu, work);
    job->base.parts = blocks < job->base.parts ? (unsigned)blocks : job->base.parts;
    cpu_job_begin(&job->base, sizeof *job, work, begun);
}

/* ---- launches ---- */

static void matmul_done(struct cpu_job *base) {
    struct matmul_job *job = (struct matmul_job *)base;
    dnnl_product_release(job->bf16);
    job->bf16 = NULL;
}

static int matmul_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    struct matmul_job job;
    matmul_init(&job, (struct cpu *)device, launch);
    if (job.packed && job.base.cpu->kernels->cast[job.a->dtype][job.packed] &&
        job.base.cpu->kernels->cast[job.b->dtype][job.packed]) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_UNSUPPORTED, "a cpu device does not multiply %s by %s",
                     dtype_name((enum dtype)job.a->dtype), dtype_name((enum dtype)job.b->dtype));
}

static uint64_t matmul_workspace(struct device *device, const struct launch *launch) {
    struct matmul_job job;
    matmul_init(&job, (struct cpu *)device, launch);
    if (job.k == 0) {
        return 0;
    }
    matmul_plan(&job);
    uint64_t bytes = (uint64_t)job.blocks * job.threads, bf16 = 0;
    matmul_find_bf16(&job);
    if (job.bf16) {
        matmul_plan(&job);
        bf16 = (uint64_t)job.blocks * job.threads;
        matmul_done(&job.base);
    }
    return bytes > bf16 ? bytes : bf16; /* when the launch runs, oneDNN may have no memory any more */
}

static int matmul_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    struct matmul_job job;
    (void)fault;
    matmul_init(&job, cpu, launch);
    if (job.k == 0) {
        job_fill(&job, begun);
        return STATUS_OK;
    }
    matmul_find_bf16(&job);
    matmul_plan(&job);
    job.base.run = job_is_dots(&job) ? dots_part : matmul_part;
    job.base.done = matmul_done;
    job.workspace = launch->workspace;
    if (cpu_job_keep(&job.base, sizeof job, job.work, begun)) {
        if (*begun == &cpu->waiting) {
            matmul_done(&job.base);
        }
        return STATUS_OK;
    }
    job.base.parts =
        job.base.parts < job.threads ? job.base.parts : job.threads; /* each part has the blocks of one thread */
    cpu_job_run(&job.base);
    return STATUS_OK;
}

int cpu_needs_blas(struct cpu *cpu, struct fault *fault) {
    if (cpu->blas.library) {
        return STATUS_OK;
    }
    int code = blas_load(&cpu->blas, fault);
    if (code == STATUS_OK) {
        cpu_rates_of_blas(cpu);
    }
    return code;
}

void cpu_seeks_dnnl(struct cpu *cpu) {
    if (!cpu->dnnl_sought) {
        cpu->dnnl_sought = true;
        cpu->dnnl = dnnl_load();
    }
}

/* Products of floats and complex numbers need OpenBLAS. */
static int matmul_needs(struct device *device, enum dtype dtype, struct fault *fault) {
    if (dtype == DTYPE_BF16) {
        cpu_seeks_dnnl((struct cpu *)device);
    }
    return dtype_kind(dtype) >= DTYPE_KIND_FLOAT ? cpu_needs_blas((struct cpu *)device, fault) : STATUS_OK;
}

/* Packing converts. Halves come from what is as it is in f32, in which they are multiplied. */
static bool matmul_converts(const struct device *device, unsigned opcode, enum dtype from, enum dtype to) {
    (void)opcode;
    if (to == DTYPE_F16 || to == DTYPE_BF16) {
        return dtype_kind(from) <= DTYPE_KIND_INT && dtype_size(from) == 1;
    }
    return ((const struct cpu *)device)->kernels->cast[from][to] != NULL;
}

#define PRODUCT                                                                                                        \
    {                                                                                                                  \
        {.converts = matmul_converts,                                                                                  \
         .needs = matmul_needs,                                                                                        \
         .accepts = matmul_accepts,                                                                                    \
         .workspace = matmul_workspace},                                                                               \
            matmul_run                                                                                                 \
    }
const struct cpu_kernel cpu_kernel_matmul = PRODUCT;
const struct cpu_kernel cpu_kernel_linear = PRODUCT;
