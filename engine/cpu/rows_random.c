/* Random numbers: several blocks of the generator at a time, through buffers. engine/device/philox.h defines every number. */
#include <math.h>

#include "engine/cpu/vector_math.h"
#include "engine/device/philox.h"

enum {
    RANDOM_BLOCKS = CPU_BLOCK / 4,   /* of the generator, computed together */
    RANDOM_WIDE = RANDOM_BLOCKS * 2, /* f64 numbers of so many blocks */
};

struct lanes {
    uint32_t lane[4][RANDOM_BLOCKS];
};

static void generate(uint64_t seed, uint64_t block, struct lanes *lanes) {
    CPU_LOOP
    for (int i = 0; i < RANDOM_BLOCKS; i++) {
        philox_block(seed, block + (uint64_t)i, &lanes->lane[0][i], &lanes->lane[1][i], &lanes->lane[2][i],
                     &lanes->lane[3][i]);
    }
}

/* ---- the numbers of RANDOM_BLOCKS blocks ---- */

/* A number between two values of the dtype stays between them when it is rounded. */
static inline double bounded(double u, const struct cpu_random *random) {
    double value = random->first + u * (random->second - random->first);
    value = value < random->least ? random->least : value;
    return value > random->last ? random->last : value;
}

/* For f16 and bf16 the float is rounded to odd, so that the second rounding, to f16 or bf16, is right. */
static inline float narrowed(double value, bool half) {
    return half ? formula_odd(value) : (float)value;
}

static inline void uniform_numbers(const struct lanes *lanes, const struct cpu_random *random, bool half, float *out) {
    float column[RANDOM_BLOCKS];
    for (int k = 0; k < 4; k++) {
        CPU_LOOP
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            column[i] = narrowed(bounded((double)philox_unit_float(lanes->lane[k][i]), random), half);
        }
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            out[4 * i + k] = column[i];
        }
    }
}

static void uniform_wide_numbers(const struct lanes *lanes, const struct cpu_random *random, double *out) {
    for (int i = 0; i < RANDOM_BLOCKS; i++) {
        out[2 * i] = bounded(philox_unit_double(lanes->lane[0][i], lanes->lane[1][i]), random);
        out[2 * i + 1] = bounded(philox_unit_double(lanes->lane[2][i], lanes->lane[3][i]), random);
    }
}

static inline void normal_numbers(const struct lanes *lanes, const struct cpu_random *random, bool half, float *out) {
    const double mean = random->first, deviation = random->second;
    float even[RANDOM_BLOCKS], odd[RANDOM_BLOCKS];
    for (int pair = 0; pair < 2; pair++) {
        CPU_LOOP
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            float u = philox_unit_float(lanes->lane[2 * pair][i]),
                  angle = philox_unit_float(lanes->lane[2 * pair + 1][i]);
            float r = __builtin_sqrtf(-2.0f * vector_log(1.0f - u)), cosine, sine;
            vector_cosine_sine(angle, &cosine, &sine);
            even[i] = narrowed(mean + deviation * (double)(r * cosine), half);
            odd[i] = narrowed(mean + deviation * (double)(r * sine), half);
        }
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            out[4 * i + 2 * pair] = even[i];
            out[4 * i + 2 * pair + 1] = odd[i];
        }
    }
}

static void normal_wide_numbers(const struct lanes *lanes, const struct cpu_random *random, double *out) {
    const double mean = random->first, deviation = random->second;
    for (int i = 0; i < RANDOM_BLOCKS; i++) {
        double u = philox_unit_double(lanes->lane[0][i], lanes->lane[1][i]);
        double angle = philox_unit_double(lanes->lane[2][i], lanes->lane[3][i]) * 6.283185307179586;
        double r = sqrt(-2 * log1p(-u));
        out[2 * i] = mean + deviation * (r * cos(angle));
        out[2 * i + 1] = mean + deviation * (r * sin(angle));
    }
}

