/* A saved program made of arbitrary bytes: as a whole file, or as the message in a head that is right (first byte 1: a name's, 2: that of a file with
 * kernels and no captured tensors). What must hold: it is refused with words, or everything in it can be looked up, and what is packed again is the same program. */
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
    bool launched[SAVED_PROGRAM_KERNELS_MAX] = {false};
    require(program->message->n_kernels <= SAVED_PROGRAM_KERNELS_MAX);
    batch_cursor_init(&cursor, definition->operations);
    while (batch_cursor_next(&cursor, &op, &fault) > 0) {
        if (op.opcode == OP_KERNEL) {
            require(op.ints[0] >= 1 && (uint64_t)op.ints[0] <= program->message->n_kernels);
            launched[op.ints[0] - 1] = true;
        }
        for (unsigned i = 0; i < op.n_inputs; i++)
            require(op.inputs[i] >= 1 && op.inputs[i] <= known);
        known += op_request_outputs(&op);
    }
    require(known == program->types.n);
    for (size_t i = 0; i < program->message->n_kernels; i++)
        require(launched[i] && program->message->kernels[i]->name[0]);
    for (size_t i = 0; i < definition->n_outputs; i++)
        require(definition->outputs[i] >= 1 && definition->outputs[i] <= known);
    for (size_t i = 0; i < definition->n_consumed; i++)
        require(definition->consumed[i] < program->types.n_parameters);
    for (size_t i = 0; i < program->types.n; i++)
        require(type_bytes(&program->types.types[i]) >= 0);
}

static void check_again(struct saved_program *program) {
    const struct tensor_type **captured = malloc((program->n_captured + 1) * sizeof *captured);
    const Tensord__SavedProgram *message = program->message;
    unsigned n_kernels = (unsigned)message->n_kernels;
    enum saved_program_place place = n_kernels ? SAVED_PROGRAM_IN_FILE : SAVED_PROGRAM_UNDER_NAMES;
    struct saved_kernel kernels[SAVED_PROGRAM_KERNELS_MAX];
    uint64_t ids[SAVED_PROGRAM_KERNELS_MAX], data = 0;
    struct saved_program again;
    struct fault fault;
    uint8_t *head;
    size_t bytes;
    for (unsigned i = 0; i < program->n_captured; i++) {
        captured[i] = saved_program_captured(program, i);
        data += n_kernels ? (uint64_t)type_bytes(captured[i]) + SAVED_PROGRAM_SUM_BYTES : 0;
    }
    for (unsigned i = 0; i < n_kernels; i++) {
        ids[i] = UINT64_MAX - i;
        kernels[i] = (struct saved_kernel){ids[i], message->kernels[i]->source, message->kernels[i]->name};
    }
    if (n_kernels)
        saved_program_bind_kernels(program, ids);
    int code = saved_program_pack(message->definition, program->n_captured, captured, n_kernels, kernels, place, 1,
                                  &head, &bytes, &fault);
    free(captured);
    if (code == STATUS_LIMIT) /* fields that it does not know are packed, too */
        return;
    require(code == STATUS_OK);
    require(saved_program_parse(&again, head, bytes, bytes + data, &fault) == STATUS_OK);
    check_numbers(&again);
    require(again.n_captured == program->n_captured && again.types.n == program->types.n);
    require(again.message->n_kernels == n_kernels);
    for (unsigned i = 0; i < n_kernels; i++)
        require(!strcmp(again.message->kernels[i]->source, message->kernels[i]->source) &&
                !strcmp(again.message->kernels[i]->name, message->kernels[i]->name));
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
static void parse_message(const uint8_t *message, size_t bytes, uint32_t version, enum saved_program_place place) {
    const uint32_t numbers[2] = {version, place};
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
        parse_message(data + 1, size - 1, SAVED_PROGRAM_VERSION, SAVED_PROGRAM_UNDER_NAMES);
    else if (size && data[0] == 2 && size <= SAVED_PROGRAM_MESSAGE_MAX)
        parse_message(data + 1, size - 1, SAVED_PROGRAM_VERSION_KERNELS, SAVED_PROGRAM_IN_FILE);
    else if (size)
        parse(data + 1, size - 1, size - 1);
    return 0;
}
