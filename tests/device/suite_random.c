#include <math.h>
#include <string.h>

#include "tests/device/suite.h"

/* splitmix64 */
uint64_t suite_random(struct suite *suite) {
    uint64_t z = suite->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

int64_t suite_below(struct suite *suite, int64_t n) {
    return (int64_t)(suite_random(suite) % (uint64_t)n);
}

bool suite_chance(struct suite *suite, int percent) {
    return suite_below(suite, 100) < percent;
}

static long double random_unit(struct suite *suite) {
    return (long double)(suite_random(suite) >> 11) * 0x1p-53L;
}

static long double float_special(struct suite *suite, enum dtype dtype) {
    const long double specials[] = {
        0,
        -0.0L,
        1,
        -1,
        NAN,
        INFINITY,
        -INFINITY,
        value_max(dtype),
        -value_max(dtype),
        value_ulp(dtype, 0),
        value_min_normal(dtype),
        value_min_normal(dtype) - value_ulp(dtype, 0),
        0.5L,
        2,
        -3,
    };
    return specials[suite_below(suite, sizeof specials / sizeof *specials)];
}

static long double float_any(struct suite *suite, enum dtype dtype) {
    int64_t kind = suite_below(suite, 16);
    if (kind < 2)
        return float_special(suite, dtype);
    long double sign = suite_chance(suite, 50) ? 1 : -1, mantissa = 1 + random_unit(suite);
    int range = kind == 2 ? value_exponent_max(dtype) : 5;
    return sign * mantissa * value_power((int)suite_below(suite, 2 * range + 1) - range);
}

static long double float_fill(struct suite *suite, enum dtype dtype, enum suite_fill fill) {
    switch (fill) {
    case FILL_ANY:
        return float_any(suite, dtype);
    case FILL_ORDINARY:
        return random_unit(suite) * 8 - 4;
    case FILL_NEAR_ONE:
        return (random_unit(suite) + 0.5L) * (suite_chance(suite, 50) ? 1 : -1);
    default:
        return (long double)suite_below(suite, 7);
    }
}

static int64_t integer_fill(struct suite *suite, enum dtype dtype, enum suite_fill fill) {
    if (fill == FILL_COUNT)
        return suite_below(suite, dtype == DTYPE_BOOL ? 2 : 7);
    if (fill != FILL_ANY || suite_chance(suite, 40))
        return suite_below(suite, 9) - 4;
    if (suite_chance(suite, 25))
        return suite_chance(suite, 50) ? value_low(dtype) : value_high(dtype);
    return (int64_t)suite_random(suite);
}

void suite_fill(struct suite *suite, struct values *values, enum suite_fill fill) {
    for (int64_t k = 0; k < values->count; k++) {
        if (values->im)
            values->im[k] = value_round(values->dtype, float_fill(suite, values->dtype, fill));
        if (values->f)
            values->f[k] = value_round(values->dtype, float_fill(suite, values->dtype, fill));
        else if (values->dtype == DTYPE_BOOL)
            values->i[k] = suite_below(suite, 2);
        else
            values->i[k] = value_wrap(values->dtype, integer_fill(suite, values->dtype, fill));
    }
}

int suite_shape(struct suite *suite, int rank_max, int64_t shape[VALUES_RANK_MAX]) {
    int rank = (int)suite_below(suite, rank_max + 1);
    int64_t most = rank <= 1 ? 70 : rank == 2 ? 20 : rank == 3 ? 8 : 5;
    for (int i = 0; i < rank; i++) {
        int64_t kind = suite_below(suite, 16);
        shape[i] = kind == 0 ? 0 : kind < 3 ? 1 : 1 + suite_below(suite, most);
    }
    return rank;
}

int suite_narrower(struct suite *suite, int rank, const int64_t *shape, int64_t narrow[VALUES_RANK_MAX]) {
    int dropped = suite_chance(suite, 30) ? (int)suite_below(suite, rank + 1) : 0;
    for (int i = dropped; i < rank; i++)
        narrow[i - dropped] = suite_chance(suite, 25) ? 1 : shape[i];
    return rank - dropped;
}

struct sample suite_sample(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape,
                           enum suite_fill fill) {
    struct values *values = values_create(dtype, rank, shape);
    suite_fill(suite, values, fill);
    return suite_upload(suite, values);
}

/* Replaces a sample by a view of it; the base is freed, so the view alone holds the storage. */
static void view_of(struct suite *suite, struct sample *x, unsigned opcode, struct op_packed attributes) {
    struct sample view = suite_attributes(suite, opcode, x, attributes);
    suite_free(suite, x);
    *x = view;
}

/* What one axis of the view is made of: `extent` elements of the base, from which the slice picks. */
static int64_t axis_plan(struct suite *suite, int64_t wanted, bool repeated, int64_t slice[3]) {
    int64_t count = repeated ? 1 : wanted;
    int64_t step = suite_chance(suite, 50) ? 1 : 1 + suite_below(suite, 3);
    int64_t before = suite_below(suite, 3), after = suite_below(suite, 3);
    int64_t extent = before + (count ? (count - 1) * step + 1 : 0) + after;
    int64_t last = before + (count - 1) * step;
    if (count == 0) {
        slice[0] = slice[1] = before;
        slice[2] = step;
    } else if (suite_chance(suite, 40)) { /* backwards */
        slice[0] = last;
        slice[1] = before == 0 ? OP_SLICE_NONE : before - 1;
        slice[2] = -step;
    } else {
        slice[0] = before;
        slice[1] = suite_chance(suite, 20) && after == 0 ? OP_SLICE_NONE : last + 1;
        slice[2] = step;
    }
    return extent;
}

static void view_axes_around(struct suite *suite, struct sample *x) {
    int rank = x->values->rank;
    if (rank >= VALUES_RANK_MAX)
        return;
    int64_t axis = suite_below(suite, rank + 1);
    view_of(suite, x, OP_EXPAND_DIMS, SUITE_ATTRIBUTES(expand_dims, .axis = axis));
    view_of(suite, x, OP_SQUEEZE, SUITE_ATTRIBUTES(squeeze, .axes = SUITE_LIST(axis)));
}

struct sample suite_view(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, enum suite_fill fill) {
    int64_t order[VALUES_RANK_MAX] = {0}, inverse[VALUES_RANK_MAX], base[VALUES_RANK_MAX] = {0};
    int64_t slices[3 * VALUES_RANK_MAX];
    bool repeats = suite_chance(suite, 30);
    for (int i = 0; i < rank; i++) {
        int64_t at = suite_below(suite, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < rank; i++) {
        inverse[order[i]] = i;
        base[i] = axis_plan(suite, shape[order[i]], repeats && suite_chance(suite, 40), slices + 3 * i);
    }
    struct sample x = suite_sample(suite, dtype, rank, base, fill);
    view_of(suite, &x, OP_SLICE, SUITE_ATTRIBUTES(slice, .ranges = {(unsigned)(3 * rank), slices}));
    if (rank)
        view_of(suite, &x, OP_PERMUTE_DIMS, SUITE_ATTRIBUTES(permute_dims, .axes = {(unsigned)rank, inverse}));
    if (repeats)
        view_of(suite, &x, OP_BROADCAST_TO, SUITE_ATTRIBUTES(broadcast_to, .shape = {(unsigned)rank, shape}));
    if (suite_chance(suite, 20))
        view_axes_around(suite, &x);
    return x;
}

struct sample suite_input(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, enum suite_fill fill) {
    return suite_chance(suite, 35) ? suite_sample(suite, dtype, rank, shape, fill)
                                   : suite_view(suite, dtype, rank, shape, fill);
}
