/* The greatest elements of a row: which elements are better than the worst one that is kept. Most are not, so they are looked at a block at
 * a time. */
#include "engine/cpu/key.h"
#include "engine/cpu/lanes.h"
#include "engine/cpu/sort.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

enum { LOOK = 64 }; /* elements of a block */

#define FIND(name, T, kind)                                                                                            \
    static int64_t find_##name(uint64_t all_infinity, uint64_t all_flip, const void *x, int64_t n, uint64_t limit) {   \
        const T *from = x, infinity = (T)all_infinity, flip = (T)all_flip, least = (T)limit;                           \
        int64_t i = 0;                                                                                                 \
        (void)infinity;                                                                                                \
        for (; i + LOOK <= n; i += LOOK) {                                                                             \
            T any = 0;                                                                                                 \
            CPU_PRAGMA(omp simd reduction(| : any))                                                                    \
            for (int64_t j = i; j < i + LOOK; j++) {                                                                   \
                any |= (T)((T)(KEY(T, kind, from[j], infinity) ^ flip) < least);                                       \
            }                                                                                                          \
            if (any) {                                                                                                 \
                break;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        while (i < n && (T)(KEY(T, kind, from[i], infinity) ^ flip) >= least) {                                        \
            i++;                                                                                                       \
        }                                                                                                              \
        return i;                                                                                                      \
    }
KEY_TYPES(FIND)
#undef FIND

cpu_find_function *const CPU_NAME(find)[KEY_PLACES] = {
#define FIND(name, T, kind) find_##name,
    KEY_TYPES(FIND)
#undef FIND
};

#if defined(__AVX512F__)
static int64_t select_below(const uint64_t *keys, int64_t n, uint64_t limit, uint64_t *out) {
    const __m512i limits = _mm512_set1_epi64((long long)limit);
    uint64_t *to = out;
    for (int64_t i = 0; i < n; i += 8) {
        __mmask8 all = (__mmask8)(n - i < 8 ? (1 << (n - i)) - 1 : 0xff);
        __m512i v = _mm512_maskz_loadu_epi64(all, keys + i);
        __mmask8 mask = _mm512_mask_cmplt_epu64_mask(all, v, limits);
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi64(mask, v));
        to += __builtin_popcount(mask);
    }
    return to - out;
}

static int64_t select_pairs(const uint64_t *keys, int64_t n, uint64_t limit, int64_t position, uint64_t *out,
                            int64_t *positions) {
    const __m512i limits = _mm512_set1_epi64((long long)limit), step = _mm512_set1_epi64(8);
    __m512i at = _mm512_add_epi64(_mm512_set1_epi64(position), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    int64_t count = 0;
    for (int64_t i = 0; i < n; i += 8, at = _mm512_add_epi64(at, step)) {
        __mmask8 all = (__mmask8)(n - i < 8 ? (1 << (n - i)) - 1 : 0xff);
        __m512i v = _mm512_maskz_loadu_epi64(all, keys + i);
        __mmask8 mask = _mm512_mask_cmplt_epu64_mask(all, v, limits);
        _mm512_storeu_si512(out + count, _mm512_maskz_compress_epi64(mask, v));
        _mm512_storeu_si512(positions + count, _mm512_maskz_compress_epi64(mask, at));
        count += __builtin_popcount(mask);
    }
    return count;
}
const struct cpu_select CPU_NAME(select) = {select_below, select_pairs};
#else
const struct cpu_select CPU_NAME(select) = {NULL, NULL};
#endif
