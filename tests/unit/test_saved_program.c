/* Saved programs: what is written, what is read, and everything that can be wrong with a file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/files/crc64.h"
#include "proto/files/saved_program.h"
#include "proto/ops/kernel.h"
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
static struct saved_kernel kernels[3];
static unsigned n_kernels;

static void start(void) {
    n_kernels = 0;
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
    cr_assert_eq(saved_program_pack(&definition, 2, captured, n_kernels, kernels, place, 99, &head, bytes, &fault),
                 STATUS_OK, "%s", fault.message);
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
    refused_with(8, 0, 4, STATUS_VERSION, "version 0 of the format, and this version of tensord reads versions 1 to 2");
    refused_with(8, 3, 4, STATUS_VERSION, "version 3 of the format, and this version of tensord reads versions 1 to 2");
    refused_with(12, 2, 4, STATUS_INVALID_ARGUMENT, "in an unknown place, 2");
    refused_with(16, UINT64_MAX, 8, STATUS_INVALID_ARGUMENT, "impossible length");
    refused_with(16, 1 << 24, 8, STATUS_INVALID_ARGUMENT, "impossible length");
    refused_with(24, 1, 8, STATUS_INVALID_ARGUMENT, "and should have 1");
    refused_with(12, 1, 4, STATUS_INVALID_ARGUMENT, "does not have the bytes of its 2 captured tensors");
}

static void expect_each_damaged_byte_is_found(void) {
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

Test(saved_program, each_damaged_byte_is_found) {
    expect_each_damaged_byte_is_found();
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

/* ---- clients' kernels ---- */

enum { LAUNCH_INTS = 19, KERNEL_A = 40, KERNEL_B = 41, KERNEL_C = 42 };

static uint64_t launch_heads[4], launch_inputs[5];
static int64_t launch_ints[3 * LAUNCH_INTS];

/* (x, y) -> (A(B(A(x · w))), y), whose kernels take an input, a number and an output of type f32 (2,). */
static void start_kernels(void) {
    const int64_t launch[LAUNCH_INTS] = {
        0, 0, 3, 1, 1, 1, 3, 32, 1, 1, 3, KERNEL_INPUT, KERNEL_BITS32, KERNEL_OUTPUT, 1, 7, DTYPE_F32, 1, 2};
    start();
    launch_heads[0] = heads[0];
    launch_inputs[0] = 1;
    launch_inputs[1] = 3;
    for (unsigned i = 0; i < 3; i++) {
        launch_heads[1 + i] = batch_head(OP_KERNEL, 1, LAUNCH_INTS, 0, 0, 0);
        launch_inputs[2 + i] = 5 + i;
        memcpy(&launch_ints[i * LAUNCH_INTS], launch, sizeof launch);
        launch_ints[i * LAUNCH_INTS] = i % 2 ? KERNEL_B : KERNEL_A;
    }
    operations.n_heads = 4;
    operations.heads = launch_heads;
    operations.n_inputs = 5;
    operations.inputs = launch_inputs;
    operations.n_ints = 3 * LAUNCH_INTS;
    operations.ints = launch_ints;
    outputs[0] = 8;
    n_kernels = 2;
    kernels[0] = (struct saved_kernel){KERNEL_B, "// of b\n", "b<float>"};
    kernels[1] = (struct saved_kernel){KERNEL_A, "// of a\n", "a"};
}

Test(saved_program, kernels_are_in_the_file, .init = start_kernels) {
    static const uint64_t ids[] = {7, 9};
    struct saved_program program;
    size_t bytes;
    uint8_t *head = pack(SAVED_PROGRAM_IN_FILE, &bytes);
    cr_assert_eq(head[8], 2, "readers of version 1 do not know kernels");
    cr_assert_eq(saved_program_parse(&program, head, bytes, bytes + DATA_BYTES, &fault), STATUS_OK, "%s",
                 fault.message);
    cr_assert_eq(program.message->n_kernels, 2);
    cr_assert_str_eq(program.message->kernels[0]->name, "b<float>");
    cr_assert_str_eq(program.message->kernels[0]->source, "// of b\n");
    cr_assert_str_eq(program.message->kernels[1]->name, "a");
    const int64_t *ints = program.message->definition->operations->ints;
    cr_assert(ints[0] == 2 && ints[LAUNCH_INTS] == 1 && ints[2 * LAUNCH_INTS] == 2, "launches have no numbers");
    saved_program_bind_kernels(&program, ids);
    cr_assert(ints[0] == 9 && ints[LAUNCH_INTS] == 7 && ints[2 * LAUNCH_INTS] == 9);
    saved_program_finish(&program);
    free(head);
}

Test(saved_program, file_without_kernels_has_version_1) {
    size_t bytes;
    uint8_t *head = pack(SAVED_PROGRAM_IN_FILE, &bytes);
    cr_assert_eq(head[8], 1);
    free(head);
}

Test(saved_program, each_damaged_byte_of_kernels_is_found, .init = start_kernels) {
    expect_each_damaged_byte_is_found();
}

