/* The peer that ops.py calls oneDNN: rows of networks as oneDNN computes them when it is called directly, with its own threads (as many as
 * OMP_NUM_THREADS says). It speaks with ops.py as peers.py does.
 *
 * Images and gradients lie plain (NCHW), as tensord has them. The weight of a convolution may lie as oneDNN likes it. A convolution is
 * measured in two ways, with plain images and with reorders to and from the order that oneDNN prefers; the faster one counts. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl.h>

#include "tests/bench/bench.h"

bool bench_quick;

enum { ROUNDS = 5, COUNT_MAX = 20000, CHANNELS = 64, EXTENT = 56, STEPS = 4, ARGUMENTS = 8, LINE_MOST = 200 };

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void check(dnnl_status_t status, const char *what) {
    if (status != dnnl_success) {
        fprintf(stderr, "oneDNN: %s: status %d\n", what, status);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

/* Primitives that are executed one after another. Their descriptions are not destroyed: there are few, and one may refer to another. */
struct work {
    int n;
    dnnl_primitive_t primitive[STEPS];
    int counts[STEPS];
    dnnl_exec_arg_t arguments[STEPS][ARGUMENTS];
};

static dnnl_memory_t memory_make(const dnnl_memory_desc_t *desc) {
    dnnl_memory_t memory;
    void *data;
    CHECK(dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_ALLOCATE));
    CHECK(dnnl_memory_get_data_handle(memory, &data));
    size_t n = dnnl_memory_desc_get_size(desc) / sizeof(float);
    for (size_t i = 0; i < n; i++) {
        ((float *)data)[i] = (float)((i * 2654435761u >> 16) % 1000) / 500 - 0.999F;
    }
    return memory;
}

static void work_add(struct work *work, dnnl_primitive_desc_t desc) {
    CHECK(dnnl_primitive_create(&work->primitive[work->n], desc));
    work->counts[work->n] = 0;
    work->n++;
}

/* An argument of the primitive that was added last. */
static void work_give(struct work *work, int argument, dnnl_memory_t memory) {
    work->arguments[work->n - 1][work->counts[work->n - 1]++] = (dnnl_exec_arg_t){argument, memory};
}

static void work_reorder(struct work *work, const dnnl_memory_desc_t *from_desc, dnnl_memory_t from,
                         const dnnl_memory_desc_t *to_desc, dnnl_memory_t to) {
    dnnl_primitive_desc_t desc;
    CHECK(dnnl_reorder_primitive_desc_create(&desc, from_desc, engine, to_desc, engine, NULL));
    work_add(work, desc);
    work_give(work, DNNL_ARG_FROM, from);
    work_give(work, DNNL_ARG_TO, to);
}

static void work_run(const struct work *work) {
    for (int i = 0; i < work->n; i++) {
        CHECK(dnnl_primitive_execute(work->primitive[i], stream, work->counts[i], work->arguments[i]));
    }
}

/* The process ends soon after: memories are its own concern. */
static void work_finish(struct work *work) {
    for (int i = 0; i < work->n; i++) {
        for (int k = 0; k < work->counts[i]; k++) {
            bool again = false; /* a reorder's memory is an argument of two primitives */
            for (int j = i + 1; j < work->n; j++) {
                for (int l = 0; l < work->counts[j]; l++) {
                    again = again || work->arguments[j][l].memory == work->arguments[i][k].memory;
                }
            }
            if (!again) {
                CHECK(dnnl_memory_destroy(work->arguments[i][k].memory));
            }
        }
        CHECK(dnnl_primitive_destroy(work->primitive[i]));
    }
}

static double seconds(const struct work *work, long count) {
    double begin = bench_now();
    for (long i = 0; i < count; i++) {
        work_run(work);
    }
    CHECK(dnnl_stream_wait(stream));
    return bench_now() - begin;
}

/* Microseconds, as in ops.c. */
static double measure(struct work *work) {
    const double wanted = bench_quick ? 0.0001 : 0.04;
    double times[ROUNDS];
    long count = 1;
    seconds(work, 1);
    for (double one = seconds(work, 1); one < wanted && count < COUNT_MAX; one = seconds(work, count)) {
        long more = (long)((double)count * wanted / one) + 1;
        count = more > count * 10 ? count * 10 : more;
    }
    for (int i = 0; i < ROUNDS; i++) {
        times[i] = seconds(work, count) / (double)count;
    }
    work_finish(work);
    return bench_median(times, ROUNDS) * 1e6;
}

