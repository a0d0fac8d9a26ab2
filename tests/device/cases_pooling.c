/* Pooling of random geometry. */
#include <string.h>

#include "tests/device/cases.h"

enum { AXES_MOST = 3 };

struct geometry {
    int axes;
    int64_t batch, channels;
    int64_t x[AXES_MOST], extents[AXES_MOST];
    int64_t kernel[AXES_MOST], stride[AXES_MOST], padding[AXES_MOST], dilation[AXES_MOST];
    bool ceil_mode, counts_padding, plain; /* plain: the stride is the kernel's, by an empty list */
    enum op_layout layout;
};

static struct geometry geometry_random(struct suite *suite, bool dilates) {
    struct geometry g = {.axes = 1 + (int)suite_below(suite, AXES_MOST)};
    int64_t most = g.axes == 1 ? 40 : g.axes == 2 ? 12 : 6;
    g.batch = suite_chance(suite, 4) ? 0 : 1 + suite_below(suite, 3);
    g.channels = 1 + suite_below(suite, 4);
    g.layout = suite_chance(suite, 30) ? OP_LAYOUT_CHANNELS_LAST : OP_LAYOUT_CHANNELS_FIRST;
    g.ceil_mode = suite_chance(suite, 40);
    g.counts_padding = suite_chance(suite, 50);
    g.plain = suite_chance(suite, 30);
    if (suite_chance(suite, 25)) { /* windows of 2 × 2, as most networks have, of which some reach over the end */
        g.plain = true;
        for (int i = 0; i < g.axes; i++) {
            g.kernel[i] = g.stride[i] = i + 2 < g.axes ? 1 : 2;
            g.dilation[i] = 1;
            g.x[i] = g.kernel[i] + suite_below(suite, most);
            g.extents[i] = 1 + suite_below(suite, g.x[i] + 3);
        }
        return g;
    }
    for (int i = 0; i < g.axes; i++) {
        g.kernel[i] = 1 + suite_below(suite, 4);
        g.stride[i] = g.plain ? g.kernel[i] : 1 + suite_below(suite, 3);
        g.dilation[i] = !dilates || suite_chance(suite, 60) ? 1 : 1 + suite_below(suite, 3);
        int64_t reach = g.dilation[i] * (g.kernel[i] - 1) + 1;
        g.padding[i] = suite_below(suite, reach / 2 + 1);
        int64_t least = reach - 2 * g.padding[i] > 1 ? reach - 2 * g.padding[i] : 1;
        g.x[i] = least + suite_below(suite, most);
        g.extents[i] = 1 + suite_below(suite, g.x[i] + 3);
    }
    return g;
}

static int geometry_shape(const struct geometry *g, int64_t *shape) {
    bool last = g->layout == OP_LAYOUT_CHANNELS_LAST;
    shape[0] = g->batch;
    shape[last ? g->axes + 1 : 1] = g->channels;
    memcpy(shape + (last ? 1 : 2), g->x, (size_t)g->axes * sizeof *shape);
    return g->axes + 2;
}

/* Of the operation that pools, or of its gradient: then `shape` is x's. */
static struct op_packed attributes_of(const struct geometry *g, unsigned opcode, int rank, const int64_t *shape) {
    unsigned axes = (unsigned)g->axes;
    struct op_ints kernel = {axes, g->kernel}, stride = {g->plain ? 0 : axes, g->stride}, padding = {axes, g->padding};
    struct op_ints dilation = {axes, g->dilation}, extents = {axes, g->extents}, of = {(unsigned)rank, shape};
#define WINDOW .kernel = kernel, .stride = stride, .padding = padding, .ceil_mode = g->ceil_mode, .layout = g->layout
    switch (opcode) {
    case OP_MAX_POOL:
        return SUITE_ATTRIBUTES(max_pool, WINDOW, .dilation = dilation);
    case OP_MAX_POOL_GRAD:
        return SUITE_ATTRIBUTES(max_pool_grad, WINDOW, .dilation = dilation, .shape = of);
    case OP_AVG_POOL:
        return SUITE_ATTRIBUTES(avg_pool, WINDOW, .count_include_pad = g->counts_padding);
    case OP_AVG_POOL_GRAD:
        return SUITE_ATTRIBUTES(avg_pool_grad, WINDOW, .count_include_pad = g->counts_padding, .shape = of);
    case OP_ADAPTIVE_AVG_POOL:
        return SUITE_ATTRIBUTES(adaptive_avg_pool, .extents = extents, .layout = g->layout);
    default:
        return SUITE_ATTRIBUTES(adaptive_avg_pool_grad, .shape = of, .layout = g->layout);
    }
}

