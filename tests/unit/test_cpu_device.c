/* The CPU device by itself: what it says it does in a nanosecond, and how often it looks whether to stop. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/device/device_impl.h"
#include "engine/order/cost.h"

enum { THREADS = 2 };

static struct device *open_cpu(bool measure) {
    struct device_options options = {.memory_total = 1 << 20, .threads = THREADS, .measure = measure};
    struct device *device;
    struct fault fault;
    cr_assert_eq(device_open("cpu", &options, &device, &fault), STATUS_OK, "%s", fault.message);
    return device;
}

static struct device_rates rates_of(struct device *device) {
    struct device_rates rates = {0};
    device->vtable->rates(device, &rates);
    return rates;
}

static void load_blas(struct device *device) {
    struct fault fault;
    const struct op_kernel *kernel = device->vtable->operations[OP_MATMUL];
    cr_assert_eq(kernel->needs(device, DTYPE_F32, &fault), STATUS_OK, "%s", fault.message);
}

/* ---- vector levels ---- */

#if !defined(CPU_NATIVE)
/* Whether the processor has the level whose kernels have this name. */
static bool has_level(const char *name) {
    for (unsigned number = 0; cpu_kernels_level(number); number++)
        if (!strcmp(cpu_kernels_level(number)->level, name))
            return true;
    return false;
}

Test(cpu_device, the_operator_chooses_among_the_levels_that_the_processor_has) {
    static const char *const rows[][2] = {{"v2", "sse4.2"}, {"v3", "avx2"}, {"v4", "avx512"}};
    struct device_options options = {.memory_total = 1 << 20, .threads = THREADS};
    struct device_info info;
    struct device *device;
    char text[96];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fault fault = {0};
        setenv("TENSORD_CPU_LEVEL", rows[i][0], 1);
        int code = device_open("cpu", &options, &device, &fault);
        if (!has_level(rows[i][1])) {
            cr_expect_eq(code, STATUS_UNSUPPORTED);
            snprintf(text, sizeof text, "TENSORD_CPU_LEVEL is %s, but the best level of this processor is ",
                     rows[i][0]);
            cr_expect_eq(strncmp(fault.message, text, strlen(text)), 0, "%s", fault.message);
            continue;
        }
        cr_assert_eq(code, STATUS_OK, "%s", fault.message);
        device_describe(device, &info);
        cr_expect_str_eq(info.capability, rows[i][1]);
        device_close(device);
    }
}
#endif

Test(cpu_device, its_level_is_the_best_one_where_the_operator_chooses_none) {
    struct device_info info;
    setenv("TENSORD_CPU_LEVEL", "", 1);
    for (int i = 0; i < 2; i++) {
        struct device *device = open_cpu(false);
        device_describe(device, &info);
        cr_expect_str_eq(info.capability, cpu_kernels_level(0)->level);
        device_close(device);
        unsetenv("TENSORD_CPU_LEVEL");
    }
}

Test(cpu_device, a_word_that_is_no_level_is_refused) {
    static const char *const words[] = {"v1", "v33", "V3", "avx2", " ", "a word that is far too long to be repeated"};
    struct device *device = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct fault fault = {0};
        setenv("TENSORD_CPU_LEVEL", words[i], 1);
        cr_expect_eq(device_open("cpu", &(struct device_options){0}, &device, &fault), STATUS_INVALID_ARGUMENT);
        cr_expect(strstr(fault.message, "which is not one of "), "%s", fault.message);
        cr_expect_null(device);
    }
}

/* ---- products ---- */

