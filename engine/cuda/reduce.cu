/* Reductions: how a launch is shared out over the device. The kernels are in reduce.cuh; reduce_whole.cuh has CUB's for whole tensors. They
 * are instantiated in reduce_*.cu. */
#include <math.h>

#include "engine/cuda/cuda.h"
#include "engine/cuda/reduce.cuh"
#include "engine/cuda/reduce.h"

enum {
    ROW_UNITS = 4,      /* a further thread for a row pays if it has so many loads */
    SHORT_RUN = 16,     /* a single thread takes so many elements of one output, or fewer */
    PART_UNITS = 16,    /* a part pays if each thread has so many loads */
    BLOCKS_BUSY = 4,    /* with so many blocks for each processor the device is busy; */
    BLOCKS_WANTED = 16, /* if there are fewer, outputs are cut to make so many; */
    BLOCKS_MAX = 64,    /* at most so many are launched, which loop over the tiles */
    MERGE_LANES_MAX = REDUCE_THREADS,
    ALONE_UNITS = 4, /* a row may be a block's alone, if each thread has so many loads, though the device has few rows */
};

/* ---- which kernel ---- */

static bool reduce_is_position(unsigned opcode) {
    return opcode == OP_ARGMAX || opcode == OP_ARGMIN;
}

static const struct reduce_kernel *reduce_kernel_of(unsigned opcode, unsigned dtype) {
    static const struct {
        unsigned opcode;
        const struct reduce_kernel *kernels;
        bool floating, bools; /* of all dtypes in the table, only these */
    } rows[] = {
        {OP_SUM, reduce_sums, false, false},
        {OP_PROD, reduce_products, false, false},
        {OP_MEAN, reduce_sums, true, false},
        {OP_MAX, reduce_extremes, false, false},
        {OP_MIN, reduce_extremes, false, false},
        {OP_ANY, reduce_extremes, false, true},
        {OP_ALL, reduce_extremes, false, true},
        {OP_ARGMAX, reduce_positions, false, false},
        {OP_ARGMIN, reduce_positions, false, false},
        {OP_VAR, reduce_variances, true, false},
        {OP_STD, reduce_variances, true, false},
        {OP_COUNT_NONZERO, reduce_counts, false, false},
        {OP_LOGSUMEXP, reduce_exponentials, true, false},
        {OP_VECTOR_NORM, reduce_norms, true, false},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].opcode == opcode && dtype < DTYPE_COUNT) {
            bool floats = dtype_kind((enum dtype)dtype) == DTYPE_KIND_FLOAT;
            bool listed = (!rows[i].floating || floats) && (!rows[i].bools || dtype == DTYPE_BOOL);
            return listed && rows[i].kernels[dtype].launch ? &rows[i].kernels[dtype] : NULL;
        }
    }
    return NULL;
}

/* Of empty inputs. */
template <class T> static __global__ void reduce_fill(T *out, int64_t n, T value) {
    for (int64_t i = (int64_t)blockIdx.x * REDUCE_THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * REDUCE_THREADS) {
        out[i] = value;
    }
}

static const void *const reduce_fills[] = {(const void *)reduce_fill<uint8_t>, (const void *)reduce_fill<uint16_t>,
                                           (const void *)reduce_fill<uint32_t>, (const void *)reduce_fill<uint64_t>,
                                           (const void *)reduce_fill<ulonglong2>};

static bool reduce_walk(cuda_kernel_seen *seen, void *context) {
    const struct reduce_kernel *const tables[] = {
        reduce_sums,        reduce_extremes,        reduce_positions,   reduce_products,
        reduce_variances,   reduce_norms,           reduce_counts,      reduce_exponentials,
        reduce_sums_narrow, reduce_products_narrow, reduce_means_narrow};
    for (const struct reduce_kernel *kernels : tables) {
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
            bool common = cuda_dtype_common((enum dtype)dtype) &&
                          (kernels == reduce_sums || kernels == reduce_extremes || kernels == reduce_positions);
            if (kernels[dtype].walk && !kernels[dtype].walk(seen, context, common)) {
                return false;
            }
        }
    }
    for (const void *kernel : reduce_fills) {
        if (!seen(context, false, kernel)) {
            return false;
        }
    }
    return true;
}

