/* Convolutions on the CPU device by themselves: what takes long is computed in pieces, and these give what the whole does. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/device/device_impl.h"

enum { BATCH = 4, RANK_MOST = 5, INTS_MOST = 24 };

struct shape {
    int axes;
    int64_t batch, x_channels, x[3], y_channels, kernel[3], stride, padding, dilation, groups;
    bool bias;
};

/* An image takes oneDNN more than one call. */
static const struct shape large[] = {
    {2, BATCH, 64, {129, 131}, 70, {3, 3}, 1, 1, 1, 1, true},   {2, BATCH, 96, {150, 147}, 100, {5, 3}, 2, 2, 1, 1},
    {2, BATCH, 64, {120, 125}, 80, {3, 3}, 1, 3, 3, 1},         {2, BATCH, 256, {160, 161}, 256, {2, 2}, 3, 0, 1, 1},
    {2, BATCH, 64, {130, 100}, 96, {3, 3}, 1, 4, 1, 1, true},   {2, BATCH, 1000, {7, 8}, 1100, {3, 3}, 1, 1, 1, 1},
    {2, BATCH, 160, {160, 100}, 128, {3, 3}, 1, 1, 1, 4, true}, {2, BATCH, 36, {200, 211}, 36, {17, 17}, 1, 8, 1, 36},
    {2, BATCH, 64, {256, 256}, 12, {3, 3}, 1, 1, 1, 1},         {1, BATCH, 64, {40000}, 33, {9}, 1, 4, 1, 1},
    {1, BATCH, 128, {40003}, 65, {7}, 4, 3, 1, 1, true},        {3, BATCH, 32, {20, 30, 31}, 48, {3, 3, 3}, 1, 1, 1, 1},
    {3, BATCH, 48, {3, 70, 67}, 64, {2, 3, 3}, 1, 1, 1, 1},
};

/* The blocks of the daemon's own loops take long by their channels, or by the depth of their sums. */
static const struct shape wide[] = {
    {2, 1, 4, {90, 90}, 5000, {3, 3}, 1, 1, 1, 1, true},
    {2, 1, 9000, {8, 8}, 200, {3, 3}, 1, 1, 1, 1, true},
    {2, 2, 70000, {8, 8}, 300, {1, 1}, 1, 0, 1, 1},
};

static const unsigned ways[] = {OP_CONV, OP_CONV_GRAD_INPUT, OP_CONV_GRAD_WEIGHT};

struct tensor {
    int64_t shape[RANK_MOST], strides[RANK_MOST], n;
    float *values;
};

struct problem {
    struct tensor in[3], out;
    int64_t ints[INTS_MOST];
    unsigned n_ints, n_inputs, opcode;
    int rank;
};

static struct tensor tensor_make(int rank, const int64_t *shape) {
    struct tensor tensor = {.n = 1};
    for (int i = rank - 1; i >= 0; i--) {
        tensor.shape[i] = shape[i];
        tensor.strides[i] = tensor.n;
        tensor.n *= shape[i];
    }
    return tensor;
}

/* Numbers between -1 and 1. */
static void fill(struct tensor *tensor, uint32_t seed) {
    tensor->values = malloc((size_t)tensor->n * sizeof *tensor->values);
    for (int64_t i = 0; i < tensor->n; i++) {
        seed = seed * 1664525 + 1013904223;
        tensor->values[i] = (float)(int32_t)seed / 0x1p31F;
    }
}

static void put(struct problem *problem, int64_t value) {
    problem->ints[problem->n_ints++] = value;
}

static void put_list(struct problem *problem, int n, const int64_t *list) {
    put(problem, n);
    for (int i = 0; i < n; i++)
        put(problem, list ? list[i] : 0);
}

static struct problem problem_make(const struct shape *s, unsigned opcode) {
    struct problem problem = {.n_inputs = 2, .opcode = opcode, .rank = s->axes + 2};
    int64_t x[RANK_MOST] = {s->batch, s->x_channels}, y[RANK_MOST] = {s->batch, s->y_channels};
    int64_t weight[RANK_MOST] = {s->y_channels, s->x_channels / s->groups}, across[RANK_MOST];
    for (int i = 0; i < s->axes; i++) {
        x[2 + i] = s->x[i];
        weight[2 + i] = s->kernel[i];
        y[2 + i] = (s->x[i] + 2 * s->padding - ((s->kernel[i] - 1) * s->dilation + 1)) / s->stride + 1;
    }
    memcpy(across, weight, sizeof across);
    across[0] = s->x_channels;
    across[1] = s->y_channels / s->groups;
    put(&problem, s->groups);
    put(&problem, OP_LAYOUT_CHANNELS_FIRST);
    if (opcode != OP_CONV)
        put_list(&problem, problem.rank, opcode == OP_CONV_GRAD_INPUT ? x : weight);
    put_list(&problem, s->axes, (const int64_t[]){s->stride, s->stride, s->stride});
    put_list(&problem, s->axes, (const int64_t[]){s->padding, s->padding, s->padding});
    for (int i = 0; i < s->axes; i++)
        put(&problem, s->dilation);
    problem.in[0] = tensor_make(problem.rank, opcode == OP_CONV_GRAD_INPUT ? y : x);
    problem.in[1] = tensor_make(problem.rank, opcode == OP_CONV ? weight : opcode == OP_CONV_GRAD_INPUT ? across : y);
    problem.out = tensor_make(problem.rank, opcode == OP_CONV ? y : opcode == OP_CONV_GRAD_INPUT ? x : weight);
    if (s->bias && opcode == OP_CONV)
        problem.in[problem.n_inputs++] = tensor_make(1, &s->y_channels);
    for (unsigned i = 0; i < problem.n_inputs; i++)
        fill(&problem.in[i], i + 1);
    return problem;
}

