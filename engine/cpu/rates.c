/* What the device does in a nanosecond: usual figures, and where that is asked for, measured ones as soon as the device has
 * nothing to do, of products by BLAS when that is loaded. Each figure is the best of some short runs on one thread, because a
 * busy machine makes single ones slow. A figure stays within a factor of what a server processor made in 2023 does: so a wrong
 * measurement does no harm that the times of launches, which correct all estimates, would not soon undo. */
#include "engine/cpu/cpu.h"

#include <string.h>
#include <time.h>

enum {
    RATES_OFF_MOST = 4, /* a figure is at most so many times the usual one, or that part of it */
    PASS_FLOATS = 1 << 19,
    PASS_STEP = 1 << 17, /* elements of one run, which reads and writes 1.5 of 6 MiB */
    PASS_ROUNDS = 2,
    PRODUCT_SIDE = 64, /* of products in the device's own kernels, which take 30 to 100 µs */
    BLAS_SIDE = 192,   /* of products by BLAS, which take 0.2 to 1 ms */
    PRODUCT_TIMES = 4, /* the first product finds cold caches */
    ROOM_BYTES = 3 * PASS_FLOATS * (int)sizeof(float), /* more than products need */
};

/* The figures of one thread of that processor. */
static const struct cpu_rates usual = {.bytes = 6,
                                       .flop = {[DTYPE_BOOL] = 10,
                                                [DTYPE_U8] = 10,
                                                [DTYPE_I8] = 10,
                                                [DTYPE_I16] = 10,
                                                [DTYPE_I32] = 10,
                                                [DTYPE_I64] = 5,
                                                [DTYPE_U16] = 10,
                                                [DTYPE_U32] = 10,
                                                [DTYPE_U64] = 5,
                                                [DTYPE_F16] = 30,
                                                [DTYPE_BF16] = 30,
                                                [DTYPE_F32] = 30,
                                                [DTYPE_F64] = 15,
                                                [DTYPE_C64] = 7.5,
                                                [DTYPE_C128] = 3.75}};
static const double usual_batch_ns = 80, usual_packing_ns = 1.5, usual_row_ns = 10;

static uint64_t rates_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* `amount` in the best of the times. */
static double rate_within(double amount, uint64_t ns, double rate) {
    double measured = amount / (double)(ns ? ns : 1);
    double least = rate / RATES_OFF_MOST, most = rate * RATES_OFF_MOST;
    return measured < least ? least : measured > most ? most : measured;
}

/* ---- memory ---- */

/* An addition over more than the second-level cache holds. */
static double measure_bytes(const struct cpu *cpu, float *room) {
    cpu_row_function *add = cpu_row_find(cpu->kernels, OP_ADD, DTYPE_F32);
    const size_t bytes = PASS_FLOATS * sizeof *room;
    uint64_t best = UINT64_MAX;
    memset(room, 0, 3 * bytes); /* the pages come now */
    for (size_t i = 0; i < (size_t)PASS_ROUNDS * PASS_FLOATS; i += PASS_STEP) {
        char *at = (char *)(room + i % PASS_FLOATS);
        struct cpu_row row = {.n = PASS_STEP, .data = {at, at + bytes, at + 2 * bytes}, .stride = {1, 1, 1}};
        uint64_t begin = rates_clock();
        add(&row);
        uint64_t ns = rates_clock() - begin;
        best = ns < best ? ns : best;
    }
    return rate_within(3.0 * PASS_STEP * sizeof(float), best, usual.bytes);
}

/* ---- products ---- */

static double measure_product(cpu_product_function *product, double rate, uint64_t *room) {
    enum { ELEMENTS = PRODUCT_SIDE * PRODUCT_SIDE }; /* of any dtype */
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < PRODUCT_TIMES; i++) {
        uint64_t begin = rates_clock();
        product(PRODUCT_SIDE, PRODUCT_SIDE, PRODUCT_SIDE, room, room + ELEMENTS, room + 2 * ELEMENTS, PRODUCT_SIDE);
        uint64_t ns = rates_clock() - begin;
        best = ns < best ? ns : best;
    }
    return rate_within(2.0 * PRODUCT_SIDE * PRODUCT_SIDE * PRODUCT_SIDE, best, rate);
}

