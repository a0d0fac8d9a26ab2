/* A saved program made of arbitrary bytes: as a whole file, or (first byte 1) as the message in a head that is right. What must hold: it is
 * refused with words, or everything in it can be looked up, and what is packed again is the same program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/files/crc64.h"
#include "proto/files/saved_program.h"
#include "proto/wire/batch.h"

/* An assertion that no build leaves out. */
#define require(holds)                                                                                                 \
    ((holds) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds), abort()))

static void check_numbers(const struct saved_program *program) {
    const Tensord__ProgramDefine *definition = program->message->definition;
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    uint64_t known = program->types.n_parameters + program->n_captured;
    require(definition->operations->first_output == known + 1);
    batch_cursor_init(&cursor, definition->operations);
    while (batch_cursor_next(&cursor, &op, &fault) > 0) {
        for (unsigned i = 0; i < op.n_inputs; i++)
            require(op.inputs[i] >= 1 && op.inputs[i] <= known);
        known += op_request_outputs(&op);
    }
    require(known == program->types.n);
    for (size_t i = 0; i < definition->n_outputs; i++)
        require(definition->outputs[i] >= 1 && definition->outputs[i] <= known);
    for (size_t i = 0; i < definition->n_consumed; i++)
        require(definition->consumed[i] < program->types.n_parameters);
    for (size_t i = 0; i < program->types.n; i++)
        require(type_bytes(&program->types.types[i]) >= 0);
}

static void check_again(struct saved_program *program) {
    const struct tensor_type **captured = malloc((program->n_captured + 1) * sizeof *captured);
    struct saved_program again;
    struct fault fault;
    uint8_t *head;
    size_t bytes;
    for (unsigned i = 0; i < program->n_captured; i++)
        captured[i] = saved_program_captured(program, i);
    int code = saved_program_pack(program->message->definition, program->n_captured, captured,
                                  SAVED_PROGRAM_UNDER_NAMES, 1, &head, &bytes, &fault);
    free(captured);
    if (code == STATUS_LIMIT) /* fields that it does not know are packed, too */
        return;
    require(code == STATUS_OK);
    require(saved_program_parse(&again, head, bytes, bytes, &fault) == STATUS_OK);
    require(again.n_captured == program->n_captured && again.types.n == program->types.n);
    for (size_t i = 0; i < again.types.n; i++)
        require(type_equal(&again.types.types[i], &program->types.types[i]));
    saved_program_finish(&again);
    free(head);
}

static void parse(const uint8_t *head, size_t bytes, uint64_t file_bytes) {
    struct saved_program program;
    struct fault fault = {0};
    int code = saved_program_parse(&program, head, bytes, file_bytes, &fault);
    if (code != STATUS_OK) {
        require((int)fault.code == code && fault.message[0]);
        return;
    }
    check_numbers(&program);
    check_again(&program);
    saved_program_finish(&program);
}

/* A head that is right but for its message. */
static void parse_message(const uint8_t *message, size_t bytes) {
    const uint32_t numbers[2] = {SAVED_PROGRAM_VERSION, SAVED_PROGRAM_UNDER_NAMES};
    size_t sum_at = SAVED_PROGRAM_START_BYTES + bytes, all = sum_at + SAVED_PROGRAM_SUM_BYTES;
    const uint64_t counts[2] = {bytes, all};
    uint8_t *head = malloc(all);
    require(head);
    memcpy(head, "TSDPROG\n", 8);
    memcpy(head + 8, numbers, sizeof numbers);
    memcpy(head + 16, counts, sizeof counts);
    memcpy(head + SAVED_PROGRAM_START_BYTES, message, bytes);
    const uint64_t sum = crc64(0, head, sum_at);
    memcpy(head + sum_at, &sum, sizeof sum);
    parse(head, all, all);
    free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] == 1 && size <= SAVED_PROGRAM_MESSAGE_MAX)
        parse_message(data + 1, size - 1);
    else if (size)
        parse(data + 1, size - 1, size - 1);
    return 0;
}
