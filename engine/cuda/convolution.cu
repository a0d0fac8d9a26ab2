/* Convolutions as products of matrices that are never in memory: a block computes TILE by TILE results, 16 by 16 threads with 4 by 4 each,
 * and gathers what it multiplies into shared memory, TILE_DEPTH products of each sum at a time, zeros for the padding.
 *
 *              rows                     columns                      summed over
 * forward      y's channels             places of y, of all images   x's channels, kernel
 * back         x's channels             places of x, of all images   y's channels, kernel
 * weight       y's channels             x's channels, kernel         places of y, of all images
 *
 * Operands lie as the operation has them, with channels first or last, in f16 and bf16 as well, of which the products are added up in f32.
 *
 * Where an element is gathered from is the sum of two parts, one of the column and one of the term; a thread's column stays, and the terms
 * are taken apart once for all threads. If there are few results of long sums, the sums are cut into parts, which a second kernel
 * adds up, always in the same order.
 *
 * cuDNN goes first, if it is there (cudnn.h). It wants weights in the same layout as images, so that with channels last they are brought into
 * that order in the workspace, and a gradient back; both are small. A bias is added by a pass over the result; but of halves, which
 * are rounded once, cuDNN adds it, or refuses. */
#include <string.h>

#include "engine/cuda/cudnn.h"
#include "engine/cuda/number.cuh"
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
    /* Elements from one image, channel and place to the next; of the result, if it is no weight; of the factor on the left, from one group, row,
     * image, channel and place. */
    int64_t source_image, source_channel, source_place;
    int64_t result_image, result_channel, result_place;
    int64_t left_group, left_row, left_image, left_channel, left_place;
    int32_t source_extent[3], place_extent[3];
    int64_t places, kernel; /* volumes */
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
    part.offset = image * p.source_image + group * p.source_channels * p.source_channel;
    part.left = image * p.left_image + place * p.left_place;
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
    part.offset = (int64_t)channel * p.source_channel;
    part.left = (int64_t)channel * p.left_channel + tap;
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

/* Halves are computed in f32. */
template <class T> struct convolution_sum { typedef float type; };
template <> struct convolution_sum<double> { typedef double type; };

template <class T, int way>
__device__ __forceinline__ typename convolution_sum<T>::type gathered(const convolution_arguments &p, const convolution_part &a,
                                      const convolution_part &b) {
    int32_t z = a.z + b.z, y = a.y + b.y, x = a.x + b.x;
    if (!seen<way>(z, p.c.stride[0], p.source_extent[0]) || !seen<way>(y, p.c.stride[1], p.source_extent[1]) ||
        !seen<way>(x, p.c.stride[2], p.source_extent[2])) {
        return 0;
    }
    const int64_t place = ((int64_t)z * p.source_extent[1] + y) * p.source_extent[2] + x;
    return number_widen(((const T *)p.source)[a.offset + b.offset + place * p.source_place]);
}

template <class T, int way>
__global__ void __launch_bounds__(SPACE_THREADS)
    convolution_kernel(const __grid_constant__ struct convolution_arguments p) {
    typedef typename convolution_sum<T>::type S;
    __shared__ S left[TILE_DEPTH][TILE + 1], right[TILE_DEPTH][TILE + 1];
    __shared__ convolution_part terms[TILE_DEPTH];
    const int me = (int)threadIdx.x, tx = me % TILE_SIDE, ty = me / TILE_SIDE;
    const int64_t tiles = p.c.groups * p.row_tiles * p.column_tiles * p.parts;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t part = tile % p.parts, rest = tile / p.parts;
        const int64_t column = rest % p.column_tiles * TILE, line = rest / p.column_tiles;
        const int64_t row = line % p.row_tiles * TILE, group = line / p.row_tiles;
        const int64_t begin = part * p.part, end = p.depth - begin < p.part ? p.depth : begin + p.part;
        const int64_t own = column + me % TILE;
        const T *factor = (const T *)p.left + group * p.left_group + row * p.left_row;
        convolution_part mine = {};
        if (own < p.columns) {
            mine = way == WAY_WEIGHT ? tap_part<way>(p, own) : place_part<way>(p, group, own);
        }
        S sum[TILE_RESULTS][TILE_RESULTS] = {};
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
                    k + depth < end && own < p.columns ? gathered<T, way>(p, mine, terms[depth]) : (S)0;
                left[side][across] =
                    k + side < end && row + across < p.rows
                        ? number_widen(factor[across * p.left_row + terms[side].left])
                        : (S)0;
            }
            __syncthreads();
