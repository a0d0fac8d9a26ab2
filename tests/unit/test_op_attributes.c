/* Attributes of all types on their way: a call in C, a batch, its bytes, the daemon's checks, the typed struct. The operation is in
 * described/described.toml. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tensord.h"
#include "proto/ops/op.h"
#include "proto/wire/batch.h"
#include "tests/stand_ins/fake_daemon.h"
#include "tests/unit/random.h"

/* As the generator declares it: test_descriptions.py. */
td_tensor *td_described(td_tensor *x, const char *mode, double low, int n_scales, const double *scales, int64_t groups,
                        int n_stride, const int64_t *stride, const char *equation);

static const struct tensor_type scalar = {.dtype = DTYPE_F32};

static int infer(const struct op_attributes *attributes, struct fault *fault) {
    const struct tensor_type *inputs[] = {&scalar};
    struct tensor_type out;
    return op_infer(OP_DESCRIBED, inputs, 1, attributes, &out, fault);
}

static struct described_attributes sample(const char *mode, const char *equation, unsigned n_scales) {
    static const int64_t stride[] = {2, -3};
    static double scales[OP_FLOATS_MAX];
    for (unsigned i = 0; i < n_scales; i++)
        scales[i] = i + 0.5;
    return (struct described_attributes){.mode = mode,
                                         .low = -1.25,
                                         .scales = {n_scales, scales},
                                         .groups = 7,
                                         .stride = {2, stride},
                                         .equation = equation};
}

static void expect_same(const struct described_attributes *a, const struct described_attributes *b) {
    cr_assert_str_eq(a->mode, b->mode);
    cr_assert_str_eq(a->equation, b->equation);
    cr_assert(a->low == b->low && a->groups == b->groups);
    cr_assert_eq(a->scales.count, b->scales.count);
    cr_assert_eq(a->stride.count, b->stride.count);
    cr_assert_arr_eq(a->scales.values, b->scales.values, a->scales.count * sizeof(double));
    cr_assert_arr_eq(a->stride.values, b->stride.values, a->stride.count * sizeof(int64_t));
}

/* A batch of this one operation; the message's bytes. */
static uint8_t *pack(const struct op_packed_long *packed, size_t *bytes) {
    bool wide = packed->n_ints > BATCH_COUNT_MAX || packed->n_floats > BATCH_COUNT_MAX;
    uint64_t head = batch_head(OP_DESCRIBED, 1, packed->n_ints, packed->n_floats, wide ? BATCH_FLAG_WIDE : 0, 0);
    uint64_t input = 5, more = batch_wide(1, packed->n_ints, packed->n_floats, 1);
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_output = batch.first_sequence = 6;
    batch.n_heads = batch.n_inputs = 1, batch.heads = &head, batch.inputs = &input;
    batch.n_ints = packed->n_ints, batch.ints = (int64_t *)packed->ints;
    batch.n_floats = packed->n_floats, batch.floats = (double *)packed->floats;
    batch.n_wide = wide, batch.wide = &more;
    uint8_t *message = malloc(*bytes = tensord__batch__get_packed_size(&batch));
    tensord__batch__pack(&batch, message);
    return message;
}

static void expect_round_trip(const struct described_attributes *given) {
    static struct op_packed_long packed;
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    size_t bytes;
    described_attributes_write(given, &packed);
    uint8_t *message = pack(&packed, &bytes);
    Tensord__Batch *batch = tensord__batch__unpack(NULL, bytes, message);
    cr_assert_not_null(batch);
    batch_cursor_init(&cursor, batch);
    cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 1, "%s", fault.message);
    struct op_attributes attributes = {op.ints, op.floats, op.n_ints, op.n_floats};
    cr_assert_eq(infer(&attributes, &fault), STATUS_OK, "%s", fault.message);
    struct described_attributes got;
    described_attributes_read(&attributes, &got);
    expect_same(&got, given);
    cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 0);
    tensord__batch__free_unpacked(batch, NULL);
    free(message);
}

Test(op_attributes, all_types_come_back_from_the_wire) {
    static const char *const texts[] = {
        "", "a", "bilinear", "…ik,…kj->…ij", "seventh", "exactly sixteen!", "\xef\xbf\xbd"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) {
            struct described_attributes given = sample(texts[i], texts[j], (unsigned)(i * j));
            expect_round_trip(&given);
        }
}

Test(op_attributes, the_longest_make_a_wide_operation) {
    static char text[OP_STRING_MAX + 1];
    memset(text, 'e', OP_STRING_MAX);
    struct described_attributes given = sample(text, text, OP_FLOATS_MAX - 1);
    expect_round_trip(&given);
}

/* ---- the daemon's checks ---- */

static struct op_packed_long packed;
static struct op_attributes written(const char *mode, const char *equation) {
    struct described_attributes given = sample(mode, equation, 2);
    described_attributes_write(&given, &packed);
    return (struct op_attributes){packed.ints, packed.floats, packed.n_ints, packed.n_floats};
}
/* groups; count and integers of mode; count and integers of stride; integers of equation */
enum { GROUPS, MODE_COUNT, MODE };

