/* The passes of a Fourier transform, each a loop over lines whose elements k lie beside each other.
 *
 * The transform of n = r1 · r2 · … numbers is a pass for each factor. With m = n / r, each of m groups of r numbers m apart is transformed,
 * multiplied by roots of unity and written where it was, which leaves r transforms of m numbers, one behind another. The last pass has nothing to
 * multiply by, and writes each group to where it belongs. The first pass can read the numbers where they are in memory, and the last
 * one write the results where they go: then nothing else moves them, which would take as long as a pass. */
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "engine/cpu/fft_level.h"

/* a · b + c, in one rounding if the level has such an instruction. */
#define FMA_float CPU_FMA
#if defined(__FMA__) || defined(__aarch64__)
#define FMA_double __builtin_fma
#else
#define FMA_double(a, b, c) ((a) * (b) + (c))
#endif
#define FMA(T, a, b, c) FMA_##T(a, b, c)

/* A vector that crosses a cache line's end takes several times as long to store. So where vectors are as long as lines, and pairs are to be written
 * across such ends, they are written line by line from a buffer. */
#if defined(__AVX512F__)
/* Vectors of 64 bytes to any address that is a multiple of 4. */
INLINE void across_lines(char *to, const char *from, int vectors) {
    const uint32_t offset = (uint32_t)((uintptr_t)to % 64 / 4);
    const __mmask16 own = (__mmask16)(0xffffU << offset);
    const __m512i numbers = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    /* Of the line's words, those from `offset` on are the vector's first ones, those before them the last ones of the vector before. */
    const __m512i index = _mm512_sub_epi32(numbers, _mm512_set1_epi32((int)offset));
    __m512i before = _mm512_load_si512(from);
    to -= 4 * offset;
    _mm512_mask_storeu_epi32(to, own, _mm512_permutexvar_epi32(index, before));
    CPU_PRAGMA(GCC unroll 3)
    for (int i = 1; i < vectors; i++) {
        const __m512i next = _mm512_load_si512(from + 64 * i);
        _mm512_storeu_si512(to + 64 * i, _mm512_permutex2var_epi32(next, index, before));
        before = next;
    }
    _mm512_mask_storeu_epi32(to + 64 * vectors, (__mmask16)~own, _mm512_permutexvar_epi32(index, before));
}
#else
INLINE void across_lines(char *to, const char *from, int vectors) {
    (void)to, (void)from, (void)vectors;
}
#endif