#pragma unroll
            for (int depth = 0; depth < TILE_DEPTH; depth++) {
                S s[TILE_RESULTS], t[TILE_RESULTS];
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
                    const S own = p.bias ? sum[i][j] + number_widen(((const T *)p.bias)[channel]) : sum[i][j];
                    ((T *)p.result)[image * p.result_image + channel * p.result_channel + place * p.result_place] =
                        number_store<T>::from(own);
                } else if (p.partials) {
                    ((S *)p.partials)[(part * p.c.groups * p.rows + channel) * p.columns + c] = sum[i][j];
                } else {
                    ((T *)p.result)[channel * p.columns + c] = number_store<T>::from(sum[i][j]);
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
        typename convolution_sum<T>::type sum = 0;
        for (int64_t part = 0; part < p.parts; part++) {
            sum += ((const typename convolution_sum<T>::type *)p.partials)[part * results + i];
        }
        ((T *)p.result)[i] = number_store<T>::from(sum);
    }
}

/* ---- around cuDNN ---- */

struct convolution_turn_arguments {
    const void *from;
    void *to;
    int64_t rows, channels, kernel; /* of a weight */
    bool back;                      /* from cuDNN's order */
};

/* A weight's rows from (channels, kernel) to (kernel, channels). */
template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    convolution_turn(const __grid_constant__ struct convolution_turn_arguments p) {
    const int64_t row = p.channels * p.kernel, all = p.rows * row, step = (int64_t)gridDim.x * SPACE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; i < all; i += step) {
        const int64_t at = i / row, tap = (i - at * row) / p.channels, channel = i - at * row - tap * p.channels;
        const int64_t plain = at * row + channel * p.kernel + tap;
        if (p.back) {
            ((T *)p.to)[plain] = ((const T *)p.from)[i];
        } else {
            ((T *)p.to)[i] = ((const T *)p.from)[plain];
        }
    }
}

struct convolution_bias_arguments {
    const void *bias;
    void *result;
    int64_t elements, channels, inner; /* elements from one channel to the next */
};

template <class T>
__global__ void __launch_bounds__(SPACE_THREADS)
    convolution_bias(const __grid_constant__ struct convolution_bias_arguments p) {
    const int64_t step = (int64_t)gridDim.x * SPACE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * SPACE_THREADS + threadIdx.x; i < p.elements; i += step) {
        ((T *)p.result)[i] += ((const T *)p.bias)[i / p.inner % p.channels];
    }
}

} // namespace

/* ---- launchers ---- */

typedef void convolution_function(const struct convolution_arguments arguments);

enum { FUNCTIONS = 4 };

#define WAYS(T) {convolution_kernel<T, WAY_FORWARD>, convolution_kernel<T, WAY_BACK>, convolution_kernel<T, WAY_WEIGHT>}
/* [convolution_function_of()][way] */
static convolution_function *const convolution_functions[FUNCTIONS][3] = {WAYS(float), WAYS(double), WAYS(__half),
                                                                          WAYS(__nv_bfloat16)};
static convolution_function *const add_up_functions[FUNCTIONS] = {
    convolution_add_up<float>, convolution_add_up<double>, convolution_add_up<__half>,
    convolution_add_up<__nv_bfloat16>};
/* For elements of 2, 4 and 8 bytes. */
static const void *const turn_functions[3] = {(const void *)convolution_turn<uint16_t>,
                                              (const void *)convolution_turn<uint32_t>,
                                              (const void *)convolution_turn<uint64_t>};
static const void *const bias_functions[2] = {(const void *)convolution_bias<float>,
                                              (const void *)convolution_bias<double>};

static int convolution_function_of(unsigned dtype) {
    return dtype == DTYPE_F64 ? 1 : dtype == DTYPE_F16 ? 2 : dtype == DTYPE_BF16 ? 3 : 0;
}

static bool convolution_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (int i = 0; i < FUNCTIONS; i++) {
        for (int way = 0; way < 3; way++) {
            more = more && seen(context, false, (const void *)convolution_functions[i][way]);
        }
        more = more && seen(context, false, (const void *)add_up_functions[i]);
    }
    for (const void *kernel : turn_functions) {
        more = more && seen(context, false, kernel);
    }
    for (const void *kernel : bias_functions) {
        more = more && seen(context, false, kernel);
    }
    return more;
}

