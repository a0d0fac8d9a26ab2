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

static void exponential_element(struct values *out, const struct exponential_attributes *given, int64_t k) {
    uint32_t word[4];
    bool wide = out->dtype == DTYPE_F64;
    philox_words(given->seed, (uint64_t)(k / (wide ? 2 : 4)) + (uint64_t)given->offset, word);
    double u = wide ? unit_wide(word[k % 2 * 2], word[k % 2 * 2 + 1]) : unit_narrow(word[k % 4]);
    long double value = -log1pl(-u) * given->scale;
    out->f[k] = value_round(out->dtype, value);
    out->scale[k] = value;
}

/* 64 bits times the range, without the lower 64: by halves. */
static int64_t randint_value(uint32_t high, uint32_t low, int64_t least, uint64_t range) {
    uint64_t lower = (uint64_t)low * (uint32_t)range, a = (uint64_t)high * (uint32_t)range, b = low * (range >> 32);
    uint64_t middle = (lower >> 32) + (uint32_t)a + (uint32_t)b;
    return (int64_t)((uint64_t)least + (high * (range >> 32) + (a >> 32) + (b >> 32) + (middle >> 32)));
}

static struct values *reference_randint(const struct reference_request *r) {
    struct randint_attributes given;
    randint_attributes_read(&r->attributes, &given);
    struct values *out = values_create(given.dtype, (int)given.shape.count, given.shape.values);
    for (int64_t k = 0; k < out->count; k++) {
        uint32_t word[4];
        philox_words(given.seed, (uint64_t)(k / 2 + given.offset), word);
        out->i[k] =
            randint_value(word[k % 2 * 2], word[k % 2 * 2 + 1], given.low, (uint64_t)given.high - (uint64_t)given.low);
    }
    return out;
}

/* Whether the element's word is below the probability. */
static bool random_chosen(uint64_t seed, int64_t offset, int64_t k, double probability) {
    uint32_t word[4];
    philox_words(seed, (uint64_t)(k / 4 + offset), word);
    return (long double)word[k % 4] / 4294967296.0L < (long double)probability;
}

static struct values *reference_bernoulli(const struct reference_request *r) {
    struct bernoulli_attributes given;
    bernoulli_attributes_read(&r->attributes, &given);
    struct values *out = values_create(given.dtype, (int)given.shape.count, given.shape.values);
    for (int64_t k = 0; k < out->count; k++) {
        bool chosen = random_chosen(given.seed, given.offset, k, given.probability);
        if (out->f)
            out->f[k] = chosen;
        else
            out->i[k] = chosen;
    }
    return out;
}

/* Of the bits of x the lower half (the longer one) changes the upper, and that the lower, eight times. */
static uint64_t permutation_cipher(uint64_t seed, unsigned bits, uint64_t x) {
    unsigned low_bits = (bits + 1) / 2;
    for (unsigned round = 0; round < 16; round++) {
        uint32_t word[4];
        philox_words(seed, round / 4, word);
        uint64_t low = x & ((UINT64_C(1) << low_bits) - 1), high = x >> low_bits;
        uint32_t mixed = (uint32_t)(round % 2 ? high : low) ^ word[round % 4];
        mixed *= 0x85ebca6b;
        mixed ^= mixed >> 13;
        mixed *= 0xc2b2ae35;
        mixed ^= mixed >> 16;
        if (round % 2)
            low ^= mixed & ((UINT64_C(1) << low_bits) - 1);
        else
            high ^= mixed & ((UINT64_C(1) << (bits - low_bits)) - 1);
        x = high << low_bits | low;
    }
    return x;
}

static struct values *reference_permutation(const struct reference_request *r) {
    struct permutation_attributes given;
    permutation_attributes_read(&r->attributes, &given);
    struct values *out = values_create(given.dtype, 1, &given.n);
    unsigned bits = 0;
    while (given.n > INT64_C(1) << bits)
        bits++;
    for (int64_t k = 0; k < out->count; k++) {
        uint64_t x = (uint64_t)k;
        do
            x = permutation_cipher(given.seed, bits, x);
        while (x >= (uint64_t)given.n);
        out->i[k] = (int64_t)x;
    }
    return out;
}

struct values *reference_draw(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct values *out = values_create(x->dtype, x->rank, x->shape);
    struct dropout_attributes given = {.seed = (uint64_t)r->attributes.ints[0], .offset = r->attributes.ints[1]};
    if (r->opcode == OP_DROPOUT)
        given.probability = r->attributes.floats[0];
    for (int64_t k = 0; k < out->count; k++) {
        if (r->opcode == OP_DROPOUT && random_chosen(given.seed, given.offset, k, given.probability))
            out->f[k] = 0;
        else if (r->opcode == OP_DROPOUT)
            out->f[k] = value_round(x->dtype, x->f[k] / (1 - (long double)given.probability));
        else
            out->f[k] = random_chosen(given.seed, given.offset, k, (double)x->f[k]);
    }
    return out;
}

static struct values *reference_exponential(const struct reference_request *r) {
    struct exponential_attributes given;
    exponential_attributes_read(&r->attributes, &given);
    struct values *out = values_create(given.dtype, (int)given.shape.count, given.shape.values);
    values_scaled(out, 1);
    for (int64_t k = 0; k < out->count; k++)
        exponential_element(out, &given, k);
    return out;
}

struct values *reference_random(const struct reference_request *r) {
    if (r->opcode == OP_EXPONENTIAL)
        return reference_exponential(r);
    if (r->opcode == OP_RANDINT)
        return reference_randint(r);
    if (r->opcode == OP_BERNOULLI)
        return reference_bernoulli(r);
    if (r->opcode == OP_PERMUTATION)
        return reference_permutation(r);
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
