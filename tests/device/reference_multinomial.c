#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

static long double weight_of(const struct values *weights, int64_t at) {
    return isfinite(weights->f[at]) && weights->f[at] > 0 ? fminl(weights->f[at], 0x1p960L) : 0;
}

/* Numbers of a uniform tensor of f64 from 0 to below 1. */
static struct values *units(const struct multinomial_attributes *given, int64_t count) {
    struct op_packed packed;
    uniform_attributes_write(&(struct uniform_attributes){.dtype = DTYPE_F64,
                                                          .shape = {1, &count},
                                                          .seed = given->seed,
                                                          .offset = given->offset,
                                                          .low = 0,
                                                          .high = 1},
                             &packed);
    return reference_random(&(struct reference_request){
        .opcode = OP_UNIFORM,
        .attributes = {
            .ints = packed.ints, .floats = packed.floats, .n_ints = packed.n_ints, .n_floats = packed.n_floats}});
}

/* The first position up to and with which more than u of all weights lies. */
static int64_t drawn(const struct values *weights, int64_t first, int64_t k, long double u) {
    long double total = 0, sum = 0;
    for (int64_t i = 0; i < k; i++)
        total += weight_of(weights, first + i);
    if (total == 0)
        return (int64_t)((double)u * (double)k);
    int64_t i = 0;
    for (; i < k - 1 && (sum += weight_of(weights, first + i)) <= u * total; i++)
        ;
    return i;
}

/* The position of the greatest key that is not taken yet: each takes part with an exponential time, sooner if its weight is greater. */
static int64_t raced(const struct values *weights, int64_t first, int64_t k, const long double *u, bool *taken) {
    int64_t best = -1;
    long double highest = -2;
    for (int64_t i = 0; i < k; i++) {
        long double weight = weight_of(weights, first + i), key = weight > 0 ? weight / -log1pl(-u[i]) : -1;
        if (!taken[i] && key > highest) {
            highest = key;
            best = i;
        }
    }
    taken[best] = true;
    return best;
}

struct values *reference_multinomial(const struct reference_request *r) {
    const struct values *weights = r->inputs[0];
    struct multinomial_attributes given;
    int64_t shape[VALUES_RANK_MAX];
    multinomial_attributes_read(&r->attributes, &given);
    if (weights->rank == 0)
        return NULL;
    int64_t k = weights->shape[weights->rank - 1];
    memcpy(shape, weights->shape, sizeof shape);
    shape[weights->rank - 1] = given.samples;
    struct values *out = values_create(DTYPE_I64, weights->rank, shape);
    struct values *u = units(&given, given.replacement ? out->count : weights->count);
    for (int64_t row = 0; given.samples > 0 && row < out->count / given.samples; row++) {
        bool taken[2048] = {false};
        for (int64_t i = 0; i < given.samples; i++) {
            int64_t at = row * given.samples + i;
            out->i[at] = given.replacement ? drawn(weights, row * k, k, u->f[at])
                                           : raced(weights, row * k, k, u->f + row * k, taken);
        }
    }
    values_destroy(u);
    return out;
}
