/* oneDNN's memory: what a call needs is in the scratch memory that it asks for, and what is kept between calls has a limit. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/dnnl_impl.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true }; /* whose allocator must not be replaced */
#else
enum { SANITIZED = false };
#endif

enum { KEPT = 128, IMAGES = 2, MARK = 0xa5, SMALL = 1 << 15 };

/* ---- what oneDNN allocates: it does so by this function, which comes before the C library's ---- */

static size_t largest;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((visibility("default"))) int posix_memalign(void **out, size_t alignment, size_t bytes) {
    static int (*real)(void **, size_t, size_t);
    if (!real)
        real = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    largest = bytes > largest ? bytes : largest;
    return real(out, alignment, bytes);
}
#endif

/* ---- convolutions ---- */

struct shape {
    int64_t groups, x, y, extent, kernel, stride, padding, dilation;
};

static struct convolution convolution_of(const struct shape *s) {
    int64_t reach = (s->kernel - 1) * s->dilation + 1, y = (s->extent + 2 * s->padding - reach) / s->stride + 1;
    return (struct convolution){.axes = 2,
                                .batch = IMAGES,
                                .groups = s->groups,
                                .x_channels = s->x,
                                .y_channels = s->y,
                                .x = {1, s->extent, s->extent},
                                .y = {1, y, y},
                                .kernel = {1, s->kernel, s->kernel},
                                .stride = {1, s->stride, s->stride},
                                .padding = {0, s->padding, s->padding},
                                .dilation = {1, s->dilation, s->dilation}};
}

/* Without memory that is there for good after the first call. */
static struct dnnl *load(void) {
    struct dnnl *dnnl = dnnl_load();
    if (!dnnl)
        cr_skip("oneDNN is not installed");
    return dnnl;
}

static void *zeros(size_t bytes) {
    void *memory = NULL;
    cr_assert_eq(posix_memalign(&memory, 64, bytes ? bytes : 64), 0);
    memset(memory, 0, bytes);
    return memory;
}

struct operands {
    char *x, *weight, *prepared, *y, *scratch;
    size_t scratch_bytes;
};

static void operands_make(const struct convolution *c, const struct dnnl_convolution *of, struct operands *out) {
    size_t weight = sizeof(float) * (size_t)(c->x_channels / c->groups * c->y_channels * convolution_volume(c->kernel));
    size_t own = dnnl_convolution_weight_bytes(of);
    out->x = zeros(sizeof(float) * (size_t)(IMAGES * c->x_channels * convolution_volume(c->x)));
    out->y = zeros(sizeof(float) * (size_t)(IMAGES * c->y_channels * convolution_volume(c->y)));
    out->weight = zeros(weight);
    out->prepared = own ? zeros(own) : out->weight;
    out->scratch_bytes = dnnl_convolution_scratch_bytes(of);
    out->scratch = zeros(out->scratch_bytes);
    memset(out->scratch, MARK, out->scratch_bytes);
}

static void operands_free(struct operands *operands) {
    if (operands->prepared != operands->weight)
        free(operands->prepared);
    free(operands->x);
    free(operands->y);
    free(operands->weight);
    free(operands->scratch);
}

static void run(const struct dnnl_convolution *of, struct operands *o) {
    if (o->prepared != o->weight)
        cr_assert(dnnl_convolution_prepare(of, o->weight, o->prepared, o->scratch));
    cr_assert(dnnl_convolution_run(of, o->x, o->prepared, NULL, o->y, false, o->scratch));
}

static const struct shape shapes[] = {
    {1, 64, 256, 56, 1, 1, 0, 1}, {1, 3, 64, 112, 7, 2, 3, 1},   {1, 256, 256, 28, 3, 1, 9, 1},
    {5, 5, 10, 19, 3, 1, 1, 1},   {1, 5, 7, 19, 3, 2, 2, 2},     {1, 32, 17, 40, 3, 1, 6, 6},
    {1, 64, 64, 28, 3, 1, 1, 1},  {32, 32, 32, 28, 3, 1, 1, 1},  {2, 14, 22, 20, 4, 1, 2, 2},
    {1, 1, 32, 28, 3, 1, 1, 1},   {1, 400, 3, 130, 1, 1, 20, 1}, {1, 256, 64, 56, 1, 2, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* What oneDNN allocated while it computed has room behind what it has written of the scratch memory. */
static void check_room(struct dnnl *dnnl, enum dnnl_way way, size_t number) {
    struct convolution c = convolution_of(&shapes[number]);
    const struct dnnl_convolution *of = dnnl_convolution_find(dnnl, way, &c, IMAGES, false, NULL);
    struct operands operands;
    if (!of)
        return;
    operands_make(&c, of, &operands);
    run(of, &operands);
    largest = 0;
    run(of, &operands);
    size_t touched = operands.scratch_bytes;
    while (touched > 0 && operands.scratch[touched - 1] == (char)MARK)
        touched--;
    size_t taken = largest > SMALL ? largest : 0; /* each call has some small objects */
    cr_expect_leq(touched + taken, operands.scratch_bytes, "shape %zu, way %d: %zu bytes of scratch, %zu more taken",
                  number, (int)way, touched, largest);
    operands_free(&operands);
    dnnl_convolution_release(of);
}

static void check_rooms(void) {
    if (SANITIZED)
        cr_skip("a sanitizer has an allocator of its own");
    struct dnnl *dnnl = load();
    for (size_t i = 0; i < SHAPES; i++)
        for (int way = DNNL_FORWARD; way <= DNNL_WEIGHT; way++)
            check_room(dnnl, (enum dnnl_way)way, i);
    dnnl_unload(dnnl);
}

Test(dnnl, what_it_packs_is_a_part_of_the_scratch_memory) {
    check_rooms();
}

/* There the ways back are by products of matrices. */
Test(dnnl, what_it_packs_with_the_oldest_instructions_is_a_part_of_the_scratch_memory) {
    setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1);
    check_rooms();
}

/* ---- scratchpads ---- */

static dnnl_status_t (*real_execute)(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t *);
static dnnl_status_t (*real_reorder)(dnnl_primitive_desc_t *, const dnnl_memory_desc_t *, dnnl_engine_t,
                                     const dnnl_memory_desc_t *, dnnl_engine_t, const_dnnl_primitive_attr_t);
static const dnnl_memory_desc_t *(*real_query_md)(const_dnnl_primitive_desc_t, dnnl_query_t, int);
static unsigned executed, with_scratchpad;
static const_dnnl_primitive_desc_t last_reorder;
static dnnl_memory_desc_t wanted_scratchpad;

static dnnl_status_t count_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int n,
                                   const dnnl_exec_arg_t *arguments) {
    executed++;
    for (int i = 0; i < n; i++)
        with_scratchpad += arguments[i].arg == DNNL_ARG_SCRATCHPAD;
    return real_execute(primitive, stream, n, arguments);
}

