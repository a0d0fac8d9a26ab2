/* Saved programs: what is written, what is read, and everything that can be wrong with a file. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "proto/files/crc64.h"
#include "proto/files/saved_program.h"
#include "proto/wire/batch.h"

static struct fault fault;

/* (x, y) -> exp(x · w), with w f32 (2,) and a captured i64; x is consumed. */
static uint64_t heads[2], inputs[] = {1, 3, 5}, captures[2], outputs[] = {6, 2};
static int64_t parameters[] = {DTYPE_F32, 1, 2, DTYPE_I64, 0};
static uint32_t consumed[] = {0};
static char *labels[] = {(char *)"product"};
static Tensord__Batch operations;
static Tensord__ProgramDefine definition;
static struct tensor_type weight, count;
static const struct tensor_type *const captured[] = {&weight, &count};

static void start(void) {
    heads[0] = batch_head(OP_MULTIPLY, 2, 0, 0, BATCH_FLAG_LABEL, 0);
    heads[1] = batch_head(OP_EXP, 1, 0, 0, 0, 0);
    tensord__batch__init(&operations);
    operations.first_output = 5;
    operations.n_heads = 2;
    operations.heads = heads;
    operations.n_inputs = 3;
    operations.inputs = inputs;
    operations.n_labels = 1;
    operations.labels = labels;
    tensord__program_define__init(&definition);
    definition.program = 7;
    definition.n_parameters = 5;
    definition.parameters = parameters;
    definition.n_consumed = 1;
    definition.consumed = consumed;
    definition.n_captures = 2;
    definition.captures = captures;
    definition.operations = &operations;
    definition.n_outputs = 2;
    definition.outputs = outputs;
    cr_assert_eq(type_make(&weight, DTYPE_F32, (const int64_t[]){2}, 1, &fault), 0);
    cr_assert_eq(type_make(&count, DTYPE_I64, NULL, 0, &fault), 0);
}

TestSuite(saved_program, .init = start);

static uint8_t *pack(enum saved_program_place place, size_t *bytes) {
    uint8_t *head;
    cr_assert_eq(saved_program_pack(&definition, 2, captured, place, 99, &head, bytes, &fault), STATUS_OK, "%s",
                 fault.message);
    return head;
}

enum { DATA_BYTES = 8 + 8 + 8 + 8 }; /* the captured tensors and their sums */

Test(saved_program, checksum_is_that_of_xz) {
    cr_assert_eq(crc64(0, "123456789", 9), UINT64_C(0x995dc9bbdf1939fa));
    cr_assert_eq(crc64(crc64(0, "1234567890ab", 12), "c", 1), crc64(0, "1234567890abc", 13));
    cr_assert_eq(crc64(0, NULL, 0), 0);
}

