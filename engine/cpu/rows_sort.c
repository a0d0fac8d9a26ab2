/* Sorting with vectors, on the level that has what it takes: AVX-512's compressing stores. Elsewhere there are no such functions.
 *
 * Up to 16 vectors of keys are sorted in registers by a network. More keys are first divided by a pivot, those below it and the others, as
 * often as needed (quicksort). A pivot is the middle one of a few keys. Where that divides badly too often, pivots come from the middle of
 * the range of values: so no order of the input takes more than some number of passes. Many keys of few values are counted instead. */
#include "engine/cpu/key.h"
#include "engine/cpu/lanes.h"
#include "engine/cpu/sort.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL CPU_PRAGMA(GCC unroll 16)

enum {
    VECTORS = 16,     /* sorted by a network, at most */
    BLOCK = 4,        /* vectors that are divided at a time */
    SAMPLE = 1 << 13, /* of more keys, more are looked at to choose a pivot */
    BAD_MOST = 4,     /* pivots from samples that divide badly, on the way to a few keys */
    STACK = 64,
    COUNTED = 1 << 12,   /* values that are counted, at most */
    COUNTED_KEYS = 16,   /* keys for each of them, at least: writing those of one value takes some time */
    COUNTED_LEAST = 512, /* keys of which it is tried */
    COUNTED_LOOK = 16,   /* keys that are looked at first */
};

/* `bits`, of a key, is a constant wherever these functions are called: each is compiled for 32 and for 64. */
INLINE int lanes_of(int bits) {
    return 512 / bits;
}

INLINE __m512i v_min(int bits, __m512i a, __m512i b) {
    return bits == 32 ? _mm512_min_epu32(a, b) : _mm512_min_epu64(a, b);
}

INLINE __m512i v_max(int bits, __m512i a, __m512i b) {
    return bits == 32 ? _mm512_max_epu32(a, b) : _mm512_max_epu64(a, b);
}

/* The lesser of two keys in lanes outside the mask, the greater one in those in it. */
INLINE __m512i v_choose(int bits, unsigned mask, __m512i a, __m512i b) {
    return bits == 32 ? _mm512_mask_max_epu32(_mm512_min_epu32(a, b), (__mmask16)mask, a, b)
                      : _mm512_mask_max_epu64(_mm512_min_epu64(a, b), (__mmask8)mask, a, b);
}

INLINE unsigned v_below(int bits, __m512i a, __m512i b) {
    return bits == 32 ? _mm512_cmplt_epu32_mask(a, b) : _mm512_cmplt_epu64_mask(a, b);
}

INLINE __m512i v_all(int bits, uint64_t key) {
    return bits == 32 ? _mm512_set1_epi32((int)key) : _mm512_set1_epi64((long long)key);
}

INLINE const char *at(int bits, const void *keys, int64_t i) {
    return (const char *)keys + i * (bits / 8);
}

INLINE char *place(int bits, void *keys, int64_t i) {
    return (char *)keys + i * (bits / 8);
}

INLINE uint64_t key_at(int bits, const void *keys, int64_t i) {
    return bits == 32 ? ((const uint32_t *)keys)[i] : ((const uint64_t *)keys)[i];
}

INLINE unsigned first_lanes(int64_t n) {
    return (1U << n) - 1;
}

/* The first n keys, with the greatest of all keys behind them. */
INLINE __m512i v_load_part(int bits, const void *keys, int64_t n) {
    __m512i last = _mm512_set1_epi32(-1);
    return bits == 32 ? _mm512_mask_loadu_epi32(last, (__mmask16)first_lanes(n), keys)
                      : _mm512_mask_loadu_epi64(last, (__mmask8)first_lanes(n), keys);
}

INLINE void v_store_part(int bits, void *keys, int64_t n, __m512i v) {
    if (bits == 32) {
        _mm512_mask_storeu_epi32(keys, (__mmask16)first_lanes(n), v);
    } else {
        _mm512_mask_storeu_epi64(keys, (__mmask8)first_lanes(n), v);
    }
}

INLINE __m512i v_compress(int bits, unsigned mask, __m512i v) {
    return bits == 32 ? _mm512_maskz_compress_epi32((__mmask16)mask, v)
                      : _mm512_maskz_compress_epi64((__mmask8)mask, v);
}