#define PASS_BEGIN(T, r)                                                                                               \
    const bool there = kind & PASS_THERE, buffered = kind & PASS_ACROSS && (r) > 0;                                    \
    _Alignas(64) T buffer[2 * CPU_FFT_LANES * ((r) > 0 ? (r) : 1)];                                                    \
    const int64_t apart = kind & PASS_LAST ? n : pass->apart, to = buffered ? 2 * n : there ? apart : pass->to;        \
    const int64_t next = there ? n : pass->next, to_next = there ? n : pass->to_next;                                  \
    const int64_t step = pass->step, turns_to = pass->turns_to;                                                        \
    const T sign = pass->sign, re_factor = pass->re_factor, im_factor = pass->im_factor, *const w = pass->roots;       \
    (void)sign, (void)re_factor, (void)im_factor, (void)turns_to;                                                      \
    for (int64_t batch = 0; batch < pass->batches; batch++) {                                                          \
        const int64_t x_at = batch * pass->x_batch;                                                                    \
        const T *const first_turns = kind & PASS_TURNED ? pass->turns + batch * pass->turns_batch : NULL;              \
        for (int64_t p = 0; p < pass->m; p++) {                                                                        \
            const int64_t place = kind & PASS_LAST && pass->places ? pass->places[p] : p;                              \
            const int64_t y_at = there ? x_at + p * n : batch * pass->y_batch + place * to_next;                       \
            T *const yr = buffered ? buffer : pass->yr + y_at, *const yi =                                             \
                                                                   kind & PASS_TO_PAIRS ? yr : pass->yi + y_at;        \
            const T *const xr = there ? yr : pass->xr + x_at + p * next;                                               \
            const T *const xi = there ? yi : kind & PASS_FROM_PAIRS ? xr : pass->xi + x_at + p * next;                 \
            const T *const turns = kind & PASS_TURNED ? first_turns + place * pass->turns_next : NULL;                 \
            (void)turns;
#define PASS_END(T, r)                                                                                                 \
    for (int64_t j = 0; buffered && j < (r); j++) {                                                                    \
        across_lines((char *)(pass->yr + y_at + j * pass->to), (const char *)(buffer + j * to),                        \
                     (int)(2 * CPU_FFT_LANES * sizeof(T) / 64));                                                       \
    }                                                                                                                  \
    }                                                                                                                  \
    }

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
        PASS_BEGIN(T, 2)                                                                                               \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < n; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            RESULT(T, 0, r0 + r1, i0 + i1)                                                                             \
            RESULT(T, 1, r0 - r1, i0 - i1)                                                                             \
        }                                                                                                              \
        PASS_END(T, 2)                                                                                                 \
    }                                                                                                                  \
    INLINE void pass_3_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        const T sine = (T)0.86602540378443864676;                                                                      \
        PASS_BEGIN(T, 3)                                                                                               \
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
        PASS_END(T, 3)                                                                                                 \
    }                                                                                                                  \
    INLINE void pass_4_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        PASS_BEGIN(T, 4)                                                                                               \
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
        PASS_END(T, 4)                                                                                                 \
    }                                                                                                                  \
    INLINE void pass_5_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410;                                       \
        const T s1 = (T)0.95105651629515357212, s2 = (T)0.58778525229247312917;                                        \
        PASS_BEGIN(T, 5)                                                                                               \
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
        PASS_END(T, 5)                                                                                                 \
    }                                                                                                                  \
    INLINE void pass_8_##T(const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {                        \
        const T half = (T)0.70710678118654752440;                                                                      \
        PASS_BEGIN(T, 8)                                                                                               \
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
        PASS_END(T, 8)                                                                                                 \
    }                                                                                                                  \
    /* Any other factor. */                                                                                            \
    INLINE void pass_any_##T(int64_t r, const enum pass_kind kind, int64_t n, const struct pass_##T *pass) {           \
        T re[FFT_RADIX_MOST * CPU_FFT_LANES], im[FFT_RADIX_MOST * CPU_FFT_LANES];                                      \
        PASS_BEGIN(T, 0)                                                                                               \
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
        PASS_END(T, 0)                                                                                                 \
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
PASS_FUNCTION(float, middle, PASS_THERE, CPU_FFT_LANES)
PASS_FUNCTION(float, first_parts, PASS_FROM_PARTS, CPU_FFT_LANES)
PASS_FUNCTION(float, first_pairs, PASS_FROM_PAIRS, CPU_FFT_LANES)
PASS_FUNCTION(float, last, PASS_LAST, CPU_FFT_LANES)
PASS_FUNCTION(float, last_whole, PASS_LAST | PASS_TO_PAIRS, CPU_FFT_LANES)
PASS_FUNCTION(float, last_across, PASS_LAST | PASS_TO_PAIRS | PASS_ACROSS, CPU_FFT_LANES)
PASS_FUNCTION(float, last_turned, PASS_LAST | PASS_TURNED, CPU_FFT_LANES)
PASS_FUNCTION(float, any_middle, PASS_THERE, n)
PASS_FUNCTION(float, any_last, PASS_LAST, n)
PASS_FUNCTION(double, middle, PASS_THERE, CPU_FFT_LANES)
PASS_FUNCTION(double, first_parts, PASS_FROM_PARTS, CPU_FFT_LANES)
PASS_FUNCTION(double, first_pairs, PASS_FROM_PAIRS, CPU_FFT_LANES)
PASS_FUNCTION(double, last, PASS_LAST, CPU_FFT_LANES)
PASS_FUNCTION(double, last_whole, PASS_LAST | PASS_TO_PAIRS, CPU_FFT_LANES)
PASS_FUNCTION(double, last_across, PASS_LAST | PASS_TO_PAIRS | PASS_ACROSS, CPU_FFT_LANES)
PASS_FUNCTION(double, last_turned, PASS_LAST | PASS_TURNED, CPU_FFT_LANES)
PASS_FUNCTION(double, any_middle, PASS_THERE, n)
PASS_FUNCTION(double, any_last, PASS_LAST, n)

