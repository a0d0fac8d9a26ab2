/* Fourier transforms of several lines at once: the lines' elements k lie beside each other, real and imaginary parts apart, so that each step is
 * a loop over lines. */
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "engine/cpu/fft.h"
#include "engine/cpu/lanes.h"

#define INLINE static inline __attribute__((always_inline))

enum { RESYNC = 16 }; /* steps of a product of roots, until it is computed anew */

/* ---- passes ----
 *
 * The transform of n = r1 · r2 · … numbers is a pass for each factor. With m = n / r, each of m groups of r numbers m apart is transformed,
 * multiplied by roots of unity and written where it was, which leaves r transforms of m numbers, one behind another. The last pass has nothing to
 * multiply by, and writes each group to where it belongs, in the other place. */

/* a · b + c, in one rounding if the level has such an instruction. */
#define FMA_float CPU_FMA
#if defined(__FMA__) || defined(__aarch64__)
#define FMA_double __builtin_fma
#else
#define FMA_double(a, b, c) ((a) * (b) + (c))
#endif
#define FMA(T, a, b, c) FMA_##T(a, b, c)

/* m groups of numbers that are `apart` from each other, of n lanes, to places that are `to` apart. A root of unity of the table: w is
 * e^(-2πi·k/n) for each k, real and imaginary part; group p is multiplied by those with the exponent p · step, unless it is `last`. */
#define PASS_ARGUMENTS(T)                                                                                              \
    bool last, int64_t m, int64_t n, int64_t apart, int64_t to, int64_t step, const T *w, const T *xr, const T *xi,    \
        T *yr, T *yi
#define PASS_HEAD for (int64_t p = 0; p < m; p++, xr += n, xi += n, yr += n, yi += n) {
#define ELEMENT(T, k) const T r##k = xr[q + (k)*apart], i##k = xi[q + (k)*apart]
#define RESULT(T, j, re, im)                                                                                           \
    {                                                                                                                  \
        const T pr = re, pi = im;                                                                                      \
        const T wr = last ? 1 : w[2 * (j)*p * step], wi = last ? 0 : w[2 * (j)*p * step + 1];                          \
        yr[q + (j)*to] = last ? pr : FMA(T, pr, wr, -(pi * wi));                                                       \
        yi[q + (j)*to] = last ? pi : FMA(T, pr, wi, pi * wr);                                                          \
    }
#define PLAIN(re, im)                                                                                                  \
    {                                                                                                                  \
        yr[q] = re;                                                                                                    \
        yi[q] = im;                                                                                                    \
    }