/* Each compiled kernel has its own __device__ variables, so two that are alike are two. */
Test(saved_program, kernels_that_are_alike_stay_two, .init = start_kernels) {
    struct saved_program program;
    size_t bytes;
    kernels[1].source = kernels[0].source;
    kernels[1].name = kernels[0].name;
    uint8_t *head = pack(SAVED_PROGRAM_IN_FILE, &bytes);
    cr_assert_eq(saved_program_parse(&program, head, bytes, bytes + DATA_BYTES, &fault), STATUS_OK, "%s",
                 fault.message);
    cr_assert_eq(program.message->n_kernels, 2);
    saved_program_finish(&program);
    free(head);
}

static void not_packed(enum saved_program_place place, int code, const char *words) {
    uint8_t *head = NULL;
    size_t bytes;
    cr_expect_eq(saved_program_pack(&definition, 2, captured, n_kernels, kernels, place, 99, &head, &bytes, &fault),
                 code, "%s", fault.message);
    cr_expect(strstr(fault.message, words), "\n%s\nis not in\n%s", words, fault.message);
    cr_expect_null(head);
    start_kernels();
}

static char *long_text(size_t bytes) {
    char *text = malloc(bytes + 1);
    cr_assert_not_null(text);
    memset(text, 'k', bytes);
    text[bytes] = 0;
    return text;
}

/* Nothing is written that would not be read. */
Test(saved_program, what_a_file_cannot_have_is_not_written, .init = start_kernels) {
    char *name = long_text(KERNEL_NAME_MAX + 1), *source = long_text(FRAME_SOURCE_MAX + 1);
    not_packed(SAVED_PROGRAM_UNDER_NAMES, STATUS_UNSUPPORTED,
               "operation 2 of the program is a kernel of the client's own, which cannot be saved under a name");
    n_kernels = 1;
    not_packed(SAVED_PROGRAM_IN_FILE, STATUS_INVALID_ARGUMENT,
               "operation 2 of the program launches kernel 0, and there are 1");
    kernels[1].name = "a\x1b[2J";
    not_packed(SAVED_PROGRAM_IN_FILE, STATUS_INVALID_ARGUMENT, "the name of kernel 2 has a character");
    kernels[1].name = name;
    not_packed(SAVED_PROGRAM_IN_FILE, STATUS_INVALID_ARGUMENT, "kernel 2 has a name of 256 bytes");
    source[FRAME_SOURCE_MAX] = 0;
    launch_ints[2 * LAUNCH_INTS] = KERNEL_C;
    n_kernels = 3;
    kernels[2] = (struct saved_kernel){KERNEL_C, source, "c"};
    kernels[0].source = kernels[1].source = source;
    not_packed(SAVED_PROGRAM_IN_FILE, STATUS_LIMIT, "the limit is 2097152");
    free(source);
    free(name);
}

/* ---- files with kernels that are wrong ---- */

/* The head of a file with the kernels {name, source} of that many bytes, whatever they are; the launches have the numbers 1, 2 and 1 if these are there. */
static uint8_t *raw_kernels(unsigned n, const char *const names[], const size_t name_bytes[], const char *source,
                            size_t source_bytes, size_t *bytes) {
    Tensord__SavedProgram message = TENSORD__SAVED_PROGRAM__INIT;
    int64_t types[8];
    message.definition = &definition;
    message.captured = types;
    message.n_captured = program_type_write(&weight, types);
    message.n_captured += program_type_write(&count, types + message.n_captured);
    size_t packed = tensord__saved_program__get_packed_size(&message), room = packed + 64;
    for (unsigned i = 0; i < n; i++)
        room += name_bytes[i] + source_bytes + 32;
    uint8_t *head = malloc(room), *at = head + SAVED_PROGRAM_START_BYTES;
    cr_assert_not_null(head);
    at += tensord__saved_program__pack(&message, at);
    for (unsigned i = 0; i < n; i++) { /* fields 5, and in it 2 and 3, with lengths of four bytes each */
        size_t lengths[3] = {10 + source_bytes + name_bytes[i], source_bytes, name_bytes[i]};
        const uint8_t tags[3] = {5 << 3 | 2, 2 << 3 | 2, 3 << 3 | 2};
        for (int k = 0; k < 3; k++) {
            *at++ = tags[k];
            for (int digit = 0; digit < 4; digit++)
                *at++ = (uint8_t)((lengths[k] >> 7 * digit & 0x7f) | (digit < 3 ? 0x80 : 0));
            const void *text = k == 1 ? source : k == 2 ? names[i] : NULL;
            if (text)
                memcpy(at, text, lengths[k]);
            at += text ? lengths[k] : 0;
        }
    }
    const size_t sum_at = (size_t)(at - head);
    const uint32_t numbers[2] = {SAVED_PROGRAM_VERSION_KERNELS, SAVED_PROGRAM_IN_FILE};
    const uint64_t counts[2] = {sum_at - SAVED_PROGRAM_START_BYTES, sum_at + 8 + DATA_BYTES};
    memcpy(head, "TSDPROG\n", 8);
    memcpy(head + 8, numbers, sizeof numbers);
    memcpy(head + 16, counts, sizeof counts);
    const uint64_t sum = crc64(0, head, sum_at);
    memcpy(at, &sum, 8);
    *bytes = sum_at + 8;
    return head;
}

