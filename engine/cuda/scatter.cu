/* scatter and scatter_add.
 *
 * The indices are sorted, each with its place on the axis (argsort.cu): so all values of one element are neighbours, in the order of
 * their places. One thread sums them, or takes the last one, so that the result is the same from run to run. */
#include "engine/cuda/number.cuh"
#include "engine/cuda/sort_rows.cuh"
#include "engine/cuda/take.cuh"

namespace {

struct scatter_arguments {
    const char *items, *values;
    char *out;
    int64_t elements, n; /* items times columns; the extent of the axis of the output */
    int64_t strides[3];  /* of the values */
    int64_t number_step,
        column_step; /* how much further the place off the axis is in the next row of items, or column */
    struct divisor_wide k, inner, columns; /* places on the axis; elements behind it; columns that share the indices */
};

struct scatter_place {
    const sort_item *row; /* the items of its row */
    int64_t place, outer, inner;
    uint32_t to;

    __device__ __forceinline__ scatter_place(const struct scatter_arguments &p, int64_t element) {
        const int64_t slot = index_divide_wide(p.columns, element), column = element - slot * p.columns.extent;
        const int64_t number = index_divide_wide(p.k, slot), line = number * p.number_step + column * p.column_step;
        row = (const sort_item *)p.items + number * p.k.extent;
        place = slot - number * p.k.extent;
        outer = index_divide_wide(p.inner, line);
        inner = line - outer * p.inner.extent;
        to = (uint32_t)(row[place] >> 32);
    }
    __device__ __forceinline__ bool same(int64_t at) const {
        return (uint32_t)(row[at] >> 32) == to;
    }
    __device__ __forceinline__ int64_t from(const struct scatter_arguments &p, int64_t at) const {
        return outer * p.strides[0] + (int64_t)(row[at] & 0xffffffffu) * p.strides[1] + inner * p.strides[2];
    }
    __device__ __forceinline__ int64_t target(const struct scatter_arguments &p) const {
        return (outer * p.n + to) * p.inner.extent + inner;
    }
};

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) scatter_kernel(const __grid_constant__ struct scatter_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.elements; i += step) {
        const scatter_place at(p, i);
        if (at.to < p.n && (at.place + 1 == p.k.extent || !at.same(at.place + 1))) {
            ((T *)p.out)[at.target(p)] = ((const T *)p.values)[at.from(p, at.place)];
        }
    }
}

template <typename C> __device__ __forceinline__ C scatter_sum(C a, C b) {
    return a + b;
}
__device__ __forceinline__ formula_c64 scatter_sum(formula_c64 a, formula_c64 b) {
    return formula_add_c64(a, b);
}
__device__ __forceinline__ formula_c128 scatter_sum(formula_c128 a, formula_c128 b) {
    return formula_add_c128(a, b);
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS)
    scatter_add_kernel(const __grid_constant__ struct scatter_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.elements; i += step) {
        const scatter_place at(p, i);
        if (at.to < p.n && (at.place == 0 || !at.same(at.place - 1))) {
            T *to = (T *)p.out + at.target(p);
            auto sum = number_widen(*to);
            for (int64_t place = at.place; place < p.k.extent && at.same(place); place++) {
                sum = scatter_sum(sum, number_widen(((const T *)p.values)[at.from(p, place)]));
            }
            *to = number_store<T>::from(sum);
        }
    }
}

struct check_arguments {
    struct take_places indices;
    int64_t count;
};

__global__ void __launch_bounds__(SPACE_THREADS) check_kernel(const __grid_constant__ struct check_arguments p) {
    unsigned long long bad = none;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += step) {
        take_check(p.indices, i, take_index(p.indices, i), &bad);
    }
    take_finish(p.indices, bad);
}

} // namespace

/* ---- the launcher ---- */

typedef void scatter_function(const struct scatter_arguments arguments);

/* By the size of an element; sums of integers are the same with and without a sign. */
static scatter_function *const scatter_functions[] = {scatter_kernel<uint8_t>, scatter_kernel<uint16_t>,
                                                      scatter_kernel<uint32_t>, scatter_kernel<uint64_t>,
                                                      scatter_kernel<ulonglong2>};
static scatter_function *const add_functions[] = {scatter_add_kernel<uint8_t>, scatter_add_kernel<uint16_t>,
                                                  scatter_add_kernel<uint32_t>, scatter_add_kernel<uint64_t>};

static scatter_function *scatter_find(unsigned opcode, enum dtype dtype) {
    const size_t size = dtype_size(dtype), place = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4;
    if (opcode == OP_SCATTER) {
        return scatter_functions[place];
    }
    return dtype == DTYPE_F16    ? scatter_add_kernel<__half>
           : dtype == DTYPE_BF16 ? scatter_add_kernel<__nv_bfloat16>
           : dtype == DTYPE_F32  ? scatter_add_kernel<float>
           : dtype == DTYPE_F64  ? scatter_add_kernel<double>
           : dtype == DTYPE_C64  ? scatter_add_kernel<formula_c64>
           : dtype == DTYPE_C128 ? scatter_add_kernel<formula_c128>
                                 : add_functions[place];
}

