/* Chains of elementwise operations have the bits of the row functions, one after another: any steps, in any form, on any number of elements. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/kernels.h"

enum { ELEMENTS = 1100, STEPS = 24, ARRAYS = STEPS + 3, ROUNDS = 4000 };

static const struct operation {
    uint8_t name;
    uint16_t opcode;
    uint8_t inputs;
} operations[] = {
#define BINARY(NAME) {CPU_CHAIN_##NAME, OP_##NAME, 2},
#define UNARY(NAME) {CPU_CHAIN_##NAME, OP_##NAME, 1},
#define FUNCTION(NAME, name) UNARY(NAME)
    CPU_CHAIN_BINARY(BINARY) CPU_CHAIN_UNARY(UNARY) CPU_CHAIN_FUNCTIONS(FUNCTION){CPU_CHAIN_QUOTIENT, OP_DIVIDE, 2}};
enum {
#define ONE(NAME) +1
    FEW = CPU_CHAIN_BINARY(ONE) CPU_CHAIN_UNARY(ONE), /* operations of chains that are not of tiles */
    ALL = sizeof operations / sizeof *operations,
};

static uint64_t seed;

static unsigned below(unsigned n) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(seed >> 33) % n;
}

static double number(void) {
    static const double special[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 0x1p-149, -0x1p-1074, 0x1.fffffep127, 6};
    return below(4) ? ((double)below(1u << 30) - 0x1p29) * 0x1p-26 : special[below(sizeof special / sizeof *special)];
}

/* Array `at` has the result of step at - 1; the first two are given. */
struct side {
    _Alignas(64) char array[ARRAYS][(ELEMENTS * sizeof(double) + 63) / 64 * 64];
    bool stored[ARRAYS];
    struct cpu_chain_divisor divisors[ARRAYS];
};

static void put(char *array, int i, double value, bool wide) {
    float narrow = (float)value;
    memcpy(array + i * (wide ? 8 : 4), wide ? (void *)&value : (void *)&narrow, wide ? 8 : 4);
}

static bool same(const char *a, const char *b, int i, bool wide) {
    double x[2];
    float y[2];
    if (!memcmp(a + i * (wide ? 8 : 4), b + i * (wide ? 8 : 4), wide ? 8 : 4))
        return true;
    for (int k = 0; k < 2; k++) {
        memcpy(&x[k], (k ? b : a) + i * 8, 8);
        memcpy(&y[k], (k ? b : a) + i * 4, 4);
    }
    return wide ? isnan(x[0]) && isnan(x[1]) : isnan(y[0]) && isnan(y[1]);
}

static void load(struct side *expected, int at, unsigned from, bool one, int64_t n, bool wide) {
    for (int64_t i = 0; i < n; i++)
        memcpy(expected->array[at] + i * (wide ? 8 : 4), expected->array[from] + (one ? 0 : i * (wide ? 8 : 4)),
               wide ? 8 : 4);
}

/* One step, both as a chain has it and by a row function. The result so far is in `expected->array[at - 1]`. */
static void add_step(const struct cpu_kernels *kernels, struct cpu_chain_step *step, struct side *chained,
                     struct side *expected, int at, int64_t n, bool wide, bool tile) {
    const struct operation *operation = &operations[below(tile ? ALL : FEW)];
    unsigned name = below(6) ? operation->name : CPU_CHAIN_LOAD, other = below((unsigned)at);
    unsigned form = name == CPU_CHAIN_LOAD       ? below(2)
                    : operation->inputs == 1     ? CPU_CHAIN_SELF
                    : name == CPU_CHAIN_QUOTIENT ? CPU_CHAIN_ONE
                                                 : below(CPU_CHAIN_SELF + 1);
    bool one = form == CPU_CHAIN_ONE || form == CPU_CHAIN_OF_ONE;
    while (!expected->stored[other] || (one && other > 1)) /* nothing writes to the first ones */
        other = below((unsigned)at);
    char *so_far = expected->array[at - 1], *with = form == CPU_CHAIN_SELF ? so_far : expected->array[other];
    bool swapped = form == CPU_CHAIN_OF_ELEMENTS || form == CPU_CHAIN_OF_ONE;
    struct cpu_row row = {n,
                          {expected->array[at], swapped ? with : so_far, swapped ? so_far : with},
                          {1, swapped && one ? 0 : 1, !swapped && one ? 0 : 1}};
    if (name == CPU_CHAIN_LOAD)
        load(expected, at, other, one, n, wide);
    else
        cpu_row_find(kernels, operation->opcode, wide ? DTYPE_F64 : DTYPE_F32)(&row);
    *step = (struct cpu_chain_step){.with = form == CPU_CHAIN_SELF ? NULL : chained->array[other],
                                    .out = below(3) ? chained->array[at] : NULL,
                                    .what = CPU_CHAIN_WHAT(name, form),
                                    .streams = tile && below(2)};
    expected->stored[at] = step->out != NULL;
    if (name == CPU_CHAIN_QUOTIENT) {
        float d;
        memcpy(&d, with, sizeof d);
        step->with = &chained->divisors[at];
        if (!cpu_chain_divisor_init(&chained->divisors[at], d)) {
            step->with = chained->array[other];
            step->what = CPU_CHAIN_WHAT(CPU_CHAIN_DIVIDE, CPU_CHAIN_ONE);
        }
    }
}

static void compare(const struct cpu_kernels *kernels, struct side *chained, struct side *expected, bool wide,
                    bool tile) {
    static const int lengths[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 1000, 1100};
    struct cpu_chain_step steps[STEPS];
    int64_t n = lengths[below(sizeof lengths / sizeof *lengths)];
    unsigned count = 1 + below(STEPS);
    for (int i = 0; i < ELEMENTS; i++) {
        put(expected->array[0], i, number(), wide);
        put(expected->array[1], i, number(), wide);
    }
    expected->stored[0] = expected->stored[1] = true;
    memcpy(chained, expected, sizeof *chained);
    steps[0] =
        (struct cpu_chain_step){.with = chained->array[1], .what = CPU_CHAIN_WHAT(CPU_CHAIN_LOAD, CPU_CHAIN_ELEMENTS)};
    for (unsigned i = 1; i < count; i++)
        add_step(kernels, &steps[i], chained, expected, (int)i + 1, n, wide, tile);
    (tile ? *kernels->chain_tile : kernels->chain[wide])(n, steps, count);
    kernels->stream_end();
    for (unsigned at = 0; at <= count; at++)
        for (int i = 0; expected->stored[at] && i < ELEMENTS; i++)
            cr_assert(same(chained->array[at], expected->array[at], i, wide),
                      "%s, %s%s: array %u of %u, element %d of %d", kernels->level, wide ? "f64" : "f32",
                      tile ? ", of tiles" : "", at, count, i, (int)n);
}

Test(cpu_chain, chains_have_the_bits_of_row_functions) {
    struct side *sides = aligned_alloc(64, 2 * sizeof *sides);
    seed = 11;
    memset(sides, 0, 2 * sizeof *sides);
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        cr_assert_eq(!kernels->chain[0], !kernels->chain[1]);
        for (int round = 0; kernels->chain[0] && round < ROUNDS; round++)
            compare(kernels, &sides[0], &sides[1], round % 2, false);
        for (int round = 0; *kernels->chain_tile && round < ROUNDS; round++)
            compare(kernels, &sides[0], &sides[1], false, true);
    }
    free(sides);
}
