/* Libraries that a device uses for some operations: they compute the same as everywhere; and whatever becomes of their calls, own kernels
 * take over, nothing is left behind, and nobody's device is lost. On a device without libraries, and where they are not installed, there
 * is nothing to show. The tests that make calls fail need the stand-ins (tests/stand_ins/libraries). */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/device/device_impl.h"
#include "tests/device/cases.h"

static void run_convolutions(struct suite *suite);
static void run_transforms(struct suite *suite);
static void run_decompositions(struct suite *suite);

static const struct row {
    const char *library;
    unsigned opcodes[12];
    void (*few)(struct suite *suite); /* some of these, small, in all ways */
    const char *functions[20];        /* that a stand-in can make fail */
} rows[] = {
    {"cuDNN",
     {OP_CONV, OP_CONV_TRANSPOSE, OP_CONV_GRAD_INPUT, OP_CONV_GRAD_WEIGHT},
     run_convolutions,
     {"cudnnCreate", "cudnnSetStream", "cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
      "cudnnBackendGetAttribute", "cudnnBackendFinalize", "cudnnBackendExecute", "cudnnBackendDestroyDescriptor"}},
    {"cuFFT",
     {OP_FFT, OP_IFFT, OP_RFFT, OP_IRFFT},
     run_transforms,
     {"cufftCreate", "cufftSetAutoAllocation", "cufftMakePlanMany64", "cufftSetWorkArea", "cufftSetStream",
      "cufftExecC2C", "cufftExecZ2Z", "cufftExecR2C", "cufftExecD2Z", "cufftExecC2R", "cufftExecZ2D", "cufftDestroy"}},
    {"cuSOLVER",
     {OP_CHOLESKY, OP_LU, OP_SOLVE, OP_INV, OP_DET, OP_SLOGDET, OP_QR, OP_EIGH, OP_EIGVALSH, OP_SVD, OP_SVDVALS},
     run_decompositions,
     {"cusolverDnCreate", "cusolverDnCreateParams", "cusolverDnSetStream", "cusolverDnXpotrf_bufferSize",
      "cusolverDnXpotrf", "cusolverDnXgetrf_bufferSize", "cusolverDnXgetrf", "cusolverDnXgetrs",
      "cusolverDnXgeqrf_bufferSize", "cusolverDnXgeqrf", "cusolverDnSorgqr_bufferSize", "cusolverDnDorgqr",
      "cusolverDnXsyevd_bufferSize", "cusolverDnXsyevd", "cusolverDnXgesvd_bufferSize", "cusolverDnXgesvd"}},
};
enum { ROWS = sizeof rows / sizeof *rows, OPCODES = 12, FUNCTIONS = 20 };

/* What the device says of a library; NONE if it has never heard of it. */
static struct device_library library_now(struct suite *suite, const char *name) {
    struct engine_stats stats;
    struct device_library none = {.state = DEVICE_LIBRARY_NONE};
    suite_sync(suite);
    engine_stats(suite->engine, &stats);
    for (int i = 0; i < DEVICE_LIBRARIES_MAX; i++)
        if (!strcmp(stats.device.libraries[i].name, name))
            return stats.device.libraries[i];
    return none;
}

static void run_cases(struct suite *suite, const struct row *row) {
    for (int i = 0; i < OPCODES && row->opcodes[i]; i++) {
        const struct op_case *one = op_case_find(row->opcodes[i]);
        one->run(suite, one);
    }
}

static bool has_stand_ins(void) {
    const char *text = getenv("TENSORD_TEST_STAND_INS");
    return text && *text;
}

static void computes(const struct row *row) {
    struct suite suite;
    suite_open(&suite, 0x11b);
    run_cases(&suite, row);
    struct device_library library = library_now(&suite, row->library);
    bool loaded = library.state == DEVICE_LIBRARY_LOADED;
    if (loaded)
        fprintf(stderr, "# %s %s: %llu launches, %llu refused (%s)\n", library.name, library.version,
                (unsigned long long)library.launches, (unsigned long long)library.refused, library.reason);
    suite_close(&suite);
    if (has_stand_ins())
        cr_assert(loaded, "%s is %s: %s", row->library, device_library_state_name(library.state), library.reason);
    if (!loaded)
        cr_skip("there is no %s: %s", row->library, library.reason);
    cr_assert_gt(library.launches, 10 * library.refused, "%s has computed %llu launches and refused %llu: %s",
                 row->library, (unsigned long long)library.launches, (unsigned long long)library.refused,
                 library.reason);
}

