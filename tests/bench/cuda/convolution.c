/* Convolutions of ResNet-50's shapes, forward and by both gradients, f32 with channels first and f16 with channels last. Beside them stands
 * a large product by cublasLt called directly, as the most that the device does; what counts is PyTorch with cuDNN (cuda_table.py). */
#include "tests/bench/cuda/cuda.h"

static const struct layer {
    int64_t channels, filters, extent, kernel, stride;
} layers[] = {{64, 64, 56, 3, 1}, {256, 64, 56, 1, 1}, {128, 128, 56, 3, 2}, {512, 512, 7, 3, 1}};

enum { IMAGES = 32, IMAGES_TINY = 1, PRODUCT = 4096, PRODUCT_TINY = 128 };

struct convolution {
    struct bench_client client;
    struct layer layer;
    td_layout layout;
    int64_t shapes[3][4]; /* of x, weight and y */
    td_tensor *x, *weight, *y;
    int way; /* 0: forward, 1: by x, 2: by the weight */
};

static void shape_make(int64_t *shape, int64_t images, int64_t channels, int64_t extent, td_layout layout) {
    const bool last = layout == TD_LAYOUT_CHANNELS_LAST;
    shape[0] = images;
    shape[last ? 3 : 1] = channels;
    shape[last ? 1 : 2] = shape[last ? 2 : 3] = extent;
}

static td_tensor *operand(td_device *device, td_dtype dtype, const int64_t *shape, uint64_t seed) {
    td_tensor *x = bench_made(td_uniform(device, TD_F32, 4, shape, seed, -1, 1), "uniform");
    if (dtype == TD_F32)
        return x;
    td_tensor *cast = bench_made(td_cast(x, dtype), "cast");
    td_release(x);
    return cast;
}

static td_tensor *convolve(const struct convolution *c) {
    const int64_t stride = c->layer.stride, padding = c->layer.kernel / 2, dilation = 1;
    return c->way == 0 ? td_conv(c->x, c->weight, NULL, 1, &stride, 1, &padding, 1, &dilation, 1, c->layout)
           : c->way == 1
               ? td_conv_grad_input(c->y, c->weight, 4, c->shapes[0], 1, &stride, 1, &padding, 1, &dilation, 1,
                                    c->layout)
               : td_conv_grad_weight(c->x, c->y, 4, c->shapes[1], 1, &stride, 1, &padding, 1, &dilation, 1, c->layout);
}

static double convolutions_ours(void *user, long count) {
    const struct convolution *c = user;
    double begin = bench_now();
    for (long i = 0; i < count; i++) {
        td_tensor *result = convolve(c);
        while (!result && bench_again(c->client.device))
            result = convolve(c);
        td_release(bench_made(result, "convolution"));
    }
    bench_check(td_sync(c->client.device), "sync");
    return bench_now() - begin;
}

/* `what` is a layer, and `size` enum raw_type. */
void cuda_convolution(struct cuda *cuda, const struct cuda_bench *bench) {
    const enum raw_type type = (enum raw_type)bench->size;
    const td_options options = {.allow_tf32 = type == RAW_TF32};
    const td_dtype dtype = type == RAW_F16 ? TD_F16 : TD_F32;
    const int64_t images = cuda->tiny ? IMAGES_TINY : IMAGES, n = cuda->tiny ? PRODUCT_TINY : PRODUCT;
    struct convolution c = {.layer = layers[bench->what],
                            .layout = type == RAW_F16 ? TD_LAYOUT_CHANNELS_LAST : TD_LAYOUT_CHANNELS_FIRST};
    const int64_t across = (c.layer.extent - 1) / c.layer.stride + 1;
    const double operations = 2.0 * (double)(images * across * across) * (double)(c.layer.channels * c.layer.filters) *
                              (double)(c.layer.kernel * c.layer.kernel);
    bench_client_open(&c.client, cuda->daemon.url, &options);
    shape_make(c.shapes[0], images, c.layer.channels, c.layer.extent, c.layout);
    shape_make(c.shapes[1], c.layer.filters, c.layer.channels, c.layer.kernel, TD_LAYOUT_CHANNELS_FIRST);
    shape_make(c.shapes[2], images, c.layer.filters, across, c.layout);
    c.x = operand(c.client.device, dtype, c.shapes[0], 1);
    c.weight = operand(c.client.device, dtype, c.shapes[1], 2);
    c.y = operand(c.client.device, dtype, c.shapes[2], 3);
    bench_check(td_sync(c.client.device), "sync");
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_PRODUCT_OPEN, .type = (uint32_t)type, .n = n});
    for (c.way = 0; c.way < 3; c.way++) {
        struct cuda_side ours = {.run = convolutions_ours, .user = &c};
        struct cuda_side raw = {.run = cuda_raw_products, .user = &cuda->raw};
        cuda_compare(cuda, &ours, &raw);
        double rate = operations / ours.seconds / 1e12;
        double limit = 2.0 * (double)n * (double)n * (double)n / raw.seconds / 1e12;
        cuda_report(bench, c.way, rate, limit, rate / limit);
        bench_note("limit: a product of %d by cublasLt called directly; the goal is PyTorch's", (int)n);
    }
    raw_ask(&cuda->raw, &(struct raw_request){.kind = RAW_CLOSE});
    bench_client_close(&c.client);
}
