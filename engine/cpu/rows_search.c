/* Binary search for several values at a time. All of them halve the same number of elements at each step, without a branch that depends on
 * elements, so their loads are in flight together. */
#include "engine/cpu/key.h"
#include "engine/cpu/lanes.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum {
    TOGETHER = 16, /* values */
    VECTORS = 4,   /* of values */
    SKEW = 64,
};

/* The next comparison of values whose places are among `left` elements: with number `probe` of these, and then they are among `next`, the
 * first or the last ones. */
struct step {
    int64_t probe, next;
};

/* Halves of an array whose extent is a power of two would be at addresses that compete for few places in a cache: so large ones differ a
 * little, which takes one step more. */
INLINE struct step step_of(int64_t left) {
    int64_t half = left - left / 2, skew = left / SKEW, below = half + skew - 1, above = left - half - skew;
    return (struct step){below, below > above ? below : above};
}

/* `at` elements are known to be below. */
#define SEARCH(name, T, kind)                                                                                          \
    INLINE void steps_##name(const struct cpu_search *search, const T *value, int64_t count, int64_t *out) {           \
        const T *sorted = search->sorted, infinity = (T)search->infinity;                                              \
        const T right = search->right;                                                                                 \
        T key[TOGETHER];                                                                                               \
        int64_t at[TOGETHER];                                                                                          \
        (void)infinity;                                                                                                \
        for (int64_t j = 0; j < count; j++) {                                                                          \
            key[j] = KEY(T, kind, value[j], infinity);                                                                 \
            at[j] = 0;                                                                                                 \
        }                                                                                                              \
        struct step step;                                                                                              \
        for (int64_t left = search->n; left > 0; left = step.next) {                                                   \
            step = step_of(left);                                                                                      \
            const int64_t more = left - step.next;                                                                     \
            CPU_LOOP                                                                                                   \
            for (int64_t j = 0; j < count; j++) {                                                                      \
                const T other = KEY(T, kind, sorted[at[j] + step.probe], infinity);                                    \
                at[j] += more & -(int64_t)((other < key[j]) | ((other == key[j]) & right));                            \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t j = 0; j < count; j++) {                                                                          \
            out[j] = at[j];                                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static void keys_##name(const struct cpu_search *search, const void *values, int64_t count, int64_t *out) {        \
        const T *value = values;                                                                                       \
        int64_t i = 0;                                                                                                 \
        for (; i + TOGETHER <= count; i += TOGETHER) {                                                                 \
            steps_##name(search, value + i, TOGETHER, out + i);                                                        \
        }                                                                                                              \
        steps_##name(search, value + i, count - i, out + i);                                                           \
    }
KEY_TYPES(SEARCH)
#undef SEARCH

#if defined(__AVX512F__)
/* Values of 32 and 64 bits as vectors: elements are compared as they are. A NaN is above all numbers, and equal to a NaN. */

/* Lanes whose element is less than the value, or with `right` not greater; `nan`: whose value is one. */
INLINE unsigned v_before(int bits, enum key_kind kind, bool right, __m512i element, __m512i value, unsigned nan) {
    if (kind == KEY_FLOAT && bits == 32) {
        __m512 a = _mm512_castsi512_ps(element), b = _mm512_castsi512_ps(value);
        return right ? _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ) | nan
                     : _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) | (nan & _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q));
    }
    if (kind == KEY_FLOAT) {
        __m512d a = _mm512_castsi512_pd(element), b = _mm512_castsi512_pd(value);
        return right ? _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ) | nan
                     : _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ) | (nan & _mm512_cmp_pd_mask(a, a, _CMP_ORD_Q));
    }
    if (kind == KEY_SIGNED) {
        return bits == 32 ? right ? _mm512_cmple_epi32_mask(element, value) : _mm512_cmplt_epi32_mask(element, value)
               : right ? _mm512_cmple_epi64_mask(element, value)
                          : _mm512_cmplt_epi64_mask(element, value);
    }
    return bits == 32 ? right ? _mm512_cmple_epu32_mask(element, value) : _mm512_cmplt_epu32_mask(element, value)
           : right ? _mm512_cmple_epu64_mask(element, value)
                      : _mm512_cmplt_epu64_mask(element, value);
}

INLINE unsigned v_nan(int bits, enum key_kind kind, __m512i v) {
    if (kind != KEY_FLOAT) {
        return 0;
    }
    return bits == 32 ? _mm512_cmp_ps_mask(_mm512_castsi512_ps(v), _mm512_castsi512_ps(v), _CMP_UNORD_Q)
                      : _mm512_cmp_pd_mask(_mm512_castsi512_pd(v), _mm512_castsi512_pd(v), _CMP_UNORD_Q);
}