/* NULL: there is no kernel for such elements and such a result. */
static const struct reduce_kernel *reduce_kernel_narrow(unsigned opcode, enum dtype from, enum dtype to) {
    const struct reduce_kernel *kernels = opcode == OP_SUM    ? reduce_sums_narrow
                                          : opcode == OP_PROD ? reduce_products_narrow
                                          : opcode == OP_MEAN ? reduce_means_narrow
                                                              : NULL;
    bool wide = opcode == OP_MEAN ? to == DTYPE_F32 : to == DTYPE_I64 || to == DTYPE_U64;
    return kernels && wide && kernels[from].launch ? &kernels[from] : NULL;
}

static const struct reduce_kernel *reduce_kernel_for(const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    return x->dtype == x->as ? reduce_kernel_of(launch->opcode, x->dtype)
                             : reduce_kernel_narrow(launch->opcode, (enum dtype)x->dtype, (enum dtype)x->as);
}

static bool reduce_converts(const struct device *device, unsigned opcode, enum dtype from, enum dtype to) {
    (void)device;
    return reduce_kernel_narrow(opcode, from, to) != NULL;
}

static bool reduce_has(unsigned opcode, enum dtype dtype) {
    return reduce_kernel_of(opcode, (unsigned)dtype) != NULL;
}

/* ---- axes ---- */

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* Whether an axis should be inside of another one: its stride is smaller, but not 0. */
static bool axis_is_inner(int64_t stride, int64_t other) {
    return stride != 0 && (other == 0 || magnitude(stride) < magnitude(other));
}

/* Brings the axes of x (and of y, the same ones in the output) into the order in which memory is read best. */
static void axes_sort(struct reduce_axes *x, struct reduce_axes *y) {
    for (int i = 1; i < x->rank; i++) {
        struct reduce_axes one = {1, {x->shape[i], y->strides[i]}, {x->strides[i]}};
        int at = i;
        for (; at > 0 && axis_is_inner(x->strides[at - 1], one.strides[0]); at--) {
            x->shape[at] = y->shape[at] = x->shape[at - 1];
            x->strides[at] = x->strides[at - 1];
            y->strides[at] = y->strides[at - 1];
        }
        x->shape[at] = y->shape[at] = one.shape[0];
        x->strides[at] = one.strides[0];
        y->strides[at] = one.shape[1];
    }
}

/* Drops axes of one element and merges neighbours that lie as one in both. */
static void axes_merge(struct reduce_axes *x, struct reduce_axes *y) {
    int n = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->shape[i] == 1) {
            continue;
        }
        bool merge = n > 0 && x->strides[n - 1] == x->strides[i] * x->shape[i] &&
                     y->strides[n - 1] == y->strides[i] * x->shape[i];
        n -= merge ? 1 : 0;
        x->shape[n] = merge ? x->shape[n] * x->shape[i] : x->shape[i];
        y->shape[n] = x->shape[n];
        x->strides[n] = x->strides[i];
        y->strides[n] = y->strides[i];
        n++;
    }
    x->rank = y->rank = n;
}

static int64_t axes_count(const struct reduce_axes *axes) {
    int64_t count = 1;
    for (int i = 0; i < axes->rank; i++) {
        count *= axes->shape[i];
    }
    return count;
}

static void axes_from(struct reduce_axes *axes, const struct operand *x, int begin, int end) {
    axes->rank = end - begin;
    for (int i = begin; i < end; i++) {
        axes->shape[i - begin] = x->shape[i];
        axes->strides[i - begin] = x->strides[i];
    }
}

/* ---- the plan ---- */

/* Unless positions are asked for, the reduced axes may be taken in any order and direction. */
static void plan_turn(struct reduce_plan *plan, int64_t size) {
    const char *in = (const char *)plan->in;
    struct reduce_axes *axes = &plan->stepped, same;
    for (int i = 0; i < axes->rank; i++) {
        if (axes->strides[i] < 0) {
            in += (axes->shape[i] - 1) * axes->strides[i] * size;
            axes->strides[i] = -axes->strides[i];
        }
    }
    same = *axes;
    axes_sort(axes, &same);
    same = *axes;
    axes_merge(axes, &same);
    plan->in = in;
}

