/* Estimates follow the device's rates and what launches have taken. */
#include <criterion/criterion.h>

#include "engine/order/cost.h"

#define HOUR UINT64_C(3600000000000)

static struct device_rates given;

static void tell(const struct device *device, struct device_rates *rates) {
    (void)device;
    *rates = given;
}

static struct cost cost;

static void open_with(const struct device_rates *rates) {
    struct device_vtable vtable = {.rates = rates ? tell : NULL};
    struct device device = {.vtable = &vtable};
    if (rates)
        given = *rates;
    memset(&cost, 0, sizeof cost);
    cost_init(&cost, &device);
}

/* About what an H200 does. */
static const struct device_rates gpu = {.bytes = 4000,
                                        .flop = {[DTYPE_F32] = 40000, [DTYPE_BF16] = 600000},
                                        .tf32 = 300000,
                                        .launch_ns = 500,
                                        .product_ns = 3000};

Test(engine_cost, product_is_estimated_by_the_device_s_own_rate) {
    open_with(NULL);
    cr_assert_gt(cost_product(&cost, DTYPE_BF16, false, 1, 52415, 52415, 52415), 3 * HOUR);
    open_with(&gpu);
    uint64_t large = cost_product(&cost, DTYPE_BF16, false, 1, 52415, 52415, 52415);
    cr_assert(large > 300000000 && large < 1000000000, "%llu", (unsigned long long)large);
    uint64_t f32 = cost_product(&cost, DTYPE_F32, false, 1, 4096, 4096, 4096);
    uint64_t tf32 = cost_product(&cost, DTYPE_F32, true, 1, 4096, 4096, 4096);
    cr_assert_gt(f32, 4 * tf32);
}

Test(engine_cost, pass_is_estimated_by_the_device_s_own_rate) {
    open_with(NULL);
    uint64_t slow = cost_pass(&cost, 1e9);
    open_with(&gpu);
    cr_assert_gt(slow, 100 * cost_pass(&cost, 1e9));
}

Test(engine_cost, small_products_count_as_matrices_and_long_ones_as_operands) {
    struct device_rates rates = {.bytes = 8, .flop = {[DTYPE_F32] = 40}, .batch_ns = 80, .packing_ns = 1.5};
    open_with(&rates);
    cr_assert_geq(cost_product(&cost, DTYPE_F32, false, 1e6, 1, 1, 1), 80000000);
    cr_assert_geq(cost_product(&cost, DTYPE_F32, false, 1, 1, 1, 1e6), 3000000);
}

static uint64_t corrected(unsigned opcode, enum dtype dtype, uint64_t estimate) {
    return cost_corrected(estimate, cost_factor(&cost, opcode, dtype));
}

static void learn(unsigned opcode, enum dtype dtype, uint64_t estimate, uint64_t ns) {
    cost_learn(&cost, opcode, dtype, corrected(opcode, dtype, estimate), cost_factor(&cost, opcode, dtype), ns);
}

Test(engine_cost, estimate_is_corrected_by_what_launches_take) {
    open_with(NULL);
    uint64_t estimate = 1000000;
    for (int i = 0; i < 100; i++)
        learn(OP_POW, DTYPE_F32, estimate, 5 * estimate);
    uint64_t now = corrected(OP_POW, DTYPE_F32, estimate);
    cr_assert(now > 4 * estimate && now < 6 * estimate, "%llu", (unsigned long long)now);
    cr_assert_eq(corrected(OP_POW, DTYPE_F64, estimate), estimate, "of another dtype");
    cr_assert_eq(corrected(OP_ADD, DTYPE_F32, estimate), estimate, "of another operation");
}

Test(engine_cost, launches_that_were_estimated_together_do_not_overshoot) {
    open_with(NULL);
    uint64_t estimate = 1000000;
    uint16_t factor = cost_factor(&cost, OP_POW, DTYPE_F32);
    for (int i = 0; i < 100; i++)
        cost_learn(&cost, OP_POW, DTYPE_F32, estimate, factor, 5 * estimate);
    uint64_t now = corrected(OP_POW, DTYPE_F32, estimate);
    cr_assert(now > 4 * estimate && now < 6 * estimate, "%llu", (unsigned long long)now);
}

Test(engine_cost, correction_has_bounds) {
    open_with(NULL);
    uint64_t estimate = 1000000;
    for (int i = 0; i < 1000; i++)
        learn(OP_ADD, DTYPE_F32, estimate, UINT64_MAX / 2);
    cr_assert_eq(corrected(OP_ADD, DTYPE_F32, estimate), 250 * estimate);
    for (int i = 0; i < 1000; i++)
        learn(OP_ADD, DTYPE_F32, UINT64_MAX / 2, 60000);
    cr_assert_eq(corrected(OP_ADD, DTYPE_F32, estimate), estimate / 16);
    cr_assert_eq(corrected(OP_ADD, DTYPE_F32, UINT64_MAX / 2), UINT64_MAX / 2);
}