static uint64_t workspace_of(struct device *device, enum dtype dtype, int64_t m, int64_t n, int64_t k, bool across) {
    struct fault fault;
    const int64_t a_shape[] = {m, k}, a_strides[] = {k, 1}, b_shape[] = {k, n}, b_strides[] = {n, 1},
                  odd[] = {2 * n, 2};
    const int64_t c_shape[] = {m, n};
    struct {
        struct launch launch;
        struct operand inputs[2];
    } *product = calloc(1, sizeof *product);
    product->launch.opcode = OP_MATMUL;
    product->launch.n_inputs = 2;
    product->launch.output = (struct operand){.shape = c_shape, .strides = b_strides, .dtype = dtype, .rank = 2};
    struct operand *inputs = product->launch.inputs;
    inputs[0] = (struct operand){.shape = a_shape, .strides = a_strides, .dtype = dtype, .as = dtype, .rank = 2};
    inputs[1] =
        (struct operand){.shape = b_shape, .strides = across ? odd : b_strides, .dtype = dtype, .as = dtype, .rank = 2};
    const struct op_kernel *kernel = device->vtable->operations[OP_MATMUL];
    cr_assert_eq(kernel->accepts(device, &product->launch, &fault), STATUS_OK);
    uint64_t bytes = kernel->workspace(device, &product->launch);
    free(product);
    return bytes;
}

Test(cpu_device, products_that_are_packed_have_a_workspace) {
    struct device *device = open_cpu(false);
    cr_assert_eq(workspace_of(device, DTYPE_F32, 500, 500, 500, false), 0, "BLAS reads these as they are");
    cr_assert_gt(workspace_of(device, DTYPE_F32, 500, 500, 500, true), 0);
    cr_assert_eq(workspace_of(device, DTYPE_F16, 10, 20, 30, false), 1216 + 2432 + 832,
                 "f32 of a, b and c, each up to a cache line");
    uint64_t large = workspace_of(device, DTYPE_I64, 5000, 5000, 5000, false);
    cr_assert(large > 2 << 20 && large < THREADS * (4 << 20), "%llu bytes", (unsigned long long)large);
    cr_assert_eq(workspace_of(device, DTYPE_I64, 5000, 5000, 0, false), 0, "without depth there is nothing to pack");
    device_close(device);
}

Test(cpu_device, a_product_with_few_results_has_a_small_workspace) {
    const int64_t deep = INT64_C(1) << 36;
    struct device *device = open_cpu(false);
    cr_assert_eq(workspace_of(device, DTYPE_F64, 1, 1, deep, false), 32768 + 32768 + 64,
                 "4096 elements of each vector, for the one thread that computes the one result");
    cr_assert_leq(workspace_of(device, DTYPE_BF16, 1, 500, 500, false), THREADS * (2048 + 500 * 500 * 4 + 1024 + 64),
                  "a row and the columns that it is multiplied by");
    device_close(device);
}

/* The product of a matrix of ones and one of twos, views that BLAS cannot read, in memory of exactly the size that it says. */
static void check_within_workspace(struct device *device, enum dtype dtype, int64_t m, int64_t n, int64_t k) {
    enum { GUARD = 4096, MARK = 0xa5 };
    const int64_t a_shape[] = {m, k}, b_shape[] = {k, n}, c_shape[] = {m, n}, none[] = {0, 0}, c_strides[] = {n, 1};
    int32_t integers[] = {1, 2};
    float floats[] = {1, 2};
    char *values = dtype == DTYPE_I32 ? (char *)integers : (char *)floats;
    void *workspace, *result = calloc((size_t)(m * n), 4);
    struct launch *launch = calloc(1, sizeof *launch + 2 * sizeof *launch->inputs);
    launch->opcode = OP_MATMUL;
    launch->n_inputs = 2;
    launch->output = (struct operand){result, c_shape, c_strides, (uint8_t)dtype, (uint8_t)dtype, 2};
    launch->inputs[0] = (struct operand){values, a_shape, none, (uint8_t)dtype, (uint8_t)dtype, 2};
    launch->inputs[1] = (struct operand){values + 4, b_shape, none, (uint8_t)dtype, (uint8_t)dtype, 2};
    size_t bytes = device->vtable->operations[OP_MATMUL]->workspace(device, launch);
    cr_assert_gt(bytes, 0);
    cr_assert_eq(posix_memalign(&workspace, 64, bytes + GUARD), 0);
    uint8_t *guard = (uint8_t *)workspace + bytes;
    memset(guard, MARK, GUARD);
    launch->workspace = workspace;
    struct device_begun *begun = NULL;
    struct fault fault;
    do
        cr_assert_eq(device->vtable->launch_part(device, launch, &(struct device_turn){0}, &begun, &fault), STATUS_OK);
    while (begun);
    for (int i = 0; i < GUARD; i++)
        cr_assert_eq(guard[i], MARK, "%d by %d, depth %d: byte %d after its workspace", (int)m, (int)n, (int)k, i);
    for (int64_t i = 0; i < m * n; i++) {
        double got = dtype == DTYPE_I32 ? (double)((int32_t *)result)[i] : (double)((float *)result)[i];
        cr_assert_eq(got, 2 * (double)k, "%d by %d, depth %d: %g at %d", (int)m, (int)n, (int)k, got, (int)i);
    }
    free(launch);
    free(workspace);
    free(result);
}

