#include "engine/order/cost.h"

enum {
    COST_LEARN_NS = 50 * 1000, /* the time of a shorter launch says little about the operation */
    COST_STEP = 8,             /* one launch moves the factor by an eighth of the way to the launch's own */
    COST_OFF_MOST = 8,         /* a launch that is further off its estimate counts as off by this */
    COST_FACTOR_LEAST = 256 / 16,
    COST_FACTOR_MOST = 256 * 250, /* in 16 bits; powers take 50 times as long as moving their bytes */
};
void cost_init(struct cost *cost, const struct device *device) {
    static const struct device_rates usual = {.bytes = 8,
                                              .flop = {[DTYPE_BOOL] = 4,
                                                       [DTYPE_U8] = 4,
                                                       [DTYPE_I8] = 4,
                                                       [DTYPE_I16] = 4,
                                                       [DTYPE_I32] = 4,
                                                       [DTYPE_I64] = 2,
                                                       [DTYPE_U16] = 4,
                                                       [DTYPE_U32] = 4,
                                                       [DTYPE_U64] = 2,
                                                       [DTYPE_F16] = 20,
                                                       [DTYPE_BF16] = 20,
                                                       [DTYPE_F32] = 20,
                                                       [DTYPE_F64] = 10,
                                                       [DTYPE_C64] = 5,
                                                       [DTYPE_C128] = 2.5},
                                              .launch_ns = 30,
                                              .product_ns = 1000};
    cost->rates = usual;
    if (device->vtable->rates)
        device->vtable->rates(device, &cost->rates);
    cost->ns_per_byte = 1 / cost->rates.bytes;
    cost->small_ns = cost_pass(cost, FLAT_ELEMENTS_MAX / 2 * 4 * 2);
    cost->rates_changed = device->rates_changed;
}

void cost_follow(struct cost *cost, const struct device *device) {
    if (cost->rates_changed != device->rates_changed)
        cost_init(cost, device);
}

uint64_t cost_product(const struct cost *cost, enum dtype dtype, bool tf32, double batches, double m, double n,
                      double k) {
    const struct device_rates *rates = &cost->rates;
    double rate = tf32 && rates->tf32 > 0 ? rates->tf32 : rates->flop[dtype];
    double bytes = (m * k + k * n + m * n) * (double)dtype_size(dtype);
    double one = 2 * m * n * k / (rate > 0 ? rate : rates->flop[DTYPE_F32]) + bytes * cost->ns_per_byte +
                 (m * k + k * n) * rates->packing_ns;
    double ns = rates->product_ns + batches * (one + rates->batch_ns);
    return (uint64_t)(ns < COST_MOST ? ns : COST_MOST);
}

static double within(double value, double least, double most) {
    return value < least ? least : value > most ? most : value;
}

void cost_learn(struct cost *cost, unsigned opcode, unsigned dtype, uint64_t corrected, uint16_t factor, uint64_t ns) {
    if (ns < COST_LEARN_NS || corrected == 0)
        return;
    double now = cost_factor(cost, opcode, dtype), right = (double)ns / (double)corrected * factor;
    now += (within(right, now / COST_OFF_MOST, now * COST_OFF_MOST) - now) / COST_STEP;
    uint16_t rounded = (uint16_t)(within(now, COST_FACTOR_LEAST, COST_FACTOR_MOST) + 0.5);
    atomic_store_explicit(&cost->factors[opcode][dtype], rounded, memory_order_relaxed);
}
