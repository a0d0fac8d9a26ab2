#include <math.h>
#include <string.h>

#include "tests/device/cases.h"
#include "tests/stand_ins/launch.h"

static void create_once(struct suite *suite, unsigned opcode, struct op_packed attributes) {
    struct sample x = suite_run(suite, &(struct suite_call){.opcode = opcode, .attributes = attributes});
    case_settle(suite, &x);
}

static void create_full(struct suite *suite, enum dtype dtype) {
    static const double numbers[] = {0, -0.0, 1, -1, 0.1, 1e-7, 65504, 65520, 1e30, 1e300, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < SUITE_REPEAT(30); i++) {
        int64_t shape[VALUES_RANK_MAX];
        struct op_scalar value = {.i = 0};
        int rank = suite_shape(suite, 5, shape);
        if (dtype == DTYPE_BOOL)
            value.i = suite_below(suite, 2);
        else if (!value_is_float(dtype))
            value.i = i % 3 == 0 ? value_low(dtype) : i % 3 == 1 ? value_high(dtype) : suite_below(suite, 100);
        value.f = numbers[suite_below(suite, 13)];
        if (value_is_complex(dtype)) /* the imaginary part */
            memcpy(&value.i, &numbers[suite_below(suite, 13)], sizeof value.i);
        if (!value_is_float(dtype)) /* says whether the integer of u64 is above 2^63 */
            value.f = (double)value_number(dtype, value.i);
        create_once(suite, OP_FULL,
                    SUITE_ATTRIBUTES(full, .dtype = dtype, .value = value, .shape = {(unsigned)rank, shape}));
    }
    create_once(
        suite, OP_FULL,
        SUITE_ATTRIBUTES(full, .dtype = dtype, .value = {1, 1.5}, .shape = SUITE_LIST(SUITE_REPEAT(CASE_LARGE))));
}

static void create_arange(struct suite *suite, enum dtype dtype) {
    static const double floats[][3] = {{0, 10, 1}, {0, 1, 0.1}, {5, -5, -0.75}, {-3, 3, 0.5},  {0, 0, 1},
                                       {3, 1, 1},  {1, 3, -1},  {0, 64.5, 1},   {1.5, 40, 2.5}};
    for (size_t i = 0; value_is_float(dtype) && i < sizeof floats / sizeof *floats; i++)
        create_once(suite, OP_ARANGE,
                    SUITE_ATTRIBUTES(arange, .dtype = dtype, .start = {.f = floats[i][0]}, .stop = {.f = floats[i][1]},
                                     .step = {.f = floats[i][2]}));
    for (int i = 0; !value_is_float(dtype) && i < 40; i++) {
        int64_t room = value_is_unsigned(dtype) ? 0 : 100;
        int64_t step = 1 + suite_below(suite, 7);
        int64_t start = suite_below(suite, 120) - room, stop = suite_below(suite, 120) - room;
        if (suite_chance(suite, 50))
            step = -step;
        create_once(
            suite, OP_ARANGE,
            SUITE_ATTRIBUTES(arange, .dtype = dtype, .start = {.i = start}, .stop = {.i = stop}, .step = {.i = step}));
    }
    if (dtype == DTYPE_U64) {
        struct op_scalar top = {.i = -1, .f = 0x1p64}, half = {.i = INT64_MIN, .f = 0x1p63};
        create_once(
            suite, OP_ARANGE,
            SUITE_ATTRIBUTES(arange, .dtype = dtype, .start = {.i = 5}, .stop = top, .step = {.i = INT64_MAX / 4}));
        create_once(suite, OP_ARANGE,
                    SUITE_ATTRIBUTES(arange, .dtype = dtype, .start = top, .stop = {.i = -1, .f = -1},
                                     .step = {.i = INT64_MIN / 3, .f = -0x1p61}));
        create_once(suite, OP_ARANGE,
                    SUITE_ATTRIBUTES(arange, .dtype = dtype, .start = {.i = 7}, .stop = top, .step = half));
    }
    if (dtype == DTYPE_I64)
        create_once(suite, OP_ARANGE,
                    SUITE_ATTRIBUTES(arange, .dtype = dtype, .start = {.i = INT64_MIN}, .stop = {.i = INT64_MAX},
                                     .step = {.i = INT64_MAX / 4}));
}

static void create_linspace(struct suite *suite, enum dtype dtype) {
    static const double ends[][2] = {{0, 1}, {1, 0}, {-3, 4.5}, {2, 2}, {0.1, 0.7}, {-1e-3, 1e4}};
    static const int64_t counts[] = {0, 1, 2, 3, 11, 257, 1000};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (size_t k = 0; k < 2 * sizeof counts / sizeof *counts; k++)
            create_once(suite, OP_LINSPACE,
                        SUITE_ATTRIBUTES(linspace, .dtype = dtype, .start = ends[i][0], .stop = ends[i][1],
                                         .count = counts[k / 2], .endpoint = k % 2));
}

