#include <stdlib.h>
#include <string.h>

#include "tests/device/recorded_steps.h"
#include "tests/device/suite.h"

static bool is_nan(enum dtype dtype, const uint8_t *element) {
    float f32;
    double f64;
    switch (dtype) {
    case DTYPE_F32:
        memcpy(&f32, element, sizeof f32);
        return f32 != f32;
    case DTYPE_F64:
        memcpy(&f64, element, sizeof f64);
        return f64 != f64;
    default:
        return false;
    }
}

static bool same(const struct tensor_type *type, const uint8_t *a, const uint8_t *b) {
    size_t bytes = (size_t)type_bytes(type), size = dtype_size(type->dtype);
    for (size_t at = 0; at < bytes; at += size)
        if (memcmp(a + at, b + at, size) != 0 && !(is_nan(type->dtype, a + at) && is_nan(type->dtype, b + at)))
            return false;
    return true;
}

void recorded_compare(struct suite *suite, uint64_t eager, uint64_t recorded, const struct tensor_type *type,
                      unsigned result) {
    uint64_t ids[2] = {eager, recorded};
    uint8_t *values[2];
    for (unsigned i = 0; i < 2; i++) {
        struct suite_fetch fetch;
        suite_fetch_start(suite, ids[i], &fetch);
        suite_fetch_wait(suite, &fetch);
        if (fetch.failed)
            suite_fail(suite, "result %u, %s: %s", result, i ? "recorded" : "one by one", fetch.failure.message);
        values[i] = malloc((size_t)type_bytes(type) + 1);
        suite_read(suite, &fetch.fetch, values[i]);
        fetch_release(&fetch.fetch);
    }
    if (!same(type, values[0], values[1]))
        suite_fail(suite, "result %u has other bits than the same operations one by one", result);
    free(values[0]);
    free(values[1]);
}
