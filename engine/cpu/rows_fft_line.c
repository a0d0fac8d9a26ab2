/* The Fourier transform of a line whose numbers lie together, by itself (fft.h). A line that is transformed beside others is turned over twice, once
 * when it is read and once when it is written, and does not stay in the first-level cache between passes; this one is turned over once. */
#include "engine/cpu/fft_level.h"

/* The next line and the place of its result are fetched meanwhile, a piece each time: the order in which a line is read and written is none that
 * processors foresee. */
struct ahead {
    const char *at[2];
    int64_t bytes[2];
};
static inline void ahead_fetch(struct ahead *ahead) {
    for (int64_t k = 0; k < ahead->bytes[0]; k += 64) {
        __builtin_prefetch(ahead->at[0] + k);
    }
    for (int64_t k = 0; k < ahead->bytes[1]; k += 64) {
        __builtin_prefetch(ahead->at[1] + k, 0, 2); /* it is written late: into the second-level cache */
    }
    ahead->at[0] += ahead->bytes[0];
    ahead->at[1] += ahead->bytes[1];
}

/* Bytes of numbers that are computed together, so that they stay in the first-level cache with their roots, what they come from and where they
 * go; and the most factors that a side of the matrix has, of 16 and up to 32. */
enum { TOGETHER_BYTES = 1 << 13, STEPS_MOST = 8 };