#if defined(__AVX512F__)
enum { PAIRS_ALIGNMENT = 64 };
#else
enum { PAIRS_ALIGNMENT = 1 };
#endif
#define LAST_PAIRS(T)                                                                                                  \
    static void last_pairs_##T(int64_t radix, int64_t n, const struct pass_##T *pass) {                                \
        const uint64_t at = (uintptr_t)pass->yr | (uint64_t)(pass->y_batch | pass->to | pass->to_next) * sizeof(T);    \
        (at % PAIRS_ALIGNMENT == 0 ? last_whole_##T : last_across_##T)(radix, n, pass);                                \
    }
LAST_PAIRS(float)
LAST_PAIRS(double)

#define PASS_OF(T, NAME)                                                                                               \
    pass_function_##T *CPU_NAME(fft_pass_##NAME)(enum pass_kind kind) {                                                \
        switch ((int)kind) {                                                                                           \
        case PASS_THERE:                                                                                               \
            return middle_##T;                                                                                         \
        case PASS_FROM_PARTS:                                                                                          \
            return first_parts_##T;                                                                                    \
        case PASS_FROM_PAIRS:                                                                                          \
            return first_pairs_##T;                                                                                    \
        case PASS_LAST:                                                                                                \
            return last_##T;                                                                                           \
        case PASS_LAST | PASS_TO_PAIRS:                                                                                \
            return last_pairs_##T;                                                                                     \
        default:                                                                                                       \
            return last_turned_##T;                                                                                    \
        }                                                                                                              \
    }
PASS_OF(float, f32)
PASS_OF(double, f64)

/* What stays in the first-level cache beside roots and results. */
enum { PASSES_BYTES = 1 << 15 };

/* Passes are run over all numbers until the transforms that they leave stay in the first-level cache; then each of these is finished before the
 * next one. */
#define TRANSFORM(T, NAME)                                                                                             \
    static void pass_middle_##T(const struct pass_##T *pass, int64_t radix, int64_t n) {                               \
        (n == CPU_FFT_LANES ? middle_##T : any_middle_##T)(radix, n, pass);                                            \
    }                                                                                                                  \
    /* A pass over some of the transforms of `size` numbers that passes have left, from x on. */                       \
    INLINE void pass_within_##T(const struct fft_length *length, const T *roots, int i, int64_t size, int64_t count,   \
                                int64_t n, T *xr, T *xi) {                                                             \
        const int64_t radix = length->radix[i], m = size / radix;                                                      \
        const struct pass_##T pass = {.batches = count,                                                                \
                                      .x_batch = size * n,                                                             \
                                      .y_batch = size * n,                                                             \
                                      .m = m,                                                                          \
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
        const struct pass_##T pass = {.batches = 1,                                                                    \
                                      .m = m,                                                                          \
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
        first_pairs_##T(radix, n, &pass);                                                                              \
    }                                                                                                                  \
    /* The last pass over `left` numbers from number `at` on. */                                                       \
    INLINE void pass_last_##T(const struct fft_length *length, const T *roots, const int32_t *places,                  \
                              const struct cpu_fft_end *to, int64_t left, int64_t at, int64_t n, T *re, T *im) {       \
        const int64_t radix = length->radix[length->radices - 1], apart = length->n / radix;                           \
        struct pass_##T pass = {.batches = 1,                                                                          \
                                .m = left / radix,                                                                     \
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
            pass_within_##T(length, roots, i, left, length->n / left, n, re, im);                                      \
            left /= length->radix[i];                                                                                  \
        }                                                                                                              \
        for (int64_t at = 0; at < length->n; at += left) {                                                             \
            int64_t size = left;                                                                                       \
            for (int j = i; j < last; j++) {                                                                           \
                pass_within_##T(length, roots, j, size, left / size, n, re + at * n, im + at * n);                     \
                size /= length->radix[j];                                                                              \
            }                                                                                                          \
            pass_last_##T(length, roots, places, to, left, at, n, re, im);                                             \
        }                                                                                                              \
    }
TRANSFORM(float, f32)
TRANSFORM(double, f64)