static inline void exponential_numbers(const struct lanes *lanes, const struct cpu_random *random, bool half,
                                       float *out) {
    float column[RANDOM_BLOCKS];
    for (int k = 0; k < 4; k++) {
        CPU_LOOP
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            float u = philox_unit_float(lanes->lane[k][i]);
            column[i] = narrowed((0 - (double)vector_log(1.0f - u)) * random->first, half); /* not -0 */
        }
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            out[4 * i + k] = column[i];
        }
    }
}

static void exponential_wide_numbers(const struct lanes *lanes, const struct cpu_random *random, double *out) {
    double column[RANDOM_BLOCKS];
    for (int k = 0; k < 2; k++) {
        CPU_LOOP
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            column[i] = -double_log1p(-philox_unit_double(lanes->lane[2 * k][i], lanes->lane[2 * k + 1][i]));
        }
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            out[2 * i + k] = column[i] * random->first;
        }
    }
}

/* The product of a random word and the range, without its lower 64 bits. */
static inline uint64_t randint_number(uint32_t high, uint32_t low, const struct cpu_random *random) {
    unsigned __int128 product = (unsigned __int128)((uint64_t)high << 32 | low) * random->range;
    return (uint64_t)random->low + (uint64_t)(product >> 64);
}

static inline void randint_numbers(const struct lanes *lanes, const struct cpu_random *random, uint64_t *out) {
    for (int i = 0; i < RANDOM_BLOCKS; i++) {
        out[2 * i] = randint_number(lanes->lane[0][i], lanes->lane[1][i], random);
        out[2 * i + 1] = randint_number(lanes->lane[2][i], lanes->lane[3][i], random);
    }
}

/* Whether each lane is below the threshold. */
static inline void chosen_numbers(const struct lanes *lanes, const struct cpu_random *random, uint8_t *out) {
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            out[4 * i + k] = lanes->lane[k][i] < random->threshold;
        }
    }
}

/* The lanes one after another. */
static inline void lane_numbers(const struct lanes *lanes, uint32_t *out) {
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < RANDOM_BLOCKS; i++) {
            out[4 * i + k] = lanes->lane[k][i];
        }
    }
}

/* ---- elements begin … end - 1 ---- */

/* Chunks are aligned to whole blocks of the generator. Only a part of the first and of the last chunk may be needed. */
#define RANDOM_FUNCTION(name, E, T, count, compute, store)                                                             \
    static void name(const struct cpu_random *random, int64_t begin, int64_t end, void *out) {                         \
        struct lanes lanes;                                                                                            \
        T buffer[count];                                                                                               \
        for (int64_t chunk = begin / count; chunk * count < end; chunk++) {                                            \
            int64_t from = chunk * count, skip = from < begin ? begin - from : 0;                                      \
            int64_t n = end - from < count ? end - from : count;                                                       \
            generate(random->seed, random->offset + (uint64_t)chunk * RANDOM_BLOCKS, &lanes);                          \
            compute;                                                                                                   \
            store(n - skip, buffer + skip, (E *)out + from + skip);                                                    \
        }                                                                                                              \
    }
#define STORE_PLAIN(n, from, to) memcpy(to, from, (size_t)(n) * sizeof *(from))
#define STORE_F16(n, from, to) half_store_f16(n, from, to, 1)
#define STORE_BF16(n, from, to) half_store_bf16(n, from, to, 1)
#define UNIFORM(half) uniform_numbers(&lanes, random, half, buffer)
#define NORMAL(half) normal_numbers(&lanes, random, half, buffer)

RANDOM_FUNCTION(uniform_f16, uint16_t, float, CPU_BLOCK, UNIFORM(true), STORE_F16)
RANDOM_FUNCTION(uniform_bf16, uint16_t, float, CPU_BLOCK, UNIFORM(true), STORE_BF16)
RANDOM_FUNCTION(uniform_f32, float, float, CPU_BLOCK, UNIFORM(false), STORE_PLAIN)
RANDOM_FUNCTION(uniform_f64, double, double, RANDOM_WIDE, uniform_wide_numbers(&lanes, random, buffer), STORE_PLAIN)
RANDOM_FUNCTION(normal_f16, uint16_t, float, CPU_BLOCK, NORMAL(true), STORE_F16)
RANDOM_FUNCTION(normal_bf16, uint16_t, float, CPU_BLOCK, NORMAL(true), STORE_BF16)
RANDOM_FUNCTION(normal_f32, float, float, CPU_BLOCK, NORMAL(false), STORE_PLAIN)
RANDOM_FUNCTION(normal_f64, double, double, RANDOM_WIDE, normal_wide_numbers(&lanes, random, buffer), STORE_PLAIN)