#define PASSES(T)                                                                                                      \
    INLINE void pass_2_##T(PASS_ARGUMENTS(T)) {                                                                        \
        PASS_HEAD                                                                                                      \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            PLAIN(r0 + r1, i0 + i1)                                                                                    \
            RESULT(T, 1, r0 - r1, i0 - i1)                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_3_##T(PASS_ARGUMENTS(T)) {                                                                        \
        const T sine = (T)0.86602540378443864676;                                                                      \
        PASS_HEAD                                                                                                      \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            const T sr = r1 + r2, si = i1 + i2, dr = (r1 - r2) * sine, di = (i1 - i2) * sine;                          \
            const T hr = r0 - sr * (T)0.5, hi = i0 - si * (T)0.5;                                                      \
            PLAIN(r0 + sr, i0 + si)                                                                                    \
            RESULT(T, 1, hr + di, hi - dr)                                                                             \
            RESULT(T, 2, hr - di, hi + dr)                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_4_##T(PASS_ARGUMENTS(T)) {                                                                        \
        PASS_HEAD                                                                                                      \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            ELEMENT(T, 3);                                                                                             \
            const T ar2 = r0 + r2, ai2 = i0 + i2, br = r1 + r3, bi = i1 + i3;                                          \
            const T cr = r0 - r2, ci = i0 - i2, dr = r1 - r3, di = i1 - i3;                                            \
            PLAIN(ar2 + br, ai2 + bi)                                                                                  \
            RESULT(T, 1, cr + di, ci - dr)                                                                             \
            RESULT(T, 2, ar2 - br, ai2 - bi)                                                                           \
            RESULT(T, 3, cr - di, ci + dr)                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_5_##T(PASS_ARGUMENTS(T)) {                                                                        \
        const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410;                                       \
        const T s1 = (T)0.95105651629515357212, s2 = (T)0.58778525229247312917;                                        \
        PASS_HEAD                                                                                                      \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            ELEMENT(T, 3);                                                                                             \
            ELEMENT(T, 4);                                                                                             \
            const T ar1 = r1 + r4, ai1 = i1 + i4, br1 = r1 - r4, bi1 = i1 - i4;                                        \
            const T ar2 = r2 + r3, ai2 = i2 + i3, br2 = r2 - r3, bi2 = i2 - i3;                                        \
            const T cr = r0 + c1 * ar1 + c2 * ar2, ci = i0 + c1 * ai1 + c2 * ai2;                                      \
            const T dr = r0 + c2 * ar1 + c1 * ar2, di = i0 + c2 * ai1 + c1 * ai2;                                      \
            const T er = s1 * br1 + s2 * br2, ei = s1 * bi1 + s2 * bi2;                                                \
            const T fr = s2 * br1 - s1 * br2, fi = s2 * bi1 - s1 * bi2;                                                \
            PLAIN(r0 + ar1 + ar2, i0 + ai1 + ai2)                                                                      \
            RESULT(T, 1, cr + ei, ci - er)                                                                             \
            RESULT(T, 2, dr + fi, di - fr)                                                                             \
            RESULT(T, 3, dr - fi, di + fr)                                                                             \
            RESULT(T, 4, cr - ei, ci + er)                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_8_##T(PASS_ARGUMENTS(T)) {                                                                        \
        const T half = (T)0.70710678118654752440;                                                                      \
        PASS_HEAD                                                                                                      \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            ELEMENT(T, 3);                                                                                             \
            ELEMENT(T, 4);                                                                                             \
            ELEMENT(T, 5);                                                                                             \
            ELEMENT(T, 6);                                                                                             \
            ELEMENT(T, 7);                                                                                             \
            const T ar0 = r0 + r4, ai0 = i0 + i4, ar1 = r1 + r5, ai1 = i1 + i5;                                        \
            const T ar2 = r2 + r6, ai2 = i2 + i6, ar3 = r3 + r7, ai3 = i3 + i7;                                        \
            const T br0 = r0 - r4, bi0 = i0 - i4, er1 = r1 - r5, ei1 = i1 - i5;                                        \
            const T er2 = r2 - r6, ei2 = i2 - i6, er3 = r3 - r7, ei3 = i3 - i7;                                        \
            const T br1 = (er1 + ei1) * half, bi1 = (ei1 - er1) * half;                                                \
            const T br3 = (ei3 - er3) * half, bi3 = (er3 + ei3) * -half;                                               \
            const T cr0 = ar0 + ar2, ci0 = ai0 + ai2, cr1 = ar1 + ar3, ci1 = ai1 + ai3;                                \
            const T cr2 = ar0 - ar2, ci2 = ai0 - ai2, cr3 = ar1 - ar3, ci3 = ai1 - ai3;                                \
            const T dr0 = br0 + ei2, di0 = bi0 - er2, dr1 = br1 + br3, di1 = bi1 + bi3;                                \
            const T dr2 = br0 - ei2, di2 = bi0 + er2, dr3 = br1 - br3, di3 = bi1 - bi3;                                \
            PLAIN(cr0 + cr1, ci0 + ci1)                                                                                \
            RESULT(T, 1, dr0 + dr1, di0 + di1)                                                                         \
            RESULT(T, 2, cr2 + ci3, ci2 - cr3)                                                                         \
            RESULT(T, 3, dr2 + di3, di2 - dr3)                                                                         \
            RESULT(T, 4, cr0 - cr1, ci0 - ci1)                                                                         \
            RESULT(T, 5, dr0 - dr1, di0 - di1)                                                                         \
            RESULT(T, 6, cr2 - ci3, ci2 + cr3)                                                                         \
            RESULT(T, 7, dr2 - di3, di2 + dr3)                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    /* Any other factor: `turn` elements of the table are an r-th of a turn. */                                        \
    static void pass_any_##T(int64_t r, int64_t turn, PASS_ARGUMENTS(T)) {                                             \
        T re[FFT_RADIX_MOST * CPU_FFT_LANES], im[FFT_RADIX_MOST * CPU_FFT_LANES];                                      \
        PASS_HEAD                                                                                                      \
        for (int64_t j = 0; j < r; j++) {                                                                              \
            T *ur = re + j * n, *ui = im + j * n;                                                                      \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < n; q++) {                                                                          \
                ur[q] = xr[q];                                                                                         \
                ui[q] = xi[q];                                                                                         \
            }                                                                                                          \
            for (int64_t k = 1; k < r; k++) {                                                                          \
                const T cr = w[2 * (j * k % r * turn)], ci = w[2 * (j * k % r * turn) + 1];                            \
                const T *br = xr + k * apart, *bi = xi + k * apart;                                                    \
                CPU_LOOP                                                                                               \
                for (int64_t q = 0; q < n; q++) {                                                                      \
                    ur[q] += br[q] * cr - bi[q] * ci;                                                                  \
                    ui[q] += br[q] * ci + bi[q] * cr;                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t j = 0; j < r; j++) {                                                                              \
            const T *ur = re + j * n, *ui = im + j * n;                                                                \
            const T tr = last ? 1 : w[2 * j * p * step], ti = last ? 0 : w[2 * j * p * step + 1];                      \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < n; q++) {                                                                          \
                yr[q + j * to] = ur[q] * tr - ui[q] * ti;                                                              \
                yi[q + j * to] = ur[q] * ti + ui[q] * tr;                                                              \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_##T(int64_t radix, int64_t turn, PASS_ARGUMENTS(T)) {                                             \
        switch (radix) {                                                                                               \
        case 2:                                                                                                        \
            pass_2_##T(last, m, n, apart, to, step, w, xr, xi, yr, yi);                                                \
            break;                                                                                                     \
        case 3:                                                                                                        \
            pass_3_##T(last, m, n, apart, to, step, w, xr, xi, yr, yi);                                                \
            break;                                                                                                     \
        case 4:                                                                                                        \
            pass_4_##T(last, m, n, apart, to, step, w, xr, xi, yr, yi);                                                \
            break;                                                                                                     \
        case 5:                                                                                                        \
            pass_5_##T(last, m, n, apart, to, step, w, xr, xi, yr, yi);                                                \
            break;                                                                                                     \
        case 8:                                                                                                        \
            pass_8_##T(last, m, n, apart, to, step, w, xr, xi, yr, yi);                                                \
            break;                                                                                                     \
        default:                                                                                                       \
            pass_any_##T(radix, turn, last, m, n, apart, to, step, w, xr, xi, yr, yi);                                 \
        }                                                                                                              \
    }
PASSES(float)
PASSES(double)

/* What stays in the first-level cache beside roots and results. */
enum { PASSES_BYTES = 1 << 14 };

/* Where results are before the last pass moves them: the number whose digits are those of the result's number in reverse. */
struct place {
    int64_t number, digit[FFT_RADICES_MOST];
};

/* On to the next group of the last pass. */
static inline void place_next(const struct fft_length *length, struct place *place) {
    int64_t weight = length->n / length->radix[length->radices - 1];
    for (int i = length->radices - 2; i >= 0; i--) {
        weight /= length->radix[i];
        place->number += weight;
        if (++place->digit[i] < length->radix[i]) {
            return;
        }
        place->number -= weight * length->radix[i];
        place->digit[i] = 0;
    }
}

/* Passes are run over all numbers until the transforms that they leave stay in the first-level cache; then each of these is finished before the
 * next one. */
#define TRANSFORM(T)                                                                                                   \
    /* The next transform of `left` numbers from `at` on, all passes from number i on. */                              \
    INLINE void transform_rest_##T(const struct fft_length *length, int i, int64_t left, int64_t at, const T *roots,   \
                                   int64_t n, const struct cpu_fft_block *block, bool moved, struct place *place) {    \
        T *xr = (T *)block->re[0] + at * n, *xi = (T *)block->im[0] + at * n;                                          \
        const int last = length->radices - 1, radix = length->radix[last];                                             \
        for (int64_t size = left; i < last; i++) {                                                                     \
            const int64_t m = size / length->radix[i];                                                                 \
            for (int64_t k = 0; k < left; k += size) {                                                                 \
                pass_##T(length->radix[i], length->n / length->radix[i], false, m, n, m * n, m * n, length->n / size,  \
                         roots, xr + k * n, xi + k * n, xr + k * n, xi + k * n);                                       \
            }                                                                                                          \
            size = m;                                                                                                  \
        }                                                                                                              \
        if (!moved) {                                                                                                  \
            for (int64_t k = 0; k < left; k += radix) {                                                                \
                pass_##T(radix, length->n / radix, true, 1, n, n, n, 0, roots, xr + k * n, xi + k * n, xr + k * n,     \
                         xi + k * n);                                                                                  \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        const int64_t to = length->n / radix * n;                                                                      \
        for (int64_t k = 0; k < left; k += radix, place_next(length, place)) {                                         \
            pass_##T(radix, length->n / radix, true, 1, n, n, to, 0, roots, xr + k * n, xi + k * n,                    \
                     (T *)block->re[1] + place->number * n, (T *)block->im[1] + place->number * n);                    \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void transform_lanes_##T(const struct fft_length *length, const T *roots, int64_t n,                        \
                                    const struct cpu_fft_block *block, bool moved) {                                   \
        struct place place = {0};                                                                                      \
        int64_t left = length->n;                                                                                      \
        int i = 0;                                                                                                     \
        for (; i + 1 < length->radices && 2 * left * n * (int64_t)sizeof(T) > PASSES_BYTES; i++) {                     \
            const int64_t m = left / length->radix[i];                                                                 \
            for (int64_t k = 0; k < length->n; k += left) {                                                            \
                T *xr = (T *)block->re[0] + k * n, *xi = (T *)block->im[0] + k * n;                                    \
                pass_##T(length->radix[i], length->n / length->radix[i], false, m, n, m * n, m * n, length->n / left,  \
                         roots, xr, xi, xr, xi);                                                                       \
            }                                                                                                          \
            left = m;                                                                                                  \
        }                                                                                                              \
        for (int64_t at = 0; at < length->n; at += left) {                                                             \
            transform_rest_##T(length, i, left, at, roots, n, block, moved, &place);                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void transform_##T(const struct fft_length *length, const void *roots, int64_t lanes,                       \
                              const struct cpu_fft_block *block, bool moved) {                                         \
        if (lanes == CPU_FFT_LANES) {                                                                                  \
            transform_lanes_##T(length, roots, CPU_FFT_LANES, block, moved);                                           \
        } else {                                                                                                       \
            transform_lanes_##T(length, roots, lanes, block, moved);                                                   \
        }                                                                                                              \
    }
