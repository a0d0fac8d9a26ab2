/* Accounts of memory, its limits, and views that outlive their bases. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/suite.h"

enum { MIB = 1 << 20 };

static uint64_t engine_live(struct suite *suite) {
    struct engine_stats stats;
    engine_stats(suite->engine, &stats);
    return stats.memory_live;
}

static struct session_stats account(struct suite *suite) {
    struct session_stats stats;
    session_stats(suite->session, &stats);
    return stats;
}

static int full(struct suite *suite, int64_t floats, uint64_t *id) {
    int64_t ints[] = {DTYPE_F32, 0, floats};
    double value = 1;
    return suite_submit(
        suite, &(struct op_request){.opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &value}, id);
}

Test(memory, live_bytes_follow_tensors_and_end_at_zero) {
    struct suite suite;
    suite_open(&suite, 3);
    cr_assert_eq(engine_live(&suite), 0);
    uint64_t a, b;
    cr_assert_eq(full(&suite, MIB / 4, &a), STATUS_OK);
    cr_assert_eq(full(&suite, MIB / 2, &b), STATUS_OK);
    cr_assert_geq(account(&suite).live, 3 * MIB);
    cr_assert_leq(account(&suite).live, 3 * MIB + 8192);
    cr_assert_eq(account(&suite).tensors, 2);
    suite_release(&suite, a);
    suite_release(&suite, b);
    suite_sync(&suite);
    cr_assert_eq(account(&suite).live, 0);
    cr_assert_eq(account(&suite).tensors, 0);
    cr_assert_geq(account(&suite).peak, 3 * MIB);
    cr_assert_eq(engine_live(&suite), 0);
    suite_close(&suite);
}

Test(memory, a_session_gives_everything_back_at_its_end) {
    struct suite suite;
    suite_open(&suite, 3);
    uint64_t id;
    for (int i = 0; i < 20; i++)
        cr_assert_eq(full(&suite, MIB / 4, &id), STATUS_OK);
    session_destroy(suite.session);
    suite.session = NULL;
    cr_assert_eq(engine_live(&suite), 0);
    struct engine_stats stats;
    engine_stats(suite.engine, &stats);
    cr_assert_eq(stats.sessions, 0);
    cr_assert_geq(stats.memory_peak, 20u * MIB);
    suite_close(&suite);
}

Test(memory, out_of_memory_names_the_numbers_and_the_session_goes_on) {
    struct suite suite;
    struct failure failure;
    suite_open_limited(&suite, 3, 32 * MIB, 0);
    uint64_t kept, refused, again;
    cr_assert_eq(full(&suite, 5 * MIB, &kept), STATUS_OK);
    cr_assert_eq(full(&suite, 4 * MIB, &refused), STATUS_OUT_OF_MEMORY);
    cr_assert_eq(suite_outcome(&suite, refused, &failure), STATUS_OUT_OF_MEMORY);
    cr_assert(strstr(failure.message, "16.0 MiB asked"), "it names the bytes asked for: %s", failure.message);
    cr_assert(strstr(failure.message, "you hold 20.0 MiB"), "it names the bytes in use: %s", failure.message);
    cr_assert(strstr(failure.message, "12.0 MiB free of 32.0 MiB"), "it names the limit: %s", failure.message);
    cr_assert_str_eq(failure.operation, "full");
    cr_assert_eq(suite_outcome(&suite, kept, NULL), STATUS_OK);
    suite_release(&suite, kept);
    cr_assert_eq(full(&suite, 4 * MIB, &again), STATUS_OK, "freed memory can be taken again");
    cr_assert_eq(suite_outcome(&suite, again, NULL), STATUS_OK);
    suite_close(&suite);
}

Test(memory, what_no_memory_could_hold_is_refused) {
    struct suite suite;
    suite_open_limited(&suite, 3, 32 * MIB, 0);
    uint64_t id;
    cr_assert_neq(full(&suite, INT64_MAX, &id), STATUS_OK);
    cr_assert_neq(full(&suite, INT64_MAX / 4, &id), STATUS_OK);
    cr_assert_eq(full(&suite, (int64_t)1 << 40, &id), STATUS_OUT_OF_MEMORY);
    struct sample x = suite_sample(&suite, DTYPE_F32, 0, NULL, FILL_ANY);
    int64_t wide[] = {1 << 20, 1 << 20};
    uint64_t view, copy;
    struct op_request broadcast = {
        .opcode = OP_BROADCAST_TO, .n_inputs = 1, .inputs = &x.id, .n_ints = 2, .ints = wide};
    cr_assert_eq(suite_submit(&suite, &broadcast, &view), STATUS_OK, "a view of one number needs no memory");
    struct op_request contiguous = {.opcode = OP_COPY, .n_inputs = 1, .inputs = &view};
    cr_assert_eq(suite_submit(&suite, &contiguous, &copy), STATUS_OUT_OF_MEMORY);
    cr_assert_eq(suite_outcome(&suite, view, NULL), STATUS_OUT_OF_MEMORY, "its value does not fit either");
    suite_check(&suite, &x);
    suite_close(&suite);
}

static uint64_t full_of(struct suite *suite, enum dtype dtype, int64_t elements) {
    int64_t ints[] = {dtype, 1, elements};
    double value = 1;
    uint64_t id;
    cr_assert_eq(
        suite_submit(
            suite, &(struct op_request){.opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &value},
            &id),
        STATUS_OK);
    return id;
}

/* Axes along which a view repeats itself are not written out. */
Test(memory, a_conversion_of_a_broadcast_view_takes_the_memory_of_what_it_repeats) {
    struct suite suite;
    suite_open_limited(&suite, 3, 16 * MIB, 0);
    static const struct {
        unsigned opcode;
        enum dtype dtype;
    } rows[] = {{OP_SUM, DTYPE_U8}, {OP_MEAN, DTYPE_I16}, {OP_ANY, DTYPE_F32}, {OP_PROD, DTYPE_BOOL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t x = full_of(&suite, rows[i].dtype, 1), view, result;
        int64_t wide[] = {1 << 12, 1 << 12}, axes[] = {0, 0, 1};
        struct op_request broadcast = {
            .opcode = OP_BROADCAST_TO, .n_inputs = 1, .inputs = &x, .n_ints = 2, .ints = wide};
        cr_assert_eq(suite_submit(&suite, &broadcast, &view), STATUS_OK);
        struct op_request reduce = {
            .opcode = rows[i].opcode, .n_inputs = 1, .inputs = &view, .n_ints = 3, .ints = axes};
        cr_assert_eq(suite_submit(&suite, &reduce, &result), STATUS_OK, "%s", op_info(rows[i].opcode)->name);
        cr_assert_eq(suite_outcome(&suite, result, NULL), STATUS_OK);
    }
    cr_assert_leq(account(&suite).peak, MIB);
    suite_close(&suite);
}

/* Where a device says that its kernels convert what they read. */
Test(memory, an_input_of_another_dtype_takes_no_memory_where_kernels_convert) {
    const char *device = getenv("TENSORD_TEST_DEVICE");
    bool all = !device || strncmp(device, "cpu", 3) == 0 || strncmp(device, "late", 4) == 0;
    enum { ALL = 5 }; /* from this row on: on a CPU device */
    static const struct {
        unsigned opcode;
        enum dtype first, second; /* DTYPE_INVALID: there is no second input */
        uint64_t output;          /* bytes of an element */
    } rows[] = {{OP_SUM, DTYPE_U8, DTYPE_INVALID, 0},     {OP_SUM, DTYPE_BOOL, DTYPE_INVALID, 0},
                {OP_MEAN, DTYPE_U8, DTYPE_INVALID, 0},    {OP_PROD, DTYPE_U16, DTYPE_INVALID, 0},
                {OP_TAKE, DTYPE_F32, DTYPE_I32, 4},       {OP_ANY, DTYPE_F32, DTYPE_INVALID, 0},
                {OP_LESS, DTYPE_U8, DTYPE_F32, 1},        {OP_EXP, DTYPE_U8, DTYPE_INVALID, 4},
                {OP_ADD, DTYPE_I16, DTYPE_F16, 2},        {OP_LOGICAL_AND, DTYPE_F64, DTYPE_I8, 1},
                {OP_TAKE, DTYPE_F32, DTYPE_I32, 4},       {OP_UNIQUE_RUNS, DTYPE_U8, DTYPE_I32, 25},
                {OP_SEARCHSORTED, DTYPE_F32, DTYPE_U8, 8}};
    for (size_t i = 0; i < (all ? sizeof rows / sizeof *rows : ALL); i++) {
        const char *name = op_info(rows[i].opcode)->name;
        bool takes = rows[i].opcode == OP_TAKE || rows[i].opcode == OP_SEARCHSORTED; /* out of few elements */
        struct suite suite;
        suite_open_limited(&suite, 3, 0, 0);
        uint64_t inputs[2] = {full_of(&suite, rows[i].first, takes ? 2 : MIB)}, result;
        unsigned n = 1;
        if (rows[i].second != DTYPE_INVALID)
            inputs[n++] = full_of(&suite, rows[i].second, MIB);
        suite_sync(&suite);
        uint64_t before = account(&suite).live;
        int64_t ints[] = {0, 0};
        bool reduces = op_info(rows[i].opcode)->family == OP_FAMILY_REDUCE;
        struct op_request request = {.opcode = rows[i].opcode,
                                     .n_inputs = n,
                                     .inputs = inputs,
                                     .further = op_info(rows[i].opcode)->n_outputs - 1,
                                     .n_ints = reduces ? 2
                                               : takes ? 1
                                                       : 0,
                                     .ints = ints};
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK, "%s", name);
        cr_assert_eq(suite_outcome(&suite, result, NULL), STATUS_OK);
        cr_assert_leq(account(&suite).peak - before, rows[i].output * MIB + (all ? 32768 : 65536), "%s took %llu bytes",
                      name, (unsigned long long)(account(&suite).peak - before));
        suite_close(&suite);
    }
}