static bool scatter_walk(cuda_kernel_seen *seen, void *context) {
    bool more = sort_rows_walk(seen, context) && seen(context, false, (const void *)check_kernel);
    for (scatter_function *kernel : scatter_functions) {
        more = more && seen(context, false, (const void *)kernel);
    }
    for (scatter_function *kernel : add_functions) {
        more = more && seen(context, false, (const void *)kernel);
    }
    for (enum dtype dtype : {DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_F64, DTYPE_C64, DTYPE_C128}) {
        more = more && seen(context, false, (const void *)scatter_find(OP_SCATTER_ADD, dtype));
    }
    return more;
}

/* Whether the indices are the same all along an axis. */
static bool scatter_repeats(const struct operand *indices, int axis) {
    return indices->shape[axis] == 1 || indices->strides[axis] == 0;
}

/* The rows in which indices are sorted, without those that repeat others. */
static struct sort_rows scatter_rows(const struct launch *launch) {
    const struct operand *x = &launch->inputs[0], *indices = &launch->inputs[1];
    const int64_t outer = scatter_repeats(indices, 0) ? 1 : indices->shape[0];
    struct sort_rows rows = {};
    rows.x = (const char *)indices->data;
    rows.type = {(uint32_t)dtype_size((enum dtype)indices->dtype), KEY_INDEX, (uint64_t)x->shape[1], 0};
    rows.n = indices->shape[1];
    rows.inner = scatter_repeats(indices, 2) ? 1 : indices->shape[2];
    rows.rows = outer * rows.inner;
    for (int i = 0; i < 3; i++) {
        rows.strides[i] = indices->strides[i];
    }
    rows.memory = (char *)launch->workspace;
    return rows;
}

static int scatter_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    int64_t n = launch->inputs[0].shape[1], k = launch->inputs[1].shape[1];
    (void)device;
    return n < UINT32_MAX && k < UINT32_MAX
               ? STATUS_OK
               : fault_set(fault, STATUS_UNSUPPORTED, "%lld indices into an axis of %lld elements are too many",
                           (long long)k, (long long)n);
}

static uint64_t scatter_workspace(struct device *device, const struct launch *launch) {
    struct sort_rows rows = scatter_rows(launch);
    (void)device;
    return sort_rows_bytes(rows.type, rows.rows, rows.n);
}

static int scatter_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    const struct operand *x = &launch->inputs[0], *indices = &launch->inputs[1];
    const struct operand *values = &launch->inputs[2], *out = &launch->output;
    const int64_t columns = x->shape[0] * x->shape[2];
    enum dtype dtype = (enum dtype)out->dtype;
    struct sort_rows rows = scatter_rows(launch);
    struct check_arguments check = {take_places_of(launch, 1, x->shape[1]),
                                    indices->shape[0] * indices->shape[1] * indices->shape[2]};
    struct scatter_arguments arguments = {};
    if (out->data != x->data) {
        CUDA_TRY(fault, cudaMemcpyAsync(out->data, x->data, (size_t)(columns * x->shape[1]) * dtype_size(dtype),
                                        cudaMemcpyDefault, stream->stream));
    }
    int code = space_start((const void *)check_kernel, space_blocks(cuda, check.count / SPACE_THREADS + 1), &check,
                           fault, stream->stream);
    if (code == STATUS_OK) {
        code = sort_rows_run(cuda, &rows, &arguments.items, fault, stream->stream);
    }
    if (code != STATUS_OK) {
        return code;
    }
    arguments.values = (const char *)values->data;
    arguments.out = (char *)out->data;
    arguments.elements = columns * rows.n;
    arguments.n = x->shape[1];
    for (int i = 0; i < 3; i++) {
        arguments.strides[i] = values->strides[i];
    }
    const bool whole = scatter_repeats(indices, 2);
    arguments.number_step = whole ? x->shape[2] : 1;
    arguments.column_step = !whole && scatter_repeats(indices, 0) ? x->shape[2] : 1;
    arguments.k = divisor_wide_make(rows.n, arguments.elements);
    arguments.inner = divisor_wide_make(x->shape[2], columns);
    arguments.columns = divisor_wide_make(columns / rows.rows, arguments.elements);
    return space_start((const void *)scatter_find(launch->opcode, dtype),
                       space_blocks(cuda, arguments.elements / SPACE_THREADS + 1), &arguments, fault, stream->stream);
}

#define SCATTER                                                                                                        \
    {                                                                                                                  \
        {.index_dtypes = TAKE_INDEX_DTYPES, .accepts = scatter_accepts, .workspace = scatter_workspace}, scatter_run,  \
            scatter_walk                                                                                               \
    }
const struct cuda_kernel cuda_kernel_scatter = SCATTER;
const struct cuda_kernel cuda_kernel_scatter_add = SCATTER;