static dnnl_memory_desc_t described(int rank, const dnnl_dim_t *dims, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t desc;
    CHECK(dnnl_memory_desc_init_by_tag(&desc, rank, dims, dnnl_f32, tag));
    return desc;
}

static dnnl_memory_desc_t images_of(int64_t images, int64_t extent, bool plain) {
    return described(4, (dnnl_dims_t){images, CHANNELS, extent, extent}, plain ? dnnl_nchw : dnnl_format_tag_any);
}

/* Gives the primitive of `work` its argument from plain images, or to them; the reorders are steps before and behind it. */
struct wanted {
    int argument;
    dnnl_query_t query;
    bool result;
};

static double convolution(int64_t images, const char *way, bool plain) {
    static const dnnl_dims_t one = {1, 1}, none = {0, 0};
    struct work work = {0};
    dnnl_primitive_desc_t desc, hint = NULL;
    dnnl_convolution_desc_t forward, back;
    dnnl_memory_desc_t x = images_of(images, EXTENT, plain), y = x;
    dnnl_memory_desc_t w = described(4, (dnnl_dims_t){CHANNELS, CHANNELS, 3, 3}, dnnl_format_tag_any);
    bool by_x = !strcmp(way, "conv2d by x"), by_weight = !strcmp(way, "conv2d by weight");
    CHECK(dnnl_dilated_convolution_forward_desc_init(&forward,
                                                     by_x || by_weight ? dnnl_forward_training : dnnl_forward_inference,
                                                     dnnl_convolution_auto, &x, &w, NULL, &y, one, none, one, one));
    CHECK(dnnl_primitive_desc_create(&desc, &forward, NULL, engine, NULL));
    if (by_x || by_weight) {
        hint = desc;
        if (by_x) {
            CHECK(dnnl_dilated_convolution_backward_data_desc_init(&back, dnnl_convolution_direct, &x, &w, &y, one,
                                                                   none, one, one));
        } else {
            CHECK(dnnl_dilated_convolution_backward_weights_desc_init(&back, dnnl_convolution_direct, &x, &w, NULL, &y,
                                                                      one, none, one, one));
        }
        CHECK(dnnl_primitive_desc_create(&desc, &back, NULL, engine, hint));
    }
    const struct wanted all[3] = {
        {by_x ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, by_x ? dnnl_query_diff_src_md : dnnl_query_src_md, by_x},
        {by_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
         by_weight ? dnnl_query_diff_weights_md : dnnl_query_weights_md, by_weight},
        {by_x || by_weight ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST,
         by_x || by_weight ? dnnl_query_diff_dst_md : dnnl_query_dst_md, !by_x && !by_weight}};
    const dnnl_memory_desc_t user = images_of(images, EXTENT, true);
    dnnl_memory_desc_t kept[3];
    dnnl_memory_t memory[3];
    for (int i = 0; i < 3; i++) {
        kept[i] = *dnnl_primitive_desc_query_md(desc, all[i].query, 0);
        memory[i] = memory_make(&kept[i]);
        if (i != 1 && !all[i].result && !dnnl_memory_desc_equal(&kept[i], &user)) {
            work_reorder(&work, &user, memory_make(&user), &kept[i], memory[i]);
        }
    }
    work_add(&work, desc);
    for (int i = 0; i < 3; i++) {
        work_give(&work, all[i].argument, memory[i]);
    }
    for (int i = 0; i < 3; i++) {
        if (i != 1 && all[i].result && !dnnl_memory_desc_equal(&kept[i], &user)) {
            work_reorder(&work, &kept[i], memory[i], &user, memory_make(&user));
        }
    }
    return measure(&work);
}