/* A matrix of ones, or a view that repeats its only row or column. */
struct matrix {
    enum dtype dtype;
    int64_t rows, columns;
    int repeats; /* 1: the row, 2: the column */
};

static uint64_t matrix_of(struct suite *suite, const struct matrix *matrix) {
    int64_t shape[] = {matrix->rows, matrix->columns};
    int64_t ints[] = {matrix->dtype, 1, matrix->repeats == 1 ? 1 : shape[0], matrix->repeats == 2 ? 1 : shape[1]};
    double value = 1;
    uint64_t id, view;
    struct op_request full = {.opcode = OP_FULL, .n_ints = 4, .ints = ints, .n_floats = 1, .floats = &value};
    cr_assert_eq(suite_submit(suite, &full, &id), STATUS_OK);
    if (!matrix->repeats)
        return id;
    struct op_request broadcast = {.opcode = OP_BROADCAST_TO, .n_inputs = 1, .inputs = &id, .n_ints = 2, .ints = shape};
    cr_assert_eq(suite_submit(suite, &broadcast, &view), STATUS_OK);
    return view;
}

/* Neither indices of another dtype than i64, nor what repeats itself, nor values of another dtype are written out. */
Test(memory, an_input_of_indices_takes_no_memory) {
    const char *device = getenv("TENSORD_TEST_DEVICE");
    bool cpu = !device || strncmp(device, "cpu", 3) == 0 || strncmp(device, "late", 4) == 0;
    enum { SIDE = 1024 };
    static const struct {
        unsigned opcode, n;
        struct matrix inputs[3];
        uint64_t output; /* bytes */
        uint64_t sorted; /* indices that another device than a CPU sorts, in its workspace */
        bool cpu;        /* on a CPU device alone */
    } rows[] = {
        {OP_TAKE_ALONG_AXIS, 2, {{DTYPE_F32, 2, 1}, {DTYPE_I32, MIB, 1}}, 4 * MIB},
        {OP_TAKE_ALONG_AXIS, 2, {{DTYPE_F32, 2, 1}, {DTYPE_U64, MIB, 1}}, 4 * MIB},
        {OP_TAKE_ALONG_AXIS, 2, {{DTYPE_F32, 2, 1}, {DTYPE_I16, MIB, 1}}, 4 * MIB, .cpu = true},
        {OP_TAKE_ALONG_AXIS, 2, {{DTYPE_F32, 2, SIDE}, {DTYPE_I32, SIDE, SIDE, 1}}, 4 * MIB},
        {OP_TAKE_ALONG_AXIS, 2, {{DTYPE_F32, 2, SIDE}, {DTYPE_I64, SIDE, SIDE, 2}}, 4 * MIB},
        {OP_TAKE_ALONG_AXIS, 2, {{DTYPE_F32, SIDE, SIDE, 2}, {DTYPE_I64, 1, SIDE}}, 4 * SIDE},
        {OP_ONE_HOT, 1, {{DTYPE_I32, MIB, 1}}, 8 * MIB},
        {OP_SCATTER, 3, {{DTYPE_F32, 2, 1}, {DTYPE_I32, MIB, 1}, {DTYPE_F32, 1, 1}}, 8, MIB},
        {OP_SCATTER_ADD, 3, {{DTYPE_F32, 2, 1}, {DTYPE_I32, MIB, 1}, {DTYPE_F32, 1, 1}}, 8, MIB},
        {OP_SCATTER_ADD, 3, {{DTYPE_F32, 2, 1}, {DTYPE_U64, MIB, 1}, {DTYPE_F32, 1, 1}}, 8, MIB},
        {OP_SCATTER_ADD, 3, {{DTYPE_F32, 2, 1}, {DTYPE_U8, MIB, 1}, {DTYPE_F32, 1, 1}}, 8, .cpu = true},
        {OP_SCATTER_ADD, 3, {{DTYPE_F32, 2, SIDE}, {DTYPE_I64, SIDE, SIDE, 2}, {DTYPE_F32, 1, 1}}, 8 * SIDE, SIDE},
        {OP_SCATTER_ADD, 3, {{DTYPE_F32, 2, SIDE}, {DTYPE_I32, SIDE, SIDE, 1}, {DTYPE_F32, 1, 1}}, 8 * SIDE, MIB},
        {OP_SCATTER_ADD, 3, {{DTYPE_F32, 2, 1}, {DTYPE_I64, MIB, 1}, {DTYPE_I16, MIB, 1}}, 8, .cpu = true},
        {OP_SCATTER, 3, {{DTYPE_F64, 2, 1}, {DTYPE_I64, MIB, 1}, {DTYPE_F32, MIB, 1}}, 16, .cpu = true},
        {OP_SCATTER, 3, {{DTYPE_U8, MIB, 1}, {DTYPE_I64, 1, 1}, {DTYPE_F32, 1, 1}}, 4 * MIB, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].cpu && !cpu)
            continue;
        struct suite suite;
        suite_open_limited(&suite, 3, 0, 0);
        uint64_t inputs[3], result;
        for (unsigned k = 0; k < rows[i].n; k++)
            inputs[k] = matrix_of(&suite, &rows[i].inputs[k]);
        suite_sync(&suite);
        uint64_t before = account(&suite).live, most = rows[i].output + (cpu ? 8192 : 65536 + 16 * rows[i].sorted);
        bool hot = rows[i].opcode == OP_ONE_HOT;
        struct op_request request = {.opcode = rows[i].opcode,
                                     .n_inputs = rows[i].n,
                                     .inputs = inputs,
                                     .n_ints = hot ? 2 : 1,
                                     .ints = hot ? (const int64_t[]){2, DTYPE_F32} : (const int64_t[]){0}};
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK, "row %zu", i);
        cr_assert_eq(suite_outcome(&suite, result, NULL), STATUS_OK, "row %zu", i);
        cr_assert_leq(account(&suite).peak - before, most, "row %zu: %s took %llu bytes", i,
                      op_info(rows[i].opcode)->name, (unsigned long long)(account(&suite).peak - before));
        suite_close(&suite);
    }
}

