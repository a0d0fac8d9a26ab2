/* Decompositions on the CPU device by themselves: of large matrices a block is computed in several steps, and these give what the whole does. */
#include <complex.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/device/device_impl.h"

enum { OPERANDS = 4, CHECKED = 7 };

/* A matrix, row by row, of float or float complex. */
struct matrix {
    int64_t shape[3], strides[3];
    void *data;
};

static struct device *device;
static enum dtype dtype;
static struct matrix matrices[OPERANDS]; /* the inputs, then the outputs */
static int n_inputs, n_matrices, turns;

static float complex element(int which, int64_t i, int64_t j) {
    const struct matrix *matrix = &matrices[which];
    int64_t at = i * matrix->shape[2] + j;
    return dtype == DTYPE_C64 ? ((const float complex *)matrix->data)[at] : ((const float *)matrix->data)[at];
}

static void add(int64_t rows, int64_t columns, bool input) {
    struct matrix *matrix = &matrices[n_matrices++];
    int64_t parts = rows * columns * (dtype == DTYPE_C64 ? 2 : 1);
    *matrix = (struct matrix){{1, rows, columns}, {rows * columns, columns, 1}, NULL};
    matrix->data = malloc((size_t)parts * sizeof(float));
    uint32_t seed = (uint32_t)n_matrices;
    for (int64_t i = 0; input && i < parts; i++) {
        seed = seed * 1664525 + 1013904223;
        ((float *)matrix->data)[i] = (float)(int32_t)seed / 0x1p31F;
    }
    n_inputs += input;
}

/* Input 0 becomes one whose triangles are far from singular, and which is positive definite where that is asked for. */
static void dominate(void) {
    int64_t n = matrices[0].shape[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            float complex *wide = matrices[0].data;
            float *narrow = matrices[0].data;
            if (dtype == DTYPE_C64)
                wide[i * n + j] = i == j ? (float)n : wide[i * n + j];
            else
                narrow[i * n + j] = narrow[j * n + i] = i == j ? (float)n : narrow[i * n + j];
        }
}

static void open_cpu(enum dtype of) {
    struct device_options options = {.memory_total = 1 << 20, .threads = 1};
    struct fault fault;
    dtype = of;
    n_inputs = n_matrices = 0;
    cr_assert_eq(device_open("cpu", &options, &device, &fault), STATUS_OK, "%s", fault.message);
}

static void close_cpu(void) {
    for (int i = 0; i < n_matrices; i++)
        free(matrices[i].data);
    device_close(device);
}

/* Counts the turns if each is as short as can be. */
static void run(unsigned opcode, unsigned n_ints, const int64_t *ints) {
    static const _Atomic bool wanted = true;
    struct fault fault;
    struct report report = {0};
    struct {
        struct launch launch;
        struct operand operands[OPERANDS];
    } *call = calloc(1, sizeof *call);
    const struct op_kernel *kernel = device->vtable->operations[opcode];
    call->launch = (struct launch){.opcode = (uint16_t)opcode,
                                   .n_inputs = (uint8_t)n_inputs,
                                   .further = (uint8_t)(n_matrices - n_inputs - 1),
                                   .report = &report,
                                   .attributes = {.ints = ints, .n_ints = n_ints}};
    for (int i = 0, at = 0; i < n_matrices; i++) {
        struct operand operand = {.data = matrices[i].data,
                                  .shape = matrices[i].shape,
                                  .strides = matrices[i].strides,
                                  .dtype = dtype,
                                  .as = dtype,
                                  .rank = 3};
        *(i == n_inputs ? &call->launch.output : &call->operands[at++]) = operand;
    }
    cr_assert_eq(kernel->needs(device, dtype, &fault), STATUS_OK, "%s", fault.message);
    size_t bytes = kernel->workspace(device, &call->launch);
    call->launch.workspace = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    struct device_begun *begun = NULL;
    turns = 0;
    do {
        struct device_turn turn = {.wanted = &wanted, .shared = true};
        cr_assert_eq(device->vtable->launch_part(device, &call->launch, &turn, &begun, &fault), STATUS_OK);
        turns++;
    } while (begun);
    cr_assert_eq(report.code, STATUS_OK);
    free(call->launch.workspace);
    free(call);
}

/* Some rows and columns, the first and last among them. */
static int64_t checked(int number, int64_t n) {
    return (n - 1) * number / (CHECKED - 1);
}

static void expect_close(float complex is, float complex should, double scale) {
    cr_expect_lt(cabsf(is - should), 1e-5 * scale, "%g%+gi, not %g%+gi", (double)crealf(is), (double)cimagf(is),
                 (double)crealf(should), (double)cimagf(should));
}