Test(libraries, cudnn_computes_convolutions, .timeout = 300) {
    computes(&rows[0]);
}
Test(libraries, cufft_computes_transforms, .timeout = 300) {
    computes(&rows[1]);
}
Test(libraries, cusolver_computes_decompositions, .timeout = 300) {
    computes(&rows[2]);
}

/* Its stand-in refuses one in some; but if it refused all, nothing else would show it. */
Test(libraries, cublaslt_computes_products, .timeout = 300) {
    struct suite suite;
    struct engine_stats stats;
    suite_open(&suite, 0x124);
    const struct op_case *one = op_case_find(OP_MATMUL);
    one->run(&suite, one);
    suite_sync(&suite);
    engine_stats(suite.engine, &stats);
    suite_close(&suite);
    if (strcmp(stats.device.kind, "cuda"))
        cr_skip("a %s device has no cublasLt", stats.device.kind);
    cr_assert_gt(stats.device.products_library, stats.device.products_slow,
                 "it has computed %llu products, own kernels %llu", (unsigned long long)stats.device.products_library,
                 (unsigned long long)stats.device.products_slow);
}

/* ---- on and off ---- */

Test(libraries, the_operator_turns_them_off, .timeout = 300) {
    struct suite suite;
    setenv("TENSORD_CUDA_LIBRARIES", "none", 1);
    setenv("TENSORD_TEST_DIVIDE", "20", 1);
    suite_open(&suite, 0x11c);
    for (int i = 0; i < ROWS; i++) {
        run_cases(&suite, &rows[i]);
        struct device_library library = library_now(&suite, rows[i].library);
        cr_assert(library.state == DEVICE_LIBRARY_OFF || library.state == DEVICE_LIBRARY_NONE, "%s is %s",
                  rows[i].library, device_library_state_name(library.state));
        cr_assert_eq(library.launches, 0);
    }
    suite_close(&suite);
}

Test(libraries, one_of_them_can_be_chosen, .timeout = 300) {
    struct suite suite;
    setenv("TENSORD_CUDA_LIBRARIES", "cufft", 1);
    suite_open(&suite, 0x11c);
    struct device_library chosen = library_now(&suite, "cuFFT"), other = library_now(&suite, "cuDNN");
    suite_close(&suite);
    if (chosen.state == DEVICE_LIBRARY_NONE)
        cr_skip("the device has no libraries");
    cr_assert_eq(chosen.state, DEVICE_LIBRARY_UNUSED);
    cr_assert_eq(other.state, DEVICE_LIBRARY_OFF);
}

/* ---- calls that fail ---- */

static void run_one(struct suite *suite, unsigned opcode, const struct sample *a, const struct sample *b,
                    const struct sample *c, struct op_packed attributes) {
    const struct sample *inputs[] = {a, b, c};
    unsigned n = c ? 3 : b ? 2 : 1;
    struct sample results[3];
    struct suite_call call = {.opcode = opcode, .n_inputs = n, .inputs = inputs, .attributes = attributes};
    unsigned outputs = opcode == OP_LU ? 3 : opcode == OP_QR ? 2 : 1;
    suite_run_several(suite, &call, results, outputs);
    for (unsigned i = 0; i < outputs; i++)
        case_settle(suite, &results[i]);
}