static void expect_refused(const struct op_attributes *attributes, const char *words) {
    struct fault fault;
    cr_assert_eq(infer(attributes, &fault), STATUS_INVALID_ARGUMENT, "%s", words);
    cr_assert_str_eq(fault.message, words);
}

Test(op_attributes, lengths_that_lie_are_refused) {
    static const int64_t lies[] = {-1, 5, 100, INT64_MAX, INT64_MIN, UINT32_MAX, (INT64_C(1) << 32) + 1};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct op_attributes attributes = written("mode", "eq");
        packed.ints[MODE_COUNT] = lies[i];
        expect_refused(&attributes, lies[i] == 5 ? "the string mode has a zero byte before its end"
                                                 : "the list mode has no valid length");
    }
    struct op_attributes attributes = written("mode", "eq");
    packed.ints[MODE_COUNT] = 0;
    expect_refused(&attributes, "the string mode has no end");
    attributes = written("mode", "eq");
    packed.ints[MODE + 1] = 3;
    expect_refused(&attributes, "the string equation has no end");
    packed.ints[MODE + 1] = 4;
    expect_refused(&attributes, "the list stride has no valid length");
}

Test(op_attributes, missing_attributes_are_named) {
    struct op_attributes attributes = written("mode", "eq");
    attributes.n_ints = 0;
    expect_refused(&attributes, "groups is missing");
    attributes.n_ints = 1;
    expect_refused(&attributes, "the list mode has no valid length");
    attributes = written("mode", "eq");
    attributes.n_floats = 0;
    expect_refused(&attributes, "described does not take 0 float attributes");
}

Test(op_attributes, too_many_floats_are_refused) {
    static const double floats[OP_FLOATS_MAX + 1];
    struct op_attributes attributes = written("mode", "eq");
    attributes.floats = floats;
    attributes.n_floats = OP_FLOATS_MAX;
    cr_assert_eq(infer(&attributes, NULL), STATUS_OK);
    attributes.n_floats = OP_FLOATS_MAX + 1;
    expect_refused(&attributes, "described does not take 1025 float attributes");
}

Test(op_attributes, strings_are_utf8_without_zero_bytes) {
    static const char *const bad[] = {"\xff", "caf\xe9", "\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct op_attributes attributes = written(bad[i], "eq");
        expect_refused(&attributes, "the string mode is not UTF-8");
        attributes = written("mode", bad[i]);
        expect_refused(&attributes, "the string equation is not UTF-8");
    }
    struct op_attributes attributes = written("a mode", "eq");
    ((char *)&packed.ints[MODE])[1] = 0;
    expect_refused(&attributes, "the string mode has a zero byte before its end");
    attributes = written("eight by", "eq");
    packed.ints[MODE + 1] = INT64_C(1) << 56;
    expect_refused(&attributes, "the string mode has a zero byte before its end");
    memset(&packed.ints[MODE], 'm', 16);
    expect_refused(&attributes, "the string mode has no end");
    attributes = written("mode", "eq");
    packed.ints[packed.n_ints] = 0; /* an integer too many */
    attributes.n_ints++;
    expect_refused(&attributes, "the string equation has a zero byte before its end");
}

Test(op_attributes, long_strings_are_refused) {
    static char text[OP_STRING_MAX + 2];
    memset(text, 'e', OP_STRING_MAX + 1);
    struct op_attributes attributes = written("mode", text);
    expect_refused(&attributes, "the string equation has more than 1023 bytes");
}

Test(op_attributes, whatever_is_sent_is_refused_or_can_be_read) {
    uint64_t state = 3;
    unsigned good = 0;
    for (int round = 0; round < 200000; round++) {
        struct op_attributes attributes = written("mode", "sixteen bytes is");
        struct described_attributes got;
        struct fault fault = {.code = STATUS_OK};
        if (random_next(&state) % 2)
            attributes.n_ints = (unsigned)(random_next(&state) % (packed.n_ints + 3));
        for (unsigned changes = (unsigned)(random_next(&state) % 3); changes > 0; changes--)
            ((uint8_t *)packed.ints)[random_next(&state) % (8 * packed.n_ints)] = (uint8_t)random_next(&state);
        /* of exactly this size, so that AddressSanitizer sees a step beyond it */
        int64_t *ints = malloc(attributes.n_ints * sizeof *ints + 1);
        memcpy(ints, packed.ints, attributes.n_ints * sizeof *ints);
        attributes.ints = ints;
        if (infer(&attributes, &fault) == STATUS_OK) {
            described_attributes_read(&attributes, &got);
            const char *end = (const char *)(ints + attributes.n_ints);
            cr_assert(got.mode + strlen(got.mode) < end && got.equation + strlen(got.equation) < end);
            cr_assert_leq(got.stride.values + got.stride.count, ints + attributes.n_ints);
            good++;
        } else {
            cr_assert(fault.code == STATUS_INVALID_ARGUMENT && fault.message[0]);
        }
        free(ints);
    }
    cr_assert_gt(good, 10000u, "only %u were good", good);
}

