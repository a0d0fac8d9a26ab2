/* searchsorted: a binary search for each value, by one thread. */
#include "engine/cuda/key.cuh"

namespace {

struct search_arguments {
    const char *sorted, *values;
    int64_t *out;
    struct key_type type;
    int64_t n, count;
    bool right;
};

__global__ void __launch_bounds__(SPACE_THREADS) search_kernel(const __grid_constant__ struct search_arguments p) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += step) {
        const uint64_t key = key_read(p.type, p.values, i);
        int64_t low = 0, high = p.n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            const uint64_t other = key_read(p.type, p.sorted, middle);
            if (other < key || (p.right && other == key)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        p.out[i] = low;
    }
}

} // namespace

static bool search_walk(cuda_kernel_seen *seen, void *context) {
    return seen(context, false, (const void *)search_kernel);
}

static int searchsorted_run(struct cuda *cuda, struct cuda_stream *stream, const struct launch *launch,
                            struct fault *fault) {
    const struct operand *sorted = &launch->inputs[0], *values = &launch->inputs[1];
    struct searchsorted_attributes attributes;
    searchsorted_attributes_read(&launch->attributes, &attributes);
    struct search_arguments arguments = {};
    arguments.sorted = (const char *)sorted->data;
    arguments.values = (const char *)values->data;
    arguments.out = (int64_t *)launch->output.data;
    arguments.type = key_type_of((enum dtype)values->dtype);
    arguments.n = sorted->shape[0];
    arguments.count = values->shape[0];
    arguments.right = attributes.right;
    return space_start((const void *)search_kernel, space_blocks(cuda, arguments.count / SPACE_THREADS + 1), &arguments,
                       fault, stream->stream);
}

const struct cuda_kernel cuda_kernel_searchsorted = {.driver = searchsorted_run, .walk = search_walk};