Test(cpu_device, packed_products_stay_within_their_workspaces) {
    static const int64_t sizes[][3] = {{1, 1, 100000},  {1, 600, 5000},   {3, 513, 4100},
                                       {257, 2, 9000},  {257, 513, 1000}, {300, 700, 500},
                                       {49, 97, 20000}, {511, 1, 12345},  {7, 5, 30}};
    struct device *device = open_cpu(false);
    load_blas(device);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_within_workspace(device, DTYPE_F32, sizes[i][0], sizes[i][1], sizes[i][2]);
        check_within_workspace(device, DTYPE_I32, sizes[i][0], sizes[i][1], sizes[i][2]);
    }
    device_close(device);
}

/* ---- rates ---- */

Test(cpu_device, rates_are_the_usual_ones_where_none_are_measured) {
    struct device *device = open_cpu(false);
    load_blas(device);
    struct device_rates rates = rates_of(device);
    cr_assert_eq(rates.bytes, 6 * THREADS);
    cr_assert_eq(rates.flop[DTYPE_F32], 30 * THREADS);
    cr_assert_eq(rates.flop[DTYPE_I64], 5 * THREADS);
    cr_assert_eq(rates.batch_ns, 80.0 / THREADS);
    cr_assert_eq(device->rates_changed, 0);
    device_close(device);
}

static void within(double rate, double usual) {
    cr_assert(rate >= usual / 4 && rate <= usual * 4, "%g, usually %g", rate, usual);
}

/* That a measurement gives exactly the usual figures can be ruled out. */
Test(cpu_device, rates_are_measured_within_bounds) {
    struct device *usually = open_cpu(false), *device = open_cpu(true);
    usually->vtable->measure(usually);
    cr_assert_eq(usually->rates_changed, 0);
    struct device_rates usual = rates_of(usually), rates = rates_of(device);
    cr_assert_eq(rates.bytes, usual.bytes, "not before it is told to");
    device->vtable->measure(device);
    cr_assert_eq(device->rates_changed, 1);
    device->vtable->measure(device);
    cr_assert_eq(device->rates_changed, 1, "it is measured once");
    rates = rates_of(device);
    cr_assert_neq(rates.bytes, usual.bytes);
    cr_assert_neq(rates.flop[DTYPE_I32], usual.flop[DTYPE_I32]);
    cr_assert_eq(rates.flop[DTYPE_F32], usual.flop[DTYPE_F32], "without BLAS nothing is known of it");
    load_blas(device);
    cr_assert_eq(device->rates_changed, 2);
    load_blas(device);
    cr_assert_eq(device->rates_changed, 2, "it is measured once");
    rates = rates_of(device);
    cr_assert_neq(rates.flop[DTYPE_F32], usual.flop[DTYPE_F32]);
    cr_assert_neq(rates.flop[DTYPE_F64], usual.flop[DTYPE_F64]);
    within(rates.bytes, usual.bytes);
    within(rates.batch_ns, usual.batch_ns);
    for (int i = 0; i < DTYPE_COUNT; i++)
        within(rates.flop[i], usual.flop[i]);
    device_close(device);
    device_close(usually);
}

