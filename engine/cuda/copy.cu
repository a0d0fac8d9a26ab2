/* Copies. Both contiguous: CUDA's own, which knows host memory as well (uploads, fetches). Both with the same fastest axis,
 * or a small matrix: the kernel of elementwise.cuh. Else a transposition through shared memory, which reads along the
 * input's fastest axis and writes along the output's. */
#include "engine/cuda/elementwise.cuh"

namespace {

enum { TRANSPOSE_LINES = SPACE_THREADS / 32 };

struct transpose_arguments {
    const char *in;
    char *out;
    int64_t columns, rows;                          /* along the output's fastest axis, and along the input's */
    int64_t in_column, in_row, out_column, out_row; /* from one to the next, in elements */
    struct divisor across, down;                    /* tiles of a matrix */
    uint32_t tiles, outer;
    struct space_axis axis[SHAPE_RANK_MAX - 2]; /* [outer], which make the matrices, the fastest first */
};

/* The elements of a tile that a thread reads and writes: in every eighth line, every 32nd element. In a full tile no bounds are compared;
 * addresses are stepped, since computing each of them takes longer than reading. */
template <typename T, int side>
__device__ __forceinline__ void transpose_read(const struct transpose_arguments &p, const T *in, int lines_left,
                                               int left, bool full, T (&value)[side / TRANSPOSE_LINES][side / 32]) {
    const T *from = in + threadIdx.x / 32 * p.in_column + threadIdx.x % 32 * p.in_row;
    const int64_t step = TRANSPOSE_LINES * p.in_column, across = 32 * p.in_row;
    if (full) {
#pragma unroll
        for (int n = 0; n < side / TRANSPOSE_LINES; n++, from += step) {
#pragma unroll
            for (int m = 0; m < side / 32; m++) {
                value[n][m] = from[m * across];
            }
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < side / TRANSPOSE_LINES; n++, from += step) {
#pragma unroll
        for (int m = 0; m < side / 32; m++) {
            if (n * TRANSPOSE_LINES < lines_left && m * 32 < left) {
                value[n][m] = from[m * across];
            }
        }
    }
}

template <typename T, int side>
__device__ __forceinline__ void transpose_write(const struct transpose_arguments &p, T *out, int lines_left, int left,
                                                bool full, const T (&value)[side / TRANSPOSE_LINES][side / 32]) {
    T *to = out + threadIdx.x / 32 * p.out_row + threadIdx.x % 32 * p.out_column;
    const int64_t step = TRANSPOSE_LINES * p.out_row, across = 32 * p.out_column;
    if (full) {
#pragma unroll
        for (int n = 0; n < side / TRANSPOSE_LINES; n++, to += step) {
#pragma unroll
            for (int m = 0; m < side / 32; m++) {
                to[m * across] = value[n][m];
            }
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < side / TRANSPOSE_LINES; n++, to += step) {
#pragma unroll
        for (int m = 0; m < side / 32; m++) {
            if (n * TRANSPOSE_LINES < lines_left && m * 32 < left) {
                to[m * across] = value[n][m];
            }
        }
    }
}

/* A warp's accesses go along one axis, 32 elements at a time, eight warps to a tile. The tile's rows in shared memory are
 * an odd number of 32-bit words apart (of larger ones for larger elements), so that a column is in 32 banks. */
template <typename T, int side>
__global__ void __launch_bounds__(SPACE_THREADS)
    transpose_kernel(const __grid_constant__ struct transpose_arguments p) {
    constexpr int padding = sizeof(T) < 4 ? 4 / sizeof(T) : 1, lines = TRANSPOSE_LINES;
    __shared__ T square[side][side + padding];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    for (uint32_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        uint32_t above = index_divide(p.across, tile), matrix = index_divide(p.down, above);
        int64_t column = (int64_t)(tile - above * p.across.extent) * side;
        int64_t row = (int64_t)(above - matrix * p.down.extent) * side;
        int64_t from = column * p.in_column + row * p.in_row, to = column * p.out_column + row * p.out_row;
        for (uint32_t a = 0; a < p.outer; a++) {
            uint32_t next = index_divide(p.axis[a].extent, matrix), index = matrix - next * p.axis[a].extent.extent;
            matrix = next;
            to += (int64_t)index * p.axis[a].stride[0];
            from += (int64_t)index * p.axis[a].stride[1];
        }
        const T *in = (const T *)p.in + from;
        T *out = (T *)p.out + to;
        T value[side / lines][side / 32]; /* all of a thread's reads are under way before it waits for the first */
        const int columns = p.columns - column < side ? (int)(p.columns - column) : side;
        const int rows = p.rows - row < side ? (int)(p.rows - row) : side;
        const bool full = columns == side && rows == side;
        transpose_read<T, side>(p, in, columns - line, rows - lane, full, value);
#pragma unroll
        for (int n = 0; n < side / lines; n++) {
#pragma unroll
            for (int m = 0; m < side / 32; m++) {
                square[line + n * lines][lane + m * 32] = value[n][m];
            }
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < side / lines; n++) {
#pragma unroll
            for (int m = 0; m < side / 32; m++) {
                value[n][m] = square[lane + m * 32][line + n * lines];
            }
        }
        transpose_write<T, side>(p, out, rows - line, columns - lane, full, value);
        __syncthreads();
    }
}

template <typename T> struct copy {
    enum { inputs = 1, parameters = 0 };
    typedef T first, second, third, result;
    static __device__ __forceinline__ T apply(T a, T, T) {
        return a;
    }
};

} // namespace

/* ---- launchers, by the size of an element ---- */

typedef void transpose_function(const struct transpose_arguments arguments);

struct copy_row {
    int64_t size;
    struct space_kernels kernels;
    transpose_function *transpose;
    int64_t side;
};

static const struct copy_row copy_rows[] = {
    {1, elementwise_kernels<copy<uint8_t>>(), transpose_kernel<uint8_t, 64>, 64},
    {2, elementwise_kernels<copy<uint16_t>>(), transpose_kernel<uint16_t, 64>, 64},
    {4, elementwise_kernels<copy<uint32_t>>(), transpose_kernel<uint32_t, 64>, 64},
    {8, elementwise_kernels<copy<uint64_t>>(), transpose_kernel<uint64_t, 32>, 32},
    {16, elementwise_kernels<copy<ulonglong2>>(), transpose_kernel<ulonglong2, 32>, 32},
};

static bool copy_walk(cuda_kernel_seen *seen, void *context) {
    for (const struct copy_row &row : copy_rows) {
        if (!space_walk(&row.kernels, true, seen, context) || !seen(context, true, (const void *)row.transpose)) {
            return false;
        }
    }
    return true;
}

static const struct copy_row *copy_find(int64_t size) {
    return &copy_rows[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4];
}

/* False: there are too many matrices or tiles; the copy must be cut. */
static bool transpose_make(const struct space_plan *plan, int64_t side, struct transpose_arguments *arguments) {
    int x = plan->rank - 1, y = plan->rank - 2;
    int64_t across = (plan->shape[x] - 1) / side + 1, down = (plan->shape[y] - 1) / side + 1, tiles = 1;
    memset(arguments, 0, sizeof *arguments);
    for (int i = y - 1; i >= 0; i--) {
        if (plan->shape[i] > INT32_MAX / tiles) {
            return false;
        }
        tiles *= plan->shape[i];
        struct space_axis *axis = &arguments->axis[arguments->outer++];
        axis->extent = divisor_make((uint32_t)plan->shape[i]);
        axis->stride[0] = plan->strides[0][i];
        axis->stride[1] = plan->strides[1][i];
    }
    if (across > INT32_MAX / tiles || down > INT32_MAX / (tiles * across)) {
        return false;
    }
    arguments->tiles = (uint32_t)(tiles * across * down);
    arguments->across = divisor_make((uint32_t)across);
    arguments->down = divisor_make((uint32_t)down);
    arguments->out = plan->data[0];
    arguments->in = plan->data[1];
    arguments->columns = plan->shape[x];
    arguments->rows = plan->shape[y];
    arguments->out_column = plan->strides[0][x];
    arguments->out_row = plan->strides[0][y];
    arguments->in_column = plan->strides[1][x];
    arguments->in_row = plan->strides[1][y];
    return true;
}

static int transpose_launch(const struct cuda *cuda, struct space_plan *plan, const struct copy_row *copy,
                            struct fault *fault, cudaStream_t stream) {
    struct transpose_arguments arguments;
    if (!transpose_make(plan, copy->side, &arguments)) {
        struct space_plan second;
        space_plan_cut(plan, &second);
        int code = transpose_launch(cuda, plan, copy, fault, stream);
        return code == STATUS_OK ? transpose_launch(cuda, &second, copy, fault, stream) : code;
    }
    return space_start((const void *)copy->transpose, space_blocks(cuda, arguments.tiles), &arguments, fault, stream);
}

static bool operand_contiguous(const struct operand *operand) {
    return operand->rank == 0 || (operand->rank == 1 && (operand->strides[0] == 1 || operand->shape[0] == 1));
}

static int copy_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    enum { WORTHWHILE = 32 }; /* extent of both axes below which a tile would be nearly empty */
    const struct operand *out = &launch->output, *in = &launch->inputs[0];
    int64_t size = (int64_t)dtype_size((enum dtype)out->dtype);
    if (operand_contiguous(out) && operand_contiguous(in)) {
        int64_t n = out->rank ? out->shape[0] : 1;
        CUDA_TRY(fault, cudaMemcpyAsync(out->data, in->data, (size_t)(n * size), cudaMemcpyDefault, stream->stream));
        return STATUS_OK;
    }
    struct space_plan plan;
    const struct copy_row *copy = copy_find(size);
    space_plan_init(&plan, launch);
    if (plan.across && plan.shape[plan.rank - 1] >= WORTHWHILE && plan.shape[plan.rank - 2] >= WORTHWHILE) {
        return transpose_launch(cuda, &plan, copy, fault, stream->stream);
    }
    return space_launch(cuda, launch, &copy->kernels, fault, stream->stream);
}

const struct cuda_kernel cuda_kernel_copy = {.driver = copy_run, .walk = copy_walk};
