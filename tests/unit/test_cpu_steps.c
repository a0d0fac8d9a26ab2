/* Large operations on the CPU device: however large they are, one step asks for a bounded amount of work. The functions of BLAS and LAPACK are
 * replaced by some that count multiplications and compute nothing; what the same steps compute is compared at small sizes. */
#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/spectral.h"
#include "engine/device/device_impl.h"

enum { OPERANDS = 20 };

static struct device *device;

static void open_cpu(void) {
    struct device_options options = {.memory_total = 1 << 20, .threads = 1};
    struct fault fault;
    cr_assert_eq(device_open("cpu", &options, &device, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(cpu_needs_blas((struct cpu *)device, &fault), STATUS_OK, "%s", fault.message);
}

/* ---- functions that count ---- */

/* Multiplications. Where each number of a matrix is read for one of them, that takes as long as 16 others. */
static double work;
enum { READ = 16 };

static void count_gemm(const char *at, const char *bt, const int *m, const int *n, const int *k, const void *alpha,
                       const void *a, const int *lda, const void *b, const int *ldb, const void *beta, void *c,
                       const int *ldc, size_t al, size_t bl) {
    (void)at, (void)bt, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc, (void)al;
    (void)bl;
    work += (double)*m * *n * *k;
}

static void count_syr2k(const char *part, const char *t, const int *n, const int *k, const void *alpha, const void *a,
                        const int *lda, const void *b, const int *ldb, const void *beta, void *c, const int *ldc,
                        size_t pl, size_t tl) {
    (void)part, (void)t, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc, (void)pl;
    (void)tl;
    work += (double)*n * *n * *k;
}

static void count_latrd(const char *part, const int *n, const int *columns, void *a, const int *lda, void *e, void *tau,
                        void *w, const int *ldw, size_t length) {
    (void)part, (void)a, (void)lda, (void)tau, (void)w, (void)ldw, (void)length;
    memset(e, 0, (size_t)*columns * sizeof(float));
    work += (double)READ * *n * *n * *columns;
}

static void count_labrd(const int *m, const int *n, const int *columns, void *a, const int *lda, void *d, void *e,
                        void *tau_q, void *tau_p, void *x, const int *ldx, void *y, const int *ldy) {
    (void)a, (void)lda, (void)tau_q, (void)tau_p, (void)x, (void)ldx, (void)y, (void)ldy;
    memset(d, 0, (size_t)*columns * sizeof(float));
    memset(e, 0, (size_t)*columns * sizeof(float));
    work += 2.0 * READ * *m * *n * *columns;
}

static void count_gemv(const char *t, const int *m, const int *n, const void *alpha, const void *a, const int *lda,
                       const void *x, const int *x_step, const void *beta, void *y, const int *y_step, size_t length) {
    (void)t, (void)alpha, (void)a, (void)lda, (void)x, (void)x_step, (void)beta, (void)y, (void)y_step, (void)length;
    work += (double)READ * *m * *n;
}

static void count_symv(const char *part, const int *n, const void *alpha, const void *a, const int *lda, const void *x,
                       const int *x_step, const void *beta, void *y, const int *y_step, size_t length) {
    (void)part, (void)alpha, (void)a, (void)lda, (void)x, (void)x_step, (void)beta, (void)y, (void)y_step, (void)length;
    work += (double)READ * *n * *n;
}

static void count_scal(const int *n, const void *alpha, void *x, const int *step) {
    (void)alpha, (void)x, (void)step;
    work += *n;
}

static void count_larfg(const int *n, void *first, void *rest, const int *step, void *tau) {
    (void)first, (void)rest, (void)step;
    memset(tau, 0, sizeof(float));
    work += *n;
}

static void count_sgemm(OPENBLAS_CONST enum CBLAS_ORDER order, OPENBLAS_CONST enum CBLAS_TRANSPOSE at,
                        OPENBLAS_CONST enum CBLAS_TRANSPOSE bt, OPENBLAS_CONST blasint m, OPENBLAS_CONST blasint n,
                        OPENBLAS_CONST blasint k, OPENBLAS_CONST float alpha, OPENBLAS_CONST float *a,
                        OPENBLAS_CONST blasint lda, OPENBLAS_CONST float *b, OPENBLAS_CONST blasint ldb,
                        OPENBLAS_CONST float beta, float *c, OPENBLAS_CONST blasint ldc) {
    (void)order, (void)at, (void)bt, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c;
    (void)ldc;
    work += (double)m * (double)n * (double)k;
}

static void open_counting(void) {
    open_cpu();
    struct blas *blas = &((struct cpu *)device)->blas;
    struct lapack *lapack = &blas->lapack[LAPACK_F32];
    blas->sgemm = count_sgemm;
    lapack->gemm = count_gemm;
    lapack->syr2k = count_syr2k;
    lapack->latrd = count_latrd;
    lapack->labrd = count_labrd;
    lapack->gemv = count_gemv;
    lapack->symv = count_symv;
    lapack->scal = count_scal;
    lapack->larfg = count_larfg;
}

/* ---- operations in turns as short as can be ---- */

static struct {
    int64_t shape[4], strides[4];
    int rank;
    size_t bytes;
    void *data;
    enum dtype dtype;
} tensors[OPERANDS]; /* the inputs, then the outputs */
static int n_inputs, n_tensors;

/* Zeros. */
static void *add(bool input, enum dtype dtype, int rank, const int64_t *shape) {
    int64_t n = 1;
    tensors[n_tensors].rank = rank;
    tensors[n_tensors].dtype = dtype;
    for (int i = rank - 1; i >= 0; i--) {
        tensors[n_tensors].shape[i] = shape[i];
        tensors[n_tensors].strides[i] = n;
        n *= shape[i];
    }
    tensors[n_tensors].bytes = (size_t)n * dtype_size(dtype);
    n_inputs += input;
    return tensors[n_tensors++].data = calloc((size_t)n + 1, dtype_size(dtype));
}

#define ADD(input, dtype, ...)                                                                                         \
    add(input, dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static int turns;        /* without the first one, which only begins */
static double turn_most; /* work of a turn */

static void run(unsigned opcode, unsigned n_ints, const int64_t *ints, unsigned n_floats, const double *floats) {
    static const _Atomic bool wanted = true;
    struct fault fault;
    struct report report = {0};
    struct {
        struct launch launch;
        struct operand operands[OPERANDS];
    } *call = calloc(1, sizeof *call);
    const struct op_kernel *kernel = device->vtable->operations[opcode];
    call->launch =
        (struct launch){.opcode = (uint16_t)opcode,
                        .n_inputs = (uint8_t)n_inputs,
                        .further = (uint8_t)(n_tensors - n_inputs - 1),
                        .report = &report,
                        .attributes = {.ints = ints, .n_ints = n_ints, .floats = floats, .n_floats = n_floats}};
    for (int i = 0, place = 0; i < n_tensors; i++) {
        struct operand operand = {.data = tensors[i].data,
                                  .shape = tensors[i].shape,
                                  .strides = tensors[i].strides,
                                  .dtype = (uint8_t)tensors[i].dtype,
                                  .as = (uint8_t)tensors[i].dtype,
                                  .rank = (uint8_t)tensors[i].rank};
        *(i == n_inputs ? &call->launch.output : &call->operands[place++]) = operand;
    }
    size_t bytes = kernel->workspace ? kernel->workspace(device, &call->launch) : 0;
    call->launch.workspace = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    struct device_begun *begun = NULL;
    turns = -1;
    turn_most = 0;
    do {
        struct device_turn turn = {.wanted = &wanted, .shared = true};
        work = 0;
        cr_assert_eq(device->vtable->launch_part(device, &call->launch, &turn, &begun, &fault), STATUS_OK);
        turn_most = work > turn_most ? work : turn_most;
        turns++;
        cr_assert_lt(turns, 1000000, "it does not end");
    } while (begun);
    free(call->launch.workspace);
    free(call);
}

static void close_cpu(void) {
    for (int i = 0; i < n_tensors; i++)
        free(tensors[i].data);
    n_inputs = n_tensors = 0;
    device_close(device);
}

/* Some 10 ms. */
#define TURN_WORK 6e8

static void expect_short_turns(void) {
    cr_expect_gt(turn_most, 0);
    cr_expect_leq(turn_most, TURN_WORK, "%g multiplications in one of %d turns", turn_most, turns);
}

/* ---- eigenvalues and singular values ---- */

Test(cpu_steps, eigenvalues_of_a_large_matrix_take_short_steps, .timeout = 300) {
    enum { N = 5000 };
    static const int64_t lower[] = {0};
    open_counting();
    ADD(true, DTYPE_F32, 1, N, N);
    ADD(false, DTYPE_F32, 1, 1, N);
    ADD(false, DTYPE_F32, 1, N, N);
    run(OP_EIGH, 1, lower, 0, NULL);
    expect_short_turns();
    close_cpu();
}

Test(cpu_steps, singular_values_of_a_large_matrix_take_short_steps, .timeout = 300) {
    enum { N = 5000 };
    static const int64_t reduced[] = {0};
    open_counting();
    ADD(true, DTYPE_F32, 1, N, N);
    ADD(false, DTYPE_F32, 1, N, N);
    ADD(false, DTYPE_F32, 1, 1, N);
    ADD(false, DTYPE_F32, 1, N, N);
    run(OP_SVD, 1, reduced, 0, NULL);
    expect_short_turns();
    close_cpu();
}

Test(cpu_steps, results_of_a_matrix_without_values_are_written_in_steps, .timeout = 300) {
    enum { N = 3000 };
    static const int64_t lower[] = {0};
    open_cpu();
    float *x = ADD(true, DTYPE_F32, 1, N, N), *values = ADD(false, DTYPE_F32, 1, 1, N);
    float *vectors = ADD(false, DTYPE_F32, 1, N, N);
    x[0] = NAN;
    run(OP_EIGH, 1, lower, 0, NULL);
    cr_expect_gt(turns, 5, "%d", turns);
    bool written = true;
    for (int64_t i = 0; i < N; i++)
        written &= isnan(values[i]);
    for (int64_t i = 0; i < (int64_t)N * N; i++)
        written &= isnan(vectors[i]);
    cr_expect(written);
    close_cpu();
}

/* A small matrix, reduced as a large one or by LAPACK; the place is returned. */
static struct place reduce(struct job *job, struct launch *launch, bool large, enum dtype dtype, unsigned opcode) {
    enum { N = 83, PANEL = 6 };
    *launch = (struct launch){.opcode = (uint16_t)opcode};
    *job = (struct job){.base.cpu = (struct cpu *)device,
                        .launch = launch,
                        .is_complex = dtype_is_complex(dtype),
                        .wide = dtype_real(dtype) == DTYPE_F64,
                        .size = (int64_t)dtype_size(dtype),
                        .m = N,
                        .n = N,
                        .k = N};
    job->part = job->wide ? 8 : 4;
    job->lapack =
        &((struct cpu *)device)->blas.lapack[job->is_complex ? LAPACK_C64 + job->wide : LAPACK_F32 + job->wide];
    spectral_init(job);
    job->spectral.in_parts = large;
    job->spectral.panel = PANEL;
    job->spectral.panels = (N + PANEL - 1) / PANEL;
    job->spectral.product = job->spectral.updated = 10 * N;
    job->spectral.products_most = PRODUCTS_MOST;
    size_t bytes = (size_t)spectral_place(job, rounded(N * N * job->size));
    struct place place = {.job = job, .a = aligned_alloc(64, bytes)};
    memset(place.a, 0, bytes);
    uint32_t seed = 1;
    for (int64_t i = 0; i < N * N * job->size / job->part; i++) {
        seed = seed * 1664525 + 1013904223;
        number_set(job, place.a + i * job->part, (double)(int32_t)seed / 0x1p31);
    }
    for (int64_t i = 0; i < N && job->is_complex && !is_svd(job); i++)
        number_set(job, square(&place, i, i) + job->part, 0);
    bool svd = is_svd(job);
    spectral_again *again = svd ? spectral_general_again : spectral_symmetric_again;
    int64_t steps = 0;
    for (int64_t i = 0; i < job->spectral.panels; i++)
        for (int64_t parts = 1; parts > 0; parts = large ? again(&place, i) : 0)
            for (place.part = 0; place.part < parts; place.part++, steps++)
                (!large ? svd ? spectral_reduce_general : spectral_reduce_symmetric
                 : svd  ? spectral_reduce_general_large
                        : spectral_reduce_symmetric_large)(&place, i);
    cr_expect(!large || steps > 4 * N, "%d", (int)steps);
    return place;
}

static void expect_same(const struct job *job, const char *a, const char *b, int64_t n, const char *what) {
    double limit = job->wide ? 1e-11 : 1e-2, most = 0;
    for (int64_t i = 0; i < n * job->size / job->part; i++)
        most = fmax(most, fabs(number(job, a + i * job->part) - number(job, b + i * job->part)));
    cr_expect_lt(most, limit, "%s, %d bytes: %g", what, (int)job->size, most);
}

Test(cpu_steps, panels_of_a_large_matrix_are_those_of_lapack) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_C64, DTYPE_C128};
    static const unsigned opcodes[] = {OP_EIGVALSH, OP_SVDVALS};
    open_cpu();
    for (int i = 0; i < 8; i++) {
        struct job jobs[2];
        struct launch launches[2];
        struct place is = reduce(&jobs[0], &launches[0], true, dtypes[i / 2], opcodes[i % 2]);
        struct place should = reduce(&jobs[1], &launches[1], false, dtypes[i / 2], opcodes[i % 2]);
        const struct job *job = &jobs[1];
        const double *values[] = {part(&is, job->spectral.values_at), part(&should, job->spectral.values_at)};
        const double *beside[] = {part(&is, job->spectral.beside_at), part(&should, job->spectral.beside_at)};
        for (int64_t k = 0; k < job->n; k++) {
            cr_expect_lt(fabs(values[0][k] - values[1][k]), job->wide ? 1e-11 : 1e-2);
            cr_expect(k + 1 == job->n || fabs(beside[0][k] - beside[1][k]) < (job->wide ? 1e-11 : 1e-2));
        }
        expect_same(job, is.a, should.a, job->n * job->n - 1, "reflections"); /* the last element is none's */
        for (int side = 0; side < 1 + (opcodes[i % 2] == OP_SVDVALS); side++)
            expect_same(job, part(&is, jobs[0].spectral.tau_at[side]), part(&should, job->spectral.tau_at[side]),
                        job->n - 1, "tau");
        free(is.a);
        free(should.a);
    }
    close_cpu();
}

/* ---- sort ---- */

Test(cpu_steps, longest_rows_are_sorted_in_more_parts, .timeout = 300) {
    enum { N = 3 << 25, ROUNDS = 4 };
    open_cpu();
    uint8_t *x = ADD(true, DTYPE_U8, 1, N, 1), *y = ADD(false, DTYPE_U8, 1, N, 1);
    for (int64_t i = 0; i < N; i++)
        x[i] = (uint8_t)(i * 7 >> 3);
    run(OP_SORT, 2, (const int64_t[]){1, 0}, 0, NULL);
    cr_expect_geq(turns, ROUNDS * (N >> 20) - ROUNDS, "%d", turns);
    bool sorted = true;
    for (int64_t i = 1; i < N; i++)
        sorted &= y[i - 1] <= y[i];
    cr_expect(sorted);
    close_cpu();
}

/* ---- recurrent layers ---- */

enum { GATES = 4 };

static void run_lstm(bool back, int64_t n, int64_t batch, int64_t in, int64_t hidden) {
    if (back) {
        ADD(true, DTYPE_F32, n, batch, hidden);
        ADD(true, DTYPE_F32, batch, hidden);
        ADD(true, DTYPE_F32, batch, hidden);
    }
    ADD(true, DTYPE_F32, n, batch, in);
    ADD(true, DTYPE_F32, batch, hidden);
    ADD(true, DTYPE_F32, batch, hidden);
    ADD(true, DTYPE_F32, GATES * hidden, in);
    ADD(true, DTYPE_F32, GATES * hidden, hidden);
    ADD(back, DTYPE_F32, n, batch, hidden); /* the result */
    if (back) {
        ADD(true, DTYPE_F32, n, batch, GATES * hidden);
        ADD(true, DTYPE_F32, n, batch, hidden);
        ADD(false, DTYPE_F32, n, batch, in);
        ADD(false, DTYPE_F32, batch, hidden);
        ADD(false, DTYPE_F32, batch, hidden);
        ADD(false, DTYPE_F32, GATES * hidden, in);
        ADD(false, DTYPE_F32, GATES * hidden, hidden);
        ADD(false, DTYPE_F32, GATES * hidden);
    } else {
        ADD(false, DTYPE_F32, batch, hidden);
        ADD(false, DTYPE_F32, batch, hidden);
        ADD(false, DTYPE_F32, n, batch, GATES * hidden);
        ADD(false, DTYPE_F32, n, batch, hidden);
    }
    run(back ? OP_LSTM_GRAD : OP_LSTM, 1, (const int64_t[]){0}, 0, NULL);
}

Test(cpu_steps, wide_recurrent_layers_take_short_steps, .timeout = 300) {
    for (int back = 0; back < 2; back++) {
        open_counting();
        run_lstm(back, 2, 64, 8000, 8000);
        expect_short_turns();
        close_cpu();
    }
}

Test(cpu_steps, gradients_of_recurrent_weights_over_many_images_take_short_steps, .timeout = 300) {
    open_counting();
    run_lstm(true, 1, 40000, 8, 600);
    expect_short_turns();
    close_cpu();
}

static void count_collect(int64_t n, double *sums, const void *x) {
    (void)n, (void)sums, (void)x;
    work += 10000; /* so that some ten thousands make a step */
}

Test(cpu_steps, gradients_of_recurrent_biases_over_many_images_take_short_steps, .timeout = 300) {
    open_counting();
    struct cpu_kernels kernels = *((struct cpu *)device)->kernels;
    struct cpu_recurrent functions[2] = {kernels.recurrent[0], kernels.recurrent[1]};
    functions[0].collect = count_collect;
    kernels.recurrent = functions;
    ((struct cpu *)device)->kernels = &kernels;
    run_lstm(true, 1, 200000, 16, 16);
    expect_short_turns();
    close_cpu();
}

Test(cpu_steps, states_of_a_recurrent_layer_without_steps_are_copied_in_pieces, .timeout = 300) {
    for (int back = 0; back < 2; back++) {
        open_cpu();
        run_lstm(back, 0, 2000, 2000, 2000);
        cr_expect_gt(turns, 30, "%d", turns);
        close_cpu();
    }
}

/* ---- attention ---- */

Test(cpu_steps, attention_of_wide_heads_takes_short_steps, .timeout = 300) {
    enum { N = 64, M = 512, WIDTH = 100000 };
    for (int back = 0; back < 2; back++) {
        open_counting();
        if (back)
            ADD(true, DTYPE_F32, 1, 1, N, WIDTH);
        ADD(true, DTYPE_F32, 1, 1, N, WIDTH);
        ADD(true, DTYPE_F32, 1, 1, M, WIDTH);
        ADD(true, DTYPE_F32, 1, 1, M, WIDTH);
        ADD(back, DTYPE_F32, 1, 1, N, WIDTH);
        ADD(back, DTYPE_F32, 1, 1, N);
        if (back) {
            ADD(false, DTYPE_F32, 1, 1, N, WIDTH);
            ADD(false, DTYPE_F32, 1, 1, M, WIDTH);
            ADD(false, DTYPE_F32, 1, 1, M, WIDTH);
        }
        run(back ? OP_ATTENTION_GRAD : OP_ATTENTION, 1, (const int64_t[]){0}, 1, (const double[]){1});
        expect_short_turns();
        close_cpu();
    }
}

/* ---- repeats ---- */

/* Each line has an element at either end of its counts, and reads what is between. */
Test(cpu_steps, repeats_of_few_among_many_elements_take_short_steps, .timeout = 300) {
    enum { LINES = 500, N = 200000 };
    open_cpu();
    uint8_t *x = ADD(true, DTYPE_U8, LINES, N, 1);
    int64_t *counts = ADD(true, DTYPE_I64, N);
    const uint8_t *out = ADD(false, DTYPE_U8, LINES, 2, 1);
    const int64_t *total = ADD(false, DTYPE_I64, 1);
    counts[0] = counts[N - 1] = 1;
    x[(int64_t)LINES * N - 1] = 7;
    run(OP_REPEAT_EACH, 0, NULL, 0, NULL);
    cr_expect_gt(turns, 5, "%d", turns);
    cr_expect_eq(*total, 2);
    cr_expect(out[0] == 0 && out[2 * LINES - 2] == 0 && out[2 * LINES - 1] == 7);
    close_cpu();
}