/* All ways, each layout, and each way in which a bias is added. */
static void run_convolutions(struct suite *suite) {
    static const int64_t first[] = {1, 4, 3, 4}, last[] = {1, 3, 4, 4}, weights[] = {6, 2, 3, 3};
    static const int64_t y_first[] = {1, 6, 3, 4}, y_last[] = {1, 3, 4, 6};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F32, DTYPE_F16, DTYPE_F64};
    struct op_ints one = {1, (int64_t[]){1}}, weight_shape = {4, weights};
    for (unsigned i = 0; i < 4; i++) {
        enum dtype dtype = dtypes[i];
        bool turned = i == 1 || i == 2;
        enum op_layout layout = turned ? OP_LAYOUT_CHANNELS_LAST : OP_LAYOUT_CHANNELS_FIRST;
        struct op_ints x_shape = {4, turned ? last : first};
        struct sample x = suite_sample(suite, dtype, 4, turned ? last : first, FILL_ORDINARY);
        struct sample y = suite_sample(suite, dtype, 4, turned ? y_last : y_first, FILL_ORDINARY);
        struct sample weight = suite_sample(suite, dtype, 4, weights, FILL_ORDINARY);
        struct sample bias = suite_sample(suite, dtype, 1, (int64_t[]){6}, FILL_ORDINARY);
        struct sample back = suite_sample(suite, dtype, 1, (int64_t[]){4}, FILL_ORDINARY);
        run_one(suite, OP_CONV, &x, &weight, i == 0 ? NULL : &bias,
                SUITE_ATTRIBUTES(conv, .padding = one, .groups = 2, .layout = layout));
        run_one(suite, OP_CONV_TRANSPOSE, &y, &weight, &back,
                SUITE_ATTRIBUTES(conv_transpose, .padding = one, .groups = 2, .layout = layout));
        run_one(suite, OP_CONV_GRAD_INPUT, &y, &weight, NULL,
                SUITE_ATTRIBUTES(conv_grad_input, .shape = x_shape, .padding = one, .groups = 2, .layout = layout));
        run_one(
            suite, OP_CONV_GRAD_WEIGHT, &x, &y, NULL,
            SUITE_ATTRIBUTES(conv_grad_weight, .shape = weight_shape, .padding = one, .groups = 2, .layout = layout));
        suite_free(suite, &x);
        suite_free(suite, &y);
        suite_free(suite, &weight);
        suite_free(suite, &bias);
        suite_free(suite, &back);
    }
}

/* From tensor to tensor, by a copy of half a Hermitian transform, and in the workspace. */
static void run_transforms(struct suite *suite) {
    for (int i = 0; i < 4; i++) {
        bool wide = i % 2;
        int64_t n = i < 2 ? 12 : 9, shape[] = {2, n};
        struct sample z = suite_sample(suite, wide ? DTYPE_C128 : DTYPE_C64, 2, shape, FILL_ORDINARY);
        struct sample x = suite_sample(suite, wide ? DTYPE_F64 : DTYPE_F32, 2, shape, FILL_ORDINARY);
        run_one(suite, OP_FFT, &z, NULL, NULL, SUITE_ATTRIBUTES(fft, .axis = -1));
        run_one(suite, OP_IFFT, &z, NULL, NULL, SUITE_ATTRIBUTES(fft, .axis = 0));
        run_one(suite, OP_RFFT, &x, NULL, NULL, SUITE_ATTRIBUTES(fft, .axis = -1));
        run_one(suite, OP_IRFFT, &z, NULL, NULL, SUITE_ATTRIBUTES(fft, .axis = -1));
        suite_free(suite, &z);
        suite_free(suite, &x);
    }
    struct sample x = suite_sample(suite, DTYPE_F64, 1, (int64_t[]){600}, FILL_ORDINARY);
    run_one(suite, OP_FFT, &x, NULL, NULL, SUITE_ATTRIBUTES(fft, .axis = -1, .n = 1031));
    suite_free(suite, &x);
}

/* Twice, so that a call that fails once is made again. */
static void run_decompositions(struct suite *suite) {
    static const unsigned opcodes[] = {OP_CHOLESKY, OP_LU, OP_SOLVE, OP_INV, OP_DET, OP_QR, OP_EIGVALSH, OP_SVDVALS};
    for (int i = 0; i < 4; i++) {
        enum dtype dtype = i % 2 ? DTYPE_F64 : DTYPE_F32;
        struct values *values = values_create(dtype, 2, (int64_t[]){5, 5});
        for (int64_t k = 0; k < values->count; k++) /* symmetric and positive definite */
            values->f[k] = k % 6 == 0 ? 4 + (long double)(k / 6) : 0.25L * (long double)((k / 5 + k % 5) % 4);
        struct sample a = suite_upload(suite, values);
        struct sample b = suite_sample(suite, dtype, 2, (int64_t[]){5, 3}, FILL_ORDINARY);
        for (unsigned j = 0; j < sizeof opcodes / sizeof *opcodes; j++) {
            struct op_packed attributes = {.n_ints = 0};
            if (opcodes[j] == OP_CHOLESKY)
                attributes = SUITE_ATTRIBUTES(cholesky, .upper = i / 2);
            else if (opcodes[j] == OP_QR)
                attributes = SUITE_ATTRIBUTES(qr, .mode = OP_QR_MODE_REDUCED);
            else if (opcodes[j] == OP_EIGVALSH)
                attributes = SUITE_ATTRIBUTES(eigvalsh, .upper = i / 2);
            run_one(suite, opcodes[j], &a, opcodes[j] == OP_SOLVE ? &b : NULL, NULL, attributes);
        }
        suite_free(suite, &a);
        suite_free(suite, &b);
    }
}