/* Targets of losses, and the places that pooling has found. */
Test(memory, an_input_of_indices_of_layers_takes_no_memory) {
    static const int64_t scores[] = {1, 2, MIB}, places[] = {1, MIB}, pooled[] = {1, 2, MIB / 2};
    static const struct {
        unsigned opcode;
        int rank;
        const int64_t *first, *indices;
        uint64_t output;
    } rows[] = {{OP_NLL_LOSS, 2, scores, places, 4 * MIB}, {OP_MAX_POOL_GRAD, 3, pooled, pooled, 8 * MIB}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct suite suite;
        suite_open_limited(&suite, 3, 0, 0);
        uint64_t inputs[2], result;
        for (int k = 0; k < 2; k++) {
            int rank = k ? rows[i].rank : 3;
            int64_t ints[5] = {k ? DTYPE_I32 : DTYPE_F32, 1};
            double value = 1;
            memcpy(ints + 2, k ? rows[i].indices : rows[i].first, (size_t)rank * sizeof *ints);
            struct op_request full = {
                .opcode = OP_FULL, .n_ints = 2 + (unsigned)rank, .ints = ints, .n_floats = 1, .floats = &value};
            cr_assert_eq(suite_submit(&suite, &full, &inputs[k]), STATUS_OK);
        }
        suite_sync(&suite);
        uint64_t before = account(&suite).live;
        struct op_packed packed =
            rows[i].opcode == OP_NLL_LOSS
                ? SUITE_ATTRIBUTES(nll_loss, .ignore_index = -100, .reduction = OP_REDUCTION_NONE)
                : SUITE_ATTRIBUTES(max_pool_grad, .shape = SUITE_LIST(1, 2, MIB), .kernel = SUITE_LIST(2));
        struct op_request request = {.opcode = rows[i].opcode,
                                     .n_inputs = 2,
                                     .inputs = inputs,
                                     .n_ints = packed.n_ints,
                                     .ints = packed.ints,
                                     .n_floats = packed.n_floats,
                                     .floats = packed.floats};
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK, "row %zu", i);
        cr_assert_eq(suite_outcome(&suite, result, NULL), STATUS_OK, "row %zu", i);
        cr_assert_leq(account(&suite).peak - before, rows[i].output + 65536, "%s took %llu bytes",
                      op_info(rows[i].opcode)->name, (unsigned long long)(account(&suite).peak - before));
        suite_close(&suite);
    }
}