Test(cpu_device, estimates_follow_what_is_measured) {
    struct device *device = open_cpu(true);
    struct cost cost = {0};
    cost_init(&cost, device);
    uint64_t before = cost_product(&cost, DTYPE_F64, false, 1, 1000, 1000, 1000);
    load_blas(device);
    cr_assert_eq(cost_product(&cost, DTYPE_F64, false, 1, 1000, 1000, 1000), before);
    cost_follow(&cost, device);
    cr_assert_neq(cost_product(&cost, DTYPE_F64, false, 1, 1000, 1000, 1000), before);
    cr_assert_eq(cost.rates.flop[DTYPE_F64], rates_of(device).flop[DTYPE_F64]);
    device_close(device);
}

/* ---- pieces ---- */

/* The square of a matrix, by a device that leaves it whenever it looks. Returns how often that was. */
static unsigned square(struct device *device, enum dtype dtype, int64_t side, bool shared, void *x, void *result) {
    struct launch *launch = calloc(1, sizeof *launch + 2 * sizeof *launch->inputs);
    int64_t shape[2] = {side, side}, strides[2] = {side, 1};
    _Atomic bool wanted = true;
    struct device_begun *begun = NULL;
    struct fault fault;
    unsigned times = 0;
    launch->opcode = OP_MATMUL;
    launch->n_inputs = 2;
    launch->output = (struct operand){result, shape, strides, (uint8_t)dtype, (uint8_t)dtype, 2};
    launch->inputs[0] = launch->inputs[1] = (struct operand){x, shape, strides, (uint8_t)dtype, (uint8_t)dtype, 2};
    do {
        struct device_turn turn = {.wanted = &wanted, .shared = shared};
        cr_assert_eq(device->vtable->launch_part(device, launch, &turn, &begun, &fault), STATUS_OK);
        times += begun != NULL;
    } while (begun);
    free(launch);
    return times;
}

Test(cpu_device, pieces_are_shorter_where_others_have_the_device_and_the_result_is_the_same) {
    enum { SIDE = 2100 };
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64};
    struct device *device = open_cpu(false);
    load_blas(device);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        size_t n = (size_t)SIDE * SIDE, bytes = n * dtype_size(dtypes[i]);
        void *x = malloc(bytes), *alone = malloc(bytes), *shared = malloc(bytes);
        for (size_t k = 0; k < n; k++)
            if (dtypes[i] == DTYPE_F32)
                ((float *)x)[k] = 1 / (float)(k % 1009 + 1);
            else
                ((double *)x)[k] = 1 / (double)(k % 1009 + 1);
        unsigned times = square(device, dtypes[i], SIDE, false, x, alone);
        cr_assert_gt(square(device, dtypes[i], SIDE, true, x, shared), times);
        cr_assert_eq(memcmp(alone, shared, bytes), 0, "%s", dtype_name(dtypes[i]));
        free(x), free(alone), free(shared);
    }
    device_close(device);
}

/* ---- without memory on the host ---- */

static bool refuses;

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return refuses ? NULL : __real_aligned_alloc(alignment, bytes);
}

/* A launch of a kind that takes long, which is left whenever it looks. */
struct long_launch {
    struct launch *launch;
    struct device_begun *begun;
    bool ended;
    void *result, *workspace;
    size_t bytes;
    int64_t shapes[3][2], strides[3][2];
};

static void long_set(struct long_launch *is, struct operand *operand, int which, void *data, enum dtype dtype,
                     int64_t rows, int64_t columns) {
    memcpy(is->shapes[which], (int64_t[]){rows, columns}, sizeof is->shapes[which]);
    memcpy(is->strides[which], (int64_t[]){columns, 1}, sizeof is->strides[which]);
    *operand = (struct operand){data, is->shapes[which], is->strides[which], (uint8_t)dtype, (uint8_t)dtype, 2};
}