/* The call that `fail` names fails; all results are right, which suite_check() says. */
static void survives(const struct row *row, const char *function, const char *which) {
    struct suite suite;
    char fail[96];
    snprintf(fail, sizeof fail, "%s:%s", function, which);
    setenv("STAND_IN_FAIL", fail, 1);
    suite_open(&suite, 0x11d);
    row->few(&suite);
    struct device_library library = library_now(&suite, row->library);
    /* What could not be opened is tried again after some launches. */
    for (int i = 0; i < 8 && library.state == DEVICE_LIBRARY_UNUSED && !strchr(which, '+'); i++) {
        row->few(&suite);
        library = library_now(&suite, row->library);
    }
    suite_close(&suite);
    bool missing = library.state == DEVICE_LIBRARY_MISSING;
    if (strstr(function, "Destroy"))
        return;
    cr_assert(library.refused || missing || *which != '1', "%s: nothing was refused", fail);
    cr_assert(!(library.refused || missing) || *library.reason, "%s: no reason is told", fail);
    cr_assert(library.launches || missing || strchr(which, '+'), "%s: it is never asked again", fail);
}

static void every_call_may_fail(const struct row *row) {
    if (!has_stand_ins())
        cr_skip("real libraries do not fail when they are told to");
    for (int i = 0; i < FUNCTIONS && row->functions[i]; i++) {
        survives(row, row->functions[i], "1");
        survives(row, row->functions[i], "1+");
        survives(row, row->functions[i], "2");
    }
    for (int n = 3; n < 40; n += 4) { /* within what belongs together */
        char which[16];
        snprintf(which, sizeof which, "%d", n);
        survives(row, "any", which);
    }
}

Test(libraries, every_call_of_cudnn_may_fail, .timeout = 900) {
    every_call_may_fail(&rows[0]);
}
Test(libraries, every_call_of_cufft_may_fail, .timeout = 900) {
    every_call_may_fail(&rows[1]);
}
Test(libraries, every_call_of_cusolver_may_fail, .timeout = 900) {
    every_call_may_fail(&rows[2]);
}

/* ---- matrices that cannot be factored ---- */

/* The same words as from the device's own kernels (test_singular.c), of one matrix, which a library takes. */
Test(libraries, a_singular_matrix_poisons_the_result, .timeout = 300) {
    static const double singular[9] = {1, 0, 0, 0, 1, 0, 1, 1, 0}, indefinite[9] = {2, 1, 1, 1, 3, 2, 1, 2, 0};
    static const unsigned opcodes[] = {OP_INV, OP_SOLVE, OP_CHOLESKY};
    for (size_t i = 0; i < 2 * sizeof opcodes / sizeof *opcodes; i++) {
        enum dtype dtype = i % 2 ? DTYPE_F64 : DTYPE_F32;
        unsigned opcode = opcodes[i / 2];
        struct suite suite;
        struct failure failure;
        uint64_t result;
        int64_t lower = 0;
        suite_open(&suite, 0x121);
        struct values *values = values_create(dtype, 2, (int64_t[]){3, 3});
        for (int64_t k = 0; k < values->count; k++)
            values->f[k] = opcode == OP_CHOLESKY ? indefinite[k] : singular[k];
        struct sample a = suite_upload(&suite, values);
        struct sample b = suite_sample(&suite, dtype, 2, (int64_t[]){3, 2}, FILL_NEAR_ONE);
        struct op_request request = {.opcode = opcode,
                                     .n_inputs = opcode == OP_SOLVE ? 2 : 1,
                                     .inputs = (uint64_t[]){a.id, b.id},
                                     .ints = &lower,
                                     .n_ints = opcode == OP_CHOLESKY};
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK);
        cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_SINGULAR, "%s", op_info(opcode)->name);
        cr_assert(strstr(failure.message, "row 2"), "%s: %s", op_info(opcode)->name, failure.message);
        struct device_library library = library_now(&suite, "cuSOLVER");
        suite_close(&suite);
        cr_assert(!has_stand_ins() || library.launches == 1, "cuSOLVER has computed %llu launches",
                  (unsigned long long)library.launches);
    }
}