/* Lane i is v's lane i ^ x. */
INLINE __m512i v_xor(int bits, int x, __m512i v) {
    if (bits == 32) {
        const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        return x == 1   ? _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0xb1)
               : x == 2 ? _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4e)
               : x == 3 ? _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x1b)
                        : _mm512_permutexvar_epi32(_mm512_xor_si512(lanes, _mm512_set1_epi32(x)), v);
    }
    const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    return x == 1 ? _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4e)
                  : _mm512_permutexvar_epi64(_mm512_xor_si512(lanes, _mm512_set1_epi64(x)), v);
}

/* The first halves of a and b, or the second ones, lane by lane in turn. */
INLINE __m512i v_interleave(int bits, bool second, __m512i a, __m512i b) {
    if (bits == 32) {
        const __m512i lanes = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        return _mm512_permutex2var_epi32(a, _mm512_add_epi32(lanes, _mm512_set1_epi32(second ? 8 : 0)), b);
    }
    const __m512i lanes = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    return _mm512_permutex2var_epi64(a, _mm512_add_epi64(lanes, _mm512_set1_epi64(second ? 4 : 0)), b);
}

/* ---- a network for some vectors ---- */

INLINE void v_exchange(int bits, __m512i *v, int a, int b) {
    __m512i least = v_min(bits, v[a], v[b]);
    v[b] = v_max(bits, v[a], v[b]);
    v[a] = least;
}

/* Pairs of vectors to exchange, one after another, that put 4, 8 or 16 in order. */
static const uint8_t network_4[][2] = {{0, 2}, {1, 3}, {0, 1}, {2, 3}, {1, 2}};
static const uint8_t network_8[][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {1, 2}, {5, 6},
                                       {0, 4}, {1, 5}, {2, 6}, {3, 7}, {2, 4}, {3, 5}, {1, 2}, {3, 4}, {5, 6}};
static const uint8_t network_16[][2] = {
    {0, 13},  {1, 12}, {2, 15},  {3, 14},  {4, 8},   {5, 6}, {7, 11},  {9, 10},  {0, 5},   {1, 7},   {2, 9},   {3, 4},
    {6, 13},  {8, 14}, {10, 15}, {11, 12}, {0, 1},   {2, 3}, {4, 5},   {6, 8},   {7, 9},   {10, 11}, {12, 13}, {14, 15},
    {0, 2},   {1, 3},  {4, 10},  {5, 11},  {6, 7},   {8, 9}, {12, 14}, {13, 15}, {1, 2},   {3, 12},  {4, 6},   {5, 7},
    {8, 10},  {9, 11}, {13, 14}, {1, 4},   {2, 6},   {5, 8}, {7, 10},  {9, 13},  {11, 14}, {2, 4},   {3, 6},   {9, 12},
    {11, 13}, {3, 5},  {6, 8},   {7, 9},   {10, 12}, {3, 4}, {5, 6},   {7, 8},   {9, 10},  {11, 12}, {6, 7},   {8, 9}};

INLINE void lanes_exchange(int bits, const uint8_t (*network)[2], int n, __m512i *v) {
    CPU_PRAGMA(GCC unroll 64)
    for (int i = 0; i < n; i++) {
        v_exchange(bits, v, network[i][0], network[i][1]);
    }
}

/* Puts each lane in order, from the first vector to the last one. */
INLINE void lanes_sort(int bits, int vectors, __m512i *v) {
    if (vectors == 2) {
        v_exchange(bits, v, 0, 1);
    } else if (vectors == 4) {
        lanes_exchange(bits, network_4, sizeof network_4 / sizeof *network_4, v);
    } else if (vectors == 8) {
        lanes_exchange(bits, network_8, sizeof network_8 / sizeof *network_8, v);
    } else if (vectors == 16) {
        lanes_exchange(bits, network_16, sizeof network_16 / sizeof *network_16, v);
    }
}

/* Merges groups of `width` lanes, each of which is in order lane by lane, in pairs. The first step compares keys of the first group with
 * those of the other one in reverse, and further ones those within a group that are half of it apart, and so on. */