static void long_create(struct long_launch *is, uint16_t opcode, uint8_t inputs, enum dtype dtype, int64_t rows,
                        int64_t columns, void *x) {
    if (opcode == OP_SUM) /* of all */
        columns *= rows, rows = 1;
    int64_t out_rows = rows, out_columns = opcode == OP_SUM || opcode == OP_MATMUL ? rows : columns;
    *is = (struct long_launch){.launch = calloc(1, sizeof *is->launch + 2 * sizeof *is->launch->inputs)};
    is->bytes = (size_t)(out_rows * out_columns) * dtype_size(dtype);
    is->result = calloc(1, is->bytes);
    is->launch->opcode = opcode;
    is->launch->n_inputs = inputs;
    long_set(is, &is->launch->inputs[0], 0, x, dtype, rows, columns);
    if (inputs == 2)
        long_set(is, &is->launch->inputs[1], 1, x, dtype, columns, rows);
    long_set(is, &is->launch->output, 2, is->result, dtype, out_rows, out_columns);
    if (opcode == OP_SUM)
        is->launch->output.rank = 1; /* the axes that are kept */
}

static void long_destroy(struct long_launch *is) {
    free(is->launch);
    free(is->result);
    free(is->workspace);
}

/* As the engine does when it binds it. */
static void long_bind(struct device *device, struct long_launch *is) {
    const struct op_kernel *kernel = device->vtable->operations[is->launch->opcode];
    uint64_t bytes = kernel->workspace ? kernel->workspace(device, is->launch) : 0;
    if (bytes && !is->workspace)
        cr_assert_eq(posix_memalign(&is->workspace, 64, bytes), 0);
    is->launch->workspace = is->workspace;
}

static void long_step(struct device *device, struct long_launch *is) {
    static const _Atomic bool wanted = true;
    struct device_turn turn = {.wanted = &wanted};
    struct fault fault;
    long_bind(device, is);
    cr_assert_eq(device->vtable->launch_part(device, is->launch, &turn, &is->begun, &fault), STATUS_OK);
    is->ended = !is->begun;
}

static unsigned long_run(struct device *device, struct long_launch *is) {
    unsigned times = 0;
    for (; !is->ended; times++)
        long_step(device, is);
    return times;
}

static float *numbers(size_t n) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = 1 / (float)(i % 1009 + 1);
    return x;
}

enum { LONG_ROWS = 700, LONG_COLUMNS = 6000 };

Test(cpu_device, without_memory_each_launch_can_be_left_and_has_the_same_result) {
    static const struct {
        const char *name;
        uint16_t opcode;
        uint8_t inputs;
        enum dtype dtype;
    } rows[] = {{"exp", OP_EXP, 1, DTYPE_F32},
                {"softmax", OP_SOFTMAX, 1, DTYPE_F32},
                {"whole sum", OP_SUM, 1, DTYPE_F32},
                {"product", OP_MATMUL, 2, DTYPE_F32},
                {"product of halves", OP_MATMUL, 2, DTYPE_BF16}};
    struct device *device = open_cpu(false);
    float *x = numbers((size_t)LONG_ROWS * LONG_COLUMNS);
    load_blas(device);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct long_launch with, without;
        long_create(&with, rows[i].opcode, rows[i].inputs, rows[i].dtype, LONG_ROWS, LONG_COLUMNS, x);
        long_create(&without, rows[i].opcode, rows[i].inputs, rows[i].dtype, LONG_ROWS, LONG_COLUMNS, x);
        cr_assert_gt(long_run(device, &with), 1, "%s", rows[i].name);
        refuses = true;
        cr_assert_gt(long_run(device, &without), 1, "%s was never left", rows[i].name);
        refuses = false;
        cr_assert_eq(memcmp(with.result, without.result, with.bytes), 0, "%s", rows[i].name);
        long_destroy(&with), long_destroy(&without);
    }
    free(x);
    device_close(device);
}