#define LINE(T, NAME)                                                                                                  \
    /* The transforms of all columns, or of all rows: some passes over the lanes of some batches. */                   \
    struct stage_##T {                                                                                                 \
        int64_t batches, together; /* batches in all, and in one go */                                                 \
        int n;                                                                                                         \
        struct {                                                                                                       \
            pass_function_##T *run;                                                                                    \
            int64_t radix;                                                                                             \
            struct pass_##T pass;                                                                                      \
        } step[STEPS_MOST];                                                                                            \
    };                                                                                                                 \
    static void stage_init_##T(struct stage_##T *stage, int64_t batches, const struct fft_length *length,              \
                               const T *roots, const int32_t *places, const struct cpu_fft_end *from,                  \
                               int64_t from_batch, const struct cpu_fft_end *to, int64_t to_batch, T *re, T *im) {     \
        const int64_t n = length->n, s = CPU_FFT_LANES, last = length->radices - 1;                                    \
        const int64_t together = batches * n * s * 2 * (int64_t)sizeof(T) <= TOGETHER_BYTES ? batches : 1;             \
        stage->batches = batches;                                                                                      \
        stage->together = together;                                                                                    \
        stage->n = length->radices;                                                                                    \
        int64_t size = n;                                                                                              \
        for (int i = 0; i <= last; i++) {                                                                              \
            const int64_t radix = length->radix[i], m = size / radix;                                                  \
            struct pass_##T pass = {.batches = together * (n / size),                                                  \
                                    .x_batch = size * s,                                                               \
                                    .y_batch = size * s,                                                               \
                                    .m = m,                                                                            \
                                    .apart = m * s,                                                                    \
                                    .next = s,                                                                         \
                                    .to = m * s,                                                                       \
                                    .to_next = s,                                                                      \
                                    .step = n / size,                                                                  \
                                    .turn = n / radix,                                                                 \
                                    .roots = roots,                                                                    \
                                    .xr = re,                                                                          \
                                    .xi = im,                                                                          \
                                    .yr = re,                                                                          \
                                    .yi = im};                                                                         \
            enum pass_kind kind = PASS_THERE;                                                                          \
            if (i == 0 && from) {                                                                                      \
                kind = from->pairs ? PASS_FROM_PAIRS : PASS_FROM_PARTS;                                                \
                pass.apart = m * from->apart, pass.next = from->apart, pass.x_batch = from_batch;                      \
                pass.sign = (T)from->im_factor;                                                                        \
            } else if (i == last) {                                                                                    \
                kind = PASS_LAST | (to->pairs ? PASS_TO_PAIRS : 0) | (to->turns ? PASS_TURNED : 0);                    \
                pass.batches = together, pass.x_batch = n * s, pass.y_batch = to_batch;                                \
                pass.m = n / radix, pass.apart = s, pass.next = radix * s;                                             \
                pass.places = places, pass.to = n / radix * to->apart, pass.to_next = to->apart;                       \
                pass.re_factor = (T)to->re_factor, pass.im_factor = (T)to->im_factor;                                  \
                pass.turns_to = n / radix * to->turns_apart, pass.turns_next = to->turns_apart,                        \
                pass.turns_batch = n * to->turns_apart;                                                                \
            }                                                                                                          \
            stage->step[i].run = CPU_NAME(fft_pass_##NAME)(kind);                                                      \
            stage->step[i].radix = radix;                                                                              \
            stage->step[i].pass = pass;                                                                                \
            size = m;                                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    /* The batches whose numbers begin at x, and whose results at y. */                                                \
    INLINE void stage_run_##T(struct stage_##T *stage, const T *xr, const T *xi, T *yr, T *yi, const T *turns,         \
                              struct ahead *ahead) {                                                                   \
        struct pass_##T *first = &stage->step[0].pass, *last = &stage->step[stage->n - 1].pass;                        \
        first->xr = xr, first->xi = xi;                                                                                \
        last->yr = yr, last->yi = yi, last->turns = turns;                                                             \
        for (int i = 0; i < stage->n; i++) {                                                                           \
            ahead_fetch(ahead);                                                                                        \
            stage->step[i].run(stage->step[i].radix, CPU_FFT_LANES, &stage->step[i].pass);                             \
        }                                                                                                              \
    }                                                                                                                  \
    /* Some rows, number by number. */                                                                                 \
    INLINE void turn_rows_##T(const T *x, int64_t width, struct ahead *ahead, T *to) {                                 \
        for (int64_t v = 0; v < CPU_FFT_LANES; v += TURN_##T) {                                                        \
            for (int64_t c = 0; c < width; c += TURN_##T) {                                                            \
                vector_##T a[TURN_##T];                                                                                \
                ahead_fetch(ahead);                                                                                    \
                CPU_PRAGMA(GCC unroll 16)                                                                              \
                for (int i = 0; i < TURN_##T; i++) {                                                                   \
                    a[i] = *(const vector_##T *)(const void *)(x + (v + i) * width + c);                               \
                }                                                                                                      \
                turn_##T(a);                                                                                           \
                CPU_PRAGMA(GCC unroll 16)                                                                              \
                for (int i = 0; i < TURN_##T; i++) {                                                                   \
                    *(vector_##T *)(void *)(to + (c + i) * CPU_FFT_LANES + v) = a[i];                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* The transform of 2n real numbers from that of n pairs of them: with E = Z[k] + conj(Z[n-k]) and \
     * O = (Z[k] - conj(Z[n-k])) / i, X[k] is (E + w^k · O) / 2 and X[n-k] conj(E - w^k · O) / 2. */               \
    INLINE void unfold_##T(int64_t n, const T *w, const T *zr, const T *zi, T factor, T *y) {                          \
        T br[CPU_FFT_LANES], bi[CPU_FFT_LANES];                                                                        \
        y[0] = (zr[0] + zi[0]) * 2 * factor;                                                                           \
        y[1] = 0;                                                                                                      \
        y[2 * n] = (zr[0] - zi[0]) * 2 * factor;                                                                       \
        y[2 * n + 1] = 0;                                                                                              \
        for (int64_t k = 1; k <= n / 2; k += CPU_FFT_LANES) {                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < CPU_FFT_LANES; q++) {                                                              \
                const T ar = zr[k + q], ai = zi[k + q], cr = zr[n - k - q], ci = zi[n - k - q];                        \
                const T wr = w[2 * (k + q)], wi = w[2 * (k + q) + 1];                                                  \
                const T er = ar + cr, ei = ai - ci, ur = ai + ci, ui = cr - ar;                                        \
                const T tr = ur * wr - ui * wi, ti = ur * wi + ui * wr;                                                \
                y[2 * (k + q)] = (er + tr) * factor;                                                                   \
                y[2 * (k + q) + 1] = (ei + ti) * factor;                                                               \
                br[CPU_FFT_LANES - 1 - q] = (er - tr) * factor;                                                        \
                bi[CPU_FFT_LANES - 1 - q] = (ti - ei) * factor;                                                        \
            }                                                                                                          \
            T *const back = y + 2 * (n - k - CPU_FFT_LANES + 1);                                                       \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < CPU_FFT_LANES; q++) {                                                              \
                back[2 * q] = br[q];                                                                                   \
                back[2 * q + 1] = bi[q];                                                                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* And back, times two, and conjugated: with S = X[k] + conj(X[n-k]) and \
     * U = i · conj(w^k) · (X[k] - conj(X[n-k])), Z[k] is S + U and Z[n-k] conj(S - U). */                                         \
    INLINE void fold_##T(int64_t n, const T *w, const T *x, T *zr, T *zi) {                                            \
        T ar[CPU_FFT_LANES], ai[CPU_FFT_LANES], cr[CPU_FFT_LANES], ci[CPU_FFT_LANES];                                  \
        zr[0] = x[0] + x[2 * n];                                                                                       \
        zi[0] = x[2 * n] - x[0];                                                                                       \
        for (int64_t k = 1; k <= n / 2; k += CPU_FFT_LANES) {                                                          \
            const T *const at = x + 2 * k, *const back = x + 2 * (n - k - CPU_FFT_LANES + 1), *const root = w + 2 * k; \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < CPU_FFT_LANES; q++) {                                                              \
                ar[q] = at[2 * q];                                                                                     \
                ai[q] = at[2 * q + 1];                                                                                 \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < CPU_FFT_LANES; q++) {                                                              \
                cr[CPU_FFT_LANES - 1 - q] = back[2 * q];                                                               \
                ci[CPU_FFT_LANES - 1 - q] = back[2 * q + 1];                                                           \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < CPU_FFT_LANES; q++) {                                                              \
                const T wr = root[2 * q], wi = -root[2 * q + 1];                                                       \
                const T sr = ar[q] + cr[q], si = ai[q] - ci[q], dr = ar[q] - cr[q], di = ai[q] + ci[q];                \
                const T ur = -(dr * wi + di * wr), ui = dr * wr - di * wi;                                             \
                zr[k + q] = sr + ur;                                                                                   \
                zi[k + q] = -(si + ui);                                                                                \
                zr[n - k - q] = sr - ur;                                                                               \
                zi[n - k - q] = si - ui;                                                                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    void CPU_NAME(fft_lines_##NAME)(const struct cpu_fft_line *line, int64_t count, const void *from, void *to,        \
                                    void *work) {                                                                      \
        const int64_t n = line->n, height = line->columns.n, width = line->rows.n, s = CPU_FFT_LANES,                  \
                      part = n + FFT_LINE_PAD;                                                                         \
        T *re = work, *im = re + part, *zr = im + part, *zi = zr + part, *block = zi + part, *block_im = block + part; \
        const bool paired = line->pair_roots != NULL, split = paired ? line->out == FFT_REAL : line->in == FFT_REAL;   \
        const struct cpu_fft_end x = {                                                                                 \
            .pairs = !split, .apart = split ? width : 2 * width, .im_factor = line->swap && !paired ? -1 : 1};         \
        const struct cpu_fft_end middle = {.apart = width, .turns = line->turns, .turns_apart = 2 * s};                \
        const bool unfolded = paired && line->in == FFT_REAL;                                                          \
        const struct cpu_fft_end y = {.pairs = !unfolded,                                                              \
                                      .apart = unfolded ? height : 2 * height,                                         \
                                      .re_factor = line->scale,                                                        \
                                      .im_factor = line->swap ? -line->scale : line->scale};                           \
        const int64_t x_batch = split ? s : 2 * s, y_batch = unfolded ? s : 2 * s;                                     \
        struct stage_##T columns, rows;                                                                                \
        stage_init_##T(&columns, width / s, &line->columns, line->column_roots, line->column_places, &x, x_batch,      \
                       &middle, s, block, block_im);                                                                   \
        stage_init_##T(&rows, height / s, &line->rows, line->row_roots, line->row_places, NULL, 0, &y, y_batch, block, \
                       block_im);                                                                                      \
        if (split) {                                                                                                   \
            memset(zi, 0, (size_t)n * sizeof(T));                                                                      \
        }                                                                                                              \
        const int64_t steps = columns.batches / columns.together * columns.n + rows.batches / rows.together * rows.n + \
                              2 * n / (TURN_##T * TURN_##T);                                                           \
        for (; count > 0; count--) {                                                                                   \
            const T *ar = from, *ai = from;                                                                            \
            T *br = unfolded ? zr : to, *bi = unfolded ? zi : to;                                                      \
            const char *next = (const char *)from + line->x_bytes;                                                     \
            char *next_to = (char *)to + line->y_bytes;                                                                \
            struct ahead ahead = {{next, next_to}, {line->x_bytes / steps, line->y_bytes / steps}};                    \
            if (split && paired) {                                                                                     \
                fold_##T(n, line->pair_roots, from, zr, zi);                                                           \
                ar = zr;                                                                                               \
            }                                                                                                          \
            ai = split ? zi : ai;                                                                                      \
            for (int64_t b = 0; b < columns.batches; b += columns.together) {                                          \
                const int64_t x_at = b * x_batch;                                                                      \
                stage_run_##T(&columns, ar + x_at, ai + x_at, re + b * s, im + b * s,                                  \
                              (const T *)line->turns + 2 * b * s * height, &ahead);                                    \
            }                                                                                                          \
            for (int64_t b = 0; b < rows.batches; b += rows.together) {                                                \
                for (int64_t k = 0; k < rows.together; k++) {                                                          \
                    turn_rows_##T(re + (b + k) * s * width, width, &ahead, block + k * s * width);                     \
                    turn_rows_##T(im + (b + k) * s * width, width, &ahead, block_im + k * s * width);                  \
                }                                                                                                      \
                stage_run_##T(&rows, block, block_im, br + b * y_batch, bi + b * y_batch, NULL, &ahead);               \
            }                                                                                                          \
            if (unfolded) {                                                                                            \
                unfold_##T(n, line->pair_roots, zr, zi, (T)(line->scale / 2), to);                                     \
            }                                                                                                          \
            from = next, to = next_to;                                                                                 \
        }                                                                                                              \
    }
LINE(float, f32)
LINE(double, f64)
