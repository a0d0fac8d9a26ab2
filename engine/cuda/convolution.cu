/* Convolutions as products of matrices that are never in memory: a block computes TILE by TILE results, 16 by 16 threads with 4 by 4 each,
 * and gathers what it multiplies into shared memory, TILE_DEPTH products of each sum at a time, zeros for the padding.
 *
 *              rows                     columns                      summed over
 * forward      y's channels             places of y, of all images   x's channels, kernel
 * back         x's channels             places of x, of all images   y's channels, kernel
 * weight       y's channels             x's channels, kernel         places of y, of all images
 *
 * Where an element is gathered from is the sum of two parts, one of the column and one of the term; a thread's column stays, and the terms
 * are taken apart once for all threads. If there are few results of long sums, the sums are cut into parts, which a second kernel
 * adds up, always in the same order. */
#include "engine/cuda/cuda.h"
#include "engine/cuda/space.h"
#include "proto/ops/convolution.h"

namespace {

enum {
    TILE = 64,
    TILE_DEPTH = 16,
    TILE_SIDE = 16,
    TILE_RESULTS = TILE / TILE_SIDE,
    TILE_LOADS = TILE * TILE_DEPTH / SPACE_THREADS,
    PART_LEAST = 16 * TILE_DEPTH, /* terms of a part */
    PARTS_MOST = 64,
    BLOCKS_WANTED = 2, /* for each processor */
};

enum convolution_way { WAY_FORWARD, WAY_BACK, WAY_WEIGHT };

struct convolution_arguments {
    struct convolution c;
    const void *source, *left, *bias;
    void *result, *partials;      /* [parts][results]; NULL where there is one part */
    int64_t rows, columns, depth; /* of a group's product */
    int64_t row_tiles, column_tiles;
    int64_t parts, part;     /* terms of a part, a multiple of TILE_DEPTH */
    int64_t source_channels; /* of a group */
    int32_t source_extent[3], place_extent[3];
    int64_t source_places, places, kernel; /* volumes */
};

/* A part of where an element is: `left` is used of terms alone, for the other factor. */
struct convolution_part {
    int64_t offset, left;
    int32_t z, y, x;
};

/* Of a place in an image: of a column, or of a term of the weight's gradient. */
template <int way>
__device__ __forceinline__ convolution_part place_part(const convolution_arguments &p, int64_t group, int64_t at) {
    const int64_t image = at / p.places;
    uint32_t place = (uint32_t)(at - image * p.places);
    const uint32_t width = (uint32_t)p.place_extent[2], height = (uint32_t)p.place_extent[1];
    const uint32_t row = place / width, x = place - row * width, z = row / height, y = row - z * height;
    convolution_part part;
    part.offset = (image * p.c.groups + group) * p.source_channels * p.source_places;
    part.left = image * p.c.groups * p.rows * p.places + place;
    if (way == WAY_BACK) {
        part.z = (int32_t)(z + p.c.padding[0]);
        part.y = (int32_t)(y + p.c.padding[1]);
        part.x = (int32_t)(x + p.c.padding[2]);
    } else {
        part.z = (int32_t)(z * p.c.stride[0] - p.c.padding[0]);
        part.y = (int32_t)(y * p.c.stride[1] - p.c.padding[1]);
        part.x = (int32_t)(x * p.c.stride[2] - p.c.padding[2]);
    }
    return part;
}

/* Of a channel of the source and a place of the kernel. */
template <int way> __device__ __forceinline__ convolution_part tap_part(const convolution_arguments &p, int64_t at) {
    const uint32_t kernel = (uint32_t)p.kernel, width = (uint32_t)p.c.kernel[2], height = (uint32_t)p.c.kernel[1];
    const uint32_t channel = (uint32_t)at / kernel, tap = (uint32_t)at - channel * kernel;
    const uint32_t row = tap / width, x = tap - row * width, z = row / height, y = row - z * height;
    const int32_t sign = way == WAY_BACK ? -1 : 1;
    convolution_part part;
    part.offset = (int64_t)channel * p.source_places;
    part.left = at;
    part.z = sign * (int32_t)(z * p.c.dilation[0]);
    part.y = sign * (int32_t)(y * p.c.dilation[1]);
    part.x = sign * (int32_t)(x * p.c.dilation[2]);
    return part;
}

/* Along an axis; false: no place of the source. Sums are below 2^31, as convolution_accepts() checks. */
template <int way> __device__ __forceinline__ bool seen(int32_t &at, int64_t stride, int32_t extent) {
    if (way == WAY_BACK && stride != 1) {
        const int32_t by = (int32_t)stride, quotient = at / by;
        if (at < 0 || quotient * by != at) {
            return false;
        }
        at = quotient;
    }
    return at >= 0 && at < extent;
}

template <class T, int way>
__device__ __forceinline__ T gathered(const convolution_arguments &p, const convolution_part &a,
                                      const convolution_part &b) {
    int32_t z = a.z + b.z, y = a.y + b.y, x = a.x + b.x;
    if (!seen<way>(z, p.c.stride[0], p.source_extent[0]) || !seen<way>(y, p.c.stride[1], p.source_extent[1]) ||
        !seen<way>(x, p.c.stride[2], p.source_extent[2])) {
        return (T)0;
    }
    const int64_t place = ((int64_t)z * p.source_extent[1] + y) * p.source_extent[2] + x;
    return ((const T *)p.source)[a.offset + b.offset + place];
}

template <class T, int way>
__global__ void __launch_bounds__(SPACE_THREADS)
    convolution_kernel(const __grid_constant__ struct convolution_arguments p) {
    __shared__ T left[TILE_DEPTH][TILE + 1], right[TILE_DEPTH][TILE + 1];
    __shared__ convolution_part terms[TILE_DEPTH];
    const int me = (int)threadIdx.x, tx = me % TILE_SIDE, ty = me / TILE_SIDE;
    const int64_t tiles = p.c.groups * p.row_tiles * p.column_tiles * p.parts;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t part = tile % p.parts, rest = tile / p.parts;
        const int64_t column = rest % p.column_tiles * TILE, line = rest / p.column_tiles;
        const int64_t row = line % p.row_tiles * TILE, group = line / p.row_tiles;
        const int64_t begin = part * p.part, end = p.depth - begin < p.part ? p.depth : begin + p.part;
        const int64_t own = column + me % TILE;
        const int64_t left_row = way == WAY_WEIGHT ? p.places : p.depth;
        const T *factor = (const T *)p.left + (group * p.rows + row) * left_row;
        convolution_part mine = {};
        if (own < p.columns) {
            mine = way == WAY_WEIGHT ? tap_part<way>(p, own) : place_part<way>(p, group, own);
        }
        T sum[TILE_RESULTS][TILE_RESULTS] = {};
#pragma unroll 1
        for (int64_t k = begin; k < end; k += TILE_DEPTH) {
            if (me < TILE_DEPTH && k + me < end) {
                terms[me] = way == WAY_WEIGHT ? place_part<way>(p, group, k + me) : tap_part<way>(p, k + me);
            }
            __syncthreads();
#pragma unroll
            for (int u = 0; u < TILE_LOADS; u++) {
                const int e = me + u * SPACE_THREADS, depth = e / TILE, side = e % TILE_DEPTH, across = e / TILE_DEPTH;
                right[depth][me % TILE] =
                    k + depth < end && own < p.columns ? gathered<T, way>(p, mine, terms[depth]) : (T)0;
                left[side][across] =
                    k + side < end && row + across < p.rows ? factor[across * left_row + terms[side].left] : (T)0;
            }
            __syncthreads();
#pragma unroll
            for (int depth = 0; depth < TILE_DEPTH; depth++) {
                T s[TILE_RESULTS], t[TILE_RESULTS];
#pragma unroll
                for (int i = 0; i < TILE_RESULTS; i++) {
                    s[i] = left[depth][ty + i * TILE_SIDE];
                    t[i] = right[depth][tx + i * TILE_SIDE];
                }
#pragma unroll
                for (int i = 0; i < TILE_RESULTS; i++) {
#pragma unroll
                    for (int j = 0; j < TILE_RESULTS; j++) {
                        sum[i][j] += s[i] * t[j];
                    }
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int j = 0; j < TILE_RESULTS; j++) {
            const int64_t c = column + tx + j * TILE_SIDE;
            if (c >= p.columns) {
                continue;
            }
            const int64_t image = way == WAY_WEIGHT ? 0 : c / p.places, place = c - image * p.places;
#pragma unroll
            for (int i = 0; i < TILE_RESULTS; i++) {
                const int64_t r = row + ty + i * TILE_SIDE, channel = group * p.rows + r;
                if (r >= p.rows) {
                    continue;
                }
                if (way != WAY_WEIGHT) {
                    ((T *)p.result)[(image * p.c.groups * p.rows + channel) * p.places + place] =
                        p.bias ? sum[i][j] + ((const T *)p.bias)[channel] : sum[i][j];
                } else if (p.partials) {
                    ((T *)p.partials)[(part * p.c.groups * p.rows + channel) * p.columns + c] = sum[i][j];
                } else {
                    ((T *)p.result)[channel * p.columns + c] = sum[i][j];
                }
            }
        }
    }
}

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    convolution_add_up(const __grid_constant__ struct convolution_arguments p) {
    const int64_t results = p.c.groups * p.rows * p.columns, step = (int64_t)gridDim.x * SPACE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; i < results; i += step) {
        T sum = 0;
        for (int64_t part = 0; part < p.parts; part++) {
            sum += ((const T *)p.partials)[part * results + i];
        }
        ((T *)p.result)[i] = sum;
    }
}

} // namespace

