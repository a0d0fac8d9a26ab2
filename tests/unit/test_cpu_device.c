/* The CPU device by itself: what it says it does in a nanosecond, and how often it looks whether to stop. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cost.h"
#include "engine/device_impl.h"

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
    struct device_rates usual = rates_of(usually), rates = rates_of(device);
    cr_assert_neq(rates.bytes, usual.bytes);
    cr_assert_neq(rates.flop[DTYPE_I32], usual.flop[DTYPE_I32]);
    cr_assert_eq(rates.flop[DTYPE_F32], usual.flop[DTYPE_F32], "without BLAS nothing is known of it");
    load_blas(device);
    cr_assert_eq(device->rates_changed, 1);
    load_blas(device);
    cr_assert_eq(device->rates_changed, 1, "it is measured once");
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
    enum { SIDE = 1300 };
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
