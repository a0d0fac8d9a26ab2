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

/* The same bits, but which of two NaNs it is does not matter. */
static bool same_numbers(const struct tensor_type *type, const uint8_t *a, const uint8_t *b) {
    size_t bytes = (size_t)type_bytes(type), size = dtype_size(type->dtype);
    for (size_t at = 0; at < bytes; at += size)
        if (memcmp(a + at, b + at, size) != 0 && !(is_nan(type->dtype, a + at) && is_nan(type->dtype, b + at)))
            return false;
    return true;
}

static bool same_bits(const struct tensor_type *type, const uint8_t *a, const uint8_t *b) {
    return memcmp(a, b, (size_t)type_bytes(type)) == 0;
}

static uint8_t *fetched(struct suite *suite, uint64_t id, const char *what, unsigned number, const char *way) {
    struct suite_fetch fetch;
    suite_fetch_start(suite, id, &fetch);
    suite_fetch_wait(suite, &fetch);
    if (fetch.failed)
        suite_fail(suite, "%s %u, %s: %s", what, number, way, fetch.failure.message);
    uint8_t *values = malloc((size_t)fetch.fetch.bytes + 1);
    suite_read(suite, &fetch.fetch, values);
    fetch_release(&fetch.fetch);
    return values;
}

static void compare(struct suite *suite, uint64_t eager, uint64_t recorded, const struct tensor_type *type,
                    size_t offset, const char *what, unsigned number,
                    bool same(const struct tensor_type *, const uint8_t *, const uint8_t *)) {
    uint8_t *one = fetched(suite, eager, what, number, "one by one");
    uint8_t *other = fetched(suite, recorded, what, number, "recorded");
    if (!same(type, one, other + offset))
        suite_fail(suite, "%s %u has other bits than the same operations one by one", what, number);
    free(one);
    free(other);
}

void recorded_compare(struct suite *suite, uint64_t eager, uint64_t recorded, const struct tensor_type *type,
                      unsigned result) {
    compare(suite, eager, recorded, type, 0, "result", result, same_numbers);
}

void recorded_compare_bits(struct suite *suite, uint64_t eager, uint64_t recorded, const struct tensor_type *type,
                           size_t offset, const char *what, unsigned number) {
    compare(suite, eager, recorded, type, offset, what, number, same_bits);
}
