/* The passes of a Fourier transform, each a loop over lines whose elements k lie beside each other.
 *
 * The transform of n = r1 · r2 · … numbers is a pass for each factor. With m = n / r, each of m groups of r numbers m apart is transformed,
 * multiplied by roots of unity and written where it was, which leaves r transforms of m numbers, one behind another. The last pass has nothing to
 * multiply by, and writes each group to where it belongs. The first pass can read the numbers where they are in memory, and the last
 * one write the results where they go: then nothing else moves them, which would take as long as a pass. */
#include "engine/cpu/fft_level.h"

/* a · b + c, in one rounding if the level has such an instruction. */
#define FMA_float CPU_FMA
#if defined(__FMA__) || defined(__aarch64__)
#define FMA_double __builtin_fma
#else
#define FMA_double(a, b, c) ((a) * (b) + (c))
#endif
#define FMA(T, a, b, c) FMA_##T(a, b, c)

/* What is known of a pass when it is compiled. Real and imaginary parts are apart from each other, except in pairs. */
enum pass_kind {
    PASS_MIDDLE = 0,
    PASS_FROM_PAIRS = 1, /* reads complex numbers as they are in tensors, */
    PASS_TO_PAIRS = 2,   /* and writes such */
    PASS_LAST = 4,       /* results are not multiplied by roots, */
    PASS_TURNED = 8,     /* but by a table, each lane's by its own number */
};

/* m groups of numbers that are `apart` from each other; group p begins p · next behind x. Its results are `to` from each other, and the first of
 * them is `to_next` times the group's place behind y: p, unless there are places. A root of unity of the table: e^(-2πi·k/n) for each k,
 * real and imaginary part; group p is multiplied by those with the exponent p · step, and `turn` elements of the table are an r-th of a turn. */
#define PASS(T)                                                                                                        \
    struct pass_##T {                                                                                                  \
        int64_t m, apart, next, to, to_next, step, turn, turns_to, turns_next;                                         \
        const T *xr, *xi, *roots, *turns;                                                                              \
        T *yr, *yi;                                                                                                    \
        const int32_t *places;                                                                                         \
        T sign, re_factor, im_factor; /* of pairs: imaginary parts that are read, and both parts that are written */   \
    };
PASS(float)
PASS(double)

