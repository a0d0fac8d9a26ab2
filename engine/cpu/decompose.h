/* What the drivers of decompositions share: a job that factors a batch of matrices, and the place where a thread works on one of them.
 *
 * A matrix goes through phases of steps. Between two steps a thread can be left; what a phase keeps is in the place. */
#pragma once

#include <limits.h>
#include <string.h>

#include "engine/cpu/cpu.h"

enum {
    BLOCK_MOST = 128, /* columns of a block, */
    BLOCK_LEAST = 8,
    COPY_ELEMENTS = 1 << 17, /* elements that are copied between two looks whether to stop, or by one thread */
    TILE = 16,               /* of a copy across */
    REFLECTED = 256,         /* columns to which a block's reflections are applied at once */
    PHASES_MOST = 24,
};
/* Multiplications of a step: some 10 ms. */
#define STEP_WORK 5e8

struct job;

/* The matrix that a thread works on: its parts of the workspace, column by column. */
struct place {
    const struct job *job;
    int64_t number; /* of the matrix in the batch */
    int64_t part;   /* of a step in parts (struct phase) */
    char *a, *b;
    char *t;    /* of each block of a QR decomposition, [block][block]: its reflections are 1 - v · t · vᴴ */
    char *work; /* the thread's own */
    int *pivots;
    int *order; /* order[i]: the row of a that is row i of L · U */
};

/* Some steps that follow one another. False: the matrix is singular, and its further steps are left out. */
struct phase {
    bool (*step)(const struct place *place, int64_t index);
    int64_t count;
    int64_t together; /* so many steps, one behind the other, do not depend on each other */
    /* Not NULL: a step runs in rounds, of which the first one has one part. This is called when all parts of a round have run; it returns the
     * parts of the next round, which do not depend on each other, or 0: the step has ended. */
    int64_t (*again)(const struct place *place, int64_t index);
};

/* How far a thread that has a matrix for itself has come in a step. */
struct round {
    int64_t part, parts;
};

/* The reflections of b columns of m rows, 1 - v · t · vᴴ: v lies as the columns do, below the diagonal, and t has `t_stride` elements to a
 * column. */
struct reflections {
    int64_t m, b, v_stride, t_stride;
    char *v, *t;
};

/* Of eigenvalues and singular values: where in a place what lies. */
struct spectral_plan {
    bool vectors;
    int64_t panel, panels; /* columns of a step of the reduction */
    bool in_parts;         /* a panel takes many rounds */
    int64_t
        product; /* then elements of the matrix that a part multiplies by a vector, if these are not too many parts, */
    int64_t products_most; /* so many, of which each has its own sum, */
    int64_t updated;       /* and elements of the matrix that a part brings up to date */
    int64_t reflected;     /* reflections that are applied in a step, */
    int64_t made;          /* and columns to which they are */
    int64_t rows;          /* of a block of vectors */
    int64_t square_at, state_at, scratch_at, values_at, beside_at, order_at, tau_at[2], panel_at[2], across_at, sums_at,
        joined_at, packed_at[2], rotations_at[2][2], sweeps_at[2][2];
};

struct job {
    struct cpu_job base;
    const struct launch *launch;
    const struct lapack *lapack; /* the functions for the dtype of the matrices */
    bool wide;                   /* f64 or c128 */
    bool is_complex;
    int64_t size, part; /* bytes of an element, and of a real number of its precision: of its parts, if it is complex */
    int64_t batch, m, n, k; /* matrices as they are factored: m by n, k = min(m, n) */
    int64_t r;              /* columns of b */
    int64_t b_rows;         /* rows of b in the workspace */
    int64_t block, blocks;  /* of the factored columns */
    int64_t update;         /* columns beside a block that one step brings up to date */
    int64_t strip, strips;  /* of b's columns */
    int64_t solved, solves; /* rows that one step solves for, and the steps of a strip */
    bool across;            /* lstsq: the conjugate transpose is factored; svd, det and slogdet: the transpose */
    int64_t b_at, t_at, pivots_at, order_at, work_at, work_bytes, place_bytes;
    struct spectral_plan spectral;
    unsigned threads;
    char *workspace;
    int64_t steps; /* of a matrix */
    /* Several threads on one matrix after another: number `matrix`, of whose steps they share `steps_now`, from number step_begin on. */
    bool shared;
    int64_t matrix, step_begin, steps_now;
    _Atomic bool left_out; /* the matrix is singular */
    unsigned n_phases;
    struct phase phases[PHASES_MOST];
};

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

static inline char *at(const struct job *job, char *matrix, int64_t rows, int64_t row, int64_t column) {
    return matrix + (column * rows + row) * job->size;
}

/* A real number, or the real part of an element; likewise the next one. */
static inline double number(const struct job *job, const char *element) {
    if (job->wide) {
        double value;
        memcpy(&value, element, sizeof value);
        return value;
    }
    float value;
    memcpy(&value, element, sizeof value);
    return value;
}

static inline void number_set(const struct job *job, char *element, double value) {
    float narrow = (float)value;
    if (job->wide) {
        memcpy(element, &value, sizeof value);
    } else {
        memcpy(element, &narrow, sizeof narrow);
    }
}

static inline bool is_zero(const struct job *job, const char *element) {
    return number(job, element) == 0 && (!job->is_complex || number(job, element + job->part) == 0);
}

