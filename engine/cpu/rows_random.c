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

cpu_random_function *CPU_NAME(random)[OP_PLACES_CREATE][DTYPE_COUNT] = {
    [OP_PLACE_UNIFORM] =
        {[DTYPE_F16] = uniform_f16, [DTYPE_BF16] = uniform_bf16, [DTYPE_F32] = uniform_f32, [DTYPE_F64] = uniform_f64},
    [OP_PLACE_NORMAL] =
        {[DTYPE_F16] = normal_f16, [DTYPE_BF16] = normal_bf16, [DTYPE_F32] = normal_f32, [DTYPE_F64] = normal_f64},
};