static struct sample convolve(struct suite *suite, const struct sample *x, const struct sample *weight) {
    const struct sample *inputs[] = {x, weight};
    int64_t padding = 1;
    return suite_run(suite,
                     &(struct suite_call){.opcode = OP_CONV,
                                          .n_inputs = 2,
                                          .inputs = inputs,
                                          .attributes = SUITE_ATTRIBUTES(conv, .padding = {1, &padding}, .groups = 1)});
}

/* ---- calls that take long ---- */

static uint64_t submit_convolution(struct suite *suite, int64_t n) {
    struct sample weight = suite_sample(suite, DTYPE_F32, 4, (int64_t[]){2, 1, 3, 3}, FILL_ORDINARY);
    struct sample x = suite_sample(suite, DTYPE_F32, 4, (int64_t[]){1, 1, 3, n}, FILL_ORDINARY);
    return convolve(suite, &x, &weight).id;
}

static uint64_t submit_transform(struct suite *suite, int64_t n) {
    struct sample line = suite_sample(suite, DTYPE_C64, 1, &n, FILL_ORDINARY);
    return suite_attributes(suite, OP_FFT, &line, SUITE_ATTRIBUTES(fft, .axis = -1)).id;
}

static uint64_t submit_eigenvalues(struct suite *suite, int64_t n) {
    struct sample a = suite_sample(suite, DTYPE_F32, 2, (int64_t[]){n, n}, FILL_ORDINARY);
    int64_t lower = 0;
    struct op_request request = {
        .opcode = OP_EIGVALSH, .n_inputs = 1, .inputs = (uint64_t[]){a.id}, .ints = &lower, .n_ints = 1};
    uint64_t result;
    cr_assert_eq(suite_submit(suite, &request, &result), STATUS_OK);
    return result;
}

static uint64_t submit_inverse(struct suite *suite, int64_t n) {
    struct sample a = suite_sample(suite, DTYPE_F32, 2, (int64_t[]){n, n}, FILL_ORDINARY);
    struct op_request request = {.opcode = OP_INV, .n_inputs = 1, .inputs = (uint64_t[]){a.id}};
    uint64_t result;
    cr_assert_eq(suite_submit(suite, &request, &result), STATUS_OK);
    return result;
}

/* Which function of a library a call of which kind waits in, and whether the library has been used before. */
static const struct long_call {
    const char *function;
    uint64_t (*submit)(struct suite *suite, int64_t n);
    bool used;
} long_calls[] = {
    {"cusolverDnXsyevd", submit_eigenvalues, true}, /* looks at what the device has computed */
    {"cusolverDnCreate", submit_inverse, false},    /* the library is opened */
    {"cudnnCreate", submit_convolution, false},
    {"cudnnBackendFinalize", submit_convolution, true}, /* a plan is made */
    {"cufftMakePlanMany64", submit_transform, false},
    {"cufftMakePlanMany64", submit_transform, true},
};

