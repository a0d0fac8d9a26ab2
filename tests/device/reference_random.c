#include <math.h>

#include "tests/device/reference.h"

/* Philox4x32-10 after the paper: ten rounds over a counter of four words, the key bumped between them. */
static void philox_words(uint64_t seed, uint64_t block, uint32_t word[4]) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    word[0] = (uint32_t)block;
    word[1] = (uint32_t)(block >> 32);
    word[2] = word[3] = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)word[0] * 0xD2511F53, q = (uint64_t)word[2] * 0xCD9E8D57;
        uint32_t next[4] = {(uint32_t)(q >> 32) ^ word[1] ^ key[0], (uint32_t)q, (uint32_t)(p >> 32) ^ word[3] ^ key[1],
                            (uint32_t)p};
        for (int i = 0; i < 4; i++)
            word[i] = next[i];
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
}

static double unit_narrow(uint32_t word) {
    return (double)(word >> 8) / 16777216.0;
}

static double unit_wide(uint32_t high, uint32_t low) {
    return (double)(((uint64_t)high << 32 | low) >> 11) / 9007199254740992.0;
}

static long double uniform_value(enum dtype dtype, double u, double low, double high) {
    double span = high - low, step = u * span, value = low + step;
    long double rounded = value_round(dtype, value);
    if (low == high)
        return value_round(dtype, low);
    if (rounded < low) {
        while (rounded < low) /* half a unit up rounds to the neighbour */
            rounded = value_round(dtype, rounded + value_ulp(dtype, rounded) * 0.5625L);
        return rounded;
    }
    if (rounded < high)
        return rounded;
    long double below = value_round(dtype, high);
    while (below >= high) /* half a unit down rounds to the neighbour, also where the unit shrinks */
        below = value_round(dtype, below - value_ulp(dtype, below) * 0.5625L);
    return below;
}

static void uniform_element(struct values *out, const struct uniform_attributes *given, int64_t k) {
    uint32_t word[4];
    bool wide = out->dtype == DTYPE_F64;
    philox_words(given->seed, (uint64_t)(k / (wide ? 2 : 4)) + (uint64_t)given->offset, word);
    double u = wide ? unit_wide(word[k % 2 * 2], word[k % 2 * 2 + 1]) : unit_narrow(word[k % 4]);
    out->f[k] = uniform_value(out->dtype, u, given->low, given->high);
}

static void normal_element(struct values *out, const struct normal_attributes *given, int64_t k) {
    uint32_t word[4];
    bool wide = out->dtype == DTYPE_F64;
    philox_words(given->seed, (uint64_t)(k / (wide ? 2 : 4)) + (uint64_t)given->offset, word);
    int pair = (int)(k % 4 / 2) * 2;
    long double u = wide ? unit_wide(word[0], word[1]) : unit_narrow(word[pair]);
    long double v = wide ? unit_wide(word[2], word[3]) : unit_narrow(word[pair + 1]);
    long double radius = sqrtl(-2 * log1pl(-u)), angle = 2 * acosl(-1) * v;
    long double standard = radius * (k % 2 ? sinl(angle) : cosl(angle));
    out->f[k] = value_round(out->dtype, given->mean + given->deviation * standard);
    out->scale[k] = fabsl((long double)given->mean) + fabsl((long double)given->deviation) * (radius + 1);
}

struct values *reference_random(const struct reference_request *r) {
    if (r->opcode == OP_NORMAL) {
        struct normal_attributes given;
        normal_attributes_read(&r->attributes, &given);
        struct values *out = values_create(given.dtype, (int)given.shape.count, given.shape.values);
        values_scaled(out, 1);
        for (int64_t k = 0; k < out->count; k++)
            normal_element(out, &given, k);
        return out;
    }
    struct uniform_attributes given;
    uniform_attributes_read(&r->attributes, &given);
    struct values *out = values_create(given.dtype, (int)given.shape.count, given.shape.values);
    for (int64_t k = 0; k < out->count; k++)
        uniform_element(out, &given, k);
    return out;
}