static double pooling(int64_t images, const char *way) {
    static const dnnl_dims_t two = {2, 2}, none = {0, 0};
    struct work work = {0};
    dnnl_primitive_desc_t desc, hint;
    dnnl_pooling_v2_desc_t forward, back;
    dnnl_memory_desc_t x = images_of(images, EXTENT, true), y = images_of(images, EXTENT / 2, true);
    dnnl_alg_kind_t kind = strstr(way, "max") ? dnnl_pooling_max : dnnl_pooling_avg_include_padding;
    CHECK(dnnl_pooling_v2_forward_desc_init(&forward, dnnl_forward_training, kind, &x, &y, two, two, none, none, none));
    CHECK(dnnl_primitive_desc_create(&desc, &forward, NULL, engine, NULL));
    if (strstr(way, "by x")) {
        hint = desc;
        CHECK(dnnl_pooling_v2_backward_desc_init(&back, kind, &x, &y, two, two, none, none, none));
        CHECK(dnnl_primitive_desc_create(&desc, &back, NULL, engine, hint));
        work_add(&work, desc);
        work_give(&work, DNNL_ARG_DIFF_SRC, memory_make(&x));
        work_give(&work, DNNL_ARG_DIFF_DST, memory_make(&y));
        return measure(&work);
    }
    dnnl_memory_desc_t workspace = *dnnl_primitive_desc_query_md(desc, dnnl_query_workspace_md, 0);
    work_add(&work, desc);
    work_give(&work, DNNL_ARG_SRC, memory_make(&x));
    work_give(&work, DNNL_ARG_DST, memory_make(&y));
    if (kind == dnnl_pooling_max) {
        work_give(&work, DNNL_ARG_WORKSPACE, memory_make(&workspace));
    }
    return measure(&work);
}

static double batch_norm(int64_t images, bool back) {
    const unsigned flags = dnnl_use_scaleshift;
    struct work work = {0};
    dnnl_primitive_desc_t desc, hint;
    dnnl_batch_normalization_desc_t forward, gradient;
    dnnl_memory_desc_t x = images_of(images, EXTENT, true), each = described(1, (dnnl_dims_t){CHANNELS}, dnnl_a);
    dnnl_memory_desc_t both = described(2, (dnnl_dims_t){2, CHANNELS}, dnnl_ab);
    CHECK(dnnl_batch_normalization_forward_desc_init(&forward, dnnl_forward_training, &x, 1e-5F, flags));
    CHECK(dnnl_primitive_desc_create(&desc, &forward, NULL, engine, NULL));
    if (back) {
        hint = desc;
        CHECK(dnnl_batch_normalization_backward_desc_init(&gradient, dnnl_backward, &x, &x, 1e-5F, flags));
        CHECK(dnnl_primitive_desc_create(&desc, &gradient, NULL, engine, hint));
    }
    work_add(&work, desc);
    work_give(&work, DNNL_ARG_SRC, memory_make(&x));
    work_give(&work, DNNL_ARG_MEAN, memory_make(&each));
    work_give(&work, DNNL_ARG_VARIANCE, memory_make(&each));
    work_give(&work, DNNL_ARG_SCALE_SHIFT, memory_make(&both));
    if (!back) {
        work_give(&work, DNNL_ARG_DST, memory_make(&x));
        return measure(&work);
    }
    work_give(&work, DNNL_ARG_DIFF_DST, memory_make(&x));
    work_give(&work, DNNL_ARG_DIFF_SRC, memory_make(&x));
    work_give(&work, DNNL_ARG_DIFF_SCALE_SHIFT, memory_make(&both));
    return measure(&work);
}

