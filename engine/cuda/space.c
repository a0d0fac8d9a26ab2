#include "engine/cuda/space.h"

#include <string.h>

/* Rows and tiles stay below this, with room for the positions of a last, incomplete tile. */
#define COUNT_MAX (INT32_MAX - 4096)

enum {
    WARP_LOG = 5,
    BLOCKS_PER_PROCESSOR =
        32, /* four times as many as a processor runs at once, so that none is idle for long at the end */
};

struct divisor divisor_make(uint32_t extent) {
    struct divisor divisor = {.extent = extent};
    if (extent == 0) /* of an axis without positions: nothing is divided */
        return divisor;
    while (UINT64_C(1) << divisor.shift < extent)
        divisor.shift++;
    divisor.magic = (uint32_t)((((UINT64_C(1) << divisor.shift) - extent) << 32) / extent + 1);
    return divisor;
}

struct divisor_wide divisor_wide_make(int64_t extent, int64_t limit) {
    struct divisor_wide divisor = {.extent = extent, .narrow = extent <= INT32_MAX && limit <= INT32_MAX};
    divisor.fast = divisor_make(divisor.narrow ? (uint32_t)extent : 1);
    return divisor;
}

/* ---- order of axes ---- */

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* The axis along which an operand's elements are closest together; of several, the last. -1: all strides are 0. */
static int plan_fastest(const struct space_plan *plan, int operand) {
    int fastest = -1;
    for (int i = 0; i < plan->rank; i++) {
        int64_t stride = magnitude(plan->strides[operand][i]);
        if (stride != 0 && (fastest < 0 || stride <= magnitude(plan->strides[operand][fastest])))
            fastest = i;
    }
    return fastest;
}

/* Moves an axis to place `to`; the axes between move by one. */
static void plan_move(struct space_plan *plan, int from, int to) {
    int64_t shape = plan->shape[from];
    for (int i = from; i < to; i++)
        plan->shape[i] = plan->shape[i + 1];
    plan->shape[to] = shape;
    for (int k = 0; k < plan->operands; k++) {
        int64_t *strides = plan->strides[k], stride = strides[from];
        for (int i = from; i < to; i++)
            strides[i] = strides[i + 1];
        strides[to] = stride;
    }
}

static void plan_order(struct space_plan *plan) {
    int inner = plan_fastest(plan, 0), last = plan->rank - 1;
    if (inner >= 0)
        plan_move(plan, inner, last);
    for (int k = 1; k < plan->operands && !plan->across; k++) {
        int fastest = plan_fastest(plan, k);
        if (fastest < 0 || fastest == last || plan->strides[k][last] == 0)
            continue;
        plan_move(plan, fastest, last - 1);
        plan->across = true;
    }
}

void space_plan_init(struct space_plan *plan, const struct launch *launch) {
    const struct operand *out = &launch->output;
    *plan = (struct space_plan){
        .operands = launch->n_inputs + 1, .rank = out->rank ? out->rank : 1, .lanes = 1, .shape = {1}};
    plan->dtype = launch->n_inputs ? launch->inputs[0].dtype : out->dtype;
    for (unsigned i = 0; i < launch->attributes.n_floats && i < SPACE_PARAMETERS; i++)
        plan->parameter[i] = launch->attributes.floats[i];
    for (int i = 0; i < out->rank; i++)
        plan->shape[i] = out->shape[i];
    for (int k = 0; k < plan->operands; k++) {
        const struct operand *operand = k == 0 ? out : &launch->inputs[k - 1];
        plan->data[k] = operand->data;
        plan->size[k] = (int64_t)dtype_size((enum dtype)operand->dtype);
        for (int i = 0; i < out->rank; i++)
            plan->strides[k][i] = operand->strides[i];
        if (out->rank == 0)
            plan->strides[k][0] = 1;
    }
    if (plan->rank > 1)
        plan_order(plan);
}

/* ---- several elements at a time ---- */

/* Whether `lanes` elements lie together along the inner axis and begin at multiples of their size in every row, or are one value. */
static bool operand_wide(const struct space_plan *plan, int operand, int lanes) {
    const int64_t *strides = plan->strides[operand];
    int last = plan->rank - 1;
    if (strides[last] == 0)
        return operand > 0;
    if (strides[last] != 1 || (uintptr_t)plan->data[operand] % (uintptr_t)(lanes * plan->size[operand]) != 0)
        return false;
    for (int i = 0; i < last; i++)
        if (strides[i] % lanes != 0)
            return false;
    return true;
}

bool space_plan_widen(struct space_plan *plan, int lanes) {
    int last = plan->rank - 1;
    if (lanes < 2 || plan->across || (plan->rank > 1 && plan->shape[last] % lanes != 0))
        return false;
    for (int k = 0; k < plan->operands; k++)
        if (!operand_wide(plan, k, lanes))
            return false;
    plan->lanes = lanes;
    plan->tail = (uint32_t)(plan->shape[last] % lanes);
    plan->shape[last] /= lanes;
    for (int k = 0; k < plan->operands; k++)
        plan->strides[k][last] *= lanes;
    return true;
}

/* ---- tiles ---- */

static uint32_t log_up(int64_t n, uint32_t most) {
    uint32_t log = 0;
    while (log < most && INT64_C(1) << log < n)
        log++;
    return log;
}

/* Not so narrow that a warp's accesses are no longer together. */
uint32_t space_tile_width(int64_t inner, uint32_t tile) {
    uint32_t best = log_up(inner, WARP_LOG);
    int64_t least = INT64_MAX;
    for (uint32_t width = best; width <= tile && inner <= INT64_MAX >> 12; width++) {
        int64_t covered = (((inner - 1) >> width) + 1) << width;
        if (covered <= least || covered - inner <= inner / 16) {
            least = covered < least ? covered : least;
            best = width;
        }
    }
    return best;
}