TRANSFORM(float)
TRANSFORM(double)

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
enum { TILE = 16, TURN_float = 16, TURN_double = 8, SPAN = 4 * TILE, AHEAD = 256 /* bytes */ };
#else
enum { TILE = 8, TURN_float = 4, TURN_double = 2, SPAN = TILE, AHEAD = 256 /* bytes */ };
#endif

typedef float vector_float __attribute__((vector_size(4 * TURN_float), aligned(4), may_alias));
typedef double vector_double __attribute__((vector_size(8 * TURN_double), aligned(8), may_alias));

/* Numbers of two vectors, by turns: those of their first halves, and of their second halves. */
#if defined(__AVX512F__)
#define FIRST_float(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define SECOND_float(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define FIRST_double(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define SECOND_double(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define FIRST_float(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define SECOND_float(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define FIRST_double(a, b) __builtin_shufflevector(a, b, 0, 2)
#define SECOND_double(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif

/* Vector j has what was number j of each vector. */
#define TURN(T)                                                                                                        \
    INLINE void turn_##T(vector_##T a[TURN_##T]) {                                                                     \
        CPU_PRAGMA(GCC unroll 4)                                                                                       \
        for (int width = 1; width < TURN_##T; width *= 2) {                                                            \
            vector_##T b[TURN_##T];                                                                                    \
            CPU_PRAGMA(GCC unroll 8)                                                                                   \
            for (int i = 0; i < TURN_##T / 2; i++) {                                                                   \
                b[2 * i] = FIRST_##T(a[i], a[i + TURN_##T / 2]);                                                       \
                b[2 * i + 1] = SECOND_##T(a[i], a[i + TURN_##T / 2]);                                                  \
            }                                                                                                          \
            CPU_PRAGMA(GCC unroll 16)                                                                                  \
            for (int i = 0; i < TURN_##T; i++) {                                                                       \
                a[i] = b[i];                                                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }
TURN(float)
TURN(double)

/* Whether elements up to number end - 1 of the lanes from v on can be turned over: all are there, and follow one another. */
static inline bool tile_turns(const struct cpu_fft_lines *lines, int64_t v, int64_t width, int64_t end) {
    return lines->stride == 1 && lines->step == 1 && v + width <= lines->lanes &&
           lines->first[v + width - 1] + end <= lines->limit;
}

#define LOAD(T)                                                                                                        \
    /* Elements k to end - 1 of a lane that lies by itself. */                                                         \
    static inline void load_lane_##T(const struct cpu_fft_lines *lines, enum fft_form form, int64_t v, int64_t k,      \
                                     int64_t end, T *re, T *im) {                                                      \
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
            im[k * s + v] = b;                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void load_tile_##T(const struct cpu_fft_lines *lines, bool whole, int64_t v, int64_t k, T *re, T *im) {     \
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
                *(vector_##T *)(void *)((whole && j % 2 ? im : re) + to) = a[j];                                       \
                if (!whole) {                                                                                          \
                    *(vector_##T *)(void *)(im + to) = (vector_##T){0};                                                \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void load_apart_##T(const struct cpu_fft_lines *lines, enum fft_form form, int64_t n, T *re, T *im) {       \
        for (int64_t k = 0; k < n; k += TILE) {                                                                        \
            const int64_t end = n - k < TILE ? n : k + TILE;                                                           \
            for (int64_t v = 0, next; v < lines->lanes; v = next) {                                                    \
                next = v + TURN_##T < lines->lanes ? v + TURN_##T : lines->lanes;                                      \
                bool turns = end == k + TILE && tile_turns(lines, v, TURN_##T, end);                                   \
                if (turns && form == FFT_HERMITIAN) { /* elements between 0 and the middle are as they are */          \
                    turns = lines->first[v] + k > 0 && 2 * (lines->first[next - 1] + end - 1) < lines->n;              \
                }                                                                                                      \
                if (turns) {                                                                                           \
                    load_tile_##T(lines, form != FFT_REAL, v, k, re, im);                                              \
                    continue;                                                                                          \
                }                                                                                                      \
                for (int64_t u = v; u < next; u++) {                                                                   \
                    load_lane_##T(lines, form, u, k, end, re, im);                                                     \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void load_##T(const struct cpu_fft_lines *lines, enum fft_form form, bool swap, int64_t n, void *real,      \
                         void *imaginary) {                                                                            \
        const int64_t s = lines->lanes;                                                                                \
        const T *x = (const T *)(const void *)lines->base[0];                                                          \
        T *re = swap ? imaginary : real, *im = swap ? real : imaginary;                                                \
        if (form == FFT_HERMITIAN) {                                                                                   \
            load_apart_##T(lines, FFT_HERMITIAN, n, re, im);                                                           \
        } else if (!lines->beside) {                                                                                   \
            form == FFT_REAL ? load_apart_##T(lines, FFT_REAL, n, re, im)                                              \
                             : load_apart_##T(lines, FFT_COMPLEX, n, re, im);                                          \
        } else {                                                                                                       \
            for (int64_t k = 0; k < n; k++, re += s, im += s) {                                                        \
                const int64_t within = lanes_within(lines, k);                                                         \
                const T *e = x + (lines->first[0] + k * lines->step) * lines->stride * (form == FFT_REAL ? 1 : 2);     \
                CPU_LOOP                                                                                               \
                for (int64_t v = 0; v < within; v++) {                                                                 \
                    re[v] = form == FFT_REAL ? e[v] : e[2 * v];                                                        \
                    im[v] = form == FFT_REAL ? 0 : e[2 * v + 1];                                                       \
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
    INLINE void store_tile_##T(T *const x[TURN_##T], bool whole, int64_t s, T factor, const T *re, const T *im) {      \
        const int64_t parts = whole ? 2 : 1;                                                                           \
        for (int64_t tile = 0; tile < TILE * parts; tile += TURN_##T) {                                                \
            vector_##T a[TURN_##T];                                                                                    \
            CPU_PRAGMA(GCC unroll 16)                                                                                  \
            for (int j = 0; j < TURN_##T; j++) {                                                                       \
                const T *from = (whole && j % 2 ? im : re) + (tile + j) / parts * s;                                   \
                a[j] = *(const vector_##T *)(const void *)from * factor;                                               \
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
                               int64_t end, T factor, const T *re, const T *im) {                                      \
        const int64_t s = lines->lanes, parts = whole ? 2 : 1;                                                         \
        T *x[TURN_##T], *to[TURN_##T];                                                                                 \
        SPAN_BUFFER(T)                                                                                                 \
        for (int i = 0; i < TURN_##T; i++) {                                                                           \
            to[i] = (T *)(void *)lines->base[v + i] + parts * (lines->first[v + i] + begin + k);                       \
            x[i] = SPAN_AT(i);                                                                                         \
        }                                                                                                              \
        for (int64_t tile = k; tile < end; tile += TILE) {                                                             \
            store_tile_##T(x, whole, s, factor, re + tile * s + v, im + tile * s + v);                                 \
            for (int i = 0; i < TURN_##T; i++) {                                                                       \
                x[i] += TILE * parts;                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        SPAN_END(T)                                                                                                    \
    }                                                                                                                  \
    static inline void store_lane_##T(const struct cpu_fft_lines *lines, bool whole, int64_t begin, int64_t v,         \
                                      int64_t k, int64_t end, T factor, const T *re, const T *im) {                    \
        const int64_t s = lines->lanes;                                                                                \
        T *x = (T *)(void *)lines->base[v];                                                                            \
        int64_t own = lines->first[v] + (begin + k) * lines->step;                                                     \
        for (; k < end && own < lines->limit; k++, own += lines->step) {                                               \
            if (whole) {                                                                                               \
                x[2 * own * lines->stride] = re[k * s + v] * factor;                                                   \
                x[2 * own * lines->stride + 1] = im[k * s + v] * factor;                                               \
            } else {                                                                                                   \
                x[own * lines->stride] = re[k * s + v] * factor;                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void store_apart_##T(const struct cpu_fft_lines *lines, bool whole, int64_t begin, int64_t n, T factor,     \
                                const T *re, const T *im) {                                                            \
        for (int64_t k = 0; k < n; k += SPAN) {                                                                        \
            const int64_t end = n - k < SPAN ? n : k + SPAN, tiles = k + (end - k) / TILE * TILE;                      \
            for (int64_t v = 0, next; v < lines->lanes; v = next) {                                                    \
                next = v + TURN_##T < lines->lanes ? v + TURN_##T : lines->lanes;                                      \
                const bool turns = tiles > k && tile_turns(lines, v, TURN_##T, begin + tiles);                         \
                if (turns) {                                                                                           \
                    store_span_##T(lines, whole, begin, v, k, tiles, factor, re, im);                                  \
                }                                                                                                      \
                for (int64_t u = v; u < next; u++) {                                                                   \
                    store_lane_##T(lines, whole, begin, u, turns ? tiles : k, end, factor, re, im);                    \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void store_##T(const struct cpu_fft_lines *lines, enum fft_form form, bool swap, int64_t begin, int64_t n,  \
                          double scale, const void *real, const void *imaginary) {                                     \
        const T *re = swap ? imaginary : real, *im = swap ? real : imaginary, factor = (T)scale;                       \
        T *x = (T *)(void *)lines->base[0];                                                                            \
        if (!lines->beside) {                                                                                          \
            form == FFT_REAL ? store_apart_##T(lines, false, begin, n, factor, re, im)                                 \
                             : store_apart_##T(lines, true, begin, n, factor, re, im);                                 \
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
                e[2 * v + 1] = im[v] * factor;                                                                         \
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

/* Element k of a column by e^(-2πi·k·column/(rows · columns)). */
#define TWIDDLE(T)                                                                                                     \
    static void twiddle_##T(const double *high, const double *low, int64_t rows, int64_t columns, int64_t column,      \
                            int64_t s, void *real, void *imaginary) {                                                  \
        double cr[CPU_FFT_LANES], ci[CPU_FFT_LANES], sr[CPU_FFT_LANES], si[CPU_FFT_LANES];                             \
        T *re = real, *im = imaginary;                                                                                 \
        for (int64_t v = 0; v < s; v++) {                                                                              \
            root_of(high, low, columns, column + v, &sr[v], &si[v]);                                                   \
        }                                                                                                              \
        for (int64_t k = 0; k < rows; k++, re += s, im += s) {                                                         \
            if (k % RESYNC == 0) {                                                                                     \
                for (int64_t v = 0; v < s; v++) {                                                                      \
                    root_of(high, low, columns, (column + v) * k, &cr[v], &ci[v]);                                     \
                }                                                                                                      \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t v = 0; v < s; v++) {                                                                          \
                const T wr = (T)cr[v], wi = (T)ci[v], a = re[v], b = im[v];                                            \
                const double next = cr[v] * sr[v] - ci[v] * si[v];                                                     \
                re[v] = a * wr - b * wi;                                                                               \
                im[v] = a * wi + b * wr;                                                                               \
                ci[v] = cr[v] * si[v] + ci[v] * sr[v];                                                                 \
                cr[v] = next;                                                                                          \
            }                                                                                                          \
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
#define FUNCTIONS(T)                                                                                                   \
    { EIGHTS, transform_##T, load_##T, store_##T, multiply_##T, twiddle_##T, unfold_##T, fold_##T }
const struct cpu_fft CPU_NAME(fft_f32) = FUNCTIONS(float);
const struct cpu_fft CPU_NAME(fft_f64) = FUNCTIONS(double);
