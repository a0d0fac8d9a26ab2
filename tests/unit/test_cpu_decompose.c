/* Decompositions on the CPU device by themselves: of large matrices a block is computed in several steps, and these give what the whole does. */
#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>
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
static int64_t batch = 1;
static unsigned threads = 1;
static struct report report; /* of the last run */

static float complex element(int which, int64_t i, int64_t j) {
    const struct matrix *matrix = &matrices[which];
    int64_t at = i * matrix->shape[2] + j;
    return dtype == DTYPE_C64 ? ((const float complex *)matrix->data)[at] : ((const float *)matrix->data)[at];
}

static void add(int64_t rows, int64_t columns, bool input) {
    struct matrix *matrix = &matrices[n_matrices++];
    int64_t parts = batch * rows * columns * (dtype == DTYPE_C64 ? 2 : 1);
    *matrix = (struct matrix){{batch, rows, columns}, {rows * columns, columns, 1}, NULL};
    matrix->data = calloc((size_t)parts, sizeof(float)); /* of complex results real ones leave a half */
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
    struct device_options options = {.memory_total = 1 << 20, .threads = threads};
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
static void run_any(unsigned opcode, unsigned n_ints, const int64_t *ints) {
    static const _Atomic bool wanted = true;
    struct fault fault;
    report = (struct report){0};
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
    free(call->launch.workspace);
    free(call);
}

static void run(unsigned opcode, unsigned n_ints, const int64_t *ints) {
    run_any(opcode, n_ints, ints);
    cr_assert_eq(report.code, STATUS_OK);
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

/* ---- threads that share the steps of a matrix ---- */

enum { SHARED = 410, SIDES = 300, THREADS_MOST = 3 };

/* An operation on matrices of m by n, and their results. */
struct shared_case {
    unsigned opcode, n_ints;
    int64_t ints[2];
    int64_t m, n;
    bool definite, has_sides;
    int64_t outputs[3][2];
};
static const struct shared_case shared_cases[] = {
    {OP_LU, 0, {0}, SHARED, 350, false, false, {{SHARED, SHARED}, {SHARED, 350}, {350, 350}}},
    {OP_LU, 0, {0}, 300, SHARED, false, false, {{300, 300}, {300, 300}, {300, SHARED}}},
    {OP_DET, 0, {0}, SHARED, SHARED, false, false, {{1, 1}}},
    {OP_SLOGDET, 0, {0}, SHARED, SHARED, false, false, {{1, 1}, {1, 1}}},
    {OP_INV, 0, {0}, SHARED, SHARED, false, false, {{SHARED, SHARED}}},
    {OP_SOLVE, 0, {0}, SHARED, SHARED, false, true, {{SHARED, SIDES}}},
    {OP_QR, 1, {OP_QR_MODE_REDUCED}, SHARED, 350, false, false, {{SHARED, 350}, {350, 350}}},
    {OP_QR, 1, {OP_QR_MODE_COMPLETE}, SHARED, 350, false, false, {{SHARED, SHARED}, {SHARED, 350}}},
    {OP_LSTSQ, 0, {0}, SHARED, 350, false, true, {{350, SIDES}}},
    {OP_LSTSQ, 0, {0}, 350, SHARED, false, true, {{SHARED, SIDES}}},
    {OP_CHOLESKY, 1, {0}, SHARED, SHARED, true, false, {{SHARED, SHARED}}},
    {OP_CHOLESKY, 1, {1}, SHARED, SHARED, true, false, {{SHARED, SHARED}}},
    {OP_TRIANGULAR_SOLVE, 2, {0, 0}, SHARED, SHARED, true, true, {{SHARED, SIDES}}},
    {OP_TRIANGULAR_SOLVE, 2, {1, 1}, SHARED, SHARED, true, true, {{SHARED, SIDES}}},
    {OP_EIGH, 1, {0}, SHARED, SHARED, false, false, {{1, SHARED}, {SHARED, SHARED}}},
    {OP_EIGH, 1, {1}, 330, 330, false, false, {{1, 330}, {330, 330}}}, /* too small to be reduced in parts */
    {OP_EIGVALSH, 1, {0}, SHARED, SHARED, false, false, {{1, SHARED}}},
    {OP_SVD, 1, {0}, SHARED, SHARED, false, false, {{SHARED, SHARED}, {1, SHARED}, {SHARED, SHARED}}},
    {OP_SVD, 1, {1}, 500, SHARED, false, false, {{500, 500}, {1, SHARED}, {SHARED, SHARED}}},
    {OP_SVD, 1, {0}, SHARED, 500, false, false, {{SHARED, SHARED}, {1, SHARED}, {SHARED, 500}}},
    {OP_SVDVALS, 0, {0}, SHARED, 500, false, false, {{1, SHARED}}},
};
enum { SHARED_CASES = sizeof shared_cases / sizeof *shared_cases };

static void shared_open(const struct shared_case *shared, enum dtype of) {
    open_cpu(of);
    add(shared->m, shared->n, true);
    if (shared->definite)
        dominate();
    if (shared->has_sides)
        add(shared->m, SIDES, true);
    for (int i = 0; i < 3 && shared->outputs[i][0] > 0; i++)
        add(shared->outputs[i][0], shared->outputs[i][1], false);
}

/* The results are the first ones', which are kept if there are none yet. */
static void expect_same(void *kept[], int which) {
    for (int i = n_inputs; i < n_matrices; i++) {
        const struct matrix *matrix = &matrices[i];
        size_t bytes = (size_t)(batch * matrix->strides[0]) * (dtype == DTYPE_C64 ? 8 : 4);
        if (!kept[i]) {
            kept[i] = malloc(bytes);
            memcpy(kept[i], matrix->data, bytes);
        }
        cr_expect(memcmp(kept[i], matrix->data, bytes) == 0, "case %d, output %d, %s, %u threads", which, i - n_inputs,
                  dtype_name(dtype), threads);
    }
}

Test(cpu_decompose, a_large_matrix_has_the_same_results_at_any_number_of_threads, .timeout = 300) {
    for (int which = 0; which < SHARED_CASES; which++)
        for (int parts = 1; parts <= 2; parts++) {
            const struct shared_case *shared = &shared_cases[which];
            void *kept[OPERANDS + 1] = {NULL};
            batch = which % 3 == 0 ? 2 : 1; /* still fewer than threads */
            for (threads = 1; threads <= THREADS_MOST; threads++) {
                shared_open(shared, parts > 1 ? DTYPE_C64 : DTYPE_F32);
                run(shared->opcode, shared->n_ints, shared->ints);
                expect_same(kept, which);
                close_cpu();
            }
            for (int i = 0; i <= OPERANDS; i++)
                free(kept[i]);
        }
}

/* In the shortest turn each thread does one part. */
Test(cpu_decompose, threads_share_the_reduction_of_a_matrix_and_its_vectors, .timeout = 300) {
    for (int which = 0; which < SHARED_CASES; which++) {
        const struct shared_case *shared = &shared_cases[which];
        unsigned opcode = shared->opcode;
        int alone = 0;
        if ((opcode != OP_EIGH && opcode != OP_EIGVALSH && opcode != OP_SVD && opcode != OP_SVDVALS) ||
            shared->m < SHARED)
            continue;
        for (threads = 1; threads <= THREADS_MOST; threads += THREADS_MOST - 1) {
            shared_open(shared, DTYPE_F32);
            run(opcode, shared->n_ints, shared->ints);
            if (threads > 1)
                cr_expect_lt(turns, alone * 2 / 3, "case %d: %d turns, not %d", which, turns, alone);
            alone = turns;
            close_cpu();
        }
    }
}

Test(cpu_decompose, products_of_what_threads_share_are_the_matrix, .timeout = 300) {
    static const int64_t reduced[] = {OP_QR_MODE_REDUCED};
    threads = THREADS_MOST;
    for (int64_t n = 383; n <= 386; n++) { /* about three blocks */
        open_cpu(DTYPE_F32);
        add(n, n, true);
        add(n, n, false);
        add(n, n, false);
        add(n, n, false);
        run(OP_LU, 0, NULL);
        expect_product(2, 3, 0, false, row_of, (double)n);
        close_cpu();
        open_cpu(DTYPE_F32);
        add(n, n, true);
        add(n, n, false);
        add(n, n, false);
        run(OP_QR, 1, reduced);
        expect_product(1, 2, 0, false, NULL, (double)n);
        close_cpu();
        open_cpu(DTYPE_F32);
        add(n, n, true);
        dominate();
        add(n, 2 * n, true);
        add(n, 2 * n, false);
        run(OP_SOLVE, 0, NULL);
        expect_product(0, 2, 1, false, NULL, (double)n);
        close_cpu();
    }
}

/* Products with the last rows are too small to be exact, or are 0. */
Test(cpu_decompose, singular_values_of_a_matrix_whose_rows_fade_away_are_found, .timeout = 300) {
    static const int64_t reduced[] = {0};
    enum { VALUES = 2, RIGHT_ONES };
    threads = THREADS_MOST;
    open_cpu(DTYPE_F32);
    add(SHARED, SHARED, true);
    for (int64_t i = 0; i < SHARED * SHARED; i++)
        ((float *)matrices[0].data)[i] *= ldexpf(1, (int)-(i / SHARED + i % SHARED) / 2);
    add(SHARED, SHARED, false);
    add(1, SHARED, false);
    add(SHARED, SHARED, false);
    run(OP_SVD, 1, reduced);
    for (int64_t i = 0; i < SHARED * SHARED; i++)
        ((float *)matrices[RIGHT_ONES].data)[i] *= ((const float *)matrices[VALUES].data)[i / SHARED];
    expect_product(1, RIGHT_ONES, 0, false, NULL, 1);
    close_cpu();
}

/* Rows are exchanged, so columns of the inverse are. */
Test(cpu_decompose, a_shared_inverse_of_exchanged_rows_has_exchanged_columns, .timeout = 300) {
    threads = THREADS_MOST;
    open_cpu(DTYPE_F32);
    add(SHARED, SHARED, true);
    add(SHARED, SHARED, false);
    for (int64_t i = 0; i < SHARED; i++)
        for (int64_t j = 0; j < SHARED; j++)
            ((float *)matrices[0].data)[i * SHARED + j] = j == (i * 7 + 3) % SHARED ? (float)(i + 1) : 0;
    run(OP_INV, 0, NULL);
    for (int64_t i = 0; i < SHARED; i++)
        for (int64_t j = 0; j < SHARED; j++)
            cr_assert_eq(crealf(element(1, j, i)), j == (i * 7 + 3) % SHARED ? 1 / (float)(i + 1) : 0);
    close_cpu();
}

Test(cpu_decompose, a_singular_matrix_is_found_by_any_number_of_threads, .timeout = 300) {
    static const struct shared_case cases[] = {
        {OP_INV, 0, {0}, SHARED, SHARED, false, false, {{SHARED, SHARED}}},
        {OP_SOLVE, 0, {0}, SHARED, SHARED, false, true, {{SHARED, SIDES}}},
        {OP_CHOLESKY, 1, {0}, SHARED, SHARED, true, false, {{SHARED, SHARED}}},
        {OP_TRIANGULAR_SOLVE, 2, {0, 0}, SHARED, SHARED, true, true, {{SHARED, SIDES}}},
        {OP_LSTSQ, 0, {0}, SHARED, SHARED, false, true, {{SHARED, SIDES}}},
    };
    enum { ZERO = 391, CASES = sizeof cases / sizeof *cases }; /* in the last block */
    batch = 2;
    for (int which = 0; which < CASES; which++)
        for (threads = 1; threads <= THREADS_MOST; threads++) {
            shared_open(&cases[which], DTYPE_F32);
            float *second = (float *)matrices[0].data + SHARED * SHARED;
            memset(second, 0, (size_t)SHARED * SHARED * sizeof(float));
            for (int64_t i = 0; i < SHARED; i++)
                second[i * SHARED + i] = i == ZERO ? 0 : 2;
            run_any(cases[which].opcode, cases[which].n_ints, cases[which].ints);
            cr_expect_eq(report.code, STATUS_SINGULAR, "case %d, %u threads: %u", which, threads, report.code);
            cr_expect_eq(report.value, SHARED + ZERO, "case %d, %u threads", which, threads);
            close_cpu();
        }
}

/* ---- reflections of some columns ---- */

enum { TALL = 37, NARROW = 9 };

static void reflect(double scale, double a[NARROW][TALL], double t[NARROW][NARROW]) {
    uint32_t seed = 5;
    for (int j = 0; j < NARROW; j++)
        for (int i = 0; i < TALL; i++) {
            seed = seed * 1664525 + 1013904223;
            a[j][i] = (double)(int32_t)seed / 0x1p31 * scale;
        }
    memset(t, 0, sizeof(double[NARROW][NARROW]));
    cpu_kernels_level(0)->reflect[1](TALL, NARROW, a, TALL, t, NARROW);
}

Test(cpu_decompose, reflections_of_tiny_and_huge_columns_are_those_of_others) {
    static const double scales[] = {0x1p-1000, 0x1p-600, 0x1p-401, 0x1p401, 0x1p600, 0x1p1000};
    double a[NARROW][TALL], t[NARROW][NARROW], b[NARROW][TALL], u[NARROW][NARROW];
    reflect(1, a, t);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        reflect(scales[s], b, u);
        cr_expect(memcmp(t, u, sizeof t) == 0, "scale %g", scales[s]);
        for (int j = 0; j < NARROW; j++)
            for (int i = 0; i < TALL; i++)
                cr_expect_eq(b[j][i] / (i > j ? 1 : scales[s]), a[j][i], "scale %g, row %d, column %d", scales[s], i,
                             j);
    }
}

Test(cpu_decompose, a_column_of_zeros_has_no_reflection_and_one_with_nan_has_nan) {
    double a[2][5] = {{3, 0, 0, 0, 0}, {1, 2, NAN, 0, 0}}, t[2][2] = {{0}};
    cpu_kernels_level(0)->reflect[1](5, 2, a, 5, t, 2);
    cr_expect_eq(a[0][0], 3);
    cr_expect_eq(t[0][0], 0);
    cr_expect(isnan(a[1][1]) && isnan(t[1][1]));
}