static enum convolution_way convolution_way_of(unsigned opcode) {
    return opcode == OP_CONV ? WAY_FORWARD : opcode == OP_CONV_GRAD_WEIGHT ? WAY_WEIGHT : WAY_BACK;
}

static int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

/* Of x or y. */
static void image_strides(const struct convolution *c, int64_t channels, int64_t places, int64_t *image,
                          int64_t *channel, int64_t *place) {
    *image = channels * places;
    *channel = c->channels_last ? 1 : places;
    *place = c->channels_last ? channels : 1;
}

static void strides_make(struct convolution_arguments *p, enum convolution_way way, int64_t x_channels,
                         int64_t y_channels) {
    const struct convolution *c = &p->c;
    const int64_t x_places = convolution_volume(c->x), y_places = convolution_volume(c->y);
    const int64_t kernel = convolution_volume(c->kernel);
    if (way == WAY_BACK) {
        image_strides(c, c->y_channels, y_places, &p->source_image, &p->source_channel, &p->source_place);
        image_strides(c, c->x_channels, x_places, &p->result_image, &p->result_channel, &p->result_place);
    } else {
        image_strides(c, c->x_channels, x_places, &p->source_image, &p->source_channel, &p->source_place);
        image_strides(c, c->y_channels, y_places, &p->result_image, &p->result_channel, &p->result_place);
    }
    if (way == WAY_WEIGHT) { /* y's gradient is on the left, and the result is a weight */
        p->left_image = p->result_image;
        p->left_row = p->result_channel;
        p->left_place = p->result_place;
        p->left_group = y_channels * p->left_row;
    } else {
        p->left_group = y_channels * x_channels * kernel;
        p->left_row = way == WAY_BACK ? kernel : x_channels * kernel;
        p->left_channel = way == WAY_BACK ? x_channels * kernel : kernel;
    }
}

