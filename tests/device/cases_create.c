#include <math.h>
#include <string.h>

#include "tests/device/cases.h"
#include "tests/stand_ins/launch.h"

static void create_once(struct suite *suite, unsigned opcode, unsigned n_ints, const int64_t *ints, unsigned n_floats,
                        const double *floats) {
    struct sample x = suite_run(
        suite,
        &(struct suite_call){.opcode = opcode, .n_ints = n_ints, .ints = ints, .n_floats = n_floats, .floats = floats});
    case_settle(suite, &x);
}

static void create_full(struct suite *suite, enum dtype dtype) {
    static const double numbers[] = {0, -0.0, 1, -1, 0.1, 1e-7, 65504, 65520, 1e30, 1e300, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < SUITE_REPEAT(30); i++) {
        int64_t ints[2 + VALUES_RANK_MAX] = {dtype};
        int rank = suite_shape(suite, 5, ints + 2);
        if (dtype == DTYPE_BOOL)
            ints[1] = suite_below(suite, 2);
        else if (!value_is_float(dtype))
            ints[1] = i % 3 == 0 ? value_low(dtype) : i % 3 == 1 ? value_high(dtype) : suite_below(suite, 100);
        create_once(suite, OP_FULL, 2 + (unsigned)rank, ints, 1, &numbers[suite_below(suite, 13)]);
    }
    create_once(suite, OP_FULL, 3, (int64_t[]){dtype, 1, SUITE_REPEAT(CASE_LARGE)}, 1, (double[]){1.5});
}

static void create_arange(struct suite *suite, enum dtype dtype) {
    static const double floats[][3] = {{0, 10, 1}, {0, 1, 0.1}, {5, -5, -0.75}, {-3, 3, 0.5},  {0, 0, 1},
                                       {3, 1, 1},  {1, 3, -1},  {0, 64.5, 1},   {1.5, 40, 2.5}};
    for (size_t i = 0; value_is_float(dtype) && i < sizeof floats / sizeof *floats; i++)
        create_once(suite, OP_ARANGE, 4, (int64_t[]){dtype, 0, 0, 0}, 3, floats[i]);
    for (int i = 0; !value_is_float(dtype) && i < 40; i++) {
        int64_t room = dtype == DTYPE_U8 ? 0 : 100;
        int64_t step = 1 + suite_below(suite, 7);
        int64_t ints[] = {dtype, suite_below(suite, 120) - room, suite_below(suite, 120) - room,
                          suite_chance(suite, 50) ? step : -step};
        create_once(suite, OP_ARANGE, 4, ints, 3, (double[]){0, 0, 0});
    }
    if (dtype == DTYPE_I64)
        create_once(suite, OP_ARANGE, 4, (int64_t[]){dtype, INT64_MIN, INT64_MAX, INT64_MAX / 4}, 3,
                    (double[]){0, 0, 0});
}

static void create_eye(struct suite *suite, enum dtype dtype) {
    for (int i = 0; i < SUITE_REPEAT(30); i++) {
        int64_t rows = suite_below(suite, 20), columns = suite_below(suite, 20);
        create_once(suite, OP_EYE, 4, (int64_t[]){dtype, rows, columns, suite_below(suite, 50) - 25}, 0, NULL);
    }
    create_once(suite, OP_EYE, 4, (int64_t[]){dtype, 5, 5, (int64_t)1 << 62}, 0, NULL);
    create_once(suite, OP_EYE, 4, (int64_t[]){dtype, 5, 5, -((int64_t)1 << 62)}, 0, NULL);
}

static void case_create(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        if (row->opcode == OP_FULL)
            create_full(suite, dtype);
        else if (row->opcode == OP_ARANGE)
            create_arange(suite, dtype);
        else
            create_eye(suite, dtype);
    }
}

/* The mean and the spread of many numbers, in units of what chance allows. */
static void random_moments(struct suite *suite, unsigned opcode, enum dtype dtype) {
    int64_t n = SUITE_REPEAT(200000), ints[] = {dtype, 77, 0, n};
    double floats[] = {opcode == OP_NORMAL ? 3 : -1, 2}, mean = 0, square = 0;
    struct sample x = suite_run(
        suite, &(struct suite_call){.opcode = opcode, .n_ints = 4, .ints = ints, .n_floats = 2, .floats = floats});
    suite_adopt(suite, &x);
    for (int64_t k = 0; k < n; k++)
        mean += (double)x.values->f[k] / (double)n;
    for (int64_t k = 0; k < n; k++)
        square += ((double)x.values->f[k] - mean) * ((double)x.values->f[k] - mean) / (double)n;
    double want_mean = opcode == OP_NORMAL ? 3 : 0.5, deviation = opcode == OP_NORMAL ? 2 : 3 / sqrt(12);
    double slack = dtype == DTYPE_BF16 ? 0.02 : 0; /* 8 bits */
    if (fabs(mean - want_mean) > 5 * deviation / sqrt((double)n) + slack ||
        fabs(sqrt(square) - deviation) > 5 * deviation / sqrt((double)n) + slack)
        suite_fail(suite, "%s %s: mean %g, expected %g; deviation %g, expected %g", value_name(dtype),
                   op_info(opcode)->name, mean, want_mean, sqrt(square), deviation);
    suite_free(suite, &x);
}

static void case_random(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_F16; dtype <= DTYPE_F64; dtype++) {
        for (int i = 0; i < SUITE_REPEAT(40); i++) {
            int64_t ints[3 + VALUES_RANK_MAX] = {dtype, (int64_t)suite_random(suite)};
            ints[2] = suite_chance(suite, 50) ? 0 : suite_below(suite, 1 << 20);
            int rank = suite_shape(suite, 5, ints + 3);
            double floats[] = {i % 2 ? -1.25 : 0, i % 2 ? 3.5 : 1};
            create_once(suite, row->opcode, 3 + (unsigned)rank, ints, 2, floats);
        }
        /* Bounds that are no values of the dtype, narrow ones, and the widest. */
        double most = dtype == DTYPE_F64 ? 0x1p1022 : (double)value_max(dtype);
        double bounds[][2] = {{0.7, 0.8},     {-0.8, -0.7},   {-1e-3, 1.1e-3}, {0.99, 1.0},
                              {1.0, 1.00999}, {-1.01, 0.999}, {-most, most},   {0.1, 0.1}};
        for (size_t i = 0; i < sizeof bounds / sizeof *bounds && row->opcode == OP_UNIFORM; i++)
            create_once(suite, OP_UNIFORM, 4, (int64_t[]){dtype, (int64_t)i, 0, 5000}, 2, bounds[i]);
        int64_t large[] = {dtype, 5, 3, SUITE_REPEAT(1 << 18) + 3};
        create_once(suite, row->opcode, 4, large, 2, (double[]){0, 1});
        random_moments(suite, row->opcode, dtype);
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

const struct op_case op_case_kernel = {case_kernel, OP_KERNEL, FILL_ANY};
const struct op_case op_case_free = {case_free, OP_FREE, FILL_ANY};
const struct op_case op_case_full = {case_create, OP_FULL, FILL_ANY};
const struct op_case op_case_arange = {case_create, OP_ARANGE, FILL_ANY};
const struct op_case op_case_eye = {case_create, OP_EYE, FILL_ANY};
const struct op_case op_case_uniform = {case_random, OP_UNIFORM, FILL_ANY};
const struct op_case op_case_normal = {case_random, OP_NORMAL, FILL_ANY};
