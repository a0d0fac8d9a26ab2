/* The conformance suite's cases on the CPU device at the vector levels below the processor's own, at which all other tests run. The devices have
 * one, two and three threads, whose bits must be the same. A failure's text names the operation.
 *
 * A tenth of the repetitions: row functions differ from level to level in how they compute a vector and the rest behind the last whole one, which
 * few cases show; what surrounds them is the same. vector_math in tests/unit compares the functions of floats at every level more closely. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/cases.h"

/* The level of a device that is opened now; false: the processor lacks the one that the environment names. */
static bool level_now(char level[static 32]) {
    struct device_options options = {.memory_total = 1 << 20, .threads = 1};
    struct device_info info;
    struct device *device;
    struct fault fault = {0};
    int code = device_open("cpu", &options, &device, &fault);
    if (code == STATUS_UNSUPPORTED)
        return false;
    cr_assert_eq(code, STATUS_OK, "%s", fault.message);
    device_describe(device, &info);
    device_close(device);
    memcpy(level, info.capability, sizeof info.capability);
    return true;
}

static void operation_conforms(unsigned opcode) {
    struct suite suite;
    const struct op_case *row = op_case_find(opcode);
    cr_assert(row, "the suite has no case for %s", op_info(opcode)->name);
    suite_open_with_threads(&suite, 0x1e7e1 + opcode);
    row->run(&suite, row);
    suite_close(&suite);
}

static void operations_conform(const char *word) {
    char own[32], level[32];
    unsetenv("TENSORD_CPU_LEVEL");
    cr_assert(level_now(own));
    setenv("TENSORD_CPU_LEVEL", word, 1);
    setenv("TENSORD_TEST_DIVIDE", "10", 1);
    if (!level_now(level))
        cr_skip("the processor lacks it");
    if (!strcmp(level, own))
        cr_skip("it is the processor's own, at which other tests run");
#define X(name, value, text) operation_conforms(value);
    OP_LIST(X)
#undef X
}

Test(levels, operations_conform_at_v2, .timeout = 1200) {
    operations_conform("v2");
}

Test(levels, operations_conform_at_v3, .timeout = 1200) {
    operations_conform("v3");
}
