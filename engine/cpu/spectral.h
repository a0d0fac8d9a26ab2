/* Eigenvalues and singular values (spectral.c): what their phases share. */
#pragma once

#include "engine/cpu/decompose.h"

enum {
    PANEL_MOST = 32,  /* columns that LAPACK reduces at a time */
    SWEEPS_MOST = 32, /* that are collected */
};

enum { LEFT, RIGHT }; /* sides of a singular value decomposition; an eigenvalue's vectors are LEFT */

/* What is kept of a matrix between steps. */
struct spectral_state {
    double most;          /* the greatest magnitude; NaN if there is something not finite */
    double norm;          /* the greatest element of the diagonals */
    int exponent;         /* the matrix was scaled by 2^-exponent */
    bool upwards;         /* the direction of sweeps along the part from `low` to `high` */
    bool iterating;       /* values are not found yet, or collected sweeps not applied */
    int64_t column, done; /* of a large matrix's panel, and columns of the rest that its stage has dealt with */
    int stage;
    int64_t written; /* elements of the results that have become NaN */
    int64_t low, high;
    int64_t sweeps;               /* so far */
    int64_t collected, rotations; /* of the sweeps that are to be applied */
    int64_t applied;              /* blocks of vectors to which they have been */
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

/* ---- to a tridiagonal or bidiagonal matrix, and the first vectors (spectral_reduce.c) ---- */

spectral_step spectral_gather_symmetric, spectral_begin, spectral_measure, spectral_scale, spectral_take_triangle;
spectral_step spectral_reduce_symmetric, spectral_reduce_general;
spectral_step spectral_identity, spectral_make_symmetric, spectral_make_left, spectral_make_right, spectral_pack_left,
    spectral_pack_right;
/* A block of packed vectors: some rows, column by column. */
char *spectral_block(const struct place *place, int side, int64_t block);
/* Some more of the results of a matrix that has no values become NaN. False: all are, and its further steps are left out. */
bool spectral_write_nan(const struct place *place);
bool spectral_measure_again(const struct place *place);

/* ---- the same reduction of a large matrix (spectral_large.c) ---- */

spectral_step spectral_reduce_symmetric_large, spectral_reduce_general_large;
bool spectral_reduce_again(const struct place *place);

/* ---- to a diagonal one (spectral_iterate.c) ---- */

spectral_step spectral_iterate;
bool spectral_iterate_again(const struct place *place);

/* ---- values in their order, and their vectors (spectral_result.c) ---- */

spectral_step spectral_write_values, spectral_write_eigenvectors, spectral_write_right, spectral_write_left,
    spectral_begin_left, spectral_fill_left, spectral_reflect_left, spectral_scatter_left;