/* ---- the wire in readable form ---- */

static char *printed(const struct op_packed_long *attributes) {
    char *text = NULL;
    size_t length = 0, bytes;
    uint8_t *message = pack(attributes, &bytes);
    FILE *out = open_memstream(&text, &length);
    const struct frame_header header = {FRAME_BATCH, 0, (uint32_t)bytes, 0, 0};
    wire_print(out, "->", &header, message);
    fclose(out);
    free(message);
    return text;
}

Test(op_attributes, wire_print_shows_lists_and_strings) {
    written("bilinear \x1b[31m", "…->i");
    char *text = printed(&packed);
    cr_assert_str_eq(text,
                     "-> BATCH stream=0 (1 operations)\n"
                     "  #6 %6 = described(%5; low=-1.25, groups=7, scales=[0.5, 1.5], mode=\"bilinear \\x1b[31m\", "
                     "stride=[2, -3], equation=\"…->i\")\n");
    free(text);
    memset(&packed.ints[MODE], 'm', 16); /* no end */
    packed.ints[MODE_COUNT] = INT64_MAX;
    text = printed(&packed);
    cr_assert_not_null(strstr(text, "mode=\"mmmmmmmmmmmmmmmm"));
    free(text);
}

/* ---- the function in C, against a daemon that computes nothing ---- */

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;
static td_tensor *x;

static void setup(void) {
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
    x = td_full(device, TD_F32, TD_SHAPE(2), 1.0);
    cr_assert_not_null(x);
}

static void setup_traced(void) {
    setenv("TENSORD_DEBUG", "wire", 1);
    setup();
}

static void teardown(void) {
    td_close(connection);
    fake_daemon_stop(&fake);
}

TestSuite(op_attributes_call, .init = setup, .fini = teardown, .timeout = 60);
TestSuite(op_attributes_traced, .init = setup_traced, .fini = teardown, .timeout = 60);

Test(op_attributes_traced, everything_reaches_the_batch) {
    static char text[64 << 10];
    FILE *trace = tmpfile();
    cr_assert(trace && dup2(fileno(trace), STDERR_FILENO) == STDERR_FILENO);
    td_tensor *y =
        td_described(x, "linear", 0.5, 2, (double[]){1e300, -0.25}, INT64_MIN + 1, 2, (int64_t[]){3, 4}, "i→j");
    cr_assert_not_null(y);
    cr_assert_eq(td_sync(device), 0);
    text[pread(fileno(trace), text, sizeof text - 1, 0)] = 0;
    cr_assert_not_null(strstr(text, "described(%1; low=0.5, groups=-9223372036854775807, scales=[1e+300, -0.25], "
                                    "mode=\"linear\", stride=[3, 4], equation=\"i→j\")"));
    fclose(trace);
}

Test(op_attributes_call, lists_of_the_greatest_length_are_taken) {
    static double scales[OP_LIST_MAX];
    static int64_t stride[OP_LIST_MAX];
    static char text[OP_STRING_MAX + 1];
    memset(text, 't', OP_STRING_MAX);
    cr_assert_not_null(td_described(x, text, 0, OP_LIST_MAX, scales, 1, OP_LIST_MAX, stride, text), "%s",
                       td_last_error()->message);
    cr_assert_not_null(td_described(x, "", 0, 0, NULL, 1, 0, NULL, ""), "%s", td_last_error()->message);
    cr_assert_eq(td_sync(device), 0);
}

static void expect_error(td_tensor *tensor, const char *words) {
    cr_assert_null(tensor);
    cr_assert_eq(td_last_error()->code, TD_E_INVALID_ARGUMENT);
    cr_assert_str_eq(td_last_error()->message, words);
}

Test(op_attributes_call, what_cannot_be_an_attribute_is_refused_at_the_call) {
    static char text[OP_STRING_MAX + 2];
    memset(text, 't', OP_STRING_MAX + 1);
    expect_error(td_described(NULL, NULL, 0, -1, NULL, 1, -1, NULL, NULL), "described: input 0 is NULL");
    expect_error(td_described(x, NULL, 0, 0, NULL, 1, 0, NULL, ""), "described: mode is NULL");
    expect_error(td_described(x, "", 0, 0, NULL, 1, 0, NULL, text), "described: equation has more than 1023 bytes");
    expect_error(td_described(x, "", 0, 0, NULL, 1, 0, NULL, "\xff"), "described: equation is not UTF-8");
    expect_error(td_described(x, "", 0, 1, NULL, 1, 0, NULL, ""), "described: scales has 1 entries at NULL");
    expect_error(td_described(x, "", 0, OP_LIST_MAX + 1, &(double){0}, 1, 0, NULL, ""),
                 "described: scales has 129 entries, 0 to 128 are possible");
    expect_error(td_described(x, "", 0, 0, NULL, 1, -1, NULL, ""),
                 "described: stride has -1 entries, 0 to 128 are possible");
}
