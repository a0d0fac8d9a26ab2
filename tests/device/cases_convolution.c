/* Convolutions of random geometry, with the gradients of each. */
#include <string.h>

#include "tests/device/cases.h"

enum { AXES_MOST = 3 };

struct geometry {
    int axes;
    int64_t batch, groups, x_channels, y_channels; /* channels of a group */
    int64_t x[AXES_MOST], y[AXES_MOST], kernel[AXES_MOST];
    int64_t stride[AXES_MOST], padding[AXES_MOST], dilation[AXES_MOST], more[AXES_MOST];
    enum op_layout layout;
};

/* Places along y's axes; `more` is what an axis of x has beyond what y's places see. */
static void geometry_finish(struct geometry *g) {
    for (int i = 0; i < g->axes; i++) {
        int64_t reach = g->dilation[i] * (g->kernel[i] - 1) + 1;
        g->y[i] = (g->x[i] + 2 * g->padding[i] - reach) / g->stride[i] + 1;
        g->more[i] = (g->x[i] + 2 * g->padding[i] - reach) % g->stride[i];
    }
}

static struct geometry geometry_random(struct suite *suite) {
    struct geometry g = {.axes = 1 + (int)suite_below(suite, AXES_MOST)};
    int64_t most = g.axes == 1 ? 40 : g.axes == 2 ? 14 : 7;
    g.batch =
        suite_chance(suite, 5) ? 0 : 1 + suite_below(suite, 6); /* the CPU device treats 4 and more in another way */
    g.groups = suite_chance(suite, 70) ? 1 : 1 + suite_below(suite, 3);
    g.x_channels = 1 + suite_below(suite, 5);
    g.y_channels = 1 + suite_below(suite, 6);
    g.layout = suite_chance(suite, 30) ? OP_LAYOUT_CHANNELS_LAST : OP_LAYOUT_CHANNELS_FIRST;
    bool plain = suite_chance(suite, 15); /* a kernel of one place, which needs no gathering */
    for (int i = 0; i < g.axes; i++) {
        g.kernel[i] = plain ? 1 : 1 + suite_below(suite, 4);
        g.stride[i] = plain || suite_chance(suite, 50) ? 1 : 1 + suite_below(suite, 3);
        g.padding[i] = plain || suite_chance(suite, 40) ? 0 : suite_below(suite, 4);
        g.dilation[i] = suite_chance(suite, 60) ? 1 : 1 + suite_below(suite, 3);
        int64_t reach = g.dilation[i] * (g.kernel[i] - 1) + 1 - 2 * g.padding[i];
        g.x[i] = (reach > 1 ? reach : 1) + suite_below(suite, most);
    }
    geometry_finish(&g);
    return g;
}

/* Of a transposed one: output_padding up to what stride or dilation allow, so that places of x may see nothing of y. */
static void geometry_widen(struct suite *suite, struct geometry *g) {
    for (int i = 0; i < g->axes; i++) {
        int64_t most = g->stride[i] > g->dilation[i] ? g->stride[i] : g->dilation[i];
        int64_t by = suite_below(suite, most - g->more[i]);
        g->more[i] += by;
        g->x[i] += by;
    }
}

static int geometry_shape(const struct geometry *g, int64_t channels, const int64_t *extents, int64_t *shape) {
    bool last = g->layout == OP_LAYOUT_CHANNELS_LAST;
    shape[0] = g->batch;
    shape[last ? g->axes + 1 : 1] = channels;
    memcpy(shape + (last ? 1 : 2), extents, (size_t)g->axes * sizeof *extents);
    return g->axes + 2;
}

static int weight_shape(const struct geometry *g, int64_t *shape) {
    shape[0] = g->y_channels * g->groups;
    shape[1] = g->x_channels;
    memcpy(shape + 2, g->kernel, (size_t)g->axes * sizeof *shape);
    return g->axes + 2;
}

static struct op_packed attributes_of(const struct geometry *g, unsigned opcode, int rank, const int64_t *shape) {
    struct op_ints stride = {(unsigned)g->axes, g->stride}, padding = {(unsigned)g->axes, g->padding};
    struct op_ints dilation = {(unsigned)g->axes, g->dilation}, more = {(unsigned)g->axes, g->more};
    struct op_ints of = {(unsigned)rank, shape};
#define COMMON .stride = stride, .padding = padding, .dilation = dilation, .groups = g->groups, .layout = g->layout
    switch (opcode) {
    case OP_CONV:
        return SUITE_ATTRIBUTES(conv, COMMON);
    case OP_CONV_TRANSPOSE:
        return SUITE_ATTRIBUTES(conv_transpose, COMMON, .output_padding = more);
    case OP_CONV_GRAD_INPUT:
        return SUITE_ATTRIBUTES(conv_grad_input, COMMON, .shape = of);
    default:
        return SUITE_ATTRIBUTES(conv_grad_weight, COMMON, .shape = of);
    }
}