static double layer_norm(int64_t side, bool back) {
    const unsigned flags = dnnl_use_scaleshift;
    struct work work = {0};
    dnnl_primitive_desc_t desc, hint;
    dnnl_layer_normalization_desc_t forward, gradient;
    dnnl_memory_desc_t x = described(2, (dnnl_dims_t){side, side}, dnnl_ab);
    dnnl_memory_desc_t each = described(1, (dnnl_dims_t){side}, dnnl_a);
    dnnl_memory_desc_t both = described(2, (dnnl_dims_t){2, side}, dnnl_ab);
    CHECK(dnnl_layer_normalization_forward_desc_init(&forward, dnnl_forward_training, &x, &each, 1e-5F, flags));
    CHECK(dnnl_primitive_desc_create(&desc, &forward, NULL, engine, NULL));
    if (back) {
        hint = desc;
        CHECK(dnnl_layer_normalization_backward_desc_init(&gradient, dnnl_backward, &x, &x, &each, 1e-5F, flags));
        CHECK(dnnl_primitive_desc_create(&desc, &gradient, NULL, engine, hint));
    }
    work_add(&work, desc);
    work_give(&work, DNNL_ARG_SRC, memory_make(&x));
    work_give(&work, DNNL_ARG_MEAN, memory_make(&each));
    work_give(&work, DNNL_ARG_VARIANCE, memory_make(&each));
    work_give(&work, DNNL_ARG_SCALE_SHIFT, memory_make(&both));
    if (!back) {
        work_give(&work, DNNL_ARG_DST, memory_make(&x));
        return measure(&work);
    }
    work_give(&work, DNNL_ARG_DIFF_DST, memory_make(&x));
    work_give(&work, DNNL_ARG_DIFF_SRC, memory_make(&x));
    work_give(&work, DNNL_ARG_DIFF_SCALE_SHIFT, memory_make(&both));
    return measure(&work);
}

static double product(int64_t m, int64_t n, int64_t k, dnnl_data_type_t type) {
    struct work work = {0};
    dnnl_primitive_desc_t desc;
    dnnl_matmul_desc_t described_product;
    dnnl_memory_desc_t a, b, c;
    CHECK(dnnl_memory_desc_init_by_tag(&a, 2, (dnnl_dims_t){m, k}, type, dnnl_ab));
    CHECK(dnnl_memory_desc_init_by_tag(&b, 2, (dnnl_dims_t){k, n}, type, dnnl_ab));
    CHECK(dnnl_memory_desc_init_by_tag(&c, 2, (dnnl_dims_t){m, n}, type, dnnl_ab));
    CHECK(dnnl_matmul_desc_init(&described_product, &a, &b, NULL, &c));
    CHECK(dnnl_primitive_desc_create(&desc, &described_product, NULL, engine, NULL));
    work_add(&work, desc);
    work_give(&work, DNNL_ARG_SRC, memory_make(&a));
    work_give(&work, DNNL_ARG_WEIGHTS, memory_make(&b));
    work_give(&work, DNNL_ARG_DST, memory_make(&c));
    return measure(&work);
}

/* Microseconds; negative: there is no such row. */
static double answer(const char *row, bool bf16, int64_t elements) {
    int64_t images = elements / (CHANNELS * EXTENT * EXTENT), side = (int64_t)sqrt((double)elements);
    images = images > 0 ? images : 1;
    if (!strcmp(row, "matmul")) {
        return product(side, side, side, bf16 ? dnnl_bf16 : dnnl_f32);
    }
    if (bf16) {
        return -1;
    }
    if (!strncmp(row, "conv2d", 6)) {
        return fmin(convolution(images, row, true), convolution(images, row, false));
    }
    if (strstr(row, "_pool2d")) {
        return pooling(images, row);
    }
    if (!strncmp(row, "batch_norm", 10)) {
        return batch_norm(images, strstr(row, "back"));
    }
    if (!strncmp(row, "layer_norm", 10)) {
        return layer_norm(side, strstr(row, "back"));
    }
    return -1;
}

int main(int argc, char **argv) {
    char line[LINE_MOST];
    bench_quick = argc > 1 && !strcmp(argv[1], "--quick");
    CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
    CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "version")) {
            const dnnl_version_t *version = dnnl_version();
            printf("%d.%d.%d\n", version->major, version->minor, version->patch);
        } else {
            char *row = strtok(line, "\t"), *dtype = strtok(NULL, "\t"), *elements = strtok(NULL, "\t");
            bool bf16 = dtype && !strcmp(dtype, "bf16"), known = bf16 || (dtype && !strcmp(dtype, "f32"));
            double us = elements && known ? answer(row, bf16, strtoll(elements, NULL, 10)) : -1;
            if (us < 0) {
                printf("-\tthere is no such row\n");
            } else {
                printf("%.4g\n", us);
            }
        }
        fflush(stdout);
    }
    return 0;
}