Test(saved_program, what_is_written_is_read) {
    struct saved_program program;
    size_t bytes, again;
    definition.program = 7;
    captures[1] = 12;
    uint8_t *head = pack(SAVED_PROGRAM_IN_FILE, &bytes);
    cr_assert_eq(saved_program_head_bytes(head, bytes + DATA_BYTES, &again, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(again, bytes);
    cr_assert_eq(saved_program_parse(&program, head, bytes, bytes + DATA_BYTES, &fault), STATUS_OK, "%s",
                 fault.message);
    const Tensord__ProgramDefine *read = program.message->definition;
    cr_assert(read->program == 0 && read->captures[1] == 0, "ids of a session are saved");
    cr_assert(program.n_captured == 2 && type_equal(saved_program_captured(&program, 0), &weight) &&
              type_equal(saved_program_captured(&program, 1), &count));
    cr_assert(program.types.n == 6 && program.types.n_parameters == 2);
    cr_assert(program.types.types[5].dtype == DTYPE_F32 && program.types.types[5].shape[0] == 2);
    cr_assert_str_eq(read->operations->labels[0], "product");
    cr_assert(read->n_consumed == 1 && read->n_outputs == 2 && program.message->publication == 99);
    cr_assert_eq(strncmp(program.message->writer, "tensord ", 8), 0);
    saved_program_finish(&program);
    free(head);
}

Test(saved_program, value_of_a_name_has_no_data) {
    struct saved_program program;
    size_t bytes;
    uint8_t *head = pack(SAVED_PROGRAM_UNDER_NAMES, &bytes);
    cr_assert_eq(saved_program_parse(&program, head, bytes, bytes, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(program.place, SAVED_PROGRAM_UNDER_NAMES);
    saved_program_finish(&program);
    free(head);
}

/* ---- what is wrong ---- */

static void refused(const uint8_t *head, size_t bytes, uint64_t file_bytes, int code, const char *words) {
    struct saved_program program;
    cr_expect_eq(saved_program_parse(&program, head, bytes, file_bytes, &fault), code, "%s", fault.message);
    cr_expect(strstr(fault.message, words), "\n%s\nis not in\n%s", words, fault.message);
}

/* The head with so many bytes at `at` replaced, and its checksum as it should be. */
static void refused_with(size_t at, uint64_t value, size_t width, int code, const char *words) {
    size_t bytes;
    uint8_t *head = pack(SAVED_PROGRAM_IN_FILE, &bytes);
    memcpy(head + at, &value, width);
    const uint64_t sum = crc64(0, head, bytes - 8);
    memcpy(head + bytes - 8, &sum, 8);
    refused(head, bytes, bytes + DATA_BYTES, code, words);
    free(head);
}

Test(saved_program, other_files_and_versions_are_refused) {
    static const uint8_t zeros[64];
    refused(zeros, 5, 5, STATUS_INVALID_ARGUMENT, "too short");
    refused(zeros, 64, 64, STATUS_INVALID_ARGUMENT, "is no saved program");
    refused_with(8, 2, 4, STATUS_VERSION, "version 2 of the format, and this version of tensord reads version 1");
    refused_with(12, 2, 4, STATUS_INVALID_ARGUMENT, "in an unknown place, 2");
    refused_with(16, UINT64_MAX, 8, STATUS_INVALID_ARGUMENT, "impossible length");
    refused_with(16, 1 << 24, 8, STATUS_INVALID_ARGUMENT, "impossible length");
    refused_with(24, 1, 8, STATUS_INVALID_ARGUMENT, "and should have 1");
    refused_with(12, 1, 4, STATUS_INVALID_ARGUMENT, "does not have the bytes of its 2 captured tensors");
}

Test(saved_program, each_damaged_byte_is_found) {
    size_t bytes;
    uint8_t *head = pack(SAVED_PROGRAM_IN_FILE, &bytes);
    struct saved_program program;
    for (size_t i = 0; i < bytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            head[i] ^= (uint8_t)(1 << bit);
            cr_assert_neq(saved_program_parse(&program, head, bytes, bytes + DATA_BYTES, &fault), STATUS_OK,
                          "bit %d of byte %zu", bit, i);
            head[i] ^= (uint8_t)(1 << bit);
        }
    for (size_t cut = 0; cut < bytes; cut++)
        cr_assert_neq(saved_program_parse(&program, head, cut, bytes + DATA_BYTES, &fault), STATUS_OK, "%zu", cut);
    refused(head, bytes, bytes + DATA_BYTES - 1, STATUS_INVALID_ARGUMENT, "bytes, and should have");
    free(head);
}

static void refused_definition(int code, const char *words) {
    size_t bytes;
    uint8_t *head = pack(SAVED_PROGRAM_UNDER_NAMES, &bytes);
    refused(head, bytes, bytes, code, words);
    free(head);
    start();
}

Test(saved_program, definition_is_checked) {
    heads[1] = batch_head(60000, 1, 0, 0, 0, 0);
    refused_definition(STATUS_UNSUPPORTED, "operation 2 of the program: this version has no operation 60000");
    heads[0] = batch_head(OP_FREE, 2, 0, 0, 0, 0);
    refused_definition(STATUS_UNSUPPORTED, "operation 1 of the program, free");
    heads[0] = batch_head(OP_MATMUL, 2, 0, 0, BATCH_FLAG_LABEL, 0);
    inputs[0] = 2;
    refused_definition(STATUS_SHAPE, "operation 1 of the program, matmul [product]");
    inputs[0] = 1;
    inputs[2] = 6;
    refused_definition(STATUS_UNKNOWN_ID, "the program has no tensor 6 before it");
    inputs[2] = 5;
    outputs[1] = 7;
    refused_definition(STATUS_UNKNOWN_ID, "result 1: the program has no tensor 7");
    outputs[1] = 2;
    definition.n_outputs = 0;
    refused_definition(STATUS_INVALID_ARGUMENT, "a program without a result");
    consumed[0] = 2;
    refused_definition(STATUS_INVALID_ARGUMENT, "consumed parameters is wrong at entry 0");
    consumed[0] = 0;
    parameters[1] = 4;
    refused_definition(STATUS_INVALID_ARGUMENT, "a list of types ends within a type");
    parameters[1] = 1;
    definition.n_captures = 1;
    refused_definition(STATUS_INVALID_ARGUMENT, "has 2 types of captured tensors, which are 1");
    operations.n_inputs = 2;
    refused_definition(STATUS_INVALID_ARGUMENT, "");
    operations.first_output = 4;
    refused_definition(STATUS_INVALID_ARGUMENT, "the first output has number 4, and 4 tensors are before it");
}

/* A file that launches kernels would launch whatever the session has under that number. */
Test(saved_program, kernels_are_neither_written_nor_read) {
    size_t bytes;
    heads[1] = batch_head(OP_SQRT, 1, 0, 0, 0, 0);
    const uint64_t written = heads[1], kernel = batch_head(OP_KERNEL, 1, 0, 0, 0, 0);
    uint8_t *head = pack(SAVED_PROGRAM_UNDER_NAMES, &bytes), *at = memmem(head, bytes, &written, sizeof written);
    cr_assert_not_null(at);
    memcpy(at, &kernel, sizeof kernel);
    const uint64_t sum = crc64(0, head, bytes - 8);
    memcpy(head + bytes - 8, &sum, 8);
    refused(head, bytes, bytes, STATUS_UNSUPPORTED, "operation 2 of the program is a kernel of the client's own");
    free(head);
    heads[1] = kernel;
    cr_assert_eq(saved_program_pack(&definition, 2, captured, SAVED_PROGRAM_IN_FILE, 0, &head, &bytes, &fault),
                 STATUS_UNSUPPORTED);
}