/* Elements become their conjugates; of real ones nothing changes. */
static inline void conjugate(const struct job *job, char *elements, int64_t n) {
    for (int64_t i = 0; i < n && job->is_complex; i++) {
        char *imaginary = elements + i * job->size + job->part;
        number_set(job, imaginary, -number(job, imaginary));
    }
}

/* Operand `operand`'s matrix number `which`, row by row. */
static inline char *operand_matrix(const struct operand *operand, int64_t which) {
    return (char *)operand->data +
           which * operand->shape[1] * operand->shape[2] * (int64_t)dtype_size((enum dtype)operand->dtype);
}

static inline int64_t rounded(int64_t bytes) {
    return (bytes + 63) & ~INT64_C(63);
}

/* Adds a phase of so many steps. */
static inline void job_phase(struct job *job, bool (*step)(const struct place *place, int64_t index), int64_t count) {
    if (count > 0) {
        job->phases[job->n_phases++] = (struct phase){.step = step, .count = count, .together = 1};
        job->steps += count;
    }
}

/* The same of steps of which so many, one behind the other, do not depend on each other. */
static inline void job_phase_together(struct job *job, bool (*step)(const struct place *place, int64_t index),
                                      int64_t count, int64_t together) {
    job_phase(job, step, count);
    if (count > 0) {
        job->phases[job->n_phases - 1].together = together;
    }
}

/* The steps of each block if these bring so many columns up to date. */
static inline int64_t update_steps(const struct job *job, int64_t columns) {
    return divided_up(columns, job->update);
}

/* The same where the columns of the next block have their own step. */
static inline int64_t block_steps(const struct job *job) {
    return 1 + update_steps(job, job->n);
}

/* So many rows or columns, of multiplications by `each`, as make a step. */
int64_t step_extent(double each, int64_t extent, int64_t most);

/* z[j · z_stride + i] = x[i · x_stride + j] for i < rows, and j from `begin` to `end` - 1. */
void decompose_transpose(const struct job *job, char *z, int64_t z_stride, const char *x, int64_t x_stride,
                         int64_t rows, int64_t begin, int64_t end);
/* Steps of a copy of rows by columns, and the columns of one of them. */
int64_t copy_steps(int64_t rows, int64_t columns);
void copy_columns(int64_t rows, int64_t columns, int64_t index, int64_t *begin, int64_t *end);

/* Reports that the matrix is singular, as can be seen in this row; returns false. */
bool decompose_singular(const struct place *place, int64_t row);
/* The columns behind a block that step number `index` of those of all blocks brings up to date; returns the block. */
int64_t decompose_further_columns(const struct job *job, int64_t index, int64_t *begin, int64_t *end);

/* Steps in decompose_copy.c: a and b into the workspace, column by column; b becomes the first columns of the identity; the first rows of b are the first
 * output; and P, L and U, the determinant, and R are the outputs. */
bool decompose_gather(const struct place *place, int64_t index);
bool decompose_gather_b(const struct place *place, int64_t index);
bool decompose_identity(const struct place *place, int64_t index);
bool decompose_scatter(const struct place *place, int64_t index);
bool decompose_lu_write(const struct place *place, int64_t index);
bool decompose_det_write(const struct place *place, int64_t index);
bool decompose_r_write(const struct place *place, int64_t index);
/* Steps in decompose_in_place.c: a triangle is copied, the first diagonal block is factored, what is behind a block is brought up to date; a triangle of
 * equations has no zero on its diagonal, some rows of a strip of columns are solved for. */
bool decompose_cholesky_copy(const struct place *place, int64_t index);
bool decompose_cholesky_first(const struct place *place, int64_t index);
bool decompose_cholesky_block(const struct place *place, int64_t index);
bool decompose_triangular_check(const struct place *place, int64_t index);
bool decompose_triangular_strip(const struct place *place, int64_t index);
/* The phases of a QR decomposition. */
void decompose_qr_phases(struct job *job);
/* c, m by n, less op(a) · op(b), whose depth is k. */
void decompose_subtract(const struct job *job, bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k,
                        const char *a, int64_t a_stride, const char *b, int64_t b_stride, char *c, int64_t c_stride);
/* b, m by n, becomes op(a)⁻¹ · b for a triangular matrix, or from the right b · op(a)⁻¹; `unit`: its diagonal counts as ones. */
void decompose_triangle(const struct job *job, bool right, bool upper, bool transposed, bool unit, int64_t m, int64_t n,
                        const char *a, int64_t a_stride, char *b, int64_t b_stride);
/* A block of columns becomes reflections and, above the diagonal, R. */
void decompose_reflections(const struct place *place, int64_t block);
/* Applies a block's reflections, or their inverse, to columns of c from the block's first row on. */
void decompose_reflect(const struct place *place, bool transposed, int64_t block, char *c, int64_t c_rows,
                       int64_t columns);
/* The same for reflections anywhere, of which there are no more than a block has columns. */
void decompose_reflect_by(const struct place *place, const struct reflections *r, bool transposed, char *c,
                          int64_t c_rows, int64_t columns);
/* Makes t of reflections 1 - tau · v · vᴴ, of which there are no more than a block has columns. */
void decompose_join(const struct place *place, const struct reflections *r, const char *tau);
/* Elements of `work` that it needs. */
static inline int64_t decompose_reflect_work(const struct job *job) {
    return job->block * (job->block + 2 * REFLECTED);
}

/* The phases of eigh, eigvalsh, svd and svdvals, and their part of the place, which begins at `at`; returns where it ends. */
void spectral_phases(struct job *job);
void spectral_init(struct job *job);
int64_t spectral_place(struct job *job, int64_t at);