bool space_make(const struct space_plan *plan, struct space *space) {
    int last = plan->rank - 1;
    int64_t rows = 1, inner = plan->shape[last];
    *space = (struct space){.inner = inner, .outer = (uint32_t)last, .across = {1, 1, 0}};
    for (int k = 0; k < plan->operands; k++)
        space->inner_stride[k] = plan->strides[k][last];
    for (int i = 0; i < last; i++) {
        if (plan->shape[i] > COUNT_MAX / rows)
            return false;
        rows *= plan->shape[i];
        struct space_axis *axis = &space->axis[last - 1 - i];
        axis->extent = divisor_make((uint32_t)plan->shape[i]);
        for (int k = 0; k < plan->operands; k++)
            axis->stride[k] = plan->strides[k][i];
    }
    space->rows = (uint32_t)rows;
    if (inner == 0)
        return true;
    uint32_t tile = plan->lanes > 1 ? 9 : 10;
    _Static_assert(SPACE_THREADS * SPACE_UNROLL_WIDE == 1 << 9 && SPACE_THREADS * SPACE_UNROLL == 1 << 10, "tiles");
    /* If an input runs across, a tile has 32 rows: each cache line that is read of the input serves all of them. */
    bool across = plan->across && inner >> WARP_LOG != 0;
    space->width = across ? tile - log_up(rows, WARP_LOG) : space_tile_width(inner, tile);
    space->depth = tile - space->width;
    int64_t side = ((inner - 1) >> space->width) + 1, down = ((rows - 1) >> space->depth) + 1;
    if (side > COUNT_MAX / down)
        return false;
    space->across = divisor_make((uint32_t)side);
    space->tiles = (uint32_t)(side * down);
    return true;
}

void space_plan_cut(struct space_plan *plan, struct space_plan *second) {
    int axis = 0, last = plan->rank - 1;
    for (int i = 1; i < plan->rank; i++)
        if (plan->shape[i] > plan->shape[axis])
            axis = i;
    *second = *plan;
    int64_t half = plan->shape[axis] / 2;
    plan->shape[axis] = half;
    second->shape[axis] -= half;
    for (int k = 0; k < plan->operands; k++)
        second->data[k] += half * plan->strides[k][axis] * plan->size[k];
    if (axis == last)
        plan->tail = 0;
}

/* ---- launches ---- */

unsigned space_blocks(const struct cuda *cuda, int64_t work) {
    int64_t most = (int64_t)cuda->processors * BLOCKS_PER_PROCESSOR;
    return (unsigned)(work < 1 ? 1 : work < most ? work : most);
}

int space_start(const void *kernel, unsigned blocks, const void *arguments, struct fault *fault, cudaStream_t stream) {
    void *list[] = {(void *)(uintptr_t)arguments};
    CUDA_TRY(fault, cudaLaunchKernel(kernel, (dim3){blocks, 1, 1}, (dim3){SPACE_THREADS, 1, 1}, list, 0, stream));
    return STATUS_OK;
}

static int plan_launch(const struct cuda *cuda, struct space_plan *plan, space_kernel *kernel, struct fault *fault,
                       cudaStream_t stream) {
    struct space_arguments arguments = {.tail = plan->tail, .dtype = plan->dtype};
    if (!space_make(plan, &arguments.space)) {
        struct space_plan second;
        space_plan_cut(plan, &second);
        int code = plan_launch(cuda, plan, kernel, fault, stream);
        return code == STATUS_OK ? plan_launch(cuda, &second, kernel, fault, stream) : code;
    }
    memcpy(arguments.parameter, plan->parameter, sizeof arguments.parameter);
    for (int k = 0; k < plan->operands; k++)
        arguments.data[k] = plan->data[k];
    return space_start((const void *)kernel, space_blocks(cuda, arguments.space.tiles), &arguments, fault, stream);
}

/* Whether all operands of a plan that has been widened lie without gaps. */
static bool plan_is_flat(const struct space_plan *plan) {
    bool flat = plan->rank == 1;
    for (int k = 0; k < plan->operands; k++)
        flat &= plan->strides[k][0] != 0;
    return flat;
}

static int plan_launch_flat(const struct cuda *cuda, const struct space_plan *plan, flat_kernel *kernel,
                            struct fault *fault, cudaStream_t stream) {
    struct flat_arguments arguments = {.positions = plan->shape[0], .tail = plan->tail, .dtype = plan->dtype};
    memcpy(arguments.parameter, plan->parameter, sizeof arguments.parameter);
    for (int k = 0; k < plan->operands; k++)
        arguments.data[k] = plan->data[k];
    int64_t tiles = arguments.positions / (SPACE_THREADS * SPACE_UNROLL_WIDE) + 1;
    return space_start((const void *)kernel, space_blocks(cuda, tiles), &arguments, fault, stream);
}

int space_launch(const struct cuda *cuda, const struct launch *launch, const struct space_kernels *kernels,
                 struct fault *fault, cudaStream_t stream) {
    struct space_plan plan;
    space_plan_init(&plan, launch);
    bool wide = space_plan_widen(&plan, kernels->lanes);
    if (wide && kernels->flat && plan_is_flat(&plan))
        return plan_launch_flat(cuda, &plan, kernels->flat, fault, stream);
    if (wide && !kernels->wide) {
        space_plan_init(&plan, launch);
        wide = false;
    }
    return plan_launch(cuda, &plan, wide ? kernels->wide : kernels->narrow, fault, stream);
}
