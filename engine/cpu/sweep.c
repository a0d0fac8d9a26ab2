#include "engine/cpu/sweep.h"

#include <math.h>
#include <stddef.h>

struct rotation {
    double c, s, r;
};

/* c · x + s · y = r, and c · y - s · x = 0. The diagonals are scaled, so squares that underflow do not count. */
static inline struct rotation rotation_of(double x, double y) {
    double r = sqrt(x * x + y * y);
    return r > 0 ? (struct rotation){x / r, y / r, r} : (struct rotation){1, 0, 0};
}

/* Writes rotation number i of a sweep. */
static void collect(bool wide, void *rotations, int64_t i, struct rotation rotation) {
    if (rotations && wide) {
        ((double *)rotations)[2 * i] = rotation.c;
        ((double *)rotations)[2 * i + 1] = rotation.s;
    } else if (rotations) {
        ((float *)rotations)[2 * i] = (float)rotation.c;
        ((float *)rotations)[2 * i + 1] = (float)rotation.s;
    }
}

/* A sweep of QR iteration; its rotations make G · T · Gᵀ. */
void sweep_symmetric(bool wide, const struct diagonals *t, void *rotations) {
    double *d = t->d, *e = t->e;
    int64_t n = t->n, step = t->step;
    double a = d[(n - 2) * step], b = d[(n - 1) * step], side = e[(n - 2) * step], half = (a - b) / 2;
    double root = sqrt(half * half + side * side);
    double shift = root > 0 ? b - side * (side / (half + copysign(root, half))) : b;
    double x = d[0] - shift, z = e[0];
    for (int64_t i = 0; i + 1 < n; i++, d += step, e += step) {
        struct rotation g = rotation_of(x, z);
        if (i > 0) {
            e[-step] = g.r;
        }
        double turn = (d[0] - d[step]) * g.s - 2 * g.c * e[0];
        d[0] -= g.s * turn;
        d[step] += g.s * turn;
        e[0] = -g.c * turn - e[0];
        collect(wide, rotations, i, g);
        if (i + 2 < n) {
            x = e[0];
            z = g.s * e[step];
            e[step] *= g.c;
        }
    }
}

/* The least singular value of an upper triangle of two rows. */
static double least_of_two(double f, double g, double h) {
    double least = fmin(fabs(f), fabs(h)), most = fmax(fabs(f), fabs(h)), side = fabs(g);
    if (least == 0) {
        return 0;
    }
    double sum = 1 + least / most, difference = (most - least) / most, third = side / most;
    double product = third * third;
    return least * (2 / (sqrt(sum * sum + product) + sqrt(difference * difference + product)));
}

/* A sweep of Golub's and Kahan's iteration. */
static void sweep_shifted(bool wide, const struct diagonals *b, double shift, void *left, void *right) {
    double *d = b->d, *e = b->e;
    int64_t n = b->n, step = b->step;
    double x = (fabs(d[0]) - shift) * (copysign(1, d[0]) + shift / d[0]), z = e[0];
    for (int64_t i = 0; i + 1 < n; i++, d += step, e += step) {
        struct rotation g = rotation_of(x, z);
        if (i > 0) {
            e[-step] = g.r;
        }
        x = g.c * d[0] + g.s * e[0];
        e[0] = g.c * e[0] - g.s * d[0];
        z = g.s * d[step];
        d[step] *= g.c;
        collect(wide, right, i, g);
        g = rotation_of(x, z);
        d[0] = g.r;
        x = g.c * e[0] + g.s * d[step];
        d[step] = g.c * d[step] - g.s * e[0];
        if (i + 2 < n) {
            z = g.s * e[step];
            e[step] *= g.c;
        } else {
            e[0] = x;
        }
        collect(wide, left, i, g);
    }
}

/* Demmel's and Kahan's sweep: a zero in the diagonal makes one at its end. */
static void sweep_unshifted(bool wide, const struct diagonals *b, void *left, void *right) {
    double *d = b->d, *e = b->e;
    int64_t n = b->n, step = b->step;
    struct rotation first = {1, 0, 0}, second = {1, 0, 0};
    for (int64_t i = 0; i + 1 < n; i++, d += step, e += step) {
        first = rotation_of(d[0] * first.c, e[0]);
        if (i > 0) {
            e[-step] = second.s * first.r;
        }
        second = rotation_of(second.c * first.r, d[step] * first.s);
        d[0] = second.r;
        collect(wide, right, i, first);
        collect(wide, left, i, second);
    }
    double last = d[0] * first.c;
    d[0] = last * second.c;
    e[-step] = last * second.s;
}

void sweep_general(bool wide, const struct diagonals *b, void *left, void *right) {
    double smallest = INFINITY, greatest = 0;
    for (int64_t i = 0; i < b->n; i++) {
        smallest = fmin(smallest, fabs(b->d[i * b->step]));
        greatest = fmax(greatest, fabs(b->d[i * b->step]));
        greatest = i + 1 < b->n ? fmax(greatest, fabs(b->e[i * b->step])) : greatest;
    }
    int64_t end = (b->n - 2) * b->step;
    double shift = least_of_two(b->d[end], b->e[end], b->d[end + b->step]), ratio = shift / fabs(b->d[0]);
    if (smallest <= 0x1p-52 * greatest || ratio * ratio < 0x1p-53) {
        sweep_unshifted(wide, b, left, right);
    } else {
        sweep_shifted(wide, b, shift, left, right);
    }
}