static void problem_free(struct problem *problem) {
    for (unsigned i = 0; i < problem->n_inputs; i++)
        free(problem->in[i].values);
}

static struct device *open_cpu(unsigned threads) {
    struct device_options options = {.memory_total = 1 << 20, .threads = threads};
    struct device *device;
    struct fault fault;
    cr_assert_eq(device_open("cpu", &options, &device, &fault), STATUS_OK, "%s", fault.message);
    return device;
}

static struct operand operand_make(const struct problem *problem, const struct tensor *tensor, enum dtype dtype) {
    bool vector = tensor->shape[1] == 0;
    struct operand operand = {.shape = tensor->shape,
                              .strides = tensor->strides,
                              .dtype = dtype,
                              .as = dtype,
                              .rank = (uint8_t)(vector ? 1 : problem->rank)};
    operand.data = malloc((size_t)tensor->n * dtype_size(dtype));
    for (int64_t i = 0; tensor->values && i < tensor->n; i++) {
        if (dtype == DTYPE_F64)
            ((double *)operand.data)[i] = tensor->values[i];
        else
            ((float *)operand.data)[i] = tensor->values[i];
    }
    return operand;
}

/* The result, and into how many turns the work is divided if each is as short as can be. */
static void *compute(const struct problem *problem, struct device *device, enum dtype dtype, int *turns) {
    static const _Atomic bool wanted = true;
    struct fault fault;
    struct {
        struct launch launch;
        struct operand inputs[3];
    } *call = calloc(1, sizeof *call);
    struct launch *launch = &call->launch;
    const struct op_kernel *kernel = device->vtable->operations[problem->opcode];
    launch->opcode = (uint16_t)problem->opcode;
    launch->n_inputs = (uint8_t)problem->n_inputs;
    launch->attributes = (struct op_attributes){.ints = problem->ints, .n_ints = problem->n_ints};
    launch->output = operand_make(problem, &problem->out, dtype);
    for (unsigned i = 0; i < problem->n_inputs; i++)
        call->inputs[i] = operand_make(problem, &problem->in[i], dtype);
    cr_assert_eq(kernel->needs(device, dtype, &fault), STATUS_OK, "%s", fault.message);
    size_t bytes = kernel->workspace(device, launch);
    launch->workspace = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    struct device_begun *begun = NULL;
    *turns = 0;
    do {
        struct device_turn turn = {.wanted = &wanted, .shared = true};
        cr_assert_eq(device->vtable->launch_part(device, launch, &turn, &begun, &fault), STATUS_OK);
        ++*turns;
    } while (begun);
    for (unsigned i = 0; i < problem->n_inputs; i++)
        free(call->inputs[i].data);
    void *result = launch->output.data;
    free(launch->workspace);
    free(call);
    return result;
}

/* Products that one element of the result is a sum of, at most. */
static double depth_of(const struct problem *problem) {
    const struct tensor *factor = &problem->in[1];
    return (double)factor->n / (double)factor->shape[problem->opcode == OP_CONV_GRAD_WEIGHT];
}

static void compare(const struct problem *problem, const float *parts, const double *whole, const char *what) {
    double most = 0;
    int64_t where = 0;
    for (int64_t i = 0; i < problem->out.n; i++) {
        double off = fabs(parts[i] - whole[i]);
        if (!(off <= most)) {
            most = off;
            where = i;
        }
    }
    cr_expect(most <= 2e-6 * depth_of(problem) + 1e-5, "%s: element %lld: %g, not %g", what, (long long)where,
              (double)parts[where], whole[where]);
}

static const char *name_of(const struct shape *shape, size_t number, unsigned opcode) {
    static char name[64];
    snprintf(name, sizeof name, "row %zu of %d axes, %s", number, shape->axes, op_info(opcode)->name);
    return name;
}

Test(cpu_convolution, large_images_are_computed_in_pieces, .timeout = 600) {
    struct device *one = open_cpu(1), *three = open_cpu(3);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            struct problem problem = problem_make(&large[i], ways[way]);
            const char *name = name_of(&large[i], i, ways[way]);
            int turns, others, unused;
            float *parts = compute(&problem, one, DTYPE_F32, &turns);
            float *shared = compute(&problem, three, DTYPE_F32, &others);
            double *whole = compute(&problem, one, DTYPE_F64, &unused);
            cr_expect_geq(turns, 2 * BATCH, "%s: %d turns", name, turns);
            cr_expect_eq(memcmp(parts, shared, (size_t)problem.out.n * sizeof *parts), 0, "%s: threads", name);
            compare(&problem, parts, whole, name);
            free(parts);
            free(shared);
            free(whole);
            problem_free(&problem);
        }
    device_close(one);
    device_close(three);
}

/* The smallest turns that a product of this size may be divided into: see convolution_call_work. */
Test(cpu_convolution, wide_and_deep_blocks_are_computed_in_steps, .timeout = 600) {
    struct device *device = open_cpu(1);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            struct problem problem = problem_make(&wide[i], ways[way]);
            const char *name = name_of(&wide[i], i, ways[way]);
            double work = depth_of(&problem) * (double)problem.out.n;
            int turns, unused;
            float *narrow = compute(&problem, device, DTYPE_F32, &turns);
            double *whole = compute(&problem, device, DTYPE_F64, &unused);
            cr_expect_geq(turns, (int)(work / (1 << 29)), "%s: %d turns", name, turns);
            compare(&problem, narrow, whole, name);
            free(narrow);
            free(whole);
            problem_free(&problem);
        }
    device_close(device);
}