#define PASS_HEAD(T)                                                                                                   \
    const int64_t apart = pass->apart, to = pass->to, step = pass->step, turns_to = pass->turns_to;                    \
    const T sign = pass->sign, re_factor = pass->re_factor, im_factor = pass->im_factor, *const w = pass->roots;       \
    (void)sign, (void)re_factor, (void)im_factor, (void)turns_to;                                                      \
    for (int64_t p = 0; p < pass->m; p++) {                                                                            \
        const int64_t place = kind & PASS_LAST && pass->places ? pass->places[p] : p;                                  \
        const T *const xr = pass->xr + p * pass->next, *const xi =                                                     \
                                                           kind & PASS_FROM_PAIRS ? xr : pass->xi + p * pass->next;    \
        const T *const turns = kind & PASS_TURNED ? pass->turns + place * pass->turns_next : NULL;                     \
        T *const yr = pass->yr + place * pass->to_next, *const yi = kind & PASS_TO_PAIRS                               \
                                                                        ? yr                                           \
                                                                        : pass->yi + place * pass->to_next;            \
        (void)turns;
#define ELEMENT(T, k)                                                                                                  \
    const T r##k = kind & PASS_FROM_PAIRS ? xr[2 * q + (k)*apart] : xr[q + (k)*apart];                                 \
    const T i##k = kind & PASS_FROM_PAIRS ? xr[2 * q + 1 + (k)*apart] * sign : xi[q + (k)*apart]
/* Result number j by a root, which is 1 for the first one. */
#define RESULT(T, j, re, im)                                                                                           \
    {                                                                                                                  \
        T pr = re, pi = im;                                                                                            \
        if (kind & PASS_TURNED || (!(kind & PASS_LAST) && (j) != 0)) {                                                 \
            const T wr = kind & PASS_TURNED ? turns[q + (j)*turns_to] : w[2 * (j)*p * step];                           \
            const T wi = kind & PASS_TURNED ? turns[q + n + (j)*turns_to] : w[2 * (j)*p * step + 1];                   \
            const T tr = FMA(T, pr, wr, -(pi * wi));                                                                   \
            pi = FMA(T, pr, wi, pi * wr);                                                                              \
            pr = tr;                                                                                                   \
        }                                                                                                              \
        if (kind & PASS_TO_PAIRS) {                                                                                    \
            yr[2 * q + (j)*to] = pr * re_factor;                                                                       \
            yr[2 * q + 1 + (j)*to] = pi * im_factor;                                                                   \
        } else {                                                                                                       \
            yr[q + (j)*to] = pr;                                                                                       \
            yi[q + (j)*to] = pi;                                                                                       \
        }                                                                                                              \
    }

#define PASSES(T)                                                                                                      \
    INLINE void pass_2_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        PASS_HEAD(T)                                                                                                   \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            RESULT(T, 0, r0 + r1, i0 + i1)                                                                             \
            RESULT(T, 1, r0 - r1, i0 - i1)                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_3_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        const T sine = (T)0.86602540378443864676;                                                                      \
        PASS_HEAD(T)                                                                                                   \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            const T sr = r1 + r2, si = i1 + i2, dr = (r1 - r2) * sine, di = (i1 - i2) * sine;                          \
            const T hr = r0 - sr * (T)0.5, hi = i0 - si * (T)0.5;                                                      \
            RESULT(T, 0, r0 + sr, i0 + si)                                                                             \
            RESULT(T, 1, hr + di, hi - dr)                                                                             \
            RESULT(T, 2, hr - di, hi + dr)                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_4_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        PASS_HEAD(T)                                                                                                   \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            ELEMENT(T, 3);                                                                                             \
            const T ar2 = r0 + r2, ai2 = i0 + i2, br = r1 + r3, bi = i1 + i3;                                          \
            const T cr = r0 - r2, ci = i0 - i2, dr = r1 - r3, di = i1 - i3;                                            \
            RESULT(T, 0, ar2 + br, ai2 + bi)                                                                           \
            RESULT(T, 1, cr + di, ci - dr)                                                                             \
            RESULT(T, 2, ar2 - br, ai2 - bi)                                                                           \
            RESULT(T, 3, cr - di, ci + dr)                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_5_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410;                                       \
        const T s1 = (T)0.95105651629515357212, s2 = (T)0.58778525229247312917;                                        \
        PASS_HEAD(T)                                                                                                   \
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
            RESULT(T, 0, r0 + ar1 + ar2, i0 + ai1 + ai2)                                                               \
            RESULT(T, 1, cr + ei, ci - er)                                                                             \
            RESULT(T, 2, dr + fi, di - fr)                                                                             \
            RESULT(T, 3, dr - fi, di + fr)                                                                             \
            RESULT(T, 4, cr - ei, ci + er)                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    INLINE void pass_8_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        const T half = (T)0.70710678118654752440;                                                                      \
        PASS_HEAD(T)                                                                                                   \
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
            RESULT(T, 0, cr0 + cr1, ci0 + ci1)                                                                         \
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
    /* Any other factor. */                                                                                            \
    INLINE void pass_any_##T(int64_t r, const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {           \
        T re[FFT_RADIX_MOST * CPU_FFT_LANES], im[FFT_RADIX_MOST * CPU_FFT_LANES];                                      \
        PASS_HEAD(T)                                                                                                   \
        for (int64_t j = 0; j < r; j++) {                                                                              \
            T *ur = re + j * n, *ui = im + j * n;                                                                      \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < n; q++) {                                                                          \
                ELEMENT(T, 0);                                                                                         \
                ur[q] = r0;                                                                                            \
                ui[q] = i0;                                                                                            \
            }                                                                                                          \
            for (int64_t k = 1; k < r; k++) {                                                                          \
                const T cr = w[2 * (j * k % r * pass->turn)], ci = w[2 * (j * k % r * pass->turn) + 1];                \
                CPU_LOOP                                                                                               \
                for (int64_t q = 0; q < n; q++) {                                                                      \
                    ELEMENT(T, k);                                                                                     \
                    ur[q] += rk * cr - ik * ci;                                                                        \
                    ui[q] += rk * ci + ik * cr;                                                                        \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t j = 0; j < r; j++) {                                                                              \
            const T *ur = re + j * n, *ui = im + j * n;                                                                \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < n; q++) {                                                                          \
                RESULT(T, j, ur[q], ui[q])                                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    }
PASSES(float)
PASSES(double)

/* A pass of one kind, whatever the factor is. */
#define PASS_FUNCTION(T, name, kind, lanes)                                                                            \
    static void name##_##T(int64_t radix, int64_t n, const struct pass_##T *pass) {                                    \
        (void)n;                                                                                                       \
        switch (radix) {                                                                                               \
        case 2:                                                                                                        \
            pass_2_##T(kind, lanes, pass);                                                                             \
            break;                                                                                                     \
        case 3:                                                                                                        \
            pass_3_##T(kind, lanes, pass);                                                                             \
            break;                                                                                                     \
        case 4:                                                                                                        \
            pass_4_##T(kind, lanes, pass);                                                                             \
            break;                                                                                                     \
        case 5:                                                                                                        \
            pass_5_##T(kind, lanes, pass);                                                                             \
            break;                                                                                                     \
        case 8:                                                                                                        \
            pass_8_##T(kind, lanes, pass);                                                                             \
            break;                                                                                                     \
        default:                                                                                                       \
            pass_any_##T(radix, kind, lanes, pass);                                                                    \
        }                                                                                                              \
    }
PASS_FUNCTION(float, middle, PASS_MIDDLE, CPU_FFT_LANES)
PASS_FUNCTION(float, first_pairs, PASS_FROM_PAIRS, CPU_FFT_LANES)
PASS_FUNCTION(float, last, PASS_LAST, CPU_FFT_LANES)
PASS_FUNCTION(float, last_pairs, PASS_LAST | PASS_TO_PAIRS, CPU_FFT_LANES)
PASS_FUNCTION(float, last_turned, PASS_LAST | PASS_TURNED, CPU_FFT_LANES)
PASS_FUNCTION(float, any_middle, PASS_MIDDLE, n)
PASS_FUNCTION(float, any_last, PASS_LAST, n)
PASS_FUNCTION(double, middle, PASS_MIDDLE, CPU_FFT_LANES)
PASS_FUNCTION(double, first_pairs, PASS_FROM_PAIRS, CPU_FFT_LANES)
PASS_FUNCTION(double, last, PASS_LAST, CPU_FFT_LANES)
PASS_FUNCTION(double, last_pairs, PASS_LAST | PASS_TO_PAIRS, CPU_FFT_LANES)
PASS_FUNCTION(double, last_turned, PASS_LAST | PASS_TURNED, CPU_FFT_LANES)
PASS_FUNCTION(double, any_middle, PASS_MIDDLE, n)
PASS_FUNCTION(double, any_last, PASS_LAST, n)

/* What stays in the first-level cache beside roots and results. */
enum { PASSES_BYTES = 1 << 14 };

/* Passes are run over all numbers until the transforms that they leave stay in the first-level cache; then each of these is finished before the
 * next one. */
#define TRANSFORM(T, NAME)                                                                                             \
    static void pass_middle_##T(const struct pass_##T *pass, int64_t radix, int64_t n) {                               \
        (n == CPU_FFT_LANES ? middle_##T : any_middle_##T)(radix, n, pass);                                            \
    }                                                                                                                  \
    /* A pass over one of the transforms of `size` numbers that passes have left, the one from x on. */                \
    INLINE void pass_within_##T(const struct fft_length *length, const T *roots, int i, int64_t size, int64_t n,       \
                                T *xr, T *xi) {                                                                        \
        const int64_t radix = length->radix[i], m = size / radix;                                                      \
        const struct pass_##T pass = {.m = m,                                                                          \
                                      .apart = m * n,                                                                  \
                                      .next = n,                                                                       \
                                      .to = m * n,                                                                     \
                                      .to_next = n,                                                                    \
                                      .step = length->n / size,                                                        \
                                      .turn = length->n / radix,                                                       \
                                      .roots = roots,                                                                  \
                                      .xr = xr,                                                                        \
                                      .xi = xi,                                                                        \
                                      .yr = xr,                                                                        \
                                      .yi = xi};                                                                       \
        pass_middle_##T(&pass, radix, n);                                                                              \
    }                                                                                                                  \
    INLINE void pass_first_##T(const struct fft_length *length, const T *roots, const struct cpu_fft_end *from,        \
                               int64_t n, T *re, T *im) {                                                              \
        const int64_t radix = length->radix[0], m = length->n / radix;                                                 \
        const struct pass_##T pass = {.m = m,                                                                          \
                                      .apart = m * from->apart,                                                        \
                                      .next = from->apart,                                                             \
                                      .to = m * n,                                                                     \
                                      .to_next = n,                                                                    \
                                      .step = 1,                                                                       \
                                      .turn = m,                                                                       \
                                      .roots = roots,                                                                  \
                                      .xr = from->re,                                                                  \
                                      .xi = from->im,                                                                  \
                                      .yr = re,                                                                        \
                                      .yi = im,                                                                        \
                                      .sign = (T)from->im_factor};                                                     \
        if (from->pairs) {                                                                                             \
            first_pairs_##T(radix, n, &pass);                                                                          \
        } else {                                                                                                       \
            pass_middle_##T(&pass, radix, n);                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* The last pass over `left` numbers from number `at` on. */                                                       \
    INLINE void pass_last_##T(const struct fft_length *length, const T *roots, const int32_t *places,                  \
                              const struct cpu_fft_end *from, const struct cpu_fft_end *to, int64_t left, int64_t at,  \
                              int64_t n, T *re, T *im) {                                                               \
        const int64_t radix = length->radix[length->radices - 1], apart = length->n / radix;                           \
        struct pass_##T pass = {.m = left / radix,                                                                     \
                                .apart = n,                                                                            \
                                .next = radix * n,                                                                     \
                                .to = n,                                                                               \
                                .to_next = radix * n,                                                                  \
                                .turn = apart,                                                                         \
                                .roots = roots,                                                                        \
                                .xr = re + at * n,                                                                     \
                                .xi = im + at * n,                                                                     \
                                .yr = re + at * n,                                                                     \
                                .yi = im + at * n};                                                                    \
        if (from && length->radices == 1) {                                                                            \
            pass.xr = from->re, pass.xi = from->im, pass.apart = from->apart;                                          \
        }                                                                                                              \
        if (to) {                                                                                                      \
            pass.places = places + at / radix;                                                                         \
            pass.to = apart * to->apart, pass.to_next = to->apart;                                                     \
            pass.yr = to->re, pass.yi = to->im;                                                                        \
            pass.re_factor = (T)to->re_factor, pass.im_factor = (T)to->im_factor;                                      \
            pass.turns = to->turns, pass.turns_to = apart * to->turns_apart, pass.turns_next = to->turns_apart;        \
        }                                                                                                              \
        if (to && to->pairs) {                                                                                         \
            last_pairs_##T(radix, n, &pass);                                                                           \
        } else if (to && to->turns) {                                                                                  \
            last_turned_##T(radix, n, &pass);                                                                          \
        } else {                                                                                                       \
            (n == CPU_FFT_LANES ? last_##T : any_last_##T)(radix, n, &pass);                                           \
        }                                                                                                              \
    }                                                                                                                  \
    void CPU_NAME(fft_transform_##NAME)(const struct fft_length *length, const void *table, const int32_t *places,     \
                                        int64_t n, void *real, void *imaginary, const struct cpu_fft_end *from,        \
                                        const struct cpu_fft_end *to) {                                                \
        T *re = real, *im = imaginary;                                                                                 \
        const T *roots = table;                                                                                        \
        const int last = length->radices - 1;                                                                          \
        int64_t left = length->n;                                                                                      \
        int i = 0;                                                                                                     \
        if (from && last > 0) {                                                                                        \
            pass_first_##T(length, roots, from, n, re, im);                                                            \
            left /= length->radix[i++];                                                                                \
        }                                                                                                              \
        for (; i < last && 2 * left * n * (int64_t)sizeof(T) > PASSES_BYTES; i++) {                                    \
            for (int64_t at = 0; at < length->n; at += left) {                                                         \
                pass_within_##T(length, roots, i, left, n, re + at * n, im + at * n);                                  \
            }                                                                                                          \
            left /= length->radix[i];                                                                                  \
        }                                                                                                              \
        for (int64_t at = 0; at < length->n; at += left) {                                                             \
            int64_t size = left;                                                                                       \
            for (int j = i; j < last; j++) {                                                                           \
                for (int64_t k = at; k < at + left; k += size) {                                                       \
                    pass_within_##T(length, roots, j, size, n, re + k * n, im + k * n);                                \
                }                                                                                                      \
                size /= length->radix[j];                                                                              \
            }                                                                                                          \
            pass_last_##T(length, roots, places, from, to, left, at, n, re, im);                                       \
        }                                                                                                              \
    }
TRANSFORM(float, f32)
TRANSFORM(double, f64)
