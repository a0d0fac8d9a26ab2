/* Tables of roots of unity, and of places. */
#include "engine/cpu/fft_plan.h"

static void table_set(const struct fft_plan *plan, char *table, int64_t at, double re, double im) {
    if (plan->request.wide) {
        ((double *)(void *)table)[2 * at] = re;
        ((double *)(void *)table)[2 * at + 1] = im;
    } else {
        ((float *)(void *)table)[2 * at] = (float)re;
        ((float *)(void *)table)[2 * at + 1] = (float)im;
    }
}

/* e^(-2πi·k/n) for the first numbers k. */
static void table_fill(const struct fft_plan *plan, char *table, int64_t count, int64_t n) {
    for (int64_t k = 0; k < count; k++) {
        double re, im;
        fft_root(k, n, &re, &im);
        table_set(plan, table, k, re, im);
    }
}

/* The same, from the sines and cosines of an eighth of the turn where that is a whole number. */
static void table_turn(const struct fft_plan *plan, char *table, int64_t count, int64_t n) {
    const int64_t quarter = n / 4;
    if (n % 8 != 0) {
        table_fill(plan, table, count, n);
        return;
    }
    for (int64_t k = 0; k <= n / 8; k++) {
        double re, im;
        fft_root(k, n, &re, &im);
        double back_re = -im, back_im = -re; /* of quarter - k */
        for (int64_t at = k, back = quarter - k; at < count || back < count; at += quarter, back += quarter) {
            if (at < count) {
                table_set(plan, table, at, re, im);
            }
            if (back < count) {
                table_set(plan, table, back, back_re, back_im);
            }
            const double next = im, next_back = back_im; /* times -i */
            im = -re, re = next;
            back_im = -back_re, back_re = next_back;
        }
    }
}

/* Where number k of a transform is that has not been moved. */
static void places_fill(const struct fft_length *length, int32_t *places) {
    for (int64_t k = 0; k < length->n; k++) {
        int64_t rest = k, at = 0, weight = length->n;
        for (int i = 0; i < length->radices; i++) {
            weight /= length->radix[i];
            at += rest % length->radix[i] * weight;
            rest /= length->radix[i];
        }
        places[k] = (int32_t)at;
    }
}

/* The number of each group's first result in the last pass. */
static void groups_fill(const struct fft_length *length, int32_t *groups) {
    const int64_t n = fft_groups(length);
    for (int64_t k = 0; k < n; k++) {
        int64_t rest = k, at = 0, weight = n;
        for (int i = length->radices - 2; i >= 0; i--) {
            weight /= length->radix[i];
            at += rest % length->radix[i] * weight;
            rest /= length->radix[i];
        }
        groups[k] = (int32_t)at;
    }
}

static void doubles_fill(char *table, int64_t count, int64_t n) {
    double *roots = (double *)(void *)table;
    for (int64_t k = 0; k < count; k++) {
        fft_root(k, n, &roots[2 * k], &roots[2 * k + 1]);
    }
}

/* Of a line by itself: from the roots for the whole line, which for the time being are where the blocks will be. */
static void turns_fill(const struct fft_plan *plan, char *workspace) {
    const int64_t n = plan->numbers, height = plan->columns.n, parts = 2 * CPU_FFT_LANES;
    char *roots = workspace + plan->blocks_at, *turns = workspace + plan->turns_at;
    table_turn(plan, roots, n, n);
    for (int64_t k = 0; k < height; k++) {
        for (int64_t c = 0; c < plan->rows.n; c++) {
            const int64_t at = (c / CPU_FFT_LANES * height + k) * parts + c % CPU_FFT_LANES;
            const int64_t root = 2 * k * c; /* k and c are below their extents, so k · c is below n */
            if (plan->request.wide) {
                const double *from = (const double *)(const void *)roots + root;
                double *to = (double *)(void *)turns + at;
                to[0] = from[0], to[CPU_FFT_LANES] = from[1];
            } else {
                const float *from = (const float *)(const void *)roots + root;
                float *to = (float *)(void *)turns + at;
                to[0] = from[0], to[CPU_FFT_LANES] = from[1];
            }
        }
    }
}

void fft_tables_fill(const struct fft_plan *plan, char *workspace) {
    table_turn(plan, workspace + plan->column_roots_at, plan->columns.n, plan->columns.n);
    groups_fill(&plan->columns, (int32_t *)(void *)(workspace + plan->column_groups_at));
    if (plan->paired) {
        table_turn(plan, workspace + plan->pair_roots_at, plan->numbers + 1, plan->request.n);
        places_fill(&plan->columns, (int32_t *)(void *)(workspace + plan->places_at));
    }
    if (plan->cut || plan->lined) {
        table_turn(plan, workspace + plan->row_roots_at, plan->rows.n, plan->rows.n);
        groups_fill(&plan->rows, (int32_t *)(void *)(workspace + plan->row_groups_at));
    }
    if (plan->lined) {
        turns_fill(plan, workspace);
    }
    if (plan->cut) {
        doubles_fill(workspace + plan->high_at, plan->columns.n, plan->columns.n);
        doubles_fill(workspace + plan->low_at, plan->rows.n, plan->numbers);
    }
}

void fft_chirp_fill(const struct fft_plan *plan, char *workspace, int64_t begin, int64_t end) {
    char *chirp = workspace + plan->chirp_at, *filter = workspace + plan->filter_at;
    int64_t n = plan->request.n;
    for (int64_t k = begin; k < end; k++) {
        if (k < n) {
            double re, im;
            fft_root(k * k % (2 * n), 2 * n, &re, &im);
            table_set(plan, chirp, k, re, im);
            table_set(plan, filter, k, re, -im);
            if (k > 0) {
                table_set(plan, filter, plan->numbers - k, re, -im);
            }
        } else if (k <= plan->numbers - n) {
            table_set(plan, filter, k, 0, 0);
        }
    }
}
