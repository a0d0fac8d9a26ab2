/* Fourier transforms of several lines at once: the lines' elements k lie beside each other, real and imaginary parts apart, so that each step is
 * a loop over lines. Here is what comes before and behind the passes (rows_fft_passes.c). */
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "engine/cpu/fft_level.h"

enum { RESYNC = 16 }; /* steps of a product of roots, until it is computed anew */

/* ---- between memory and a block ---- */

/* How many of the lanes have element k. Indices grow with the lanes. */
static inline int64_t lanes_within(const struct cpu_fft_lines *lines, int64_t k) {
    int64_t n = lines->lanes;
    while (n > 0 && lines->first[n - 1] + k * lines->step >= lines->limit) {
        n--;
    }
    return n;
}

/* Lanes that lie apart are taken some elements at a time, so that a cache line is read or written once. Where elements lie together, as
 * many lanes as a vector has numbers are turned over in registers. */
#if defined(__AVX512F__)
enum { TILE = 16, SPAN = 4 * TILE, AHEAD = 256 /* bytes */ };
#else
enum { TILE = 8, SPAN = TILE, AHEAD = 256 /* bytes */ };
#endif

/* Whether elements up to number end - 1 of the lanes from v on can be turned over: all are there, and follow one another. */
static inline bool tile_turns(const struct cpu_fft_lines *lines, int64_t v, int64_t width, int64_t end) {
    return lines->stride == 1 && lines->step == 1 && v + width <= lines->lanes &&
           lines->first[v + width - 1] + end <= lines->limit;
}

