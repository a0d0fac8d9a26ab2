/* Creation on the CPU device: outputs that are written past the caches, from addresses that are not aligned to a cache line, by one and by more
 * threads, and at each vector level: each element is what its formula says, and nothing beside them is written. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"

enum { BESIDE = 256 }; /* bytes before and behind the output */

static char *room;
static size_t room_bytes;

/* Makes n elements, `offset` elements behind an aligned address. Returns where they are. */
static char *create(struct device *device, unsigned opcode, enum dtype dtype, int rank, const int64_t *shape,
                    int64_t offset, const struct op_packed *attributes) {
    const int64_t strides[] = {rank == 2 ? shape[1] : 1, 1};
    char *out = room + BESIDE + offset * (int64_t)dtype_size(dtype);
    struct launch launch = {
        .opcode = (uint16_t)opcode,
        .attributes = {attributes->ints, attributes->floats, attributes->n_ints, attributes->n_floats}};
    struct device_turn turn = {0};
    struct fault fault;
    struct device_begun *begun = NULL;
    launch.output = (struct operand){.data = out,
                                     .dtype = (uint8_t)dtype,
                                     .as = (uint8_t)dtype,
                                     .rank = (uint8_t)rank,
                                     .shape = shape,
                                     .strides = strides};
    memset(room, 0xa5, room_bytes);
    do
        cr_assert_eq(device->vtable->launch_part(device, &launch, &turn, &begun, &fault), STATUS_OK);
    while (begun);
    return out;
}

static void nothing_beside(const char *level, const char *name, const char *out, int64_t bytes) {
    for (const char *at = out - BESIDE / 2; at < out; at++)
        cr_assert(*at == (char)0xa5, "%s, %s: before the output", level, name);
    for (const char *at = out + bytes; at < out + bytes + BESIDE / 2; at++)
        cr_assert(*at == (char)0xa5, "%s, %s: behind the output", level, name);
}

#define ATTRIBUTES(operation, ...)                                                                                     \
    ({                                                                                                                 \
        static struct op_packed packed;                                                                                \
        operation##_attributes_write(&(struct operation##_attributes){__VA_ARGS__}, &packed);                          \
        &packed;                                                                                                       \
    })

static void elements_are(struct device *device, const char *level, int64_t n, int64_t offset) {
    const int64_t shape[] = {n};
    const float *f = (const float *)(const void *)create(
        device, OP_FULL, DTYPE_F32, 1, shape, offset,
        ATTRIBUTES(full, .dtype = DTYPE_F32, .value = {.f = 1.5}, .shape = {1, (int64_t *)(uintptr_t)shape}));
    for (int64_t i = 0; i < n; i++)
        cr_assert(f[i] == 1.5f, "%s, full: %lld of %lld", level, (long long)i, (long long)n);
    nothing_beside(level, "full", (const char *)f, n * 4);

    f = (const float *)(const void *)create(
        device, OP_ARANGE, DTYPE_F32, 1, shape, offset,
        ATTRIBUTES(arange, .dtype = DTYPE_F32, .start = {.f = -0.3}, .stop = {.f = 1e9}, .step = {.f = 0.37}));
    for (int64_t i = 0; i < n; i++) {
        volatile double product = (double)i * 0.37;
        cr_assert(f[i] == (float)(-0.3 + product), "%s, arange: %lld of %lld", level, (long long)i, (long long)n);
    }
    nothing_beside(level, "arange of f32", (const char *)f, n * 4);

    const int64_t *integers = (const int64_t *)(const void *)create(
        device, OP_ARANGE, DTYPE_I64, 1, shape, offset,
        ATTRIBUTES(arange, .dtype = DTYPE_I64, .start = {.i = 5}, .stop = {.i = INT64_MAX}, .step = {.i = -3}));
    for (int64_t i = 0; i < n; i++)
        cr_assert(integers[i] == 5 - 3 * i, "%s, arange: %lld of %lld", level, (long long)i, (long long)n);
    nothing_beside(level, "arange of i64", (const char *)integers, n * 8);

    for (int endpoint = 0; endpoint < 2; endpoint++) {
        const double step = (1e-3 + 1.1) / (double)(n - endpoint);
        const double *d = (const double *)(const void *)create(
            device, OP_LINSPACE, DTYPE_F64, 1, shape, offset,
            ATTRIBUTES(linspace, .dtype = DTYPE_F64, .start = -1.1, .stop = 1e-3, .count = n, .endpoint = endpoint));
        for (int64_t i = 0; i < n; i++) {
            volatile double product = (double)i * step;
            double want = endpoint && i == n - 1 ? 1e-3 : -1.1 + product;
            cr_assert(d[i] == want, "%s, linspace: %lld of %lld", level, (long long)i, (long long)n);
        }
        nothing_beside(level, "linspace", (const char *)d, n * 8);
    }

    const int64_t side = (int64_t)sqrt((double)n), square[] = {side, side};
    f = (const float *)(const void *)create(
        device, OP_EYE, DTYPE_F32, 2, square, offset,
        ATTRIBUTES(eye, .dtype = DTYPE_F32, .rows = side, .columns = side, .diagonal = 1));
    for (int64_t i = 0; i < side * side; i++)
        cr_assert(f[i] == (i % side == i / side + 1 ? 1.0f : 0.0f), "%s, eye: %lld of %lld", level, (long long)i,
                  (long long)n);
    nothing_beside(level, "eye", (const char *)f, side * side * 4);
}

Test(cpu_create, elements_are_what_the_formula_says, .timeout = 120) {
    static const char *const words[] = {"v4", "v3", "v2", "native"};
    static const int64_t lengths[] = {2, 17, 1025, 70001, CPU_STREAM_FROM / 4 + 1237};
    room_bytes = 2 * BESIDE + 64 + 8 * ((size_t)CPU_STREAM_FROM / 4 + 1237);
    room_bytes += -room_bytes & 63;
    cr_assert(room = aligned_alloc(64, room_bytes));
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        for (unsigned threads = 1; threads <= 3; threads += 2) {
            struct device_options options = {.memory_total = 1 << 20, .threads = threads};
            struct device *device;
            struct fault fault;
            setenv("TENSORD_CPU_LEVEL", words[w], 1);
            if (device_open("cpu", &options, &device, &fault) != STATUS_OK)
                continue; /* the processor or the build has not the level */
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                elements_are(device, words[w], lengths[i], i % 2 == 0);
            device_close(device);
        }
    free(room);
}