INLINE void lanes_merge(int bits, int vectors, int width, __m512i *v) {
    unsigned upper[] = {0xaaaa, 0xcccc, 0xf0f0, 0xff00};
    UNROLL
    for (int i = 0; i < (vectors + 1) / 2; i++) {
        int j = vectors - 1 - i;
        __m512i other = v_xor(bits, 2 * width - 1, v[j]), own = v_xor(bits, 2 * width - 1, v[i]);
        unsigned mask = upper[__builtin_ctz((unsigned)width)];
        v[i] = v_choose(bits, mask, v[i], other);
        if (i != j) {
            v[j] = v_choose(bits, mask, v[j], own);
        }
    }
    UNROLL
    for (int k = 3; k >= 0; k--) {
        if (1 << k < width) {
            UNROLL
            for (int i = 0; i < vectors; i++) {
                v[i] = v_choose(bits, upper[k], v[i], v_xor(bits, 1 << k, v[i]));
            }
        }
    }
    UNROLL
    for (int k = 3; k >= 0; k--) {
        UNROLL
        for (int i = 0; i < vectors; i++) {
            if (1 << k < vectors && !(i & 1 << k)) {
                v_exchange(bits, v, i, i + (1 << k));
            }
        }
    }
}

/* Sorts all keys of some vectors. */
INLINE void vectors_sort(int bits, int vectors, __m512i *v) {
    lanes_sort(bits, vectors, v);
    lanes_merge(bits, vectors, 1, v);
    lanes_merge(bits, vectors, 2, v);
    lanes_merge(bits, vectors, 4, v);
    if (bits == 32) {
        lanes_merge(bits, vectors, 8, v);
    }
    /* Now lane after lane is in order: it is to be vector after vector. */
    UNROLL
    for (int k = 1; k < VECTORS; k *= 2) {
        __m512i from[VECTORS];
        if (k < vectors) {
            UNROLL
            for (int i = 0; i < vectors; i++) {
                from[i] = v[i];
            }
            UNROLL
            for (int i = 0; i < vectors / 2; i++) {
                v[2 * i] = v_interleave(bits, false, from[i], from[i + vectors / 2]);
                v[2 * i + 1] = v_interleave(bits, true, from[i], from[i + vectors / 2]);
            }
        }
    }
}

/* Sorts n keys, which fill more than half of so many vectors. */
INLINE void keys_sort_by(int bits, int vectors, char *keys, int64_t n) {
    __m512i v[VECTORS];
    const int lanes = lanes_of(bits);
    UNROLL
    for (int i = 0; i < vectors; i++) {
        int64_t left = n - i * lanes;
        v[i] = i < vectors / 2 || left >= lanes ? _mm512_loadu_si512(at(bits, keys, i * lanes))
                                                : v_load_part(bits, at(bits, keys, i * lanes), left > 0 ? left : 0);
    }
    vectors_sort(bits, vectors, v);
    UNROLL
    for (int i = 0; i < vectors; i++) {
        int64_t left = n - i * lanes;
        if (i < vectors / 2 || left >= lanes) {
            _mm512_storeu_si512(place(bits, keys, i * lanes), v[i]);
        } else if (left > 0) {
            v_store_part(bits, place(bits, keys, i * lanes), left, v[i]);
        }
    }
}

INLINE void keys_sort(int bits, char *keys, int64_t n) {
    const int lanes = lanes_of(bits);
    if (n <= lanes) {
        keys_sort_by(bits, 1, keys, n);
    } else if (n <= 2 * lanes) {
        keys_sort_by(bits, 2, keys, n);
    } else if (n <= 4 * lanes) {
        keys_sort_by(bits, 4, keys, n);
    } else if (n <= 8 * lanes) {
        keys_sort_by(bits, 8, keys, n);
    } else {
        keys_sort_by(bits, 16, keys, n);
    }
}

/* ---- quicksort ---- */