Test(cpu_device, without_memory_a_launch_that_waits_for_another_has_it_go_on) {
    struct device *device = open_cpu(false);
    float *x = numbers((size_t)LONG_ROWS * LONG_COLUMNS);
    struct long_launch first, second, third, expected;
    struct long_launch *const all[] = {&first, &second, &third, &expected};
    for (int i = 0; i < 4; i++)
        long_create(all[i], OP_EXP, 1, DTYPE_F32, LONG_ROWS, LONG_COLUMNS, x);
    long_run(device, &expected);
    refuses = true;
    long_step(device, &first);
    cr_assert(!first.ended);
    cr_assert_gt(long_run(device, &second), 1, "which has turns alone");
    long_step(device, &third);
    cr_assert(!third.ended, "it has the place now");
    long_step(device, &first);
    cr_assert(first.ended, "in the turns of the second");
    long_run(device, &third);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(memcmp(all[i]->result, expected.result, expected.bytes), 0);
    refuses = false;
    for (int i = 0; i < 4; i++)
        long_destroy(all[i]);
    free(x);
    device_close(device);
}

Test(cpu_device, without_memory_a_launch_that_is_abandoned_makes_room) {
    struct device *device = open_cpu(false);
    float *x = numbers((size_t)LONG_ROWS * LONG_COLUMNS);
    struct long_launch first, second;
    long_create(&first, OP_EXP, 1, DTYPE_F32, LONG_ROWS, LONG_COLUMNS, x);
    long_create(&second, OP_EXP, 1, DTYPE_F32, LONG_ROWS, LONG_COLUMNS, x);
    refuses = true;
    long_step(device, &first);
    long_step(device, &second);
    cr_assert(!first.ended && !second.ended);
    device->vtable->abandon(device, second.begun); /* which waits */
    device->vtable->abandon(device, first.begun);
    second.begun = NULL;
    cr_assert_gt(long_run(device, &second), 1);
    refuses = false;
    long_destroy(&first), long_destroy(&second);
    free(x);
    device_close(device);
}

/* ---- any number of threads ---- */

enum { ROWS = 60, COLUMNS = 5000 };

/* Runs an operation on a (ROWS, COLUMNS) matrix of f64, whose rows are kept, or whose columns, or (`kept` 2) nothing. */
static void run_with_threads(unsigned threads, uint16_t opcode, int kept, double *x, double *result) {
    const int64_t shape[][2] = {{ROWS, COLUMNS}, {COLUMNS, ROWS}, {ROWS * COLUMNS}};
    const int64_t strides[][2] = {{COLUMNS, 1}, {1, COLUMNS}, {1}};
    static const double none = 0;
    bool scan = opcode == OP_CUMULATIVE_SUM;
    struct device_options options = {.memory_total = 1 << 20, .threads = threads};
    struct device *device;
    struct device_begun *begun = NULL;
    struct fault fault;
    cr_assert_eq(device_open("cpu", &options, &device, &fault), STATUS_OK, "%s", fault.message);
    struct launch *launch = calloc(1, sizeof *launch + sizeof *launch->inputs);
    launch->opcode = opcode;
    launch->n_inputs = 1;
    launch->attributes.floats = &none;
    launch->attributes.n_floats = opcode == OP_VAR;
    launch->inputs[0] = (struct operand){x, shape[kept], strides[kept], DTYPE_F64, DTYPE_F64, kept == 2 ? 1 : 2};
    launch->output = launch->inputs[0];
    launch->output.data = result;
    launch->output.rank = scan ? 2 : kept == 2 ? 0 : 1;
    do
        cr_assert_eq(device->vtable->launch_part(device, launch, &(struct device_turn){0}, &begun, &fault), STATUS_OK);
    while (begun);
    free(launch);
    device_close(device);
}