#define EXPONENTIAL(half) exponential_numbers(&lanes, random, half, buffer)
RANDOM_FUNCTION(exponential_f16, uint16_t, float, CPU_BLOCK, EXPONENTIAL(true), STORE_F16)
RANDOM_FUNCTION(exponential_bf16, uint16_t, float, CPU_BLOCK, EXPONENTIAL(true), STORE_BF16)
RANDOM_FUNCTION(exponential_f32, float, float, CPU_BLOCK, EXPONENTIAL(false), STORE_PLAIN)
RANDOM_FUNCTION(exponential_f64, double, double, RANDOM_WIDE, exponential_wide_numbers(&lanes, random, buffer),
                STORE_PLAIN)

#define INTEGER_RANDOM(NAME, name, T, U, minimum, maximum)                                                             \
    static inline void store_##name(int64_t n, const uint64_t *from, T *to) {                                          \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            to[i] = (T)from[i];                                                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    RANDOM_FUNCTION(randint_##name, T, uint64_t, RANDOM_WIDE, randint_numbers(&lanes, random, buffer), store_##name)   \
    static void permutation_##name(const struct cpu_random *random, int64_t begin, int64_t end, void *out) {           \
        uint64_t buffer[CPU_BLOCK];                                                                                    \
        for (int64_t i = begin; i < end; i += CPU_BLOCK) {                                                             \
            int64_t n = end - i < CPU_BLOCK ? end - i : CPU_BLOCK;                                                     \
            permuted_numbers(random->permutation, (uint64_t)i, n, buffer);                                             \
            store_##name(n, buffer, (T *)out + i);                                                                     \
        }                                                                                                              \
    }

/* The cipher is applied to all numbers of a block at once, and then again to those that it has led out of range. */
static __attribute__((noinline)) void permuted_numbers(const struct philox_permutation *permutation, uint64_t first,
                                                       int64_t n, uint64_t *out) {
    const struct philox_permutation own = *permutation;
    CPU_LOOP
    for (int64_t i = 0; i < n; i++) {
        out[i] = philox_cipher(&own, first + (uint64_t)i);
    }
    for (int64_t i = 0; i < n; i++) {
        if (out[i] >= own.n) {
            out[i] = philox_permuted(&own, out[i]);
        }
    }
}
CPU_INTEGERS(INTEGER_RANDOM)

/* By size: `one` has the bits of 1. */
#define BERNOULLI(name, E, one)                                                                                        \
    static inline void store_chosen_##name(int64_t n, const uint8_t *from, E *to) {                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            to[i] = from[i] ? (E)(one) : (E)0;                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    RANDOM_FUNCTION(bernoulli_##name, E, uint8_t, CPU_BLOCK, chosen_numbers(&lanes, random, buffer),                   \
                    store_chosen_##name)
BERNOULLI(1, uint8_t, 1)
BERNOULLI(2, uint16_t, 1)
BERNOULLI(4, uint32_t, 1)
BERNOULLI(8, uint64_t, 1)
BERNOULLI(f16, uint16_t, 0x3c00)
BERNOULLI(bf16, uint16_t, 0x3f80)
BERNOULLI(f32, float, 1)
BERNOULLI(f64, double, 1)

/* ---- for each element of an input ---- */