/* ---- launchers ---- */

typedef void convolution_function(const struct convolution_arguments arguments);

/* [f64][way] */
static convolution_function *const convolution_functions[2][3] = {
    {convolution_kernel<float, WAY_FORWARD>, convolution_kernel<float, WAY_BACK>,
     convolution_kernel<float, WAY_WEIGHT>},
    {convolution_kernel<double, WAY_FORWARD>, convolution_kernel<double, WAY_BACK>,
     convolution_kernel<double, WAY_WEIGHT>},
};
static convolution_function *const add_up_functions[2] = {convolution_add_up<float>, convolution_add_up<double>};

static bool convolution_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int f64 = 0; f64 < 2; f64++) {
        for (int way = 0; way < 3; way++) {
            more = more && seen(context, false, (const void *)convolution_functions[f64][way]);
        }
        more = more && seen(context, false, (const void *)add_up_functions[f64]);
    }
    return more;
}

static enum convolution_way convolution_way_of(unsigned opcode) {
    return opcode == OP_CONV ? WAY_FORWARD : opcode == OP_CONV_GRAD_WEIGHT ? WAY_WEIGHT : WAY_BACK;
}

static int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

static struct convolution_arguments arguments_make(const struct cuda *cuda, const struct launch *launch) {
    const enum convolution_way way = convolution_way_of(launch->opcode);
    const struct operand *in = launch->inputs, *out = &launch->output;
    const struct operand *x = way == WAY_BACK ? out : &in[0], *weight = way == WAY_WEIGHT ? out : &in[1];
    const struct operand *y = way == WAY_FORWARD ? out : way == WAY_BACK ? &in[0] : &in[1];
    struct convolution_arguments p = {};
    convolution_make(&p.c, launch->opcode, &launch->attributes, x->rank, x->shape, weight->shape, y->shape, false);
    p.source = in[0].data;
    p.left = in[1].data;
    p.bias = launch->n_inputs == 3 ? in[2].data : NULL;
    p.result = out->data;
    const int64_t *source = way == WAY_BACK ? p.c.y : p.c.x, *place = way == WAY_BACK ? p.c.x : p.c.y;
    for (int i = 0; i < 3; i++) {
        p.source_extent[i] = (int32_t)source[i];
        p.place_extent[i] = (int32_t)place[i];
    }
    p.source_places = convolution_volume(source);
    p.places = convolution_volume(place);
    p.kernel = convolution_volume(p.c.kernel);
    const int64_t x_channels = p.c.x_channels / p.c.groups, y_channels = p.c.y_channels / p.c.groups;
    p.source_channels = way == WAY_BACK ? y_channels : x_channels;
    p.rows = way == WAY_BACK ? x_channels : y_channels;
    p.columns = way == WAY_WEIGHT ? x_channels * p.kernel : p.c.batch * p.places;
    p.depth = way == WAY_WEIGHT ? p.c.batch * p.places : p.source_channels * p.kernel;
    p.row_tiles = divided_up(p.rows, TILE);
    p.column_tiles = divided_up(p.columns, TILE);
    p.parts = 1;
    const int64_t tiles = p.c.groups * p.row_tiles * p.column_tiles, wanted = (int64_t)cuda->processors * BLOCKS_WANTED;
    if (way == WAY_WEIGHT && tiles < wanted) {
        p.parts = divided_up(wanted, tiles);
        const int64_t most = p.depth / PART_LEAST;
        p.parts = p.parts < most ? p.parts : most;
        p.parts = p.parts < (int64_t)PARTS_MOST ? p.parts : (int64_t)PARTS_MOST;
        p.parts = p.parts > 1 ? p.parts : 1;
    }
    p.part = divided_up(divided_up(p.depth, p.parts), TILE_DEPTH) * TILE_DEPTH;
    p.parts = p.depth > 0 ? divided_up(p.depth, p.part) : 1;
    return p;
}

