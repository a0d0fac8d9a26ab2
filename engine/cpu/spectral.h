/* Eigenvalues and singular values (spectral.c): what their phases share. */
#pragma once

#include "engine/cpu/decompose.h"

enum {
    PANEL_MOST = 32,     /* columns that are reduced at a time */
    REFLECTED_MOST = 32, /* reflections that are applied together; the products of more are less exact */
    SWEEPS_MOST = 32,    /* that are collected */
    PRODUCTS_MOST = 8,   /* parts of a product of a matrix and a vector, unless these become too large */
};

/* Scratch for the columns of a panel that is reduced in parts, PANEL_MOST elements each; kept from one round to the next are products of its
 * vectors, and the conjugates of two rows. */
enum { SCRATCH, KEPT_PRODUCTS, KEPT_A, KEPT_X, SCRATCHES };

enum { LEFT, RIGHT }; /* sides of a singular value decomposition; an eigenvalue's vectors are LEFT */

/* Some sweeps, that are applied to the vectors together. */
struct spectral_sweeps {
    int64_t count, rotations; /* rotations of all of them */
};

/* What is kept of a matrix between steps. */
struct spectral_state {
    double most;    /* the greatest magnitude; NaN if there is something not finite */
    double norm;    /* the greatest element of the diagonals */
    int exponent;   /* the matrix was scaled by 2^-exponent */
    bool upwards;   /* the direction of sweeps along the part from `low` to `high` */
    bool iterating; /* values are not found yet */
    int64_t column; /* of a panel that is reduced in parts */
    int stage;
    bool multiplied; /* the product of the matrix and its row is known */
    int64_t written; /* elements of the results that have become NaN */
    int64_t low, high;
    int64_t sweeps; /* so far */
    struct spectral_sweeps sets[2];
    int collecting; /* the set that takes sweeps; the other one is applied meanwhile */
};

static inline void *part(const struct place *place, int64_t offset) {
    return place->a + offset;
}

static inline struct spectral_state *state_of(const struct place *place) {
    return part(place, place->job->spectral.state_at);
}

static inline bool is_svd(const struct job *job) {
    return job->launch->opcode == OP_SVD || job->launch->opcode == OP_SVDVALS;
}

/* The square matrix that is reduced, column by column. */
static inline char *square(const struct place *place, int64_t row, int64_t column) {
    return at(place->job, part(place, place->job->spectral.square_at), place->job->n, row, column);
}

/* A phase's step (decompose.h), number `index` of it. */
typedef bool spectral_step(const struct place *place, int64_t index);
/* What follows a round of it. */
typedef int64_t spectral_again(const struct place *place, int64_t index);

/* ---- to a tridiagonal or bidiagonal matrix, and the first vectors (spectral_reduce.c) ---- */

spectral_step spectral_gather_symmetric, spectral_begin, spectral_measure, spectral_scale, spectral_take_triangle;
spectral_step spectral_reduce_symmetric, spectral_reduce_general;
spectral_step spectral_identity, spectral_join_symmetric, spectral_join_left, spectral_join_right,
    spectral_make_symmetric, spectral_make_left, spectral_make_right, spectral_pack_left, spectral_pack_right;
/* A block of packed vectors: some rows, column by column. */
char *spectral_block(const struct place *place, int side, int64_t block);
/* Some more of the results of a matrix that has no values become NaN. False: all are, and its further steps are left out. */
bool spectral_write_nan(const struct place *place);
spectral_again spectral_measure_again;

/* ---- the same reduction of a large matrix (spectral_large.c) ---- */

spectral_step spectral_reduce_symmetric_large, spectral_reduce_general_large;
spectral_again spectral_symmetric_again, spectral_general_again;
/* The parts of a product of so many elements of a matrix and a vector. */
int64_t spectral_products(const struct job *job, int64_t elements);

/* ---- to a diagonal one (spectral_iterate.c) ---- */

spectral_step spectral_iterate;
spectral_again spectral_iterate_again;

/* ---- values in their order, and their vectors (spectral_result.c) ---- */

spectral_step spectral_write_values, spectral_write_eigenvectors, spectral_write_right, spectral_write_left,
    spectral_begin_left, spectral_fill_left, spectral_reflect_left, spectral_scatter_left;