/* The middle one of some of n keys. */
INLINE uint64_t pivot_sampled(int bits, const void *keys, int64_t n) {
    uint64_t sample[64];
    const int lanes = lanes_of(bits), taken = n > SAMPLE ? 4 * lanes : lanes;
    int64_t step = n / taken;
    for (int i = 0; i < taken; i++) {
        if (bits == 32) {
            ((uint32_t *)sample)[i] = (uint32_t)key_at(bits, keys, step / 2 + i * step);
        } else {
            sample[i] = key_at(bits, keys, step / 2 + i * step);
        }
    }
    if (n > SAMPLE) {
        keys_sort_by(bits, 4, (char *)sample, taken);
    } else {
        keys_sort_by(bits, 1, (char *)sample, taken);
    }
    return key_at(bits, sample, taken / 2);
}

/* The middle between the least one of n keys and the greatest, or above it. */
INLINE uint64_t pivot_middle(int bits, const void *keys, int64_t n) {
    uint64_t least = UINT64_MAX, greatest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = key_at(bits, keys, i);
        least = key < least ? key : least;
        greatest = key > greatest ? key : greatest;
    }
    return least + (greatest - least) / 2 + (greatest > least);
}

/* A pivot, and whether keys that are equal to it are divided from those above it, and not from those below. */
struct pivot {
    uint64_t key;
    bool equal;
};

INLINE unsigned pivot_mask(int bits, const struct pivot *pivot, __m512i keys) {
    __m512i pivots = v_all(bits, pivot->key);
    return pivot->equal ? ~v_below(bits, pivots, keys) : v_below(bits, keys, pivots);
}

/* Where the next keys go: those below the pivot to `low`, the others before `high`. */
struct places {
    char *low, *high;
};

/* Writes the first n keys of a vector. */
INLINE void places_write(int bits, const struct pivot *pivot, struct places *places, __m512i keys, int64_t n) {
    const unsigned mask = pivot_mask(bits, pivot, keys), all = first_lanes(n);
    const int count = __builtin_popcount(mask & all);
    v_store_part(bits, places->low, count, v_compress(bits, mask & all, keys));
    places->low = place(bits, places->low, count);
    places->high = place(bits, places->high, count - n);
    v_store_part(bits, places->high, n - count, v_compress(bits, ~mask & all, keys));
}

/* Writes BLOCK vectors. There is room for as many at `low`. */
INLINE void places_write_block(int bits, const struct pivot *pivot, struct places *places, const char *keys) {
    const int lanes = lanes_of(bits);
    __m512i v[BLOCK];
    UNROLL
    for (int i = 0; i < BLOCK; i++) {
        v[i] = _mm512_loadu_si512(at(bits, keys, i * lanes));
    }
    UNROLL
    for (int i = 0; i < BLOCK; i++) {
        const unsigned mask = pivot_mask(bits, pivot, v[i]) & first_lanes(lanes);
        const int count = __builtin_popcount(mask);
        _mm512_storeu_si512(places->low, v_compress(bits, mask, v[i]));
        places->low = place(bits, places->low, count);
        places->high = place(bits, places->high, count - lanes);
        v_store_part(bits, places->high, lanes - count, v_compress(bits, mask ^ first_lanes(lanes), v[i]));
    }
}

/* Moves keys below the pivot before the others, and counts them. Blocks at both ends wait in a buffer while those between them are moved;
 * the next one is taken from the end that has less room, so there is always room for a block at either end. */
INLINE int64_t keys_divide(int bits, const struct pivot *pivot, char *keys, int64_t n) {
    const int lanes = lanes_of(bits), block = BLOCK * lanes;
    _Alignas(64) char waiting[3 * BLOCK * 64];
    int64_t ends = n < 2 * block ? n : 2 * block + n % block, front = ends < n ? block : ends;
    char *left = place(bits, keys, front), *right = place(bits, keys, n - (ends - front));
    struct places places = {keys, place(bits, keys, n)};
    memcpy(waiting, keys, (size_t)front * (size_t)(bits / 8));
    memcpy(place(bits, waiting, front), right, (size_t)(ends - front) * (size_t)(bits / 8));
    while (left < right) {
        bool from_left = left - places.low <= places.high - right;
        right -= from_left ? 0 : BLOCK * 64;
        const char *from = from_left ? left : right;
        left += from_left ? BLOCK * 64 : 0;
        places_write_block(bits, pivot, &places, from);
    }
    for (int64_t i = 0; i < ends; i += lanes) {
        int64_t taken = ends - i < lanes ? ends - i : lanes;
        places_write(bits, pivot, &places, v_load_part(bits, at(bits, waiting, i), taken), taken);
    }
    return (places.low - keys) / (bits / 8);
}