/* The call waits at the gate, which opens only when another stream's result is there. */
static void show_no_stream_waits(const struct long_call *call, const char *path) {
    char gate[96];
    struct suite suite;
    struct failure failure;
    struct fault fault;
    uint64_t known = 0;
    cr_assert_eq(mkfifo(path, 0600), 0);
    suite_open(&suite, 0x123);
    cr_assert_eq(session_stream_open(suite.session, 1, 0, &fault), STATUS_OK);
    cr_assert_eq(session_stream_open(suite.session, 2, 0, &fault), STATUS_OK);
    if (call->used)
        cr_assert_eq(suite_outcome(&suite, call->submit(&suite, 5), &failure), STATUS_OK);
    suite_sync(&suite);
    snprintf(gate, sizeof gate, "%s:%s", call->function, path);
    setenv("STAND_IN_GATE", gate, 1);
    suite.stream = 1;
    uint64_t result = call->submit(&suite, 7);
    int held;
    while ((held = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) { /* until the call is there */
        engine_kick(suite.engine);
        engine_poll(suite.engine);
    }
    suite.stream = 2;
    if (call->used)
        known = call->submit(&suite, 5); /* another call of the library */
    suite.stream = 0;
    struct sample b = suite_sample(&suite, DTYPE_F32, 1, (int64_t[]){9}, FILL_ORDINARY);
    struct sample negative = suite_run(
        &suite, &(struct suite_call){.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = (const struct sample *[]){&b}});
    case_settle(&suite, &negative);
    unlink(path); /* for all further calls the gate is open */
    close(held);
    cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_OK, "%s", call->function);
    cr_assert(!known || suite_outcome(&suite, known, &failure) == STATUS_OK, "%s", call->function);
    suite_close(&suite);
}

Test(libraries, a_call_that_takes_long_holds_no_other_stream_up, .timeout = 300) {
    char folder[] = "/tmp/tensord-gate-XXXXXX", path[64];
    if (!has_stand_ins())
        cr_skip("real libraries have no gate");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/gate", folder);
    for (size_t i = 0; i < sizeof long_calls / sizeof *long_calls; i++) {
        show_no_stream_waits(&long_calls[i], path);
        unsetenv("STAND_IN_GATE");
    }
    rmdir(folder);
}

