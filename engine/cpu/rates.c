/* What the device does in a nanosecond: measured when it is opened, where that is asked for, and of products by BLAS when that
 * is loaded. Each figure is the best of some short runs on one thread, for a machine that is busy makes single ones slow.
 * What comes out stays within a factor of what a server processor made in 2023 does: so a wrong measurement does no harm that
 * the times of launches, which correct all estimates, would not soon undo. */
#include "engine/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    RATES_OFF_MOST = 4, /* by which a figure may differ from the usual one */
    PASS_FLOATS = 1 << 19,
    PASS_STEP = 1 << 17, /* elements of one run: 1.5 MiB read and written, of 6 that go round */
    PASS_ROUNDS = 2,
    PRODUCT_SIDE = 64, /* of products in kernels of our own: 30 to 100 µs, */
    BLAS_SIDE = 192,   /* and by BLAS: 0.2 to 1 ms */
    PRODUCT_TIMES = 4, /* the first one finds cold caches */
};

/* Of one thread of that processor. */
static const struct cpu_rates usual = {.bytes = 6,
                                       .flop = {[DTYPE_BOOL] = 10,
                                                [DTYPE_U8] = 10,
                                                [DTYPE_I8] = 10,
                                                [DTYPE_I16] = 10,
                                                [DTYPE_I32] = 10,
                                                [DTYPE_I64] = 5,
                                                [DTYPE_F16] = 30,
                                                [DTYPE_BF16] = 30,
                                                [DTYPE_F32] = 30,
                                                [DTYPE_F64] = 15}};
static const double usual_batch_ns = 80, usual_packing_ns = 1.5, usual_row_ns = 10;

static uint64_t rates_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* `amount` in the best of the times, or the usual rate where nothing was measured. */
static double rate_within(double amount, uint64_t ns, double rate) {
    double measured = ns == UINT64_MAX ? rate : amount / (double)(ns ? ns : 1);
    double least = rate / RATES_OFF_MOST, most = rate * RATES_OFF_MOST;
    return measured < least ? least : measured > most ? most : measured;
}

/* ---- memory ---- */

/* An addition over more than the second-level cache holds. */
static double measure_bytes(const struct cpu *cpu) {
    cpu_row_function *add = cpu->kernels->elementwise[OP_ADD][DTYPE_F32];
    size_t bytes = PASS_FLOATS * sizeof(float);
    float *all = aligned_alloc(64, 3 * bytes);
    uint64_t best = UINT64_MAX;
    if (all) {
        memset(all, 0, 3 * bytes); /* the pages come now */
    }
    for (size_t i = 0; all && i < (size_t)PASS_ROUNDS * PASS_FLOATS; i += PASS_STEP) {
        char *at = (char *)(all + i % PASS_FLOATS);
        struct cpu_row row = {.n = PASS_STEP, .data = {at, at + bytes, at + 2 * bytes}, .stride = {1, 1, 1}};
        uint64_t begin = rates_clock();
        add(&row);
        uint64_t ns = rates_clock() - begin;
        best = ns < best ? ns : best;
    }
    free(all);
    return rate_within(3.0 * PASS_STEP * sizeof(float), best, usual.bytes);
}

/* ---- products ---- */

static double measure_product(cpu_product_function *product, double rate) {
    enum { ELEMENTS = PRODUCT_SIDE * PRODUCT_SIDE };
    uint64_t *all = calloc(3 * ELEMENTS, sizeof *all); /* enough for any of their dtypes */
    uint64_t best = UINT64_MAX;
    for (int i = 0; all && i < PRODUCT_TIMES; i++) {
        uint64_t begin = rates_clock();
        product(PRODUCT_SIDE, PRODUCT_SIDE, PRODUCT_SIDE, all, all + ELEMENTS, all + 2 * ELEMENTS, PRODUCT_SIDE);
        uint64_t ns = rates_clock() - begin;
        best = ns < best ? ns : best;
    }
    free(all);
    return rate_within(2.0 * PRODUCT_SIDE * PRODUCT_SIDE * PRODUCT_SIDE, best, rate);
}

static void blas_square(const struct blas *blas, enum dtype dtype, void *x, void *y, void *z) {
    const int n = BLAS_SIDE;
    if (dtype == DTYPE_F32) {
        blas->sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, x, n, y, n, 0, z, n);
    } else {
        blas->dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, x, n, y, n, 0, z, n);
    }
}

static double measure_blas(const struct blas *blas, enum dtype dtype) {
    enum { ELEMENTS = BLAS_SIDE * BLAS_SIDE };
    double *all = calloc((size_t)3 * ELEMENTS, sizeof *all);
    uint64_t best = UINT64_MAX;
    for (int i = 0; all && i < PRODUCT_TIMES; i++) {
        uint64_t begin = rates_clock();
        blas_square(blas, dtype, all, all + ELEMENTS, all + 2 * ELEMENTS);
        uint64_t ns = rates_clock() - begin;
        best = ns < best ? ns : best;
    }
    free(all);
    return rate_within(2.0 * BLAS_SIDE * BLAS_SIDE * BLAS_SIDE, best, usual.flop[dtype]);
}

/* ---- what the device keeps ---- */

void cpu_rates_init(struct cpu *cpu, bool measure) {
    const struct cpu_kernels *kernels = cpu->kernels;
    cpu->rates = usual;
    cpu->rates_measured = measure;
    if (!measure) {
        return;
    }
    double *flop = cpu->rates.flop;
    cpu->rates.bytes = measure_bytes(cpu);
    flop[DTYPE_BOOL] = measure_product(kernels->product_bool, usual.flop[DTYPE_BOOL]);
    flop[DTYPE_I32] = measure_product(kernels->product_u32, usual.flop[DTYPE_I32]);
    flop[DTYPE_I64] = measure_product(kernels->product_u64, usual.flop[DTYPE_I64]);
    flop[DTYPE_U8] = flop[DTYPE_I8] = flop[DTYPE_I16] = flop[DTYPE_I32]; /* they are packed as such */
}

void cpu_rates_of_blas(struct cpu *cpu) {
    double *flop = cpu->rates.flop;
    if (!cpu->rates_measured) {
        return;
    }
    flop[DTYPE_F64] = measure_blas(&cpu->blas, DTYPE_F64);
    flop[DTYPE_F16] = flop[DTYPE_BF16] = flop[DTYPE_F32] = measure_blas(&cpu->blas, DTYPE_F32);
    cpu->base.rates_changed++;
}

/* Times the number of threads; of memory, no more than eight threads' worth. What rows and matrices take besides goes with the
 * processor's speed at integers. Operands that BLAS cannot read are packed first. */
void cpu_rates(const struct device *device, struct device_rates *rates) {
    const struct cpu *cpu = (const struct cpu *)device;
    double threads = cpu->team.threads, memory = threads < 8 ? threads : 8;
    double slow = usual.flop[DTYPE_I32] / cpu->rates.flop[DTYPE_I32] / threads;
    rates->bytes = cpu->rates.bytes * memory;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (cpu->rates.flop[i] > 0) {
            rates->flop[i] = cpu->rates.flop[i] * threads;
        }
    }
    rates->batch_ns = usual_batch_ns * slow;
    rates->packing_ns = usual_packing_ns * slow;
    rates->row_ns = usual_row_ns * slow;
}