static uint64_t convolution_workspace(struct device *device, const struct launch *launch) {
    const struct convolution_arguments p = arguments_make(cuda_of(device), launch);
    return p.parts > 1
               ? (uint64_t)(p.parts * p.c.groups * p.rows * p.columns) * dtype_size((enum dtype)launch->output.dtype)
               : 0;
}

/* Kernels count places in 32 bits, those in the padding, too. */
static int convolution_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    const struct convolution_arguments p = arguments_make(cuda_of(device), launch);
    for (int i = 0; i < 3; i++) {
        const int64_t reach = (p.c.kernel[i] - 1) * p.c.dilation[i], extent = p.c.y[i] * p.c.stride[i];
        if (reach + extent + 2 * p.c.padding[i] + p.c.x[i] > INT32_MAX) {
            return fault_set(fault, STATUS_UNSUPPORTED,
                             "a cuda device's convolutions have less than 2^31 places along an axis with its padding");
        }
    }
    return STATUS_OK;
}

static int convolution_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                           struct fault *fault) {
    struct convolution_arguments p = arguments_make(cuda, launch);
    const int f64 = launch->output.dtype == DTYPE_F64;
    p.partials = p.parts > 1 ? launch->workspace : NULL;
    const int64_t tiles = p.c.groups * p.row_tiles * p.column_tiles * p.parts;
    int code = space_start((const void *)convolution_functions[f64][convolution_way_of(launch->opcode)],
                           space_blocks(cuda, tiles), &p, fault, stream->stream);
    if (code != STATUS_OK || !p.partials) {
        return code;
    }
    return space_start((const void *)add_up_functions[f64],
                       space_blocks(cuda, p.c.groups * p.rows * p.columns / SPACE_THREADS + 1), &p, fault,
                       stream->stream);
}

#define CONVOLUTION                                                                                                    \
    {                                                                                                                  \
        .base = {.accepts = convolution_accepts, .workspace = convolution_workspace}, .driver = convolution_run,       \
        .walk = convolution_walk                                                                                       \
    }
const struct cuda_kernel cuda_kernel_conv = CONVOLUTION;
const struct cuda_kernel cuda_kernel_conv_transpose = CONVOLUTION;
const struct cuda_kernel cuda_kernel_conv_grad_input = CONVOLUTION;
const struct cuda_kernel cuda_kernel_conv_grad_weight = CONVOLUTION;