/* Where kernels convert as they pack blocks, which take some memory for each thread; an operand beside a much larger one is converted before. */
Test(memory, a_factor_of_another_dtype_takes_the_memory_of_blocks) {
    static const struct {
        struct matrix a, b;
        uint64_t output, most; /* bytes */
    } rows[] = {
        {{DTYPE_F32, 1, 4096}, {DTYPE_F16, 4096, 4096}, 4 * 4096, 48 * MIB},
        {{DTYPE_BF16, 4096, 4096}, {DTYPE_F32, 4096, 1}, 4 * 4096, 48 * MIB},
        {{DTYPE_I8, 4096, 4096}, {DTYPE_I32, 4096, 1}, 4 * 4096, 48 * MIB},
        {{DTYPE_F64, 1, 4096}, {DTYPE_F32, 4096, 4096}, 8 * 4096, 96 * MIB},
        {{DTYPE_F16, 1, 4096}, {DTYPE_F32, 4096, 1024}, 4 * 1024, 4 * 4096 + 8192},
    };
    const char *device = getenv("TENSORD_TEST_DEVICE");
    if (device && strncmp(device, "cpu", 3) != 0 && strncmp(device, "late", 4) != 0)
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct suite suite;
        suite_open_limited(&suite, 3, 0, 0);
        uint64_t inputs[] = {matrix_of(&suite, &rows[i].a), matrix_of(&suite, &rows[i].b)}, result;
        suite_sync(&suite);
        uint64_t before = account(&suite).live;
        struct op_request request = {.opcode = OP_MATMUL, .n_inputs = 2, .inputs = inputs};
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK, "row %zu", i);
        cr_assert_eq(suite_outcome(&suite, result, NULL), STATUS_OK, "row %zu", i);
        cr_assert_leq(account(&suite).peak - before, rows[i].output + rows[i].most, "row %zu took %llu bytes", i,
                      (unsigned long long)(account(&suite).peak - before));
        suite_close(&suite);
    }
}