INLINE void quicksort(int bits, void *keys, int64_t n) {
    struct {
        int64_t begin, n;
        int bad;
    } stack[STACK]; /* the greater half waits here: each is less than half of the one below it */
    int depth = 0, bad = 0;
    int64_t begin = 0;
    for (;;) {
        char *here = place(bits, keys, begin);
        int64_t left = 0; /* keys that are not in their places */
        if (n <= VECTORS * lanes_of(bits)) {
            keys_sort(bits, here, n);
        } else {
            struct pivot pivot = {bad < BAD_MOST ? pivot_sampled(bits, here, n) : pivot_middle(bits, here, n), false};
            int64_t low = keys_divide(bits, &pivot, here, n), lesser = low < n - low ? low : n - low;
            bad += lesser < n / 8;
            if (lesser > 0) {
                bool low_waits = lesser < low;
                stack[depth].bad = bad;
                stack[depth].begin = low_waits ? begin : begin + low;
                stack[depth++].n = n - lesser;
                begin += low_waits ? low : 0;
                n = lesser;
                continue;
            }
            /* The pivot is the least key: those that are equal to it are in their places before the others. */
            pivot.equal = true;
            low = keys_divide(bits, &pivot, here, n);
            begin += low;
            left = n - low;
        }
        if (left == 0) {
            if (depth == 0) {
                return;
            }
            depth--;
            begin = stack[depth].begin;
            left = stack[depth].n;
            bad = stack[depth].bad;
        }
        n = left;
    }
}

/* ---- two runs in order ---- */

/* How many of the first `count` keys of both are a's; of equal keys a's come first. */
INLINE int64_t merge_split(int bits, const void *a, int64_t n_a, const void *b, int64_t n_b, int64_t count) {
    int64_t least = count > n_b ? count - n_b : 0, most = count < n_a ? count : n_a;
    while (least < most) {
        int64_t middle = least + (most - least) / 2;
        if (key_at(bits, a, middle) <= key_at(bits, b, count - middle - 1)) {
            least = middle + 1;
        } else {
            most = middle;
        }
    }
    return least;
}

/* Two vectors in order become one run in order, of twice the length. */
INLINE void v_merge(int bits, __m512i *first, __m512i *second) {
    const int lanes = lanes_of(bits);
    unsigned upper[] = {0xaaaa, 0xcccc, 0xf0f0, 0xff00};
    __m512i reverse = v_xor(bits, lanes - 1, *second);
    __m512i v[2] = {v_min(bits, *first, reverse), v_max(bits, *first, reverse)};
    UNROLL
    for (int k = 3; k >= 0; k--) {
        if (1 << k < lanes) {
            v[0] = v_choose(bits, upper[k], v[0], v_xor(bits, 1 << k, v[0]));
            v[1] = v_choose(bits, upper[k], v[1], v_xor(bits, 1 << k, v[1]));
        }
    }
    *first = v[0];
    *second = v[1];
}

INLINE __m512i merge_load(int bits, const char *keys, int64_t n) {
    return n >= lanes_of(bits) ? _mm512_loadu_si512(keys) : v_load_part(bits, keys, n);
}