/* Elements of the product of two of the matrices are those of a third, row `order(i)` for row i of the product. */
static void expect_product(int left, int right, int product, bool right_transposed, int64_t (*order)(int64_t),
                           double scale) {
    const struct matrix *of = &matrices[product];
    for (int i = 0; i < CHECKED; i++)
        for (int j = 0; j < CHECKED; j++) {
            int64_t row = checked(i, of->shape[1]), column = checked(j, of->shape[2]);
            double complex sum = 0;
            for (int64_t k = 0; k < matrices[left].shape[2]; k++)
                sum += (double complex)element(left, row, k) *
                       (right_transposed ? element(right, column, k) : element(right, k, column));
            expect_close((float complex)sum, element(product, order ? order(row) : row, column), scale);
        }
}

/* The row of a that row i of L·U is: from P, input 0's first output. */
static int64_t row_of(int64_t i) {
    int64_t m = matrices[1].shape[1];
    for (int64_t row = 0; row < m; row++)
        if (element(1, row, i) == 1)
            return row;
    return -1;
}

Test(cpu_decompose, lu_of_a_large_matrix_is_computed_in_more_steps_than_blocks, .timeout = 300) {
    enum { N = 2600 };
    open_cpu(DTYPE_F32);
    add(N, N, true);
    add(N, N, false);
    add(N, N, false);
    add(N, N, false);
    run(OP_LU, 0, NULL);
    cr_expect_gt(turns, 2 * (N / 128), "%d", turns);
    expect_product(2, 3, 0, false, row_of, N);
    close_cpu();
}

Test(cpu_decompose, cholesky_of_a_large_matrix_is_computed_in_more_steps_than_blocks, .timeout = 300) {
    enum { N = 3000 };
    static const int64_t lower[] = {0};
    open_cpu(DTYPE_F32);
    add(N, N, true);
    dominate();
    add(N, N, false);
    run(OP_CHOLESKY, 1, lower);
    cr_expect_gt(turns, 2 * (N / 128), "%d", turns);
    expect_product(1, 1, 0, true, NULL, N);
    close_cpu();
}

Test(cpu_decompose, qr_of_a_large_matrix_is_computed_in_more_steps_than_blocks, .timeout = 300) {
    enum { N = 2000 };
    static const int64_t reduced[] = {0};
    open_cpu(DTYPE_F32);
    add(N, N, true);
    add(N, N, false);
    add(N, N, false);
    run(OP_QR, 1, reduced);
    cr_expect_gt(turns, 4 * (N / 128), "%d", turns);
    expect_product(1, 2, 0, false, NULL, N);
    close_cpu();
}

Test(cpu_decompose, equations_of_a_large_matrix_are_solved_in_steps, .timeout = 300) {
    enum { N = 4000, R = 9 };
    open_cpu(DTYPE_C64);
    add(N, N, true);
    dominate();
    add(N, R, true);
    add(N, R, false);
    run(OP_SOLVE, 0, NULL);
    expect_product(0, 2, 1, false, NULL, 10);
    close_cpu();
}

Test(cpu_decompose, a_triangle_is_solved_from_either_end, .timeout = 300) {
    enum { N = 4000, R = 200 };
    for (int upper = 0; upper < 2; upper++) {
        const int64_t ints[] = {upper, 0};
        open_cpu(DTYPE_C64);
        add(N, N, true);
        dominate();
        add(N, R, true);
        add(N, R, false);
        run(OP_TRIANGULAR_SOLVE, 2, ints);
        for (int64_t i = 0; i < N; i++)
            memset((float complex *)matrices[0].data + i * N + (upper ? 0 : i + 1), 0,
                   (size_t)(upper ? i : N - i - 1) * sizeof(float complex));
        expect_product(0, 2, 1, false, NULL, 10);
        close_cpu();
    }
}

Test(cpu_decompose, a_large_triangle_is_solved_in_more_steps_than_strips, .timeout = 300) {
    enum { N = 12000, R = 100 };
    static const int64_t ints[] = {0, 0};
    open_cpu(DTYPE_F32);
    n_inputs = n_matrices = 1;
    matrices[0] = (struct matrix){{1, N, N}, {(int64_t)N * N, N, 1}, calloc((size_t)N * N, sizeof(float))};
    for (int64_t i = 0; i < N; i++) {
        ((float *)matrices[0].data)[i * N] = 1;
        ((float *)matrices[0].data)[i * N + i] = 2;
    }
    add(N, R, true);
    add(N, R, false);
    run(OP_TRIANGULAR_SOLVE, 2, ints);
    cr_expect_gt(turns, R / 8 + 1, "%d", turns);
    expect_product(0, 2, 1, false, NULL, 10);
    close_cpu();
}

Test(cpu_decompose, least_squares_of_many_columns_are_solved_in_steps, .timeout = 300) {
    enum { N = 1000, R = 1200 };
    open_cpu(DTYPE_F32);
    add(N, N, true);
    dominate();
    add(N, R, true);
    add(N, R, false);
    run(OP_LSTSQ, 0, NULL);
    expect_product(0, 2, 1, false, NULL, 10);
    close_cpu();
}