/* On other devices what kernels want is made tile by tile. The same comes out as of the converted tensor, also where one input repeats itself and another is
 * read backwards. */
Test(memory, a_large_input_of_another_dtype_takes_the_memory_of_a_tile, .timeout = 300) {
    enum { ROWS = 9, COLUMNS = 1 << 20, TILE_BYTES = 16 << 20 };
    struct suite suite;
    uint64_t x, flipped, row, floats, results[2], equal, all;
    suite_open_limited(&suite, 3, 0, 0);
    struct op_request arange = {.opcode = OP_ARANGE,
                                .ints = (const int64_t[]){DTYPE_I32, 0, (int64_t)ROWS * COLUMNS, 1},
                                .n_ints = 4,
                                .floats = (const double[]){0, ROWS * COLUMNS, 1},
                                .n_floats = 3};
    cr_assert_eq(suite_submit(&suite, &arange, &x), STATUS_OK);
    struct op_request reshape = {
        .opcode = OP_RESHAPE, .n_inputs = 1, .inputs = &x, .n_ints = 2, .ints = (const int64_t[]){ROWS, COLUMNS}};
    cr_assert_eq(suite_submit(&suite, &reshape, &flipped), STATUS_OK);
    struct op_request flip = {.opcode = OP_SLICE,
                              .n_inputs = 1,
                              .inputs = &flipped,
                              .n_ints = 6,
                              .ints =
                                  (const int64_t[]){OP_SLICE_NONE, OP_SLICE_NONE, 1, OP_SLICE_NONE, OP_SLICE_NONE, -1}};
    uint64_t whole = flipped;
    flip.inputs = &whole;
    cr_assert_eq(suite_submit(&suite, &flip, &flipped), STATUS_OK);
    struct op_request line = {.opcode = OP_ARANGE,
                              .ints = (const int64_t[]){DTYPE_F32, 0, COLUMNS, 1},
                              .n_ints = 4,
                              .floats = (const double[]){0, COLUMNS, 1},
                              .n_floats = 3};
    cr_assert_eq(suite_submit(&suite, &line, &row), STATUS_OK);
    suite_sync(&suite);
    uint64_t before = account(&suite).live, output = (uint64_t)ROWS * COLUMNS * sizeof(float);
    struct op_request subtract = {.opcode = OP_SUBTRACT, .n_inputs = 2, .inputs = (const uint64_t[]){flipped, row}};
    cr_assert_eq(suite_submit(&suite, &subtract, &results[0]), STATUS_OK);
    cr_assert_eq(suite_outcome(&suite, results[0], NULL), STATUS_OK);
    cr_assert_leq(account(&suite).peak - before, output + 2 * TILE_BYTES);
    struct op_request cast = {
        .opcode = OP_CAST, .n_inputs = 1, .inputs = &flipped, .n_ints = 1, .ints = (const int64_t[]){DTYPE_F32}};
    cr_assert_eq(suite_submit(&suite, &cast, &floats), STATUS_OK);
    subtract.inputs = (const uint64_t[]){floats, row};
    cr_assert_eq(suite_submit(&suite, &subtract, &results[1]), STATUS_OK);
    struct op_request compare = {.opcode = OP_EQUAL, .n_inputs = 2, .inputs = results};
    cr_assert_eq(suite_submit(&suite, &compare, &equal), STATUS_OK);
    struct op_request every = {
        .opcode = OP_ALL, .n_inputs = 1, .inputs = &equal, .n_ints = 3, .ints = (const int64_t[]){0, 0, 1}};
    cr_assert_eq(suite_submit(&suite, &every, &all), STATUS_OK);
    struct suite_fetch fetch;
    suite_fetch_start(&suite, all, &fetch);
    suite_fetch_wait(&suite, &fetch);
    cr_assert_not(fetch.failed, "%s", fetch.failure.message);
    cr_assert_eq(*(const uint8_t *)fetch.fetch.data, 1);
    fetch_release(&fetch.fetch);
    suite_close(&suite);
}