static void conv_once(struct suite *suite, const struct geometry *g, unsigned opcode, enum dtype dtype,
                      enum dtype other) {
    int64_t x[VALUES_RANK_MAX], weight[VALUES_RANK_MAX], y[VALUES_RANK_MAX], channels[1];
    int rank = geometry_shape(g, g->x_channels * g->groups, g->x, x);
    geometry_shape(g, g->y_channels * g->groups, g->y, y);
    weight_shape(g, weight);
    const int64_t *shapes[2] = {opcode == OP_CONV || opcode == OP_CONV_GRAD_WEIGHT ? x : y,
                                opcode == OP_CONV_GRAD_WEIGHT ? y : weight};
    struct sample in[3];
    const struct sample *inputs[3] = {&in[0], &in[1], &in[2]};
    unsigned n = 2;
    in[0] = suite_input(suite, dtype, rank, shapes[0], FILL_ORDINARY);
    in[1] = suite_input(suite, other, rank, shapes[1], FILL_ORDINARY);
    if ((opcode == OP_CONV || opcode == OP_CONV_TRANSPOSE) && suite_chance(suite, 60)) {
        channels[0] = (opcode == OP_CONV ? g->y_channels : g->x_channels) * g->groups;
        in[n++] = suite_input(suite, dtype, 1, channels, FILL_ORDINARY);
    }
    struct suite_call call = {.opcode = opcode,
                              .n_inputs = n,
                              .inputs = inputs,
                              .attributes = attributes_of(g, opcode, rank, opcode == OP_CONV_GRAD_INPUT ? x : weight)};
    struct sample result = suite_run(suite, &call);
    case_settle(suite, &result);
    for (unsigned i = 0; i < n; i++)
        suite_free(suite, &in[i]);
}

/* More than a block of the CPU device and a tile of CUDA's kernels, and enough work to be shared by threads and left. */
static const struct geometry larger[] = {
    {.axes = 2,
     .batch = 2,
     .groups = 1,
     .x_channels = 70,
     .y_channels = 67,
     .x = {13, 11},
     .kernel = {3, 3},
     .stride = {1, 1},
     .padding = {1, 1},
     .dilation = {1, 1}},
    {.axes = 2,
     .batch = 3,
     .groups = 2,
     .x_channels = 5,
     .y_channels = 9,
     .x = {37, 41},
     .kernel = {5, 3},
     .stride = {2, 2},
     .padding = {2, 1},
     .dilation = {1, 2}},
    {.axes = 2,
     .batch = 1,
     .groups = 24,
     .x_channels = 1,
     .y_channels = 1,
     .x = {29, 30},
     .kernel = {3, 3},
     .stride = {1, 1},
     .padding = {1, 1},
     .dilation = {1, 1}},
    {.axes = 2,
     .batch = 4,
     .groups = 1,
     .x_channels = 34,
     .y_channels = 65,
     .x = {12, 12},
     .kernel = {1, 1},
     .stride = {1, 1},
     .padding = {0, 0},
     .dilation = {1, 1}},
    {.axes = 1,
     .batch = 2,
     .groups = 1,
     .x_channels = 3,
     .y_channels = 8,
     .x = {9000},
     .kernel = {9},
     .stride = {1},
     .padding = {4},
     .dilation = {1}},
    {.axes = 3,
     .batch = 2,
     .groups = 1,
     .x_channels = 4,
     .y_channels = 6,
     .x = {7, 12, 9},
     .kernel = {3, 3, 3},
     .stride = {1, 2, 1},
     .padding = {1, 1, 1},
     .dilation = {1, 1, 2}},
};

static void case_convolution(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        for (int i = 0; op_case_takes(row, dtype) && i < SUITE_REPEAT(50); i++) {
            struct geometry g = geometry_random(suite);
            if (row->opcode == OP_CONV_TRANSPOSE && suite_chance(suite, 30)) /* cuDNN refuses many of them */
                geometry_widen(suite, &g);
            conv_once(suite, &g, row->opcode, dtype,
                      suite_chance(suite, 85) ? dtype : op_case_partner(suite, row, dtype));
        }
    }
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) {
        struct geometry g = larger[i];
        geometry_finish(&g);
        conv_once(suite, &g, row->opcode, i % 2 ? DTYPE_F64 : DTYPE_F32, i % 2 ? DTYPE_F64 : DTYPE_F32);
    }
}

const struct op_case op_case_conv = {case_convolution, OP_CONV, FILL_ORDINARY};
const struct op_case op_case_conv_transpose = {case_convolution, OP_CONV_TRANSPOSE, FILL_ORDINARY};
const struct op_case op_case_conv_grad_input = {case_convolution, OP_CONV_GRAD_INPUT, FILL_ORDINARY};
const struct op_case op_case_conv_grad_weight = {case_convolution, OP_CONV_GRAD_WEIGHT, FILL_ORDINARY};