#define LOAD(T)                                                                                                        \
    /* Elements k to end - 1 of a lane that lies by itself. */                                                         \
    static inline void load_lane_##T(const struct cpu_fft_lines *lines, enum fft_form form, int64_t v, int64_t k,      \
                                     int64_t end, T sign, T *re, T *im) {                                              \
        const T *x = (const T *)(const void *)lines->base[v];                                                          \
        const int64_t s = lines->lanes;                                                                                \
        int64_t own = lines->first[v] + k * lines->step;                                                               \
        for (; k < end; k++, own += lines->step) {                                                                     \
            const bool turned = form == FFT_HERMITIAN && 2 * own > lines->n;                                           \
            const int64_t from = turned ? lines->n - own : own;                                                        \
            T a = 0, b = 0;                                                                                            \
            if (from >= turned && from < lines->limit) { /* element n is beyond the line */                            \
                a = form == FFT_REAL ? x[from * lines->stride] : x[2 * from * lines->stride];                          \
                b = form == FFT_REAL ? 0 : x[2 * from * lines->stride + 1];                                            \
            }                                                                                                          \
            if (form == FFT_HERMITIAN) {                                                                               \
                b = from == 0 || 2 * from == lines->n ? 0 : turned ? -b : b;                                           \
            }                                                                                                          \
            re[k * s + v] = a;                                                                                         \
            im[k * s + v] = b * sign;                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void load_tile_##T(const struct cpu_fft_lines *lines, bool whole, int64_t v, int64_t k, T sign, T *re,      \
                              T *im) {                                                                                 \
        const int64_t s = lines->lanes, parts = whole ? 2 : 1;                                                         \
        const T *x[TURN_##T];                                                                                          \
        CPU_PRAGMA(GCC unroll 16)                                                                                      \
        for (int i = 0; i < TURN_##T; i++) {                                                                           \
            x[i] = (const T *)(const void *)lines->base[v + i] + parts * (lines->first[v + i] + k);                    \
            __builtin_prefetch(x[i] + AHEAD / sizeof(T));                                                              \
        }                                                                                                              \
        re += k * s + v;                                                                                               \
        im += k * s + v;                                                                                               \
        for (int64_t tile = 0; tile < TILE * parts; tile += TURN_##T) {                                                \
            vector_##T a[TURN_##T];                                                                                    \
            CPU_PRAGMA(GCC unroll 16)                                                                                  \
            for (int i = 0; i < TURN_##T; i++) {                                                                       \
                a[i] = *(const vector_##T *)(const void *)(x[i] + tile);                                               \
            }                                                                                                          \
            turn_##T(a);                                                                                               \
            CPU_PRAGMA(GCC unroll 16)                                                                                  \
            for (int j = 0; j < TURN_##T; j++) {                                                                       \
                const int64_t to = (tile + j) / parts * s;                                                             \
                *(vector_##T *)(void *)((whole && j % 2 ? im : re) + to) = a[j] * (whole && j % 2 ? sign : 1);         \
                if (!whole) {                                                                                          \
                    *(vector_##T *)(void *)(im + to) = (vector_##T){0};                                                \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void load_apart_##T(const struct cpu_fft_lines *lines, enum fft_form form, int64_t n, T sign, T *re,        \
                               T *im) {                                                                                \
        for (int64_t k = 0; k < n; k += TILE) {                                                                        \
            const int64_t end = n - k < TILE ? n : k + TILE;                                                           \
            for (int64_t v = 0, next; v < lines->lanes; v = next) {                                                    \
                next = v + TURN_##T < lines->lanes ? v + TURN_##T : lines->lanes;                                      \
                bool turns = end == k + TILE && tile_turns(lines, v, TURN_##T, end);                                   \
                if (turns && form == FFT_HERMITIAN) { /* elements between 0 and the middle are as they are */          \
                    turns = lines->first[v] + k > 0 && 2 * (lines->first[next - 1] + end - 1) < lines->n;              \
                }                                                                                                      \
                if (turns) {                                                                                           \
                    load_tile_##T(lines, form != FFT_REAL, v, k, sign, re, im);                                        \
                    continue;                                                                                          \
                }                                                                                                      \
                for (int64_t u = v; u < next; u++) {                                                                   \
                    load_lane_##T(lines, form, u, k, end, sign, re, im);                                               \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void load_##T(const struct cpu_fft_lines *lines, enum fft_form form, double im_factor, int64_t n,           \
                         void *real, void *imaginary) {                                                                \
        const int64_t s = lines->lanes;                                                                                \
        const T *x = (const T *)(const void *)lines->base[0];                                                          \
        T *re = real, *im = imaginary;                                                                                 \
        const T sign = (T)im_factor;                                                                                   \
        if (form == FFT_HERMITIAN) {                                                                                   \
            load_apart_##T(lines, FFT_HERMITIAN, n, sign, re, im);                                                     \
        } else if (!lines->beside) {                                                                                   \
            form == FFT_REAL ? load_apart_##T(lines, FFT_REAL, n, sign, re, im)                                        \
                             : load_apart_##T(lines, FFT_COMPLEX, n, sign, re, im);                                    \
        } else {                                                                                                       \
            for (int64_t k = 0; k < n; k++, re += s, im += s) {                                                        \
                const int64_t within = lanes_within(lines, k);                                                         \
                const T *e = x + (lines->first[0] + k * lines->step) * lines->stride * (form == FFT_REAL ? 1 : 2);     \
                CPU_LOOP                                                                                               \
                for (int64_t v = 0; v < within; v++) {                                                                 \
                    re[v] = form == FFT_REAL ? e[v] : e[2 * v];                                                        \
                    im[v] = form == FFT_REAL ? 0 : e[2 * v + 1] * sign;                                                \
                }                                                                                                      \
                for (int64_t v = within; v < s; v++) {                                                                 \
                    re[v] = im[v] = 0;                                                                                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
LOAD(float)
LOAD(double)

/* Results of a lane lie anywhere: a vector that crosses a cache line's end takes several times as long to store. So where vectors are as long as
 * lines, some tiles are turned over in a buffer, and stored from there line by line. */
#if defined(__AVX512F__)
static inline void span_store(void *to, const void *from, size_t bytes) {
    size_t head = -(uintptr_t)to % 64, i = head < bytes ? head : bytes;
    _mm512_mask_storeu_epi32(to, (__mmask16)((1U << i / 4) - 1), _mm512_loadu_si512(from));
    for (; i + 64 <= bytes; i += 64) {
        _mm512_store_si512((char *)to + i, _mm512_loadu_si512((const char *)from + i));
    }
    const __mmask16 rest = (__mmask16)((1U << (bytes - i) / 4) - 1);
    _mm512_mask_storeu_epi32((char *)to + i, rest, _mm512_maskz_loadu_epi32(rest, (const char *)from + i));
}
#define SPAN_BUFFER(T) _Alignas(64) T buffer[TURN_##T][2 * SPAN];
#define SPAN_AT(i) buffer[i]
#define SPAN_END(T)                                                                                                    \
    for (int i = 0; i < TURN_##T; i++) {                                                                               \
        span_store(to[i], buffer[i], (size_t)((end - k) * parts) * sizeof(T));                                         \
    }
#else
#define SPAN_BUFFER(T)
#define SPAN_AT(i) to[i]
#define SPAN_END(T)
#endif

#define STORE(T)                                                                                                       \
    INLINE void store_tile_##T(T *const x[TURN_##T], bool whole, int64_t s, T factor, T im_factor, const T *re,        \
                               const T *im) {                                                                          \
        const int64_t parts = whole ? 2 : 1;                                                                           \
        for (int64_t tile = 0; tile < TILE * parts; tile += TURN_##T) {                                                \
            vector_##T a[TURN_##T];                                                                                    \
            CPU_PRAGMA(GCC unroll 16)                                                                                  \
            for (int j = 0; j < TURN_##T; j++) {                                                                       \
                const T *from = (whole && j % 2 ? im : re) + (tile + j) / parts * s;                                   \
                a[j] = *(const vector_##T *)(const void *)from * (whole && j % 2 ? im_factor : factor);                \
            }                                                                                                          \
            turn_##T(a);                                                                                               \
            CPU_PRAGMA(GCC unroll 16)                                                                                  \
            for (int i = 0; i < TURN_##T; i++) {                                                                       \
                *(vector_##T *)(void *)(x[i] + tile) = a[i];                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* Elements k to end - 1, whole tiles. */                                                                          \
    INLINE void store_span_##T(const struct cpu_fft_lines *lines, bool whole, int64_t begin, int64_t v, int64_t k,     \
                               int64_t end, T factor, T im_factor, const T *re, const T *im) {                         \
        const int64_t s = lines->lanes, parts = whole ? 2 : 1;                                                         \
        T *x[TURN_##T], *to[TURN_##T];                                                                                 \
        SPAN_BUFFER(T)                                                                                                 \
        for (int i = 0; i < TURN_##T; i++) {                                                                           \
            to[i] = (T *)(void *)lines->base[v + i] + parts * (lines->first[v + i] + begin + k);                       \
            x[i] = SPAN_AT(i);                                                                                         \
        }                                                                                                              \
        for (int64_t tile = k; tile < end; tile += TILE) {                                                             \
            store_tile_##T(x, whole, s, factor, im_factor, re + tile * s + v, im + tile * s + v);                      \
            for (int i = 0; i < TURN_##T; i++) {                                                                       \
                x[i] += TILE * parts;                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        SPAN_END(T)                                                                                                    \
    }                                                                                                                  \
    static inline void store_lane_##T(const struct cpu_fft_lines *lines, bool whole, int64_t begin, int64_t v,         \
                                      int64_t k, int64_t end, T factor, T im_factor, const T *re, const T *im) {       \
        const int64_t s = lines->lanes;                                                                                \
        T *x = (T *)(void *)lines->base[v];                                                                            \
        int64_t own = lines->first[v] + (begin + k) * lines->step;                                                     \
        for (; k < end && own < lines->limit; k++, own += lines->step) {                                               \
            if (whole) {                                                                                               \
                x[2 * own * lines->stride] = re[k * s + v] * factor;                                                   \
                x[2 * own * lines->stride + 1] = im[k * s + v] * im_factor;                                            \
            } else {                                                                                                   \
                x[own * lines->stride] = re[k * s + v] * factor;                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void store_apart_##T(const struct cpu_fft_lines *lines, bool whole, int64_t begin, int64_t n, T factor,     \
                                T im_factor, const T *re, const T *im) {                                               \
        for (int64_t k = 0; k < n; k += SPAN) {                                                                        \
            const int64_t end = n - k < SPAN ? n : k + SPAN, tiles = k + (end - k) / TILE * TILE;                      \
            for (int64_t v = 0, next; v < lines->lanes; v = next) {                                                    \
                next = v + TURN_##T < lines->lanes ? v + TURN_##T : lines->lanes;                                      \
                const bool turns = tiles > k && tile_turns(lines, v, TURN_##T, begin + tiles);                         \
                if (turns) {                                                                                           \
                    store_span_##T(lines, whole, begin, v, k, tiles, factor, im_factor, re, im);                       \
                }                                                                                                      \
                for (int64_t u = v; u < next; u++) {                                                                   \
                    store_lane_##T(lines, whole, begin, u, turns ? tiles : k, end, factor, im_factor, re, im);         \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void store_##T(const struct cpu_fft_lines *lines, enum fft_form form, int64_t begin, int64_t n,             \
                          double re_factor, double imaginary_factor, const void *real, const void *imaginary) {        \
        const T *re = real, *im = imaginary, factor = (T)re_factor, im_factor = (T)imaginary_factor;                   \
        T *x = (T *)(void *)lines->base[0];                                                                            \
        if (!lines->beside) {                                                                                          \
            form == FFT_REAL ? store_apart_##T(lines, false, begin, n, factor, im_factor, re, im)                      \
                             : store_apart_##T(lines, true, begin, n, factor, im_factor, re, im);                      \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t k = 0; k < n; k++, re += lines->lanes, im += lines->lanes) {                                      \
            const int64_t within = lanes_within(lines, begin + k);                                                     \
            T *e = x + (lines->first[0] + (begin + k) * lines->step) * lines->stride * (form == FFT_REAL ? 1 : 2);     \
            if (form == FFT_REAL) {                                                                                    \
                CPU_LOOP                                                                                               \
                for (int64_t v = 0; v < within; v++) {                                                                 \
                    e[v] = re[v] * factor;                                                                             \
                }                                                                                                      \
                continue;                                                                                              \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t v = 0; v < within; v++) {                                                                     \
                e[2 * v] = re[v] * factor;                                                                             \
                e[2 * v + 1] = im[v] * im_factor;                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
STORE(float)
STORE(double)

/* ---- products ---- */

/* Each element by that of its index in a table. */
#define MULTIPLY(T)                                                                                                    \
    static void multiply_##T(const struct cpu_fft_lines *lines, const void *table, int64_t n, void *real,              \
                             void *imaginary) {                                                                        \
        const int64_t s = lines->lanes;                                                                                \
        const T *w = table;                                                                                            \
        T *re = real, *im = imaginary;                                                                                 \
        for (int64_t k = 0; k < n; k++, re += s, im += s) {                                                            \
            const int64_t within = lanes_within(lines, k);                                                             \
            for (int64_t v = 0; v < within; v++) {                                                                     \
                const T *root = w + 2 * (lines->first[v] + k * lines->step);                                           \
                const T a = re[v], b = im[v];                                                                          \
                re[v] = a * root[0] - b * root[1];                                                                     \
                im[v] = a * root[1] + b * root[0];                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }
MULTIPLY(float)
MULTIPLY(double)

/* e^(-2πi·a/(rows · columns)) of two tables of doubles. */
static inline void root_of(const double *high, const double *low, int64_t columns, int64_t a, double *re, double *im) {
    const double *h = high + 2 * (a / columns), *l = low + 2 * (a % columns);
    *re = h[0] * l[0] - h[1] * l[1];
    *im = h[0] * l[1] + h[1] * l[0];
}

/* Element k of a column by e^(-2πi·k·column/(rows · columns)), to where the columns lie beside each other. */
#define TWIDDLE(T)                                                                                                     \
    INLINE void twiddle_lanes_##T(const double *high, const double *low, int64_t rows, int64_t columns,                \
                                  int64_t column, int64_t s, int64_t to_step, const T *re, const T *im, T *to) {       \
        double cr[CPU_FFT_LANES], ci[CPU_FFT_LANES], sr[CPU_FFT_LANES], si[CPU_FFT_LANES];                             \
        for (int64_t v = 0; v < s; v++) {                                                                              \
            root_of(high, low, columns, column + v, &sr[v], &si[v]);                                                   \
        }                                                                                                              \
        for (int64_t k = 0; k < rows; k++, re += s, im += s, to += to_step) {                                          \
            if (k % RESYNC == 0) {                                                                                     \
                for (int64_t v = 0; v < s; v++) {                                                                      \
                    root_of(high, low, columns, (column + v) * k, &cr[v], &ci[v]);                                     \
                }                                                                                                      \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t v = 0; v < s; v++) {                                                                          \
                const T wr = (T)cr[v], wi = (T)ci[v], a = re[v], b = im[v];                                            \
                to[2 * v] = a * wr - b * wi;                                                                           \
                to[2 * v + 1] = a * wi + b * wr;                                                                       \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t v = 0; v < s; v++) {                                                                          \
                const double next = cr[v] * sr[v] - ci[v] * si[v];                                                     \
                ci[v] = cr[v] * si[v] + ci[v] * sr[v];                                                                 \
                cr[v] = next;                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void twiddle_##T(const double *high, const double *low, int64_t rows, int64_t columns, int64_t column,      \
                            const struct cpu_fft_lines *lines, const void *re, const void *im) {                       \
        T *to = (T *)(void *)lines->base[0] + 2 * lines->first[0];                                                     \
        if (lines->lanes == CPU_FFT_LANES) {                                                                           \
            twiddle_lanes_##T(high, low, rows, columns, column, CPU_FFT_LANES, 2 * lines->step, re, im, to);           \
        } else {                                                                                                       \
            twiddle_lanes_##T(high, low, rows, columns, column, lines->lanes, 2 * lines->step, re, im, to);            \
        }                                                                                                              \
    }
TWIDDLE(float)
TWIDDLE(double)

/* ---- real numbers as half as many complex ones: elements 2j and 2j + 1 are the parts of number j ---- */

/* From the transform Z of these h numbers, number k at places[k], the transform X of the 2h real ones, h + 1 elements, times two: with the transforms of the even and
 * the odd elements, E = Z[k] + conj(Z[h-k]) and O = (Z[k] - conj(Z[h-k])) / i, X[k] = E + w^k · O and X[h-k] = conj(E - w^k · O). Of
 * elements `begin` to end - 1, up to h/2, and behind them of as many that end with number h - begin. */
#define UNFOLD(T)                                                                                                       \
    INLINE void unfold_lanes_##T(int64_t h, int64_t begin, int64_t end, int64_t s, const int32_t *places, const T *w,   \
                                 const T *zr, const T *zi, T *re, T *im) {                                              \
        for (int64_t k = begin; k < end; k++) {                                                                         \
            const int64_t a = places[k] * s, b = places[(h - k) % h] * s, low = (k - begin) * s,                        \
                          high = (2 * end - begin - 1 - k) * s;                                                         \
            const T wr = w[2 * k], wi = w[2 * k + 1];                                                                   \
            CPU_LOOP                                                                                                    \
            for (int64_t v = 0; v < s; v++) {                                                                           \
                const T er = zr[a + v] + zr[b + v], ei = zi[a + v] - zi[b + v];                                         \
                const T ur = zi[a + v] + zi[b + v], ui = zr[b + v] - zr[a + v];                                         \
                const T tr = ur * wr - ui * wi, ti = ur * wi + ui * wr;                                                 \
                re[low + v] = er + tr;                                                                                  \
                im[low + v] = ei + ti;                                                                                  \
                re[high + v] = er - tr;                                                                                 \
                im[high + v] = ti - ei;                                                                                 \
            }                                                                                                           \
        }                                                                                                               \
    }                                                                                                                   \
    static void unfold_##T(int64_t h, int64_t begin, int64_t end, int64_t s, const int32_t *places, const void *roots,  \
                           const void *real, const void *imaginary, void *to, void *to_imaginary) {                     \
        if (s == CPU_FFT_LANES) {                                                                                       \
            unfold_lanes_##T(h, begin, end, CPU_FFT_LANES, places, roots, real, imaginary, to, to_imaginary);           \
        } else {                                                                                                        \
            unfold_lanes_##T(h, begin, end, s, places, roots, real, imaginary, to, to_imaginary);                       \
        }                                                                                                               \
    }                                                                                                                   \
    /* And back, times two: Z = (X[k] + conj(X[h-k])) + i · conj(w^k) · (X[k] - conj(X[h-k])), with parts swapped. */ \
    static void fold_##T(int64_t h, int64_t s, const void *roots, const void *real, const void *imaginary, void *to,    \
                         void *to_imaginary) {                                                                          \
        const T *w = roots, *xr = real, *xi = imaginary;                                                                \
        T *re = to_imaginary, *im = to;                                                                                 \
        for (int64_t k = 0; k < h; k++, re += s, im += s) {                                                             \
            const int64_t a = k * s, b = (h - k) * s;                                                                   \
            const T wr = w[2 * k], wi = -w[2 * k + 1];                                                                  \
            CPU_LOOP                                                                                                    \
            for (int64_t v = 0; v < s; v++) {                                                                           \
                const T dr = xr[a + v] - xr[b + v], di = xi[a + v] + xi[b + v];                                         \
                re[v] = (xr[a + v] + xr[b + v]) - (dr * wi + di * wr);                                                  \
                im[v] = (xi[a + v] - xi[b + v]) + (dr * wr - di * wi);                                                  \
            }                                                                                                           \
        }                                                                                                               \
    }
UNFOLD(float)
UNFOLD(double)

#if defined(__AVX512F__)
#define EIGHTS true
#else
#define EIGHTS false
#endif
#define FUNCTIONS(T, NAME)                                                                                             \
    {                                                                                                                  \
        EIGHTS, CPU_NAME(fft_transform_##NAME), CPU_NAME(fft_lines_##NAME), load_##T, store_##T, multiply_##T,         \
            twiddle_##T, unfold_##T, fold_##T                                                                          \
    }
const struct cpu_fft CPU_NAME(fft_f32) = FUNCTIONS(float, f32);
const struct cpu_fft CPU_NAME(fft_f64) = FUNCTIONS(double, f64);