Test(memory, a_quota_holds_its_session_alone) {
    struct suite suite;
    suite_open_limited(&suite, 3, 0, 8 * MIB);
    struct session *other;
    struct session_limits limits = {.tensors = 10, .streams = 1};
    struct failure failure;
    struct fault fault;
    uint64_t a, b, c;
    cr_assert_eq(session_create(engine_sessions(suite.engine), &limits, &other, &fault), STATUS_OK);
    cr_assert_eq(full(&suite, MIB, &a), STATUS_OK);
    int code = full(&suite, 2 * MIB, &b);
    cr_assert(code == STATUS_LIMIT || code == STATUS_OUT_OF_MEMORY, "got %s", status_name(code));
    cr_assert_eq(suite_outcome(&suite, b, &failure), code);
    cr_assert(strstr(failure.message, "8.00 MiB asked"), "it names each number: %s", failure.message);
    suite_release(&suite, a);
    cr_assert_eq(full(&suite, 2 * MIB - 4096, &c), STATUS_OK);
    struct suite neighbour = {.engine = suite.engine, .session = other};
    cr_assert_eq(full(&neighbour, 4 * MIB, &c), STATUS_OK);
    cr_assert_eq(suite_outcome(&neighbour, c, NULL), STATUS_OK);
    session_destroy(other);
    suite_close(&suite);
}

Test(memory, an_upload_over_the_limit_is_poisoned_and_takes_no_bytes) {
    struct suite suite;
    suite_open_limited(&suite, 3, 16 * MIB, 0);
    struct tensor_type type = {.dtype = DTYPE_F64, .rank = 1, .shape = {8 * MIB}};
    struct upload upload;
    struct upload_request request = {
        .id = ++suite.next_id, .type = &type, .sequence = ++suite.sequence, .label = "big"};
    struct failure failure;
    cr_assert_eq(session_upload(suite.session, &request, &upload), STATUS_OUT_OF_MEMORY);
    cr_assert_eq(upload.bytes, 0);
    cr_assert_eq(suite_outcome(&suite, request.id, &failure), STATUS_OUT_OF_MEMORY);
    cr_assert_str_eq(failure.label, "big");
    struct sample x = suite_sample(&suite, DTYPE_F64, 1, (int64_t[]){1000}, FILL_ANY);
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(memory, a_view_keeps_its_storage) {
    struct suite suite;
    suite_open(&suite, 3);
    struct sample base = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){100, 50}, FILL_ANY);
    struct sample row =
        suite_attributes(&suite, OP_SLICE, &base,
                         SUITE_ATTRIBUTES(slice, .ranges = SUITE_LIST(7, 8, 1, OP_SLICE_NONE, OP_SLICE_NONE, -1)));
    struct sample again =
        suite_attributes(&suite, OP_PERMUTE_DIMS, &row, SUITE_ATTRIBUTES(permute_dims, .axes = SUITE_LIST(1, 0)));
    uint64_t live = account(&suite).live;
    suite_free(&suite, &base);
    suite_free(&suite, &row);
    cr_assert_eq(account(&suite).live, live, "the view holds all of it");
    for (int i = 0; i < 50; i++) {
        struct sample other = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){100, 50}, FILL_ANY);
        suite_check(&suite, &again);
        suite_free(&suite, &other);
    }
    suite_free(&suite, &again);
    suite_sync(&suite);
    cr_assert_eq(account(&suite).live, 0);
    suite_close(&suite);
}

Test(memory, failed_operations_hold_nothing) {
    struct suite suite;
    suite_open(&suite, 3);
    struct sample a = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){30, 40}, FILL_ANY);
    uint64_t live = account(&suite).live, id, ids[] = {a.id, a.id};
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(suite_submit(&suite, &(struct op_request){.opcode = OP_MATMUL, .n_inputs = 2, .inputs = ids}, &id),
                     STATUS_SHAPE);
    cr_assert_eq(account(&suite).live, live);
    suite_close(&suite);
}

/* ---- out of memory ---- */

static struct engine_stats figures(struct suite *suite) {
    struct engine_stats stats;
    engine_stats(suite->engine, &stats);
    return stats;
}

/* Free memory there is, but not in one piece: it is looked for in every way, and the session goes on. */
Test(memory, running_out_a_thousand_times_leaves_all_as_it_was) {
    enum { BLOCKS = 24 };
    struct suite suite;
    uint64_t ids[BLOCKS], refused, again;
    struct failure failure;
    suite_open_limited(&suite, 3, 48 * MIB, 0);
    for (int i = 0; i < BLOCKS; i++)
        cr_assert_eq(full(&suite, 3 * MIB / 8, &ids[i]), STATUS_OK);
    for (int i = 0; i < BLOCKS; i += 2)
        suite_release(&suite, ids[i]);
    suite_sync(&suite);
    struct engine_stats before = figures(&suite);
    for (int i = 0; i < SUITE_REPEAT(1000); i++) {
        cr_assert_eq(full(&suite, 10 * MIB, &refused), STATUS_OUT_OF_MEMORY);
        if (i % 100 == 0)
            cr_assert_eq(suite_outcome(&suite, refused, &failure), STATUS_OUT_OF_MEMORY);
        suite_release(&suite, refused);
    }
    cr_assert(strstr(failure.message, "40.0 MiB asked, 30.0 MiB free of 48.0 MiB; you hold 18.0 MiB, others 0 B"), "%s",
              failure.message);
    suite_sync(&suite);
    struct engine_stats after = figures(&suite);
    cr_assert_eq(after.memory_live, before.memory_live);
    cr_assert_leq(after.memory_reserved, before.memory_reserved);
    cr_assert_geq(after.memory_largest_free, before.memory_largest_free);
    for (int i = 1; i < BLOCKS; i += 2)
        suite_release(&suite, ids[i]);
    cr_assert_eq(full(&suite, 11 * MIB, &again), STATUS_OK, "what was in pieces is one piece again");
    cr_assert_eq(suite_outcome(&suite, again, NULL), STATUS_OK);
    suite_close(&suite);
}