/* As many decompositions as may be under way wait at the gate; a convolution of a new shape, and a transform, need no thread of theirs. */
Test(libraries, long_calls_of_one_library_hold_no_plan_of_another_up, .timeout = 300) {
    enum { STREAMS = 8 };
    char folder[] = "/tmp/tensord-gate-XXXXXX", path[64], gate[96];
    struct suite suite;
    struct failure failure;
    struct fault fault;
    uint64_t results[STREAMS];
    int held;
    if (!has_stand_ins())
        cr_skip("real libraries have no gate");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/gate", folder);
    snprintf(gate, sizeof gate, "cusolverDnXsyevd:%s", path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    setenv("STAND_IN_GATE", gate, 1);
    suite_open(&suite, 0x125);
    for (unsigned i = 0; i < STREAMS; i++) {
        cr_assert_eq(session_stream_open(suite.session, i + 1, 0, &fault), STATUS_OK);
        suite.stream = i + 1;
        results[i] = submit_eigenvalues(&suite, 5);
    }
    while ((held = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
        engine_kick(suite.engine);
        engine_poll(suite.engine);
    }
    suite.stream = 0;
    cr_assert_eq(suite_outcome(&suite, submit_convolution(&suite, 7), &failure), STATUS_OK);
    cr_assert_eq(suite_outcome(&suite, submit_transform(&suite, 7), &failure), STATUS_OK);
    unlink(path);
    close(held);
    for (unsigned i = 0; i < STREAMS; i++)
        cr_assert_eq(suite_outcome(&suite, results[i], &failure), STATUS_OK);
    suite_close(&suite);
    rmdir(folder);
}

/* ---- plans ---- */

/* More convolutions and transforms than the device keeps; the first ones once more in the end. A stand-in says at its end if a plan is left. */
Test(libraries, plans_make_room_for_others, .timeout = 300) {
    enum { SHAPES = 300 };
    struct suite suite;
    suite_open(&suite, 0x11e);
    struct sample weight = suite_sample(&suite, DTYPE_F32, 4, (int64_t[]){2, 1, 3, 3}, FILL_ORDINARY);
    for (int64_t i = 0; i < SHAPES + 10; i++) {
        int64_t n = 3 + i % SHAPES;
        struct sample x = suite_sample(&suite, DTYPE_F32, 4, (int64_t[]){1, 1, 3, n}, FILL_ORDINARY);
        struct sample line = suite_sample(&suite, DTYPE_C64, 1, &n, FILL_ORDINARY);
        struct sample y = convolve(&suite, &x, &weight);
        struct sample turned = suite_attributes(&suite, OP_FFT, &line, SUITE_ATTRIBUTES(fft, .axis = -1));
        case_settle(&suite, &y);
        case_settle(&suite, &turned);
        suite_free(&suite, &x);
        suite_free(&suite, &line);
    }
    suite_free(&suite, &weight);
    suite_close(&suite);
}

/* A session that may not have the library's workspace has its result from the device's own kernels. */
Test(libraries, a_session_without_memory_for_a_workspace_has_its_results, .timeout = 300) {
    struct suite suite;
    suite_open(&suite, 0x11f);
    bool there = library_now(&suite, "cuDNN").state == DEVICE_LIBRARY_UNUSED;
    suite_close(&suite);
    for (int i = 0; i < 2 && there; i++) {
        uint64_t quota = i ? UINT64_C(1) << 30 : UINT64_C(200) << 10;
        suite_open_limited(&suite, 0x11f, 0, quota);
        struct sample x = suite_sample(&suite, DTYPE_F32, 4, (int64_t[]){1, 4, 50, 50}, FILL_ORDINARY);
        struct sample weight = suite_sample(&suite, DTYPE_F32, 4, (int64_t[]){4, 4, 3, 3}, FILL_ORDINARY);
        struct sample y = convolve(&suite, &x, &weight);
        case_settle(&suite, &y);
        struct device_library library = library_now(&suite, "cuDNN");
        struct engine_stats stats;
        engine_stats(suite.engine, &stats);
        suite_free(&suite, &x);
        suite_free(&suite, &weight);
        suite_close(&suite);
        if (library.state == DEVICE_LIBRARY_MISSING) /* as has shown now */
            cr_skip("there is no cuDNN");
        cr_assert_eq(library.launches, (uint64_t)i, "%llu", (unsigned long long)library.launches);
        cr_assert_eq(library.refused, (uint64_t)!i);
        cr_assert(i ? stats.memory_peak > quota / 4096 : stats.memory_peak <= quota, "%llu bytes at most",
                  (unsigned long long)stats.memory_peak);
    }
}

/* ---- the same numbers ---- */

static bool same_bits(struct suite *suite, const struct sample *a, const struct sample *b) {
    struct values *x = suite_get(suite, a), *y = suite_get(suite, b);
    bool same = x->count == y->count;
    for (int64_t i = 0; i < x->count && same; i++)
        same = x->f[i] == y->f[i];
    values_destroy(x);
    values_destroy(y);
    return same;
}

Test(libraries, convolutions_are_the_same_in_each_run, .timeout = 300) {
    struct suite suite;
    int64_t padding = 1, shape[] = {32, 16, 3, 3};
    struct sample results[3];
    suite_open(&suite, 0x120);
    struct sample x = suite_sample(&suite, DTYPE_F32, 4, (int64_t[]){8, 16, 20, 20}, FILL_ORDINARY);
    struct sample y = suite_sample(&suite, DTYPE_F32, 4, (int64_t[]){8, 32, 20, 20}, FILL_ORDINARY);
    const struct sample *inputs[] = {&x, &y};
    for (int i = 0; i < 3; i++)
        results[i] = suite_run(
            &suite, &(struct suite_call){.opcode = OP_CONV_GRAD_WEIGHT,
                                         .n_inputs = 2,
                                         .inputs = inputs,
                                         .attributes = SUITE_ATTRIBUTES(conv_grad_weight, .shape = {4, shape},
                                                                        .padding = {1, &padding}, .groups = 1)});
    for (int i = 1; i < 3; i++)
        cr_assert(same_bits(&suite, &results[0], &results[i]), "run %d differs", i);
    for (int i = 0; i < 3; i++)
        suite_free(&suite, &results[i]);
    suite_free(&suite, &x);
    suite_free(&suite, &y);
    suite_close(&suite);
}

/* ---- what is said of launches ---- */

/* An operation on a matrix (n, n). */
struct asked {
    struct device *device;
    const struct op_kernel *kernel;
    int64_t shape[3], strides[3];
    struct {
        struct launch launch;
        struct operand operands[3];
    } form;
};

static void ask_of(struct asked *asked, struct suite *suite, unsigned opcode, enum dtype dtype, int64_t n) {
    *asked = (struct asked){.device = engine_device(suite->engine),
                            .shape = {1, n, n},
                            .strides = {n * n, n, 1},
                            .form.launch = {.opcode = (uint16_t)opcode,
                                            .n_inputs = opcode == OP_TRIANGULAR_SOLVE ? 2 : 1,
                                            .further = 2,
                                            .attributes = {.n_ints = 2, .ints = (const int64_t[2]){0}}}};
    struct operand operand = {.shape = asked->shape, .strides = asked->strides, .rank = 3, .dtype = (uint8_t)dtype};
    asked->kernel = asked->device->vtable->operations[opcode];
    asked->form.launch.output = operand;
    for (int i = 0; i < 3; i++)
        asked->form.operands[i] = operand;
}

/* Its estimate, where the operation's own is a microsecond; 0: the kernel has none. */
static double weighed(struct suite *suite, unsigned opcode, enum dtype dtype, int64_t n) {
    struct asked asked;
    ask_of(&asked, suite, opcode, dtype, n);
    return asked.kernel->weight ? (double)asked.kernel->weight(asked.device, &asked.form.launch, 1000) : 0;
}

static bool waits(struct suite *suite, unsigned opcode, int64_t n) {
    struct asked asked;
    ask_of(&asked, suite, opcode, DTYPE_F32, n);
    return asked.kernel->waits && asked.kernel->waits(asked.device, &asked.form.launch);
}

/* A block of threads has a matrix for itself; cuSOLVER has the whole device. */
Test(libraries, estimates_know_who_computes, .timeout = 300) {
    enum { N = 2000 };
    const double least_ns = (double)N * N * N / 100; /* no multiprocessor does a hundred in a nanosecond */
    struct suite suite;
    suite_open(&suite, 0x11e);
    double complex_ns = weighed(&suite, OP_LU, DTYPE_C64, N), real_ns = weighed(&suite, OP_LU, DTYPE_F32, N);
    suite_close(&suite);
    if (!complex_ns)
        cr_skip("this device has the operations' own estimates");
    cr_expect_gt(complex_ns, least_ns);
    if (has_stand_ins())
        cr_expect_eq(real_ns, 1000, "cuSOLVER has the whole device: %g", real_ns);
    setenv("TENSORD_CUDA_LIBRARIES", "none", 1);
    suite_open(&suite, 0x11e);
    for (unsigned i = 0; i < 4; i++) {
        unsigned opcode = (const unsigned[]){OP_LU, OP_EIGH, OP_SVD, OP_TRIANGULAR_SOLVE}[i];
        cr_expect_gt(weighed(&suite, opcode, DTYPE_F32, N), least_ns, "%s", op_info(opcode)->name);
    }
    cr_expect_lt(weighed(&suite, OP_LU, DTYPE_F32, 8), 10000, "small ones");
    const int64_t one_column[3] = {1, N, 1};
    struct asked asked;
    ask_of(&asked, &suite, OP_TRIANGULAR_SOLVE, DTYPE_F32, N);
    asked.form.operands[1].shape = one_column;
    cr_expect_lt((double)asked.kernel->weight(asked.device, &asked.form.launch, 1000), least_ns, "of one column");
    unsetenv("TENSORD_CUDA_LIBRARIES");
    suite_close(&suite);
}

Test(libraries, calls_of_many_kernels_are_not_the_submitters, .timeout = 300) {
    struct suite suite;
    struct failure failure;
    suite_open(&suite, 0x11f);
    if (library_now(&suite, "cuSOLVER").state == DEVICE_LIBRARY_NONE) {
        suite_close(&suite);
        cr_skip("the device has no libraries");
    }
    bool wanted = library_now(&suite, "cuSOLVER").state == DEVICE_LIBRARY_UNUSED;
    cr_expect(waits(&suite, OP_EIGH, 512) && waits(&suite, OP_LU, 8192) && waits(&suite, OP_CHOLESKY, 8192));
    cr_expect(waits(&suite, OP_LU, 512) == wanted, "the first call opens the library");
    cr_assert_eq(suite_outcome(&suite, submit_inverse(&suite, 512), &failure), STATUS_OK);
    cr_expect(!waits(&suite, OP_LU, 512) && !waits(&suite, OP_TRIANGULAR_SOLVE, 8192));
    suite_close(&suite);
}