INLINE void merge(int bits, const void *all_a, int64_t n_a, const void *all_b, int64_t n_b, int64_t begin, int64_t end,
                  char *out) {
    const int64_t lanes = lanes_of(bits), n = end - begin;
    int64_t from = merge_split(bits, all_a, n_a, all_b, n_b, begin),
            to = merge_split(bits, all_a, n_a, all_b, n_b, end);
    const char *a = at(bits, all_a, from), *b = at(bits, all_b, begin - from);
    n_a = to - from;
    n_b = n - n_a;
    if (n_a == 0 || n_b == 0) {
        memcpy(out, n_a ? a : b, (size_t)n * (size_t)(bits / 8));
        return;
    }
    /* The greater half of the last two vectors is kept, and meets the vector whose first key is less. */
    __m512i kept = merge_load(bits, a, n_a), next = merge_load(bits, b, n_b);
    int64_t i = lanes, j = lanes, done = 0;
    for (;;) {
        v_merge(bits, &next, &kept);
        if (done + lanes > n || (i >= n_a && j >= n_b)) {
            break;
        }
        _mm512_storeu_si512(place(bits, out, done), next);
        done += lanes;
        if (i + lanes <= n_a && j + lanes <= n_b) {
            bool takes = key_at(bits, a, i) <= key_at(bits, b, j);
            const char *from_a = at(bits, a, i), *from_b = at(bits, b, j);
            next = _mm512_loadu_si512(takes ? from_a : from_b);
            i += takes ? lanes : 0;
            j += takes ? 0 : lanes;
        } else if (i < n_a && (j >= n_b || key_at(bits, a, i) <= key_at(bits, b, j))) {
            next = merge_load(bits, at(bits, a, i), n_a - i);
            i += lanes;
        } else {
            next = merge_load(bits, at(bits, b, j), n_b - j);
            j += lanes;
        }
    }
    int64_t left = n - done;
    v_store_part(bits, place(bits, out, done), left < lanes ? left : lanes, next);
    if (left > lanes) {
        v_store_part(bits, place(bits, out, done + lanes), left - lanes, kept);
    }
}

/* ---- counting ---- */

INLINE void keys_fill(int bits, char *keys, int64_t n, uint64_t key) {
    const int lanes = lanes_of(bits);
    const __m512i v = v_all(bits, key);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        _mm512_storeu_si512(place(bits, keys, i), v);
    }
    v_store_part(bits, place(bits, keys, i), n - i, v);
}

/* False: the keys have too many values to be counted. Two counters of each take turns, for equal keys often follow one another. */
INLINE bool keys_count(int bits, char *keys, int64_t n) {
    uint32_t counts[2][COUNTED];
    uint64_t least = UINT64_MAX, greatest = 0;
    const int64_t values_most = n / COUNTED_KEYS < COUNTED ? n / COUNTED_KEYS : COUNTED;
    if (n < COUNTED_LEAST || n > UINT32_MAX) {
        return false;
    }
    for (int64_t i = 0, step = n / COUNTED_LOOK; i < COUNTED_LOOK; i++) {
        const uint64_t key = key_at(bits, keys, i * step);
        least = key < least ? key : least;
        greatest = key > greatest ? key : greatest;
    }
    if (greatest - least >= (uint64_t)values_most) {
        return false;
    }
    const int lanes = lanes_of(bits);
    __m512i low = v_all(bits, least), high = v_all(bits, greatest);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        const __m512i v = _mm512_loadu_si512(at(bits, keys, i));
        low = v_min(bits, low, v);
        high = v_max(bits, high, v);
    }
    for (; i < n; i++) {
        low = v_min(bits, low, v_all(bits, key_at(bits, keys, i)));
        high = v_max(bits, high, v_all(bits, key_at(bits, keys, i)));
    }
    least = bits == 32 ? _mm512_reduce_min_epu32(low) : _mm512_reduce_min_epu64(low);
    greatest = bits == 32 ? _mm512_reduce_max_epu32(high) : _mm512_reduce_max_epu64(high);
    if (greatest - least >= (uint64_t)values_most) {
        return false;
    }
    const int64_t values = (int64_t)(greatest - least) + 1;
    memset(counts[0], 0, (size_t)values * sizeof **counts);
    memset(counts[1], 0, (size_t)values * sizeof **counts);
    for (i = 0; i + 2 <= n; i += 2) {
        counts[0][key_at(bits, keys, i) - least]++;
        counts[1][key_at(bits, keys, i + 1) - least]++;
    }
    if (i < n) {
        counts[0][key_at(bits, keys, i) - least]++;
    }
    for (int64_t value = 0; value < values; value++) {
        const int64_t count = (int64_t)counts[0][value] + counts[1][value];
        keys_fill(bits, keys, count, least + (uint64_t)value);
        keys = place(bits, keys, count);
    }
    return true;
}