/* Takes blocks of a gigabyte until there are no more; how many. */
static int take_all(struct suite *suite, uint64_t *ids, int most) {
    int n = 0;
    while (n < most && full(suite, 256 * MIB, &ids[n]) == STATUS_OK)
        n++;
    return n;
}

/* All the memory that a GPU has, which nobody else may use meanwhile: TENSORD_TEST_ALL_MEMORY=1. */
Test(memory, a_device_runs_out_a_thousand_times, .timeout = 280) {
    enum { MOST = 4096 };
    static uint64_t ids[MOST];
    const char *given = getenv("TENSORD_TEST_ALL_MEMORY");
    struct suite suite;
    struct failure failure;
    uint64_t refused;
    if (!given || !*given)
        cr_skip_test("TENSORD_TEST_ALL_MEMORY is not set");
    suite_open_limited(&suite, 3, UINT64_C(1) << 50, 0); /* so that it is the device that refuses */
    cr_assert_eq(full(&suite, 1, &refused), STATUS_OK);  /* CUDA loads a kernel when it is first launched */
    suite_sync(&suite);
    suite_release(&suite, refused);
    int first = take_all(&suite, ids, MOST);
    cr_assert(first > 0 && first < MOST, "%d blocks", first);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(full(&suite, 256 * MIB, &refused), STATUS_OUT_OF_MEMORY);
        cr_assert_eq(suite_outcome(&suite, refused, &failure), STATUS_OUT_OF_MEMORY, "%s", failure.message);
        suite_release(&suite, refused);
    }
    for (int i = 0; i < first; i++)
        suite_release(&suite, ids[i]);
    suite_sync(&suite);
    int second = take_all(&suite, ids, MOST);
    cr_assert_eq(second, first, "%d blocks of 1 GiB before, and %d after", first, second);
    cr_assert_eq(suite_outcome(&suite, ids[second - 1], NULL), STATUS_OK);
    suite_close(&suite);
}

/* ---- no memory taken on the way ---- */

static void steady_round(struct suite *suite) {
    struct sample x = suite_sample(suite, DTYPE_F32, 2, (int64_t[]){300, 500}, FILL_ORDINARY);
    struct sample y = suite_unary(suite, OP_NEGATIVE, &x), z = suite_binary(suite, OP_ADD, &x, &y);
    struct sample row = suite_attributes(suite, OP_SUM, &z, SUITE_ATTRIBUTES(reduction, .keepdims = false));
    struct sample large = suite_sample(suite, DTYPE_F64, 1, (int64_t[]){MIB}, FILL_ORDINARY); /* in parts */
    suite_check(suite, &z);
    suite_check(suite, &row);
    suite_check(suite, &large);
    suite_free(suite, &x);
    suite_free(suite, &y);
    suite_free(suite, &z);
    suite_free(suite, &row);
    suite_free(suite, &large);
}

/* Nothing is reserved, pinned or given back by work that has been done before. */
Test(memory, a_steady_job_takes_no_segment_and_pins_nothing) {
    struct suite suite;
    suite_open(&suite, 3);
    for (int i = 0; i < 3; i++)
        steady_round(&suite);
    struct engine_stats before = figures(&suite);
    cr_assert_gt(before.reservations, 0);
    for (int i = 0; i < SUITE_REPEAT(10); i++)
        steady_round(&suite);
    struct engine_stats after = figures(&suite);
    cr_assert_eq(after.reservations, before.reservations);
    cr_assert_eq(after.releases, before.releases);
    cr_assert_eq(after.pinnings, before.pinnings);
    cr_assert_eq(after.unpinnings, before.unpinnings);
    cr_assert_eq(after.workspace_growths, before.workspace_growths);
    suite_close(&suite);
}

/* What a device keeps besides the pool for products is shown, and grows only with what a product needs; what they take from the
 * pool they give back. */
Test(memory, what_products_need_besides_is_counted) {
    struct suite suite;
    struct engine_stats stats;
    uint64_t bytes = 0;
    suite_open(&suite, 4);
    engine_stats(suite.engine, &stats);
    cr_assert_eq(stats.workspaces, 0);
    for (int i = 0; i < 3; i++) {
        struct sample a = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){20, 30}, FILL_COUNT);
        struct sample b = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){30, 10}, FILL_COUNT);
        struct sample product = suite_binary(&suite, OP_MATMUL, &a, &b);
        suite_check(&suite, &product);
        suite_free(&suite, &a);
        suite_free(&suite, &b);
        suite_free(&suite, &product);
        suite_sync(&suite);
        engine_stats(suite.engine, &stats);
        bytes = i ? bytes : stats.workspaces;
        cr_expect(stats.workspaces <= stats.workspaces_limit);
        cr_expect_eq(stats.workspaces, bytes);
        cr_expect_eq(stats.workspace_growths, bytes ? 1 : 0);
        cr_expect_eq(stats.memory_live, 0);
    }
    suite_close(&suite);
}