static unsigned forward_of(unsigned opcode) {
    return opcode == OP_MAX_POOL || opcode == OP_MAX_POOL_GRAD   ? OP_MAX_POOL
           : opcode == OP_AVG_POOL || opcode == OP_AVG_POOL_GRAD ? OP_AVG_POOL
                                                                 : OP_ADAPTIVE_AVG_POOL;
}

/* A gradient is random, of the shape that pooling gives; so are the indices that come with it. */
static void pool_once(struct suite *suite, const struct op_case *row, const struct geometry *g, enum dtype dtype,
                      enum suite_fill fill) {
    int64_t shape[VALUES_RANK_MAX];
    int rank = geometry_shape(g, shape);
    unsigned forward = forward_of(row->opcode), n = forward == OP_MAX_POOL ? 2 : 1;
    struct sample x = suite_input(suite, dtype, rank, shape, fill), pooled[2];
    const struct sample *input = &x;
    suite_run_several(
        suite,
        &(struct suite_call){
            .opcode = forward, .n_inputs = 1, .inputs = &input, .attributes = attributes_of(g, forward, rank, shape)},
        pooled, n);
    if (row->opcode != forward) {
        struct sample gradient =
            suite_input(suite, dtype, pooled[0].values->rank, pooled[0].values->shape, FILL_ORDINARY);
        if (n == 2 && suite_chance(suite, 50)) {
            struct sample narrow =
                suite_attributes(suite, OP_CAST, &pooled[1], SUITE_ATTRIBUTES(cast, .dtype = DTYPE_I32));
            suite_free(suite, &pooled[1]);
            pooled[1] = narrow;
        }
        const struct sample *inputs[] = {&gradient, &pooled[1]};
        struct sample result =
            suite_run(suite, &(struct suite_call){.opcode = row->opcode,
                                                  .n_inputs = n,
                                                  .inputs = inputs,
                                                  .attributes = attributes_of(g, row->opcode, rank, shape)});
        case_settle(suite, &result);
        suite_free(suite, &gradient);
    }
    for (unsigned i = 0; i < n; i++)
        case_settle(suite, &pooled[i]);
    suite_free(suite, &x);
}

static void case_pooling(struct suite *suite, const struct op_case *row) {
    bool greatest = forward_of(row->opcode) == OP_MAX_POOL;
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        for (int i = 0; op_case_takes(row, dtype) && i < SUITE_REPEAT(40); i++) {
            struct geometry g = geometry_random(suite, greatest);
            pool_once(suite, row, &g, dtype, row->fill);
        }
    }
    for (int i = 0; i < 3; i++) { /* enough for many threads, and rows of more than one piece */
        struct geometry g = {.axes = 2,
                             .batch = i ? 1 : 8,
                             .channels = i ? 2 : 9,
                             .x = {i ? 5 : 30, i ? 400 : 33},
                             .kernel = {2, 3},
                             .stride = {2, 1 + i},
                             .padding = {1, 1},
                             .dilation = {1, 1},
                             .extents = {3, i ? 290 : 5},
                             .ceil_mode = i == 1};
        pool_once(suite, row, &g, i == 2 ? DTYPE_F64 : DTYPE_F32, FILL_ORDINARY);
    }
    for (int i = 0; i < 3; i++) { /* kernels with many places along a row, and one that sees all of a channel */
        struct geometry g = {.axes = 2,
                             .batch = 2,
                             .channels = 3,
                             .x = {i == 2 ? 7 : 3, i == 2 ? 7 : 130},
                             .kernel = {i == 2 ? 7 : 1, i == 2 ? 7 : 40},
                             .stride = {1, 2 + i},
                             .padding = {0, i == 2 ? 0 : 15},
                             .dilation = {1, 1},
                             .extents = {1, 1}};
        pool_once(suite, row, &g, i == 1 ? DTYPE_F64 : DTYPE_F32, FILL_ORDINARY);
        pool_once(suite, row, &g, DTYPE_F32, row->fill);
    }
}

const struct op_case op_case_max_pool = {case_pooling, OP_MAX_POOL, FILL_ANY};
const struct op_case op_case_max_pool_grad = {case_pooling, OP_MAX_POOL_GRAD, FILL_ORDINARY};
const struct op_case op_case_avg_pool = {case_pooling, OP_AVG_POOL, FILL_ORDINARY};
const struct op_case op_case_avg_pool_grad = {case_pooling, OP_AVG_POOL_GRAD, FILL_ORDINARY};
const struct op_case op_case_adaptive_avg_pool = {case_pooling, OP_ADAPTIVE_AVG_POOL, FILL_ORDINARY};
const struct op_case op_case_adaptive_avg_pool_grad = {case_pooling, OP_ADAPTIVE_AVG_POOL_GRAD, FILL_ORDINARY};