static void refused_kernels(unsigned n, const char *const names[], const size_t name_bytes[], const char *source,
                            size_t source_bytes, int code, const char *words) {
    size_t bytes;
    uint8_t *head = raw_kernels(n, names, name_bytes, source, source_bytes, &bytes);
    refused(head, bytes, bytes + DATA_BYTES, code, words);
    free(head);
}

static void numbers(int64_t first, int64_t second, int64_t third) {
    launch_ints[0] = first;
    launch_ints[LAUNCH_INTS] = second;
    launch_ints[2 * LAUNCH_INTS] = third;
}

/* The second kernel has this name. */
static void refused_name(const char *name, size_t bytes, const char *words) {
    refused_kernels(2, (const char *const[]){"a", name}, (const size_t[]){1, bytes}, "// a source", 11,
                    STATUS_INVALID_ARGUMENT, words);
}

Test(saved_program, names_of_kernels_are_checked, .init = start_kernels) {
    char *name = long_text(KERNEL_NAME_MAX + 1);
    numbers(1, 2, 1);
    refused_name("", 0, "kernel 2 has a name of 0 bytes");
    refused_name(name, KERNEL_NAME_MAX + 1, "kernel 2 has a name of 256 bytes");
    refused_name("b\0b", 3, "has a text with a NUL byte");
    refused_name("b\nb", 3, "the name of kernel 2 has a character that cannot be shown");
    refused_name("b\u202e", 4, "the name of kernel 2 has a character that cannot be shown");
    refused_name("b\xff", 2, "the name of kernel 2 is not UTF-8");
    free(name);
}

Test(saved_program, sources_of_kernels_are_checked, .init = start_kernels) {
    const char *const names[] = {"a"};
    const size_t name_bytes[] = {1};
    char *source = long_text(FRAME_SOURCE_MAX + 1);
    numbers(1, 1, 1);
    refused_kernels(1, names, name_bytes, source, FRAME_SOURCE_MAX + 1, STATUS_INVALID_ARGUMENT,
                    "kernel 1, a, has a source of 1047553 bytes, the limit is 1047552");
    refused_kernels(1, names, name_bytes, "a\0b", 3, STATUS_INVALID_ARGUMENT, "has a text with a NUL byte");
    free(source);
}

Test(saved_program, numbers_of_kernels_are_checked, .init = start_kernels) {
    const char *const names[] = {"a", "b"};
    const size_t name_bytes[] = {1, 1};
    for (int i = 0; i < 3; i++) {
        static const int64_t wrong[] = {0, -1, 3};
        char words[100];
        numbers(1, 2, wrong[i]);
        snprintf(words, sizeof words, "operation 4 of the program launches kernel %lld, and there are 2",
                 (long long)wrong[i]);
        refused_kernels(2, names, name_bytes, "s", 1, STATUS_INVALID_ARGUMENT, words);
    }
    numbers(1, 1, 1);
    refused_kernels(2, names, name_bytes, "s", 1, STATUS_INVALID_ARGUMENT, "no operation launches kernel 2, b");
    refused_kernels(0, names, name_bytes, "s", 1, STATUS_INVALID_ARGUMENT, "launches kernel 1, and there are 0");
}

Test(saved_program, so_many_kernels_are_too_many, .init = start_kernels) {
    const char *names[SAVED_PROGRAM_KERNELS_MAX + 1];
    size_t name_bytes[SAVED_PROGRAM_KERNELS_MAX + 1];
    for (int i = 0; i <= SAVED_PROGRAM_KERNELS_MAX; i++) {
        names[i] = "a";
        name_bytes[i] = 1;
    }
    numbers(1, 1, 1);
    refused_kernels(SAVED_PROGRAM_KERNELS_MAX + 1, names, name_bytes, "s", 1, STATUS_LIMIT,
                    "257 kernels, the limit is 256");
}

/* A launch of a number would launch whatever the reader's session has under it. */
Test(saved_program, version_1_and_names_have_no_kernels, .init = start_kernels) {
    size_t bytes;
    const char *words = "operation 2 of the program is a kernel of the client's own";
    refused_with(8, 1, 4, STATUS_UNSUPPORTED, words);
    start_kernels();
    uint8_t *head = pack(SAVED_PROGRAM_IN_FILE, &bytes);
    const uint32_t place = SAVED_PROGRAM_UNDER_NAMES;
    memcpy(head + 12, &place, 4);
    memcpy(head + 24, &(uint64_t){bytes}, 8);
    const uint64_t sum = crc64(0, head, bytes - 8);
    memcpy(head + bytes - 8, &sum, 8);
    refused(head, bytes, bytes, STATUS_UNSUPPORTED, words);
    free(head);
}