static void plan_axes(struct reduce_plan *plan, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    int k = out->rank;
    plan->in = x->data;
    plan->out = out->data;
    axes_from(&plan->kept, x, 0, k);
    axes_from(&plan->kept_out, x, 0, k);
    int64_t stride = 1;
    for (int i = k - 1; i >= 0; i--) {
        plan->kept_out.strides[i] = stride;
        stride *= x->shape[i];
    }
    axes_sort(&plan->kept, &plan->kept_out);
    axes_merge(&plan->kept, &plan->kept_out);
    plan->outputs = axes_count(&plan->kept);
    axes_from(&plan->stepped, x, k, x->rank);
    if (!reduce_is_position(launch->opcode)) {
        plan_turn(plan, (int64_t)dtype_size((enum dtype)x->dtype));
    }
    int last = plan->stepped.rank - 1;
    plan->run = plan->run_stride = 1;
    if (last >= 0) {
        plan->run = plan->stepped.shape[last];
        plan->run_stride = plan->run == 1 ? 1 : plan->stepped.strides[last];
        plan->stepped.rank = last;
    }
    plan->steps = axes_count(&plan->stepped);
}

static int64_t ceiling(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* The least power of two that is not less than n, but at most `most`. */
static int power_of_two(int64_t n, int most) {
    int power = 1;
    while (power < n && power < most) {
        power *= 2;
    }
    return power;
}

/* Of `lanes` threads that share the elements of an output, how many take a run of `units` loads side by side. */
static int plan_across(int64_t units, int64_t steps, int lanes) {
    int across = power_of_two(ceiling(units, REDUCE_UNROLL), lanes), beside = power_of_two(steps, lanes);
    return across * beside < lanes ? lanes / beside : across;
}

/* Cuts each output's elements where there are too few blocks. `units` are loads of one thread in a run, `lanes` threads
 * share an output. */
static void plan_parts(struct reduce_plan *plan, const struct cuda *cuda, int64_t units, int lanes, int64_t blocks) {
    plan->parts = 1;
    plan->part_steps = plan->steps;
    plan->part_run = plan->run;
    if (blocks >= (int64_t)cuda->processors * BLOCKS_BUSY) {
        return;
    }
    int64_t wanted = ceiling((int64_t)cuda->processors * BLOCKS_WANTED, blocks);
    int64_t worth = units * plan->steps / ((int64_t)lanes * PART_UNITS);
    int64_t parts = wanted < worth ? wanted : worth;
    if (parts < 2) {
        return;
    }
    if (plan->steps >= parts) {
        plan->part_steps = ceiling(plan->steps, parts);
        plan->parts = ceiling(plan->steps, plan->part_steps);
    } else {
        plan->part_run =
            ceiling(ceiling(plan->run, parts), 64) * 64; /* so that all parts are aligned as the first one is */
        plan->parts = ceiling(plan->run, plan->part_run);
    }
}

static bool plan_goes_down(const struct reduce_plan *plan) {
    if (plan->kept.rank == 0) {
        return false;
    }
    int64_t kept = plan->kept.strides[plan->kept.rank - 1];
    int64_t count = plan->run * plan->steps;
    return count == 1 || axis_is_inner(kept, plan->run_stride) ||
           (count <= SHORT_RUN && plan->outputs >= REDUCE_THREADS);
}

/* Whether columns lie side by side, as many as a thread takes, at addresses for one access, all the way down. */
static bool plan_beside(const struct reduce_plan *plan, int64_t size) {
    int last = plan->kept.rank - 1;
    int64_t bytes = REDUCE_COLUMNS * size < 16 ? REDUCE_COLUMNS * size : 16;
    uint64_t places = (uint64_t)(uintptr_t)plan->in | (uint64_t)(plan->run == 1 ? 0 : plan->run_stride * size);
    for (int i = 0; i < last; i++) {
        places |= (uint64_t)(plan->kept.strides[i] * size);
    }
    for (int i = 0; i < plan->stepped.rank; i++) {
        places |= (uint64_t)(plan->stepped.strides[i] * size);
    }
    return plan->kept.strides[last] == 1 && plan->kept.shape[last] % REDUCE_COLUMNS == 0 &&
           places % (uint64_t)bytes == 0;
}

/* Returns the number of tiles. */
static int64_t plan_columns(struct reduce_plan *plan, const struct cuda *cuda, int64_t size, bool beside) {
    int64_t count = plan->run * plan->steps, columns;
    plan->beside = beside && plan_beside(plan, size);
    columns = plan->beside ? REDUCE_COLUMNS : 1;
    int wide = power_of_two(plan->kept.shape[plan->kept.rank - 1] / columns, 32);
    int rows = power_of_two(ceiling(count, REDUCE_UNROLL), REDUCE_THREADS / wide);
    plan->lanes = REDUCE_THREADS / rows;
    plan->across = plan_across(plan->run, plan->steps, rows);
    int64_t blocks = ceiling(plan->outputs, plan->lanes * columns);
    plan_parts(plan, cuda, plan->run, rows, blocks);
    return blocks * plan->parts;
}

static int64_t plan_rows(struct reduce_plan *plan, const struct cuda *cuda, int vector) {
    int64_t run_units = plan->run_stride == 1 ? ceiling(plan->run, vector) : plan->run;
    int64_t units = run_units * plan->steps;
    plan->lanes = power_of_two(ceiling(units, ROW_UNITS), units > 32 * 64 ? REDUCE_THREADS : 32);
    while (plan->lanes < REDUCE_THREADS && plan->lanes < units &&
           plan->outputs * plan->lanes < (int64_t)cuda->processors * BLOCKS_BUSY * REDUCE_THREADS) {
        plan->lanes *= 2;
    }
    plan->across = plan_across(run_units, plan->steps, plan->lanes);
    int64_t blocks = ceiling(plan->outputs, REDUCE_THREADS / plan->lanes);
    plan_parts(plan, cuda, run_units, plan->lanes, blocks);
    return blocks * plan->parts;
}

static int plan_grid(const struct cuda *cuda, int64_t tiles) {
    int64_t most = (int64_t)cuda->processors * BLOCKS_MAX;
    return (int)(tiles < most ? tiles : most);
}

static double plan_divisor(unsigned opcode, double count, double correction) {
    if (opcode == OP_VAR || opcode == OP_STD) {
        return count > correction ? count - correction : 0;
    }
    return opcode == OP_MEAN ? count : 1;
}

/* The bits of which one is set if an element is not 0: of floats all but the sign. */
static uint64_t plan_mask(enum dtype dtype) {
    uint64_t sign = dtype_kind(dtype) == DTYPE_KIND_FLOAT ? UINT64_C(1) << (8 * dtype_size(dtype) - 1) : 0;
    return ~sign;
}

static void plan_init(struct reduce_plan *plan, const struct cuda *cuda, const struct launch *launch,
                      const struct reduce_kernel *kernel) {
    struct reduce_numbers *numbers = &plan->numbers;
    memset(plan, 0, sizeof *plan);
    plan_axes(plan, launch);
    numbers->lowest = launch->opcode == OP_MIN || launch->opcode == OP_ALL || launch->opcode == OP_ARGMIN;
    numbers->parameter = launch->attributes.n_floats ? launch->attributes.floats[0] : 0;
    numbers->divisor = plan_divisor(launch->opcode, (double)plan->run * (double)plan->steps, numbers->parameter);
    numbers->root = launch->opcode == OP_STD;
    numbers->mask = plan_mask((enum dtype)launch->inputs[0].dtype);
    plan->down = plan_goes_down(plan);
    int64_t size = (int64_t)dtype_size((enum dtype)launch->inputs[0].dtype);
    int64_t tiles = plan->down ? plan_columns(plan, cuda, size, kernel->beside) : plan_rows(plan, cuda, kernel->vector);
    plan->grid = plan_grid(cuda, tiles);
    plan->merge_lanes = power_of_two(plan->parts, MERGE_LANES_MAX);
    plan->merge_grid = plan_grid(cuda, ceiling(plan->outputs, REDUCE_THREADS / plan->merge_lanes));
}

/* ---- empty inputs ---- */

/* The bits of the result of no elements: a number of this kind. `parameter` is the operation's. */
static uint64_t nothing_bits(unsigned opcode, unsigned dtype, double parameter) {
    enum { ZERO, ONE, NOT_A_NUMBER, INFINITE, LOWEST };
    static const uint64_t floats[][4] = {
        {0, 0, 0, 0},
        {0x3c00, 0x3f80, 0x3f800000, UINT64_C(0x3ff0000000000000)},
        {0x7e00, 0x7fc0, 0x7fc00000, UINT64_C(0x7ff8000000000000)},
        {0x7c00, 0x7f80, 0x7f800000, UINT64_C(0x7ff0000000000000)},
        {0xfc00, 0xff80, 0xff800000, UINT64_C(0xfff0000000000000)},
    };
    int kind = opcode == OP_PROD || opcode == OP_ALL       ? ONE
               : opcode == OP_MEAN                         ? NOT_A_NUMBER
               : opcode == OP_VAR || opcode == OP_STD      ? (parameter < 0 ? ZERO : NOT_A_NUMBER)
               : opcode == OP_VECTOR_NORM && parameter < 0 ? INFINITE
               : opcode == OP_LOGSUMEXP                    ? LOWEST
                                                           : ZERO;
    dtype = dtype_real((enum dtype)dtype); /* behind it is the imaginary part, 0 */
    return dtype_kind((enum dtype)dtype) == DTYPE_KIND_FLOAT ? floats[kind][dtype - DTYPE_F16] : kind == ONE;
}

/* The results of an empty input, which has no memory. */
static int reduce_nothing(const struct cuda *cuda, const struct launch *launch, cudaStream_t stream,
                          struct fault *fault) {
    const struct operand *out = &launch->output;
    double parameter = launch->attributes.n_floats ? launch->attributes.floats[0] : 0;
    uint64_t bits = nothing_bits(launch->opcode, out->dtype, parameter);
    int64_t n = 1;
    for (int i = 0; i < out->rank; i++) {
        n *= out->shape[i];
    }
    int grid = plan_grid(cuda, ceiling(n, REDUCE_THREADS));
    switch (dtype_size((enum dtype)out->dtype)) {
    case 1:
        reduce_fill<<<grid, REDUCE_THREADS, 0, stream>>>((uint8_t *)out->data, n, (uint8_t)bits);
        break;
    case 2:
        reduce_fill<<<grid, REDUCE_THREADS, 0, stream>>>((uint16_t *)out->data, n, (uint16_t)bits);
        break;
    case 4:
        reduce_fill<<<grid, REDUCE_THREADS, 0, stream>>>((uint32_t *)out->data, n, (uint32_t)bits);
        break;
    case 8:
        reduce_fill<<<grid, REDUCE_THREADS, 0, stream>>>((uint64_t *)out->data, n, bits);
        break;
    default:
        reduce_fill<<<grid, REDUCE_THREADS, 0, stream>>>((ulonglong2 *)out->data, n, make_ulonglong2(bits, 0));
    }
    CUDA_TRY(fault, cudaGetLastError());
    return STATUS_OK;
}

static bool reduce_is_empty(const struct operand *x) {
    bool empty = !x->data;
    for (int i = 0; i < x->rank; i++) {
        empty |= x->shape[i] == 0;
    }
    return empty;
}

/* Whether CUB may compute it: one run without gaps that is cut into parts for more than one block. */
static bool plan_may_be_whole(const struct reduce_plan *plan, const struct reduce_kernel *kernel) {
    return kernel->whole && plan->parts > 1 && plan->outputs == 1 && plan->steps == 1 && plan->run_stride == 1;
}

/* Bytes for the parts' accumulators. Only CUB can tell what it needs, which would take a call of CUDA for each operation that is bound: it is
 * an accumulator for each of at most 5 times the blocks that are on the device at once, at an address that it rounds up. */
static size_t plan_bytes(const struct reduce_plan *plan, const struct cuda *cuda, const struct reduce_kernel *kernel) {
    enum { BLOCKS_AT_ONCE = 32, CUB_FACTOR = 5, CUB_SLACK = 512 };
    if (plan->parts < 2) {
        return 0;
    }
    size_t size = (size_t)kernel->accumulator, parts = (size_t)plan->outputs * (size_t)plan->parts * size;
    size_t whole = (size_t)cuda->processors * BLOCKS_AT_ONCE * CUB_FACTOR * size + CUB_SLACK;
    return plan_may_be_whole(plan, kernel) && whole > parts ? whole : parts;
}

/* Whether CUB computes it with so much memory, and how much of that it needs, which depends on the device alone. After an error while it
 * looks at the device, CUB may always return that error: then later launches do without CUB. */
static bool plan_is_whole(const struct reduce_plan *plan, const struct reduce_kernel *kernel, cudaStream_t stream,
                          size_t *bytes) {
    size_t most = *bytes;
    if (!plan_may_be_whole(plan, kernel)) {
        return false;
    }
    bool whole = kernel->whole(plan, NULL, bytes, stream) == cudaSuccess;
    if (!whole) {
        cudaGetLastError(); /* clears the error; a sticky one comes back with the launch */
    }
    return whole && *bytes <= most;
}

static uint64_t reduce_workspace(struct device *device, const struct launch *launch) {
    const struct cuda *cuda = cuda_of(device);
    const struct reduce_kernel *kernel = reduce_kernel_for(launch);
    struct reduce_plan plan;
    if (reduce_is_empty(&launch->inputs[0])) {
        return 0;
    }
    plan_init(&plan, cuda, launch, kernel);
    return plan_bytes(&plan, cuda, kernel);
}

unsigned reduce_lanes(const struct cuda *cuda, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    const struct reduce_kernel *kernel = x->dtype == x->as ? reduce_kernel_for(launch) : NULL;
    struct reduce_plan plan;
    if (!kernel || reduce_is_empty(x)) {
        return 0;
    }
    plan_init(&plan, cuda, launch, kernel);
    const bool rows = !plan.down && plan.parts == 1 && plan.steps == 1 && plan.run_stride == 1;
    const bool busy = 2 * plan.outputs >= cuda->processors ||
                      ceiling(plan.run, kernel->vector) <= (int64_t)plan.lanes * ALONE_UNITS;
    return rows && busy && plan.across == plan.lanes ? (unsigned)plan.lanes : 0;
}

static int reduce_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    const struct reduce_kernel *kernel = reduce_kernel_for(launch);
    struct reduce_plan plan;
    if (reduce_is_empty(&launch->inputs[0])) {
        return reduce_nothing(cuda, launch, stream->stream, fault);
    }
    plan_init(&plan, cuda, launch, kernel);
    plan.partials = launch->workspace;
    size_t bytes = plan_bytes(&plan, cuda, kernel);
    bool whole = plan_is_whole(&plan, kernel, stream->stream, &bytes);
    CUDA_TRY(fault, whole ? kernel->whole(&plan, plan.partials, &bytes, stream->stream)
                          : kernel->launch(&plan, stream->stream));
    return STATUS_OK;
}

