/* pad, tril and triu: each element of the output is an element of x, or a value. */
#include "engine/cuda/index.cuh"
#include "engine/cuda/number.cuh"

namespace {

enum place_kind { PLACE_CONSTANT, PLACE_REFLECT, PLACE_EDGE, PLACE_WRAP, PLACE_LOWER, PLACE_UPPER };
static_assert((int)PLACE_CONSTANT == OP_PAD_MODE_CONSTANT && (int)PLACE_REFLECT == OP_PAD_MODE_REFLECT &&
                  (int)PLACE_EDGE == OP_PAD_MODE_EDGE && (int)PLACE_WRAP == OP_PAD_MODE_WRAP,
              "the first kinds are those of pad");

struct place_arguments {
    const char *x;
    char *out;
    struct number_bytes value;
    int64_t elements, diagonal;
    enum place_kind kind;
    int rank;
    struct divisor_wide shape[SHAPE_RANK_MAX]; /* of the output */
    int64_t extent[SHAPE_RANK_MAX], stride[SHAPE_RANK_MAX],
        before[SHAPE_RANK_MAX]; /* of x; what is added in front of it */
};

/* Where element `at` of an axis comes from; -1: it is the value. */
INDEX_FUNCTION int64_t place_source(enum place_kind kind, int64_t at, int64_t before, int64_t extent) {
    const int64_t from = at - before;
    if (from >= 0 && from < extent) {
        return from;
    }
    switch (kind) {
    case PLACE_REFLECT:
        return from < 0 ? -from : 2 * (extent - 1) - from;
    case PLACE_EDGE:
        return from < 0 ? 0 : extent - 1;
    case PLACE_WRAP:
        return from < 0 ? from + extent : from - extent;
    default:
        return -1;
    }
}

template <typename T>
__global__ void __launch_bounds__(SPACE_THREADS) place_kernel(const __grid_constant__ struct place_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t to = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; to < p.elements; to += step) {
        int64_t rest = to, from = 0, row = 0, column = 0;
        bool inside = true;
#pragma unroll 1
        for (int axis = p.rank - 1; axis >= 0; axis--) {
            const int64_t next = index_divide_wide(p.shape[axis], rest), at = rest - next * p.shape[axis].extent;
            const int64_t source = place_source(p.kind, at, p.before[axis], p.extent[axis]);
            rest = next;
            inside = inside && source >= 0;
            from += source * p.stride[axis];
            column = axis == p.rank - 1 ? at : column;
            row = axis == p.rank - 2 ? at : row;
        }
        if (p.kind == PLACE_LOWER) {
            inside = column - row <= p.diagonal;
        } else if (p.kind == PLACE_UPPER) {
            inside = column - row >= p.diagonal;
        }
        ((T *)p.out)[to] = inside ? ((const T *)p.x)[from] : number_of_pattern<T>(p.value);
    }
}

} // namespace

/* ---- launchers, by the size of an element ---- */

typedef void place_function(const struct place_arguments arguments);

static place_function *const place_functions[] = {place_kernel<uint8_t>, place_kernel<uint16_t>, place_kernel<uint32_t>,
                                                  place_kernel<uint64_t>, place_kernel<ulonglong2>};

static bool place_walk(cuda_kernel_seen *seen, void *context) {
    bool more = true;
    for (place_function *kernel : place_functions) {
        more = more && seen(context, false, (const void *)kernel);
    }
    return more;
}

static int place_start(const struct cuda *cuda, const struct launch *launch, struct place_arguments *arguments,
                       struct fault *fault, cudaStream_t stream) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    size_t size = dtype_size((enum dtype)out->dtype);
    arguments->x = (const char *)x->data;
    arguments->out = (char *)out->data;
    arguments->rank = out->rank;
    arguments->elements = 1;
    for (int i = 0; i < out->rank; i++) {
        arguments->elements *= out->shape[i];
        arguments->extent[i] = x->shape[i];
        arguments->stride[i] = x->strides[i];
    }
    for (int i = 0; i < out->rank; i++) {
        arguments->shape[i] = divisor_wide_make(out->shape[i], arguments->elements);
    }
    place_function *kernel = place_functions[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4];
    return space_start((const void *)kernel, space_blocks(cuda, arguments->elements / SPACE_THREADS + 1), arguments,
                       fault, stream);
}

static int pad_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch, struct fault *fault) {
    struct place_arguments arguments = {};
    struct pad_attributes given;
    pad_attributes_read(&launch->attributes, &given);
    arguments.kind = (enum place_kind)given.mode;
    arguments.value = number_pattern((enum dtype)launch->output.dtype, given.value.i, given.value.f);
    for (int i = 0; i < launch->output.rank; i++) {
        arguments.before[i] = given.widths.values[2 * i];
    }
    return place_start(cuda, launch, &arguments, fault, stream->stream);
}

/* tril and triu have the same attributes. */
static int triangle_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                        struct fault *fault) {
    struct place_arguments arguments = {};
    struct tril_attributes given;
    tril_attributes_read(&launch->attributes, &given);
    arguments.kind = launch->opcode == OP_TRIU ? PLACE_UPPER : PLACE_LOWER;
    arguments.diagonal = given.diagonal;
    return place_start(cuda, launch, &arguments, fault, stream->stream);
}

const struct cuda_kernel cuda_kernel_pad = {.driver = pad_run, .walk = place_walk};
const struct cuda_kernel cuda_kernel_tril = {.driver = triangle_run, .walk = place_walk};
const struct cuda_kernel cuda_kernel_triu = {.driver = triangle_run, .walk = place_walk};