static dnnl_status_t note_reorder(dnnl_primitive_desc_t *out, const dnnl_memory_desc_t *from, dnnl_engine_t from_engine,
                                  const dnnl_memory_desc_t *to, dnnl_engine_t to_engine,
                                  const_dnnl_primitive_attr_t attributes) {
    dnnl_status_t (*mode_of)(const_dnnl_primitive_attr_t, dnnl_scratchpad_mode_t *) =
        (dnnl_status_t(*)(const_dnnl_primitive_attr_t, dnnl_scratchpad_mode_t *))dlsym(
            dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL), "dnnl_primitive_attr_get_scratchpad_mode");
    dnnl_scratchpad_mode_t mode = dnnl_scratchpad_mode_library;
    cr_expect(attributes && mode_of && mode_of(attributes, &mode) == dnnl_success);
    cr_expect_eq(mode, dnnl_scratchpad_mode_user);
    dnnl_status_t status = real_reorder(out, from, from_engine, to, to_engine, attributes);
    last_reorder = *out;
    return status;
}

/* As if reorders had a scratchpad, which they have for other dtypes. */
static const dnnl_memory_desc_t *answer_scratchpad(const_dnnl_primitive_desc_t desc, dnnl_query_t query, int number) {
    return query == dnnl_query_scratchpad_md && desc == last_reorder ? &wanted_scratchpad
                                                                     : real_query_md(desc, query, number);
}

Test(dnnl, scratchpads_of_reorders_are_in_the_scratch_memory) {
    enum { BYTES = 1 << 24 };
    struct dnnl *dnnl = load();
    struct convolution c = convolution_of(&(struct shape){1, 64, 64, 28, 3, 1, 1, 1});
    const struct dnnl_convolution *plain = dnnl_convolution_find(dnnl, DNNL_FORWARD, &c, IMAGES, false, NULL);
    if (!plain || !dnnl_convolution_weight_bytes(plain))
        cr_skip("this processor's convolutions need no reorders");
    real_execute = dnnl->primitive_execute;
    real_reorder = dnnl->reorder_primitive_desc_create;
    real_query_md = dnnl->primitive_desc_query_md;
    dnnl->primitive_execute = count_execute;
    dnnl->reorder_primitive_desc_create = note_reorder;
    dnnl->primitive_desc_query_md = answer_scratchpad;
    cr_assert_eq(
        dnnl->memory_desc_init_by_tag(&wanted_scratchpad, 1, (dnnl_dims_t){BYTES / sizeof(float)}, dnnl_f32, dnnl_a),
        dnnl_success);
    for (int way = DNNL_FORWARD; way <= DNNL_WEIGHT; way++) {
        struct operands operands;
        const struct dnnl_convolution *of = dnnl_convolution_find(dnnl, (enum dnnl_way)way, &c, 1, false, NULL);
        cr_assert_not_null(of);
        cr_expect_geq(dnnl_convolution_scratch_bytes(of), BYTES);
        operands_make(&c, of, &operands);
        run(of, &operands);
        operands_free(&operands);
        dnnl_convolution_release(of);
    }
    cr_expect_gt(executed, 3);
    cr_expect_eq(with_scratchpad, executed);
    dnnl_convolution_release(plain);
    dnnl_unload(dnnl);
}

/* ---- what is kept ---- */

Test(dnnl, those_that_were_too_many_are_forgotten_after_use) {
    enum { MANY = KEPT + 20 };
    const struct dnnl_convolution *found[MANY];
    struct dnnl *dnnl = load();
    for (int i = 0; i < MANY; i++) {
        struct convolution c = convolution_of(&(struct shape){1, 8, 8, 6 + i, 1, 1, 0, 1});
        found[i] = dnnl_convolution_find(dnnl, DNNL_FORWARD, &c, 1, false, NULL);
        cr_assert_not_null(found[i]);
    }
    cr_expect_eq(dnnl->n_kept, MANY, "all are in use");
    for (int i = 0; i < MANY; i++)
        dnnl_convolution_release(found[i]);
    cr_expect_eq(dnnl->n_kept, KEPT);
    struct convolution last = convolution_of(&(struct shape){1, 8, 8, 6 + MANY - 1, 1, 1, 0, 1});
    cr_expect_eq(dnnl_convolution_find(dnnl, DNNL_FORWARD, &last, 1, false, NULL), found[MANY - 1], "it was used last");
    dnnl_unload(dnnl);
}