Test(cpu_device, results_are_the_same_at_any_number_of_threads) {
    static const uint16_t opcodes[] = {OP_SUM, OP_PROD, OP_MEAN, OP_VAR, OP_LOGSUMEXP, OP_CUMULATIVE_SUM};
    double *x = malloc(ROWS * COLUMNS * sizeof *x), *results[2];
    for (int i = 0; i < 2; i++)
        results[i] = malloc(ROWS * COLUMNS * sizeof *x);
    srand(5);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = 0.75 + rand() / 2.0 / RAND_MAX;
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
        for (int kept = 0; kept < (opcodes[i] == OP_CUMULATIVE_SUM ? 2 : 3); kept++) {
            memset(results[0], 0, ROWS * COLUMNS * sizeof *x);
            memset(results[1], 0, ROWS * COLUMNS * sizeof *x);
            run_with_threads(1, opcodes[i], kept, x, results[0]);
            for (unsigned threads = 2; threads < 12; threads += 3) {
                run_with_threads(threads, opcodes[i], kept, x, results[1]);
                cr_assert_eq(memcmp(results[0], results[1], ROWS * COLUMNS * sizeof *x), 0, "%s, %d, %u threads",
                             op_info(opcodes[i])->name, kept, threads);
            }
        }
    for (int i = 0; i < 2; i++)
        free(results[i]);
    free(x);
}

static void element_write(enum dtype dtype, void *data, size_t i, uint32_t random) {
    float x = (float)(random % 2001) / 1000 - 1;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    switch (dtype) {
    case DTYPE_BF16:
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        break;
    case DTYPE_F64:
        ((double *)data)[i] = x + 1e-9 * random;
        break;
    default: /* c64 has two */
        ((float *)data)[i] = x;
    }
}

static void *random_elements(enum dtype dtype, size_t n, uint32_t seed) {
    void *data = malloc(n * dtype_size(dtype));
    n *= dtype == DTYPE_C64 ? 2 : 1;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        element_write(dtype, data, i, seed >> 8);
    }
    return data;
}

/* The product of two matrices by so many threads, without a pause, or in as many pieces as there are. */
static void multiply_with_threads(unsigned threads, bool pieces, enum dtype dtype, const int64_t *sizes, void *a,
                                  void *b, void *result) {
    static const _Atomic bool wanted = true;
    int64_t m = sizes[0], n = sizes[1], k = sizes[2];
    const int64_t shapes[][2] = {{m, k}, {k, n}, {m, n}}, strides[][2] = {{k, 1}, {n, 1}, {n, 1}};
    struct device_options options = {.memory_total = 1 << 20, .threads = threads};
    struct device *device;
    struct device_begun *begun = NULL;
    struct fault fault;
    void *workspace = NULL;
    cr_assert_eq(device_open("cpu", &options, &device, &fault), STATUS_OK, "%s", fault.message);
    const struct op_kernel *kernel = device->vtable->operations[OP_MATMUL];
    cr_assert_eq(kernel->needs(device, dtype, &fault), STATUS_OK, "%s", fault.message);
    struct launch *launch = calloc(1, sizeof *launch + 2 * sizeof *launch->inputs);
    launch->opcode = OP_MATMUL;
    launch->n_inputs = 2;
    launch->inputs[0] = (struct operand){a, shapes[0], strides[0], (uint8_t)dtype, (uint8_t)dtype, 2};
    launch->inputs[1] = (struct operand){b, shapes[1], strides[1], (uint8_t)dtype, (uint8_t)dtype, 2};
    launch->output = (struct operand){result, shapes[2], strides[2], (uint8_t)dtype, (uint8_t)dtype, 2};
    uint64_t bytes = kernel->workspace(device, launch);
    cr_assert_eq(posix_memalign(&workspace, 64, bytes ? bytes : 64), 0);
    launch->workspace = workspace;
    do {
        struct device_turn turn = {.wanted = pieces ? &wanted : NULL, .shared = pieces};
        cr_assert_eq(device->vtable->launch_part(device, launch, &turn, &begun, &fault), STATUS_OK);
    } while (begun);
    free(workspace);
    free(launch);
    device_close(device);
}

