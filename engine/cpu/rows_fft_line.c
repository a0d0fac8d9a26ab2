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
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; k < ahead->bytes[i]; k += 64) {
            __builtin_prefetch(ahead->at[i] + k, 0, 2);
        }
        ahead->at[i] += ahead->bytes[i];
    }
}

#define LINE(T, NAME)                                                                                                                               \
    /* The columns' transforms, turned, to rows of real and imaginary parts. */                                                                     \
    INLINE void columns_##T(const struct cpu_fft_line *line, const struct cpu_fft_end *x, struct ahead *ahead, T *re,                               \
                            T *im, T *block) {                                                                                                      \
        const int64_t height = line->columns.n, width = line->rows.n;                                                                               \
        for (int64_t c = 0; c < width; c += CPU_FFT_LANES) {                                                                                        \
            ahead_fetch(ahead);                                                                                                                     \
            struct cpu_fft_end from = *x;                                                                                                           \
            from.re = (T *)x->re + (x->pairs ? 2 * c : c);                                                                                          \
            from.im = (T *)x->im + c;                                                                                                               \
            const struct cpu_fft_end to = {.re = re + c,                                                                                            \
                                           .im = im + c,                                                                                            \
                                           .apart = width,                                                                                          \
                                           .turns = (const T *)line->turns + 2 * c * height,                                                        \
                                           .turns_apart = 2 * CPU_FFT_LANES};                                                                       \
            CPU_NAME(fft_transform_##NAME)                                                                                                          \
            (&line->columns, line->column_roots, line->column_places, CPU_FFT_LANES, block,                                                         \
             block + CPU_FFT_LANES * height, &from, &to);                                                                                           \
        }                                                                                                                                           \
    }                                                                                                                                               \
    /* Some rows, number by number. */                                                                                                              \
    INLINE void turn_rows_##T(const T *x, int64_t width, T *to) {                                                                                   \
        for (int64_t v = 0; v < CPU_FFT_LANES; v += TURN_##T) {                                                                                     \
            for (int64_t c = 0; c < width; c += TURN_##T) {                                                                                         \
                vector_##T a[TURN_##T];                                                                                                             \
                CPU_PRAGMA(GCC unroll 16)                                                                                                           \
                for (int i = 0; i < TURN_##T; i++) {                                                                                                \
                    a[i] = *(const vector_##T *)(const void *)(x + (v + i) * width + c);                                                            \
                }                                                                                                                                   \
                turn_##T(a);                                                                                                                        \
                CPU_PRAGMA(GCC unroll 16)                                                                                                           \
                for (int i = 0; i < TURN_##T; i++) {                                                                                                \
                    *(vector_##T *)(void *)(to + (c + i) * CPU_FFT_LANES + v) = a[i];                                                               \
                }                                                                                                                                   \
            }                                                                                                                                       \
        }                                                                                                                                           \
    }                                                                                                                                               \
    INLINE void rows_##T(const struct cpu_fft_line *line, const T *re, const T *im, const struct cpu_fft_end *y,                                    \
                         struct ahead *ahead, T *block) {                                                                                           \
        const int64_t height = line->columns.n, width = line->rows.n;                                                                               \
        T *block_im = block + CPU_FFT_LANES * width;                                                                                                \
        for (int64_t k = 0; k < height; k += CPU_FFT_LANES) {                                                                                       \
            ahead_fetch(ahead);                                                                                                                     \
            struct cpu_fft_end to = *y;                                                                                                             \
            to.re = (T *)y->re + (y->pairs ? 2 * k : k);                                                                                            \
            to.im = (T *)y->im + k;                                                                                                                 \
            turn_rows_##T(re + k * width, width, block);                                                                                            \
            turn_rows_##T(im + k * width, width, block_im);                                                                                         \
            CPU_NAME(fft_transform_##NAME)                                                                                                          \
            (&line->rows, line->row_roots, line->row_places, CPU_FFT_LANES, block, block_im, NULL, &to);                                            \
        }                                                                                                                                           \
    }                                                                                                                                               \
    /* The transform of 2n real numbers from that of n pairs of them: with E = Z[k] + conj(Z[n-k]) and O = (Z[k] - conj(Z[n-k])) / i, X[k] is\
     * (E + w^k · O) / 2 and X[n-k] conj(E - w^k · O) / 2. */      \
    INLINE void unfold_##T(int64_t n, const T *w, const T *zr, const T *zi, T factor, T *y) {                                                       \
        T br[CPU_FFT_LANES], bi[CPU_FFT_LANES];                                                                                                     \
        y[0] = (zr[0] + zi[0]) * 2 * factor;                                                                                                        \
        y[1] = 0;                                                                                                                                   \
        y[2 * n] = (zr[0] - zi[0]) * 2 * factor;                                                                                                    \
        y[2 * n + 1] = 0;                                                                                                                           \
        for (int64_t k = 1; k <= n / 2; k += CPU_FFT_LANES) {                                                                                       \
            CPU_LOOP                                                                                                                                \
            for (int64_t q = 0; q < CPU_FFT_LANES; q++) {                                                                                           \
                const T ar = zr[k + q], ai = zi[k + q], cr = zr[n - k - q], ci = zi[n - k - q];                                                     \
                const T wr = w[2 * (k + q)], wi = w[2 * (k + q) + 1];                                                                               \
                const T er = ar + cr, ei = ai - ci, ur = ai + ci, ui = cr - ar;                                                                     \
                const T tr = ur * wr - ui * wi, ti = ur * wi + ui * wr;                                                                             \
                y[2 * (k + q)] = (er + tr) * factor;                                                                                                \
                y[2 * (k + q) + 1] = (ei + ti) * factor;                                                                                            \
                br[CPU_FFT_LANES - 1 - q] = (er - tr) * factor;                                                                                     \
                bi[CPU_FFT_LANES - 1 - q] = (ti - ei) * factor;                                                                                     \
            }                                                                                                                                       \
            T *const back = y + 2 * (n - k - CPU_FFT_LANES + 1);                                                                                    \
            CPU_LOOP                                                                                                                                \
            for (int64_t q = 0; q < CPU_FFT_LANES; q++) {                                                                                           \
                back[2 * q] = br[q];                                                                                                                \
                back[2 * q + 1] = bi[q];                                                                                                            \
            }                                                                                                                                       \
        }                                                                                                                                           \
    }                                                                                                                                               \
    /* And back, times two, and conjugated: with S = X[k] + conj(X[n-k]) and U = i · conj(w^k) · (X[k] - conj(X[n-k])), Z[k] is S + U and Z[n-k]\
     * conj(S - U). */ \
    INLINE void fold_##T(int64_t n, const T *w, const T *x, T *xr, T *xi, T *zr, T *zi) {                                                           \
        CPU_LOOP                                                                                                                                    \
        for (int64_t k = 0; k < n; k++) {                                                                                                           \
            xr[k] = x[2 * k];                                                                                                                       \
            xi[k] = x[2 * k + 1];                                                                                                                   \
        }                                                                                                                                           \
        zr[0] = x[0] + x[2 * n];                                                                                                                    \
        zi[0] = x[2 * n] - x[0];                                                                                                                    \
        for (int64_t k = 1; k <= n / 2; k += CPU_FFT_LANES) {                                                                                       \
            CPU_LOOP                                                                                                                                \
            for (int64_t q = 0; q < CPU_FFT_LANES; q++) {                                                                                           \
                const T ar = xr[k + q], ai = xi[k + q], cr = xr[n - k - q], ci = xi[n - k - q];                                                     \
                const T wr = w[2 * (k + q)], wi = -w[2 * (k + q) + 1];                                                                              \
                const T sr = ar + cr, si = ai - ci, dr = ar - cr, di = ai + ci;                                                                     \
                const T ur = -(dr * wi + di * wr), ui = dr * wr - di * wi;                                                                          \
                zr[k + q] = sr + ur;                                                                                                                \
                zi[k + q] = -(si + ui);                                                                                                             \
                zr[n - k - q] = sr - ur;                                                                                                            \
                zi[n - k - q] = si - ui;                                                                                                            \
            }                                                                                                                                       \
        }                                                                                                                                           \
    }                                                                                                                                               \
    void CPU_NAME(fft_line_##NAME)(const struct cpu_fft_line *line, const void *from, void *to, void *work) {                                       \
        const int64_t n = line->n, height = line->columns.n, width = line->rows.n;                                                                  \
        T *re = work, *im = re + n, *zr = im + n + CPU_FFT_LANES, *zi = zr + n, *block = zi + n + CPU_FFT_LANES;                                    \
        const bool paired = line->pair_roots != NULL;                                                                                               \
        const int64_t steps = (width + height) / CPU_FFT_LANES;                                                                                     \
        struct ahead ahead = {{(const char *)from + line->x_bytes, (const char *)to + line->y_bytes},                                               \
                              {line->x_bytes / steps, line->y_bytes / steps}};                                                                      \
        struct cpu_fft_end x = {                                                                                                                    \
            .pairs = true, .re = (void *)from, .apart = 2 * width, .im_factor = line->swap && !paired ? -1 : 1};                                    \
        struct cpu_fft_end y = {.pairs = true,                                                                                                      \
                                .re = to,                                                                                                           \
                                .apart = 2 * height,                                                                                                \
                                .re_factor = line->scale,                                                                                           \
                                .im_factor = line->swap ? -line->scale : line->scale};                                                              \
        const struct cpu_fft_end z_from = {.re = zr, .im = zi, .apart = width},                                                                     \
                                 z_to = {.re = zr, .im = zi, .apart = height};                                                                      \
        if (paired && line->out == FFT_REAL) {                                                                                                      \
            fold_##T(n, line->pair_roots, from, re, im, zr, zi);                                                                                    \
            x = z_from;                                                                                                                             \
        } else if (line->in == FFT_REAL && !paired) {                                                                                               \
            memset(zi, 0, (size_t)n * sizeof(T));                                                                                                   \
            x = z_from;                                                                                                                             \
            x.re = (void *)from;                                                                                                                    \
        }                                                                                                                                           \
        columns_##T(line, &x, &ahead, re, im, block);                                                                                               \
        if (paired && line->in == FFT_REAL) {                                                                                                       \
            rows_##T(line, re, im, &z_to, &ahead, block);                                                                                           \
            unfold_##T(n, line->pair_roots, zr, zi, (T)(line->scale / 2), to);                                                                      \
        } else {                                                                                                                                    \
            rows_##T(line, re, im, &y, &ahead, block);                                                                                              \
        }                                                                                                                                           \
    }
LINE(float, f32)
LINE(double, f64)