/* `count` values, which fill so many vectors, the last one perhaps in part. Positions have as many bits as a value. */
INLINE void steps(int bits, enum key_kind kind, bool right, int vectors, const struct cpu_search *search,
                  const char *values, int64_t count, int64_t *out) {
    const int lanes = 512 / bits;
    __m512i value[VECTORS], at[VECTORS];
    unsigned nan[VECTORS];
    CPU_PRAGMA(GCC unroll 4)
    for (int i = 0; i < vectors; i++) {
        int64_t left = count - i * lanes;
        unsigned mask = left < lanes ? (1U << left) - 1 : (1U << lanes) - 1;
        const char *from = values + i * 64;
        value[i] = bits == 32 ? _mm512_maskz_loadu_epi32((__mmask16)mask, from)
                              : _mm512_maskz_loadu_epi64((__mmask8)mask, from);
        nan[i] = v_nan(bits, kind, value[i]);
        at[i] = _mm512_setzero_si512();
    }
    struct step step;
    for (int64_t left = search->n; left > 0; left = step.next) {
        step = step_of(left);
        const int64_t more = left - step.next;
        const char *middle = (const char *)search->sorted + step.probe * (bits / 8);
        CPU_PRAGMA(GCC unroll 4)
        for (int i = 0; i < vectors; i++) {
            __m512i element =
                bits == 32 ? _mm512_i32gather_epi32(at[i], middle, 4) : _mm512_i64gather_epi64(at[i], middle, 8);
            unsigned mask = v_before(bits, kind, right, element, value[i], nan[i]);
            at[i] = bits == 32
                        ? _mm512_mask_add_epi32(at[i], (__mmask16)mask, at[i], _mm512_set1_epi32((int)more))
                        : _mm512_mask_add_epi64(at[i], (__mmask8)mask, at[i], _mm512_set1_epi64((long long)more));
        }
    }
    CPU_PRAGMA(GCC unroll 4)
    for (int i = 0; i < vectors; i++) {
        CPU_PRAGMA(GCC unroll 2)
        for (int j = 0; j < 64 / bits; j++) {
            __m512i wide = bits == 64 ? at[i]
                           : j == 0   ? _mm512_cvtepi32_epi64(_mm512_castsi512_si256(at[i]))
                                      : _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(at[i], 1));
            int64_t first = i * lanes + j * 8, left = count - first;
            unsigned mask = left < 8 ? left > 0 ? (1U << left) - 1 : 0 : 0xff;
            _mm512_mask_storeu_epi64(out + first, (__mmask8)mask, wide);
        }
    }
}

INLINE void vectors(int bits, enum key_kind kind, bool right, const struct cpu_search *search, const char *values,
                    int64_t count, int64_t *out) {
    const int64_t lanes = 512 / bits;
    int64_t i = 0;
    for (; i + VECTORS * lanes <= count; i += VECTORS * lanes) {
        steps(bits, kind, right, VECTORS, search, values + i * (bits / 8), VECTORS * lanes, out + i);
    }
    for (; i < count; i += lanes) {
        steps(bits, kind, right, 1, search, values + i * (bits / 8), count - i < lanes ? count - i : lanes, out + i);
    }
}

#define SEARCH(name, bits, kind)                                                                                       \
    static void search_##name(const struct cpu_search *search, const void *values, int64_t count, int64_t *out) {      \
        if (search->n > INT32_MAX) {                                                                                   \
            keys_##name(search, values, count, out);                                                                   \
        } else if (search->right) {                                                                                    \
            vectors(bits, kind, true, search, values, count, out);                                                     \
        } else {                                                                                                       \
            vectors(bits, kind, false, search, values, count, out);                                                    \
        }                                                                                                              \
    }
SEARCH(u32, 32, KEY_UNSIGNED)
SEARCH(s32, 32, KEY_SIGNED)
SEARCH(f32, 32, KEY_FLOAT)
SEARCH(u64, 64, KEY_UNSIGNED)
SEARCH(s64, 64, KEY_SIGNED)
SEARCH(f64, 64, KEY_FLOAT)
#undef SEARCH
#define WIDE(name) search_##name
#else
#define WIDE(name) keys_##name
#endif

cpu_search_function *const CPU_NAME(search)[KEY_PLACES] = {
    keys_u8,   keys_s8,   keys_f8,   keys_u16,  keys_s16,  keys_f16,
    WIDE(u32), WIDE(s32), WIDE(f32), WIDE(u64), WIDE(s64), WIDE(f64),
};