CUDA_KERNELS_FOUND(reduce_found, reduce_has)

#define REDUCTION                                                                                                      \
    { {.dtypes = reduce_found, .converts = reduce_converts, .workspace = reduce_workspace}, reduce_run, reduce_walk }
const struct cuda_kernel cuda_kernel_sum = REDUCTION;
const struct cuda_kernel cuda_kernel_prod = REDUCTION;
const struct cuda_kernel cuda_kernel_mean = REDUCTION;
const struct cuda_kernel cuda_kernel_max = REDUCTION;
const struct cuda_kernel cuda_kernel_min = REDUCTION;
const struct cuda_kernel cuda_kernel_any = REDUCTION;
const struct cuda_kernel cuda_kernel_all = REDUCTION;
const struct cuda_kernel cuda_kernel_argmax = REDUCTION;
const struct cuda_kernel cuda_kernel_argmin = REDUCTION;
const struct cuda_kernel cuda_kernel_var = REDUCTION;
const struct cuda_kernel cuda_kernel_std = REDUCTION;
const struct cuda_kernel cuda_kernel_count_nonzero = REDUCTION;
const struct cuda_kernel cuda_kernel_logsumexp = REDUCTION;
const struct cuda_kernel cuda_kernel_vector_norm = REDUCTION;