static void create_linspace_complex(struct suite *suite, enum dtype dtype) {
    static const double ends[][4] = {{0, 1, 1, 2}, {-3, 4.5, 2, 2}, {0.1, -0.7, 0.3, 0.7}, {0, 0, -1e-3, 1e4}};
    static const int64_t counts[] = {0, 1, 2, 3, 11, 257, 1000};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (size_t k = 0; k < 2 * sizeof counts / sizeof *counts; k++)
            create_once(suite, OP_LINSPACE_COMPLEX,
                        SUITE_ATTRIBUTES(linspace_complex, .dtype = dtype, .start_real = ends[i][0],
                                         .start_imaginary = ends[i][1], .stop_real = ends[i][2],
                                         .stop_imaginary = ends[i][3], .count = counts[k / 2], .endpoint = k % 2));
}

static void create_eye(struct suite *suite, enum dtype dtype) {
    for (int i = 0; i < SUITE_REPEAT(30); i++) {
        int64_t rows = suite_below(suite, 20), columns = suite_below(suite, 20);
        create_once(suite, OP_EYE,
                    SUITE_ATTRIBUTES(eye, .dtype = dtype, .rows = rows, .columns = columns,
                                     .diagonal = suite_below(suite, 50) - 25));
    }
    int64_t far[] = {(int64_t)1 << 62, -((int64_t)1 << 62)};
    for (int i = 0; i < 2; i++)
        create_once(suite, OP_EYE, SUITE_ATTRIBUTES(eye, .dtype = dtype, .rows = 5, .columns = 5, .diagonal = far[i]));
}

static void case_create(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        if (row->opcode == OP_FULL)
            create_full(suite, dtype);
        else if (row->opcode == OP_ARANGE)
            create_arange(suite, dtype);
        else if (row->opcode == OP_LINSPACE)
            create_linspace(suite, dtype);
        else if (row->opcode == OP_LINSPACE_COMPLEX)
            create_linspace_complex(suite, dtype);
        else
            create_eye(suite, dtype);
    }
}

/* Freed memory is given to others, and what others hold stays as it is. */
static void case_free(struct suite *suite, const struct op_case *row) {
    struct sample kept = suite_sample(suite, DTYPE_I32, 1, (int64_t[]){1000}, row->fill);
    for (int i = 0; i < 200; i++) {
        struct sample x =
            suite_sample(suite, op_case_dtype(suite, row), 1, (int64_t[]){1 + suite_below(suite, 3000)}, row->fill);
        struct sample y = suite_unary(suite, OP_COPY, &x);
        suite_free(suite, &x);
        case_settle(suite, &y);
    }
    suite_check(suite, &kept);
    struct suite_fetch fetch;
    suite_free(suite, &kept);
    suite_fetch_start(suite, kept.id, &fetch);
    suite_fetch_wait(suite, &fetch);
    if (!fetch.failed || fetch.failure.code != STATUS_UNKNOWN_ID)
        suite_fail(suite, "a freed id can still be fetched");
}

/* Of a kernel that there is not; others: tests/daemon/kernel_check.c and the unit tests. */
static void case_kernel(struct suite *suite, const struct op_case *row) {
    const struct kernel_attributes launch = {.kernel = 1,
                                             .grid = LAUNCH_LIST(1, 1, 1),
                                             .block = LAUNCH_LIST(1, 1, 1),
                                             .arguments = LAUNCH_LIST(KERNEL_OUTPUT),
                                             .results = LAUNCH_LIST(DTYPE_F32, 1, 4)};
    struct launch_ints ints;
    struct failure failure = {0};
    uint64_t result;
    launch_ints_write(&ints, &launch);
    struct op_request request = {.opcode = row->opcode, .n_ints = ints.count, .ints = ints.values};
    int code = suite_submit(suite, &request, &result);
    if (code != STATUS_INVALID_ARGUMENT || suite_outcome(suite, result, &failure) != code ||
        !strstr(failure.message, "no kernel has id 1"))
        suite_fail(suite, "a launch of no kernel: %s: %s", status_name(code), failure.message);
}

/* Programs have tests of their own (replayed.h, tests/unit/test_engine_programs.c). */
static void case_program(struct suite *suite, const struct op_case *row) {
    struct failure failure = {0};
    uint64_t result;
    struct op_request request = {.opcode = row->opcode, .n_ints = 2, .ints = (const int64_t[]){UINT32_MAX, 1}};
    int code = suite_submit(suite, &request, &result);
    if (code != STATUS_INVALID_ARGUMENT || suite_outcome(suite, result, &failure) != code ||
        !strstr(failure.message, "no program has id 4294967295"))
        suite_fail(suite, "a run of no program: %s: %s", status_name(code), failure.message);
}

const struct op_case op_case_program = {case_program, OP_PROGRAM, FILL_ANY};
const struct op_case op_case_kernel = {case_kernel, OP_KERNEL, FILL_ANY};
const struct op_case op_case_free = {case_free, OP_FREE, FILL_ANY};
const struct op_case op_case_full = {case_create, OP_FULL, FILL_ANY};
const struct op_case op_case_arange = {case_create, OP_ARANGE, FILL_ANY};
const struct op_case op_case_linspace = {case_create, OP_LINSPACE, FILL_ANY};
const struct op_case op_case_linspace_complex = {case_create, OP_LINSPACE_COMPLEX, FILL_ANY};
const struct op_case op_case_eye = {case_create, OP_EYE, FILL_ANY};