static void check_product_with_threads(enum dtype dtype, const int64_t *sizes) {
    size_t bytes = (size_t)(sizes[0] * sizes[1]) * dtype_size(dtype);
    void *a = random_elements(dtype, (size_t)(sizes[0] * sizes[2]), 1);
    void *b = random_elements(dtype, (size_t)(sizes[2] * sizes[1]), 2);
    void *expected = calloc(1, bytes), *result = calloc(1, bytes);
    multiply_with_threads(1, false, dtype, sizes, a, b, expected);
    for (unsigned threads = 1; threads < 8; threads += threads < 3 ? 1 : 4) {
        for (int pieces = 0; pieces < 2; pieces++) {
            memset(result, 0, bytes);
            multiply_with_threads(threads, pieces, dtype, sizes, a, b, result);
            cr_assert_eq(memcmp(expected, result, bytes), 0, "%s: %d by %d, depth %d, %u threads%s", dtype_name(dtype),
                         (int)sizes[0], (int)sizes[1], (int)sizes[2], threads, pieces ? ", in pieces" : "");
        }
    }
    free(a), free(b), free(expected), free(result);
}

/* Around the sizes from which on BLAS computes in another way; those that have few strips, or one row or column; and some by chance. */
Test(cpu_device, products_are_the_same_at_any_number_of_threads) {
    static const int64_t sizes[][3] = {{100, 100, 100}, {101, 100, 101},  {190, 200, 200},  {193, 201, 210},
                                       {256, 256, 256}, {500, 200, 350},  {1000, 200, 500}, {31, 3000, 400},
                                       {3000, 17, 700}, {97, 5000, 33},   {1, 4000, 600},   {4000, 1, 600},
                                       {1, 1, 50000},   {700, 650, 1100}, {1200, 513, 330}};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_C64, DTYPE_BF16};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_product_with_threads(dtypes[d], sizes[i]);
    srand(7);
    for (int i = 0; i < 20; i++) {
        int64_t some[] = {1 + rand() % 900, 1 + rand() % 900, 1 + rand() % 900};
        check_product_with_threads(dtypes[i % 2], some);
    }
}

/* ---- jobs that fail ---- */

static _Atomic unsigned ends, dones;

static bool failing_part(struct cpu_job *job, struct cpu_lane *lane) {
    if (lane->part == 2)
        cpu_job_fail(job);
    return true;
}

static void count_end(struct cpu_job *job) {
    (void)job;
    ends++;
}

static void count_done(struct cpu_job *job) {
    (void)job;
    dones++;
}

static void check_failed(struct cpu *cpu, unsigned n) {
    cr_assert(cpu->job_failed);
    cr_assert_eq(ends, 0);
    cr_assert_eq(dones, n);
    cpu->job_failed = false;
}

/* At once; in turns; and in the spare place, where its own launch has to be told, and not the one that waits for it. */
Test(cpu_device, a_job_that_fails_ends_without_a_result) {
    struct device *device = open_cpu(false);
    struct cpu *cpu = (struct cpu *)device;
    struct cpu_job job = {.cpu = cpu, .run = failing_part, .end = count_end, .done = count_done, .parts = 8};
    struct cpu_job *begun = NULL;
    cpu_job_run(&job);
    check_failed(cpu, 1);
    atomic_store(&job.failed, false);
    cr_assert(cpu_job_keep(&job, sizeof job, 1e12, &begun));
    cr_assert(cpu_job_continue(begun, &(struct device_turn){0}));
    check_failed(cpu, 2);
    refuses = true;
    cr_assert(cpu_job_keep(&job, sizeof job, 1e12, &begun));
    cr_assert_eq(begun, cpu->spare.job);
    for (int i = 0; i < 2; i++) {
        cpu_job_wait(cpu, &(struct device_turn){0});
        cr_assert(!cpu->job_failed && cpu->spare.job == begun);
    }
    cr_assert(cpu_job_continue(begun, &(struct device_turn){0}));
    check_failed(cpu, 3);
    cr_assert_null(cpu->spare.job);
    refuses = false;
    device_close(device);
}
