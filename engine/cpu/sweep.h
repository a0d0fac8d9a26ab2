/* Sweeps of implicit QR iteration along tridiagonal and bidiagonal matrices. They compute in f64, and tell the rotations of vectors that go with
 * them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The part of the diagonals that a sweep runs along, from its beginning on: element i is d[i · step], and the one beside it and the next one
 * e[i · step]. n is at least 2. */
struct diagonals {
    int64_t n, step;
    double *d, *e;
};

/* A sweep of QR iteration with Wilkinson's shift on a symmetric matrix. `rotations`: where n - 1 pairs of cosine and sine go, f64 if `wide`,
 * else f32; NULL: nowhere. */
void sweep_symmetric(bool wide, const struct diagonals *t, void *rotations);
/* A sweep of Golub's and Kahan's iteration on an upper bidiagonal matrix, with rotations of its rows and of its columns; or Demmel's and
 * Kahan's sweep without a shift if its diagonal has zeros. */
void sweep_general(bool wide, const struct diagonals *b, void *left, void *right);