static struct convolution_arguments arguments_make(const struct cuda *cuda, const struct launch *launch) {
    const enum convolution_way way = convolution_way_of(launch->opcode);
    const struct operand *in = launch->inputs, *out = &launch->output;
    const struct operand *x = way == WAY_BACK ? out : &in[0], *weight = way == WAY_WEIGHT ? out : &in[1];
    const struct operand *y = way == WAY_FORWARD ? out : way == WAY_BACK ? &in[0] : &in[1];
    struct convolution_arguments p = {};
    convolution_make(&p.c, launch->opcode, &launch->attributes, x->rank, x->shape, weight->shape, y->shape, false);
    if (p.c.channels_last) {
        convolution_make(&p.c, launch->opcode, &launch->attributes, x->rank, x->shape, weight->shape, y->shape, true);
    }
    p.source = in[0].data;
    p.left = in[1].data;
    p.bias = launch->n_inputs == 3 ? in[2].data : NULL;
    p.result = out->data;
    const int64_t *source = way == WAY_BACK ? p.c.y : p.c.x, *place = way == WAY_BACK ? p.c.x : p.c.y;
    for (int i = 0; i < 3; i++) {
        p.source_extent[i] = (int32_t)source[i];
        p.place_extent[i] = (int32_t)place[i];
    }
    p.places = convolution_volume(place);
    p.kernel = convolution_volume(p.c.kernel);
    const int64_t x_channels = p.c.x_channels / p.c.groups, y_channels = p.c.y_channels / p.c.groups;
    p.source_channels = way == WAY_BACK ? y_channels : x_channels;
    p.rows = way == WAY_BACK ? x_channels : y_channels;
    p.columns = way == WAY_WEIGHT ? x_channels * p.kernel : p.c.batch * p.places;
    p.depth = way == WAY_WEIGHT ? p.c.batch * p.places : p.source_channels * p.kernel;
    strides_make(&p, way, x_channels, y_channels);
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

static uint64_t partials_bytes(const struct convolution_arguments *p, enum dtype dtype) {
    return p->parts > 1
               ? (uint64_t)(p->parts * p->c.groups * p->rows * p->columns) * (dtype == DTYPE_F64 ? 8 : 4)
               : 0;
}

/* ---- cuDNN ---- */

enum { LIBRARY_ALIGNMENT = 256 };

static uint64_t aligned(uint64_t bytes) {
    return (bytes + LIBRARY_ALIGNMENT - 1) & ~(uint64_t)(LIBRARY_ALIGNMENT - 1);
}

/* The bytes of the weight in cuDNN's order; 0: it lies so. */
static uint64_t turned_bytes(const struct convolution *c, enum dtype dtype) {
    const int64_t kernel = convolution_volume(c->kernel), channels = c->x_channels / c->groups;
    return c->channels_last && kernel > 1 && channels > 1
               ? aligned((uint64_t)(c->y_channels * channels * kernel) * dtype_size(dtype))
               : 0;
}

static struct cudnn_convolution library_key(const struct launch *launch, const struct convolution_arguments *p) {
    struct cudnn_convolution key;
    memset(&key, 0, sizeof key);
    key.convolution.axes = p->c.axes;
    key.convolution.channels_last = p->c.channels_last;
    key.convolution.batch = p->c.batch;
    key.convolution.groups = p->c.groups;
    key.convolution.x_channels = p->c.x_channels;
    key.convolution.y_channels = p->c.y_channels;
    memcpy(key.convolution.x, p->c.x, sizeof p->c.x);
    memcpy(key.convolution.y, p->c.y, sizeof p->c.y);
    memcpy(key.convolution.kernel, p->c.kernel, sizeof p->c.kernel);
    memcpy(key.convolution.stride, p->c.stride, sizeof p->c.stride);
    memcpy(key.convolution.padding, p->c.padding, sizeof p->c.padding);
    memcpy(key.convolution.dilation, p->c.dilation, sizeof p->c.dilation);
    const enum convolution_way way = convolution_way_of(launch->opcode);
    key.way = (uint16_t)(way == WAY_FORWARD ? CUDNN_WAY_FORWARD : way == WAY_BACK ? CUDNN_WAY_BACK : CUDNN_WAY_WEIGHT);
    key.dtype = launch->output.dtype;
    key.tf32 = launch->tf32 && key.dtype == DTYPE_F32;
    return key;
}

static bool library_wanted(const struct cuda *cuda, const struct launch *launch, const struct convolution *c) {
    return c->batch > 0 && !launch->scarce && cuda_library_wanted(cuda, CUDA_CUDNN);
}

static uint64_t convolution_workspace(struct device *device, const struct launch *launch) {
    const struct convolution_arguments p = arguments_make(cuda_of(device), launch);
    const uint64_t own = partials_bytes(&p, (enum dtype)launch->output.dtype);
    if (!library_wanted(cuda_of(device), launch, &p.c)) {
        return own;
    }
    const struct cudnn_convolution key = library_key(launch, &p);
    const uint64_t bytes =
        LIBRARY_ALIGNMENT + turned_bytes(&p.c, (enum dtype)launch->output.dtype) + cudnn_workspace(&key);
    return bytes > own ? bytes : own;
}

static int weight_turn(struct cuda *cuda, const struct convolution *c, enum dtype dtype, const void *from, void *to,
                       bool back, struct fault *fault, cudaStream_t stream) {
    const struct convolution_turn_arguments p = {from, to, c->y_channels, c->x_channels / c->groups,
                                                 convolution_volume(c->kernel), back};
    const int64_t size = (int64_t)dtype_size(dtype);
    return space_start(turn_functions[size / 4], space_blocks(cuda, p.rows * p.channels * p.kernel / SPACE_THREADS + 1),
                       &p, fault, stream);
}

static int bias_add(struct cuda *cuda, const struct convolution_arguments *p, const struct operand *out,
                    struct fault *fault, cudaStream_t stream) {
    const int64_t channels = p->c.groups * p->rows;
    const struct convolution_bias_arguments arguments = {p->bias, p->result, p->c.batch * channels * p->places, channels,
                                                         p->result_channel};
    return space_start(bias_functions[out->dtype == DTYPE_F64],
                       space_blocks(cuda, arguments.elements / SPACE_THREADS + 1), &arguments, fault, stream);
}

/* All that a launch is to cuDNN. */
struct library_call {
    struct cudnn_convolution key;
    struct cudnn_operands operands;
    void *weight; /* where the launch has it */
    uint64_t turned;
};

/* NULL, or why it is not for cuDNN. */
static const char *library_describe(const struct launch *launch, const struct convolution_arguments *p,
                                    struct library_call *call) {
    const enum dtype dtype = (enum dtype)launch->output.dtype;
    const enum convolution_way way = convolution_way_of(launch->opcode);
    const bool halves = dtype_size(dtype) == 2;
    struct cudnn_operands *operands = &call->operands;
    char *workspace = (char *)(uintptr_t)aligned((uint64_t)(uintptr_t)launch->workspace);
    call->key = library_key(launch, p);
    call->turned = turned_bytes(&p->c, dtype);
    call->weight = way == WAY_WEIGHT ? launch->output.data : launch->inputs[1].data;
    operands->x = way == WAY_BACK ? launch->output.data : launch->inputs[0].data;
    operands->weight = call->turned ? workspace : call->weight;
    operands->y = way == WAY_FORWARD ? launch->output.data : launch->inputs[way == WAY_BACK ? 0 : 1].data;
    operands->workspace = workspace + call->turned;
    operands->bias = NULL;
    if (p->bias && halves && way == WAY_FORWARD) {
        call->key.bias = 1;
        call->key.bias_alignment = cudnn_alignment(p->bias);
        operands->bias = (void *)p->bias;
    } else if (p->bias && halves) { /* a transposed convolution */
        return "it would round before it adds the bias";
    }
    call->key.x_alignment = cudnn_alignment(operands->x);
    call->key.weight_alignment = cudnn_alignment(operands->weight);
    call->key.y_alignment = cudnn_alignment(operands->y);
    return NULL;
}

static bool convolution_waits(struct device *device, const struct launch *launch) {
    const struct convolution_arguments p = arguments_make(cuda_of(device), launch);
    struct library_call call;
    return library_wanted(cuda_of(device), launch, &p.c) && !library_describe(launch, &p, &call) &&
           !cudnn_ready(cuda_of(device), &call.key);
}

/* *refused: cuDNN has not computed it. */
static int library_run(struct cuda *cuda, cudaStream_t stream, const struct launch *launch,
                       const struct convolution_arguments *p, bool *refused, struct fault *fault) {
    const enum dtype dtype = (enum dtype)launch->output.dtype;
    const enum convolution_way way = convolution_way_of(launch->opcode);
    struct library_call call;
    *refused = true;
    if (!library_wanted(cuda, launch, &p->c)) {
        return launch->scarce ? cuda_library_refused(cuda, CUDA_CUDNN, "cuDNN", "no memory for its workspace", fault)
                              : STATUS_OK;
    }
    const char *reason = library_describe(launch, p, &call);
    if (reason) {
        return cuda_library_refused(cuda, CUDA_CUDNN, "cuDNN", reason, fault);
    }
    const struct cudnn_operands &operands = call.operands;
    void *weight = call.weight;
    const uint64_t turned = call.turned;
    int code = turned && way != WAY_WEIGHT
                   ? weight_turn(cuda, &p->c, dtype, weight, operands.weight, false, fault, stream)
                   : STATUS_OK;
    if (code == STATUS_OK) {
        code = cudnn_convolve(cuda, &call.key, &operands, stream, refused, fault);
    }
    if (code == STATUS_OK && !*refused && turned && way == WAY_WEIGHT) {
        code = weight_turn(cuda, &p->c, dtype, operands.weight, weight, true, fault, stream);
    }
    if (code == STATUS_OK && !*refused && p->bias && !operands.bias) {
        code = bias_add(cuda, p, &launch->output, fault, stream);
    }
    return code;
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
    const int function = convolution_function_of(launch->output.dtype);
    bool refused;
    int code = library_run(cuda, stream->stream, launch, &p, &refused, fault);
    if (code != STATUS_OK || !refused) {
        return code;
    }
    p.partials = p.parts > 1 ? launch->workspace : NULL;
    const int64_t tiles = p.c.groups * p.row_tiles * p.column_tiles * p.parts;
    code = space_start((const void *)convolution_functions[function][convolution_way_of(launch->opcode)],
                       space_blocks(cuda, tiles), &p, fault, stream->stream);
    if (code != STATUS_OK || !p.partials) {
        return code;
    }
    return space_start((const void *)add_up_functions[function],
                       space_blocks(cuda, p.c.groups * p.rows * p.columns / SPACE_THREADS + 1), &p, fault,
                       stream->stream);
}

#define CONVOLUTION                                                                                                    \
    {                                                                                                                  \
        .base = {.accepts = convolution_accepts,                                                                       \
                 .workspace = convolution_workspace,                                                                   \
                 .waits = convolution_waits,                                                                           \
                 .halves = true,                                                                                       \
                 .as_given = true},                                                                                    \
        .driver = convolution_run, .walk = convolution_walk, .library = CUDA_CUDNN                                     \
    }
const struct cuda_kernel cuda_kernel_conv = CONVOLUTION;
const struct cuda_kernel cuda_kernel_conv_transpose = CONVOLUTION;
const struct cuda_kernel cuda_kernel_conv_grad_input = CONVOLUTION;
const struct cuda_kernel cuda_kernel_conv_grad_weight = CONVOLUTION;