#define OF_BITS(bits)                                                                                                  \
    static void sort_##bits(void *keys, int64_t n) {                                                                   \
        if (!keys_count(bits, keys, n)) {                                                                              \
            quicksort(bits, keys, n);                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void merge_##bits(const void *a, int64_t n_a, const void *b, int64_t n_b, int64_t begin, int64_t end,       \
                             void *out) {                                                                              \
        merge(bits, a, n_a, b, n_b, begin, end, out);                                                                  \
    }
OF_BITS(32)
OF_BITS(64)

/* ---- keys of elements ---- */

/* ONE for each i, with `step` from the stride; the compiler makes better code where there are no gaps. */
#define STEPS(stride, ONE)                                                                                             \
    if ((stride) == 1) {                                                                                               \
        const int64_t step = 1;                                                                                        \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            ONE                                                                                                        \
        }                                                                                                              \
    } else {                                                                                                           \
        const int64_t step = (stride);                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            ONE                                                                                                        \
        }                                                                                                              \
    }

/* The bits of an element of which this is the key. */
#define BITS_OF(T, kind, key)                                                                                          \
    (T)((kind) == KEY_UNSIGNED ? (key)                                                                                 \
        : (kind) == KEY_SIGNED ? (key) ^ SIGN(T)                                                                       \
        : (key) >= SIGN(T)     ? (key)-SIGN(T)                                                                         \
                               : SIGN(T) + (T)(SIGN(T) - (key)))
#define SIGN(T) (T)((T)1 << (8 * sizeof(T) - 1))

#define VALUES(name, T, K, kind)                                                                                       \
    static bool load_##name(uint64_t all_infinity, uint64_t all_flip, const void *x, int64_t stride, int64_t position, \
                            int64_t n, void *keys) {                                                                   \
        const T *from = x, infinity = (T)all_infinity, flip = (T)all_flip;                                             \
        K *to = keys;                                                                                                  \
        T special = 0;                                                                                                 \
        (void)position, (void)infinity;                                                                                \
        if (stride == 1) {                                                                                             \
            CPU_PRAGMA(omp simd reduction(| : special))                                                                \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T bits = from[i], key = KEY(T, kind, bits, infinity);                                            \
                to[i] = (T)(key ^ flip);                                                                               \
                special |= (T)((kind) == KEY_FLOAT ? (T)(key == (T) ~(T)0) | (T)(bits == SIGN(T)) : 0);                \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T bits = from[i * stride], key = KEY(T, kind, bits, infinity);                                   \
                to[i] = (T)(key ^ flip);                                                                               \
                special |= (T)((kind) == KEY_FLOAT ? (T)(key == (T) ~(T)0) | (T)(bits == SIGN(T)) : 0);                \
            }                                                                                                          \
        }                                                                                                              \
        return special;                                                                                                \
    }                                                                                                                  \
    static void store_##name(uint64_t all_flip, const void *keys, int64_t n, void *out, int64_t stride) {              \
        const T flip = (T)all_flip;                                                                                    \
        const K *from = keys;                                                                                          \
        T *to = out;                                                                                                   \
        STEPS(stride, const T key = (T)((T)from[i] ^ flip); to[i * step] = BITS_OF(T, kind, key);)                     \
    }
/* argsort: of equal elements the one with the lower position has the lower key, so no two keys are equal. */
#define POSITIONS(name, T, kind)                                                                                       \
    static bool load_##name##_positions(uint64_t all_infinity, uint64_t all_flip, const void *x, int64_t stride,       \
                                        int64_t position, int64_t n, void *keys) {                                     \
        const T *from = x, infinity = (T)all_infinity, flip = (T)all_flip;                                             \
        uint64_t *to = keys;                                                                                           \
        (void)infinity;                                                                                                \
        STEPS(stride, const T key = (T)(KEY(T, kind, from[i * step], infinity) ^ flip);                                \
              to[i] = (uint64_t)key << 32 | (uint64_t)(position + i);)                                                 \
        return false;                                                                                                  \
    }