static void blas_square(const struct blas *blas, enum dtype dtype, void *x, void *y, void *z) {
    const int n = BLAS_SIDE;
    blas_multiply_matrices(blas, &(struct blas_product){.dtype = dtype,
                                                        .a_transpose = CblasNoTrans,
                                                        .b_transpose = CblasNoTrans,
                                                        .m = n,
                                                        .n = n,
                                                        .k = n,
                                                        .a_stride = n,
                                                        .b_stride = n,
                                                        .c_stride = n,
                                                        .a = x,
                                                        .b = y,
                                                        .c = z});
}

static double measure_blas(const struct blas *blas, enum dtype dtype, double *room) {
    enum { ELEMENTS = BLAS_SIDE * BLAS_SIDE };
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < PRODUCT_TIMES; i++) {
        uint64_t begin = rates_clock();
        blas_square(blas, dtype, room, room + ELEMENTS, room + 2 * ELEMENTS);
        uint64_t ns = rates_clock() - begin;
        best = ns < best ? ns : best;
    }
    return rate_within(2.0 * BLAS_SIDE * BLAS_SIDE * BLAS_SIDE, best, usual.flop[dtype]);
}

/* ---- what the device keeps ---- */

void cpu_rates_init(struct cpu *cpu, bool measure) {
    cpu->rates = usual;
    cpu->rates_wanted = cpu->rates_due = measure;
}

/* Memory as tensors have it, of huge pages where the host has any: with others, their first use would take longer than all that is
 * measured. NULL: there is none, and the usual figures stay. */
static void *room_take(struct cpu *cpu) {
    struct fault fault;
    void *room;
    return cpu->base.vtable->reserve(&cpu->base, ROOM_BYTES, &room, &fault) == STATUS_OK ? room : NULL;
}

static void room_give(struct cpu *cpu, void *room) {
    cpu->base.vtable->release(&cpu->base, room, ROOM_BYTES);
    cpu->base.rates_changed++;
}

void cpu_rates_measure(struct device *device) {
    struct cpu *cpu = (struct cpu *)device;
    const struct cpu_kernels *kernels = cpu->kernels;
    double *flop = cpu->rates.flop;
    void *room = cpu->rates_due ? room_take(cpu) : NULL;
    cpu->rates_due = false;
    if (!room) {
        return;
    }
    cpu->rates.bytes = measure_bytes(cpu, room);
    flop[DTYPE_BOOL] = measure_product(kernels->product_bool, usual.flop[DTYPE_BOOL], room);
    flop[DTYPE_I32] = measure_product(kernels->product_u32, usual.flop[DTYPE_I32], room);
    flop[DTYPE_I64] = measure_product(kernels->product_u64, usual.flop[DTYPE_I64], room);
    flop[DTYPE_U8] = flop[DTYPE_I8] = flop[DTYPE_U16] = flop[DTYPE_I16] = flop[DTYPE_I32]; /* they are packed as i32 */
    flop[DTYPE_U32] = flop[DTYPE_I32];
    flop[DTYPE_U64] = flop[DTYPE_I64];
    room_give(cpu, room);
}

void cpu_rates_of_blas(struct cpu *cpu) {
    double *flop = cpu->rates.flop;
    void *room = cpu->rates_wanted ? room_take(cpu) : NULL;
    if (!room) {
        return;
    }
    flop[DTYPE_F64] = measure_blas(&cpu->blas, DTYPE_F64, room);
    flop[DTYPE_F16] = flop[DTYPE_BF16] = flop[DTYPE_F32] = measure_blas(&cpu->blas, DTYPE_F32, room);
    flop[DTYPE_C64] = flop[DTYPE_F32] / 4; /* four products and four sums for each of theirs */
    flop[DTYPE_C128] = flop[DTYPE_F64] / 4;
    room_give(cpu, room);
}

/* The figures of one thread times the number of threads; for memory, times eight at most. The costs of rows and matrices follow the
 * processor's speed at integers. */
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