/* E is the element's type, C the one in which it is computed; `lane` is the element's. */
#define DRAWN(name, E, C, LOAD, STORE, result)                                                                         \
    static void name(const struct cpu_random *random, int64_t begin, int64_t end, void *out) {                         \
        struct lanes lanes;                                                                                            \
        uint32_t numbers[CPU_BLOCK];                                                                                   \
        C elements[CPU_BLOCK];                                                                                         \
        const C scale = (C)random->first;                                                                              \
        const uint64_t threshold = random->threshold;                                                                  \
        (void)scale, (void)threshold;                                                                                  \
        for (int64_t chunk = begin / CPU_BLOCK; chunk * CPU_BLOCK < end; chunk++) {                                    \
            int64_t from = chunk * CPU_BLOCK, skip = from < begin ? begin - from : 0;                                  \
            int64_t n = end - from < CPU_BLOCK ? end - from : CPU_BLOCK;                                               \
            generate(random->seed, random->offset + (uint64_t)chunk * RANDOM_BLOCKS, &lanes);                          \
            lane_numbers(&lanes, numbers);                                                                             \
            LOAD(n - skip, (const E *)random->x + from + skip, elements + skip);                                       \
            for (int64_t i = skip; i < n; i++) {                                                                       \
                const C x = elements[i];                                                                               \
                const uint32_t lane = numbers[i];                                                                      \
                elements[i] = result;                                                                                  \
            }                                                                                                          \
            STORE(n - skip, elements + skip, (E *)out + from + skip);                                                  \
        }                                                                                                              \
    }
#define LOAD_PLAIN(n, from, to) memcpy(to, from, (size_t)(n) * sizeof *(from))
#define LOAD_F16(n, from, to) half_load_f16(n, from, 1, to)
#define LOAD_BF16(n, from, to) half_load_bf16(n, from, 1, to)
#define DRAWN_FLOATS(name, result)                                                                                     \
    DRAWN(name##_f16, uint16_t, float, LOAD_F16, STORE_F16, result)                                                    \
    DRAWN(name##_bf16, uint16_t, float, LOAD_BF16, STORE_BF16, result)                                                 \
    DRAWN(name##_f32, float, float, LOAD_PLAIN, STORE_PLAIN, result)                                                   \
    DRAWN(name##_f64, double, double, LOAD_PLAIN, STORE_PLAIN, result)
DRAWN_FLOATS(dropout, lane < threshold ? 0 : x * scale)
DRAWN_FLOATS(bernoulli_like, (double)lane < (double)x * 4294967296.0 ? 1 : 0)

/* clang-format off */
#define FLOATS(name)                                                                                                   \
    [DTYPE_F16] = name##_f16, [DTYPE_BF16] = name##_bf16, [DTYPE_F32] = name##_f32, [DTYPE_F64] = name##_f64
#define INTEGER_ENTRY(NAME, name, T, U, minimum, maximum) [DTYPE_##NAME] = INTEGER_OF(name),

cpu_random_function *const CPU_NAME(random)[CPU_RANDOM_COUNT][DTYPE_COUNT] = {
    [CPU_RANDOM_UNIFORM] = {FLOATS(uniform)},
    [CPU_RANDOM_NORMAL] = {FLOATS(normal)},
    [CPU_RANDOM_EXPONENTIAL] = {FLOATS(exponential)},
#define INTEGER_OF(name) randint_##name
    [CPU_RANDOM_RANDINT] = {CPU_INTEGERS(INTEGER_ENTRY)},
#undef INTEGER_OF
#define INTEGER_OF(name) permutation_##name
    [CPU_RANDOM_PERMUTATION] = {CPU_INTEGERS(INTEGER_ENTRY)},
    [CPU_RANDOM_BERNOULLI] = {[DTYPE_BOOL] = bernoulli_1, [DTYPE_U8] = bernoulli_1, [DTYPE_I8] = bernoulli_1,
                              [DTYPE_I16] = bernoulli_2, [DTYPE_I32] = bernoulli_4, [DTYPE_I64] = bernoulli_8,
                              [DTYPE_U16] = bernoulli_2, [DTYPE_U32] = bernoulli_4, [DTYPE_U64] = bernoulli_8,
                              FLOATS(bernoulli)},
    [CPU_RANDOM_DROPOUT] = {FLOATS(dropout)},
    [CPU_RANDOM_BERNOULLI_LIKE] = {FLOATS(bernoulli_like)},
};
/* clang-format on */