#define FLOATS(name, T)                                                                                                \
    static int64_t below_##name(uint64_t infinity, uint64_t flip, const void *x, int64_t stride, int64_t n,            \
                                uint64_t key) {                                                                        \
        const T *from = x, wanted = (T)((T)key ^ (T)flip);                                                             \
        int64_t least = 0, most = n;                                                                                   \
        while (least < most) {                                                                                         \
            int64_t middle = least + (most - least) / 2;                                                               \
            if ((T)(KEY(T, KEY_FLOAT, from[middle * stride], infinity) ^ (T)flip) < wanted) {                          \
                least = middle + 1;                                                                                    \
            } else {                                                                                                   \
                most = middle;                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
        return least;                                                                                                  \
    }                                                                                                                  \
    static void restore_##name(uint64_t infinity, const void *x, int64_t stride, int64_t n, void *out,                 \
                               int64_t out_stride, int64_t *zero, int64_t *nan) {                                      \
        const T *from = x;                                                                                             \
        T *to = out;                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T bits = from[i * stride], size = (T)(bits & (T)~SIGN(T));                                           \
            int64_t *at = size == 0 ? zero : size > (T)infinity ? nan : NULL;                                          \
            if (at) {                                                                                                  \
                if (to) {                                                                                              \
                    to[*at * out_stride] = bits;                                                                       \
                }                                                                                                      \
                ++*at;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }

static void store_positions(uint64_t flip, const void *keys, int64_t n, void *out, int64_t stride) {
    const uint64_t *from = keys;
    int64_t *to = out;
    (void)flip;
    STEPS(stride, to[i * step] = (int64_t)(from[i] & UINT32_MAX);)
}

/* X(name, type of the elements' bits, its bytes, type of keys, its bits, kind) */
#define NARROW(X)                                                                                                      \
    X(u16, uint16_t, 2, uint32_t, 32, UNSIGNED)                                                                        \
    X(s16, uint16_t, 2, uint32_t, 32, SIGNED)                                                                          \
    X(f16, uint16_t, 2, uint32_t, 32, FLOAT)                                                                           \
    X(u32, uint32_t, 4, uint32_t, 32, UNSIGNED)                                                                        \
    X(s32, uint32_t, 4, uint32_t, 32, SIGNED)                                                                          \
    X(f32, uint32_t, 4, uint32_t, 32, FLOAT)
#define WIDE(X)                                                                                                        \
    X(u64, uint64_t, 8, uint64_t, 64, UNSIGNED)                                                                        \
    X(s64, uint64_t, 8, uint64_t, 64, SIGNED)                                                                          \
    X(f64, uint64_t, 8, uint64_t, 64, FLOAT)

#define FUNCTIONS(name, T, bytes, K, bits, kind) VALUES(name, T, K, KEY_##kind)
NARROW(FUNCTIONS)
WIDE(FUNCTIONS)
#undef FUNCTIONS
#define FUNCTIONS(name, T, bytes, K, bits, kind) POSITIONS(name, T, KEY_##kind)
NARROW(FUNCTIONS)
#undef FUNCTIONS
FLOATS(f16, uint16_t)
FLOATS(f32, uint32_t)
FLOATS(f64, uint64_t)

#define BESIDE_UNSIGNED(name)
#define BESIDE_SIGNED(name)
#define BESIDE_FLOAT(name) below_##name, restore_##name
#define SORT(name, T, bytes, K, bits, kind)                                                                            \
    [KEY_PLACE(bytes, KEY_##kind)] = {sizeof(K),   load_##name,  store_##name,                                         \
                                      sort_##bits, merge_##bits, BESIDE_##kind(name)},
#define ARGSORT(name, T, bytes, K, bits, kind)                                                                         \
    [KEY_PLACE(bytes, KEY_##kind)] = {sizeof(uint64_t), load_##name##_positions, store_positions, sort_64, merge_64},
const struct cpu_sort CPU_NAME(sort)[KEY_PLACES] = {NARROW(SORT) WIDE(SORT)};
const struct cpu_sort CPU_NAME(argsort)[KEY_PLACES] = {NARROW(ARGSORT)};
#else
const struct cpu_sort CPU_NAME(sort)[KEY_PLACES], CPU_NAME(argsort)[KEY_PLACES];
#endif