/* A convolution of zeros, 8 images of 32 channels; its status. The failure is that of its result. */
static int convolve(struct suite *suite, unsigned opcode, struct failure *failure) {
    static const int64_t image[] = {8, 32, 28, 28}, weight[] = {32, 32, 3, 3};
    const int64_t *shapes[] = {image, opcode == OP_CONV_GRAD_WEIGHT ? image : weight};
    int64_t one[] = {1, 1};
    struct op_ints ones = {2, one};
    uint64_t inputs[2], result;
    double zero = 0;
    for (int i = 0; i < 2; i++) {
        int64_t ints[] = {DTYPE_F32, 0, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]};
        struct op_request request = {.opcode = OP_FULL, .n_ints = 6, .ints = ints, .n_floats = 1, .floats = &zero};
        cr_assert_eq(suite_submit(suite, &request, &inputs[i]), STATUS_OK);
    }
#define COMMON .stride = ones, .padding = ones, .dilation = ones, .groups = 1
    struct op_packed packed = opcode == OP_CONV ? SUITE_ATTRIBUTES(conv, COMMON)
                              : opcode == OP_CONV_GRAD_INPUT
                                  ? SUITE_ATTRIBUTES(conv_grad_input, COMMON, .shape = SUITE_LIST(8, 32, 28, 28))
                                  : SUITE_ATTRIBUTES(conv_grad_weight, COMMON, .shape = SUITE_LIST(32, 32, 3, 3));
#undef COMMON
    struct op_request request = {
        .opcode = opcode, .n_inputs = 2, .inputs = inputs, .n_ints = packed.n_ints, .ints = packed.ints};
    suite_submit(suite, &request, &result);
    return suite_outcome(suite, result, failure);
}

/* Where its operands are reordered and what it multiplies by. */
Test(memory, what_a_convolution_needs_besides_its_operands_is_charged) {
    static const unsigned opcodes[] = {OP_CONV, OP_CONV_GRAD_INPUT, OP_CONV_GRAD_WEIGHT};
    const char *device = getenv("TENSORD_TEST_DEVICE");
    if (device && strncmp(device, "cpu", 3) != 0 && strncmp(device, "late", 4) != 0)
        cr_skip("this device's kernels may do without");
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
        struct suite suite;
        struct failure failure = {0};
        suite_open(&suite, 5);
        cr_assert_eq(convolve(&suite, opcodes[i], &failure), STATUS_OK, "%s", failure.message);
        struct session_stats needed = account(&suite);
        cr_expect_geq(needed.peak, needed.live + MIB / 16, "%s", op_info(opcodes[i])->name);
        suite_close(&suite);
        for (int less = 0; less < 2; less++) {
            suite_open_limited(&suite, 5, 0, needed.peak - (less ? 1 : 0));
            cr_expect_eq(convolve(&suite, opcodes[i], &failure), less ? STATUS_LIMIT : STATUS_OK);
            if (less)
                cr_expect(strstr(failure.message, "for the workspace: the session's limit of "), "%s", failure.message);
            else
                cr_expect_eq(account(&suite).peak, needed.peak);
            suite_close(&suite);
        }
    }
}

/* Sizes and lives at random: every block must keep its contents while others come and go. */
Test(memory, blocks_keep_their_contents_while_others_come_and_go, .timeout = 120) {
    struct suite suite;
    struct sample held[64] = {0};
    suite_open_limited(&suite, 3, 24 * MIB, 0);
    for (int i = 0; i < SUITE_REPEAT(4000); i++) {
        struct sample *slot = &held[suite_below(&suite, 64)];
        if (slot->values) {
            if (suite_chance(&suite, 20))
                suite_check(&suite, slot);
            suite_free(&suite, slot);
            continue;
        }
        int64_t n = (int64_t)1 << suite_below(&suite, 17);
        n += suite_below(&suite, n);
        struct suite_call call = {.opcode = OP_ARANGE,
                                  .attributes = SUITE_ATTRIBUTES(arange, .dtype = DTYPE_I32, .start = {.i = i},
                                                                 .stop = {.i = i + n % 8192 + 1}, .step = {.i = 1})};
        *slot = suite_run(&suite, &call);
    }
    for (int i = 0; i < 64; i++)
        if (held[i].values) {
            suite_check(&suite, &held[i]);
            suite_free(&suite, &held[i]);
        }
    suite_sync(&suite);
    cr_assert_eq(account(&suite).live, 0);
    suite_close(&suite);
}
