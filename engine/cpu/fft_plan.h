/* How a launch's Fourier transforms are computed (fft.c), and the tables that they take. */
#pragma once

#include "engine/cpu/fft.h"

/* Lengths, and places in the workspace. */
struct fft_plan {
    struct fft_request request;
    int64_t size;                    /* bytes of a complex number */
    int64_t lines;                   /* of the tensor */
    int64_t numbers;                 /* of the transforms: n, its half, or the room for a convolution */
    bool chirped;                    /* n has a large prime factor */
    bool paired;                     /* n real numbers are taken as n/2 complex ones */
    bool lined;                      /* each line is transformed by itself, as cpu_fft_line says */
    bool cut;                        /* lines are matrices that go through the workspace */
    struct fft_length columns, rows; /* the lengths of transforms of columns and rows; of whole lines `columns` */
    int64_t group, place_bytes;      /* of the real or imaginary parts in one place of a block */
    int64_t column_roots_at, row_roots_at, column_groups_at, row_groups_at, pair_roots_at, places_at, turns_at, high_at,
        low_at, chirp_at, filter_at, middle_at, spread_at, blocks_at;
    int64_t bytes;
};

/* Groups of the last pass. */
static inline int64_t fft_groups(const struct fft_length *length) {
    return length->radices ? length->n / length->radix[length->radices - 1] : 0;
}

/* All tables but the chirp and the filter, */
void fft_tables_fill(const struct fft_plan *plan, char *workspace);
/* and numbers begin … end - 1 of these: the filter is the chirp's conjugate on both sides of 0, with zeros between. */
void fft_chirp_fill(const struct fft_plan *plan, char *workspace, int64_t begin, int64_t end);
