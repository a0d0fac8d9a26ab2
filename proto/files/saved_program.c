#include "proto/files/saved_program.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/files/crc64.h"
#include "proto/files/file.h"
#include "proto/ops/cleanup.h"
#include "proto/ops/kernel.h"
#include "proto/ops/utf8.h"
#include "proto/wire/batch.h"
#include "proto/wire/check.h"

static const char magic[8] = {'T', 'S', 'D', 'P', 'R', 'O', 'G', '\n'};

enum { AT_VERSION = 8, AT_PLACE = 12, AT_MESSAGE_BYTES = 16, AT_FILE_BYTES = 24 };

#define WRONG(fault, ...) fault_set(fault, STATUS_INVALID_ARGUMENT, __VA_ARGS__)

static uint64_t get64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* ---- kernels ---- */

/* The next launch of a kernel that has attributes: where its kernel is, by id or number. NULL: there is none. */
static int64_t *next_launch(struct batch_cursor *cursor) {
    struct op_request op;
    struct fault ignored;
    while (batch_cursor_next(cursor, &op, &ignored) > 0)
        if (op.opcode == OP_KERNEL && op.n_ints)
            return &cursor->batch->ints[op.ints - cursor->batch->ints];
    return NULL;
}

/* A name's program is opened by others, and a file of version 1 has no kernels, so that a number would be that of any kernel of the reader's session. */
static int refuse_kernels(const Tensord__SavedProgram *message, enum saved_program_place place, struct fault *fault) {
    struct batch_cursor cursor;
    struct op_request op;
    batch_cursor_init(&cursor, message->definition->operations);
    while (batch_cursor_next(&cursor, &op, fault) > 0)
        if (op.opcode == OP_KERNEL)
            return fault_set(fault, STATUS_UNSUPPORTED,
                             "operation %zu of the program is a kernel of the client's own, which cannot be saved%s",
                             cursor.op, place == SAVED_PROGRAM_UNDER_NAMES ? " under a name" : "");
    if (message->n_kernels)
        return WRONG(fault, "has kernels, which %s cannot have",
                     place == SAVED_PROGRAM_UNDER_NAMES ? "a program under a name" : "version 1 of the format");
    return STATUS_OK;
}

static int check_kernel(const Tensord__KernelCompile *kernel, size_t number, struct fault *fault) {
    size_t bytes = strlen(kernel->name), source_bytes = strlen(kernel->source);
    const char *at = kernel->name;
    if (!bytes || bytes > KERNEL_NAME_MAX)
        return WRONG(fault, "kernel %zu has a name of %zu bytes, and 1 to %d are possible", number, bytes,
                     KERNEL_NAME_MAX);
    if (!utf8_is_valid(kernel->name))
        return WRONG(fault, "the name of kernel %zu is not UTF-8", number);
    while (*at)
        if (utf8_is_unsafe(utf8_next(&at)))
            return WRONG(fault, "the name of kernel %zu has a character that cannot be shown", number);
    if (source_bytes > FRAME_SOURCE_MAX)
        return WRONG(fault, "kernel %zu, %.63s, has a source of %zu bytes, the limit is %d", number, kernel->name,
                     source_bytes, FRAME_SOURCE_MAX);
    return STATUS_OK;
}

/* Whether each launch has a kernel, and each kernel a launch. The operations have been checked. */
static int check_kernels(const Tensord__SavedProgram *message, struct fault *fault) {
    bool launched[SAVED_PROGRAM_KERNELS_MAX] = {false};
    struct batch_cursor cursor;
    int code = STATUS_OK;
    if (message->n_kernels > SAVED_PROGRAM_KERNELS_MAX)
        return fault_set(fault, STATUS_LIMIT, "%zu kernels, the limit is %d", message->n_kernels,
                         SAVED_PROGRAM_KERNELS_MAX);
    for (size_t i = 0; i < message->n_kernels && code == STATUS_OK; i++)
        code = check_kernel(message->kernels[i], i + 1, fault);
    if (code != STATUS_OK)
        return code;
    batch_cursor_init(&cursor, message->definition->operations);
    for (const int64_t *number; (number = next_launch(&cursor));) {
        if (*number < 1 || (uint64_t)*number > message->n_kernels)
            return WRONG(fault, "operation %zu of the program launches kernel %" PRId64 ", and there are %zu",
                         cursor.op, *number, message->n_kernels);
        launched[*number - 1] = true;
    }
    for (size_t i = 0; i < message->n_kernels; i++)
        if (!launched[i])
            return WRONG(fault, "no operation launches kernel %zu, %.63s", i + 1, message->kernels[i]->name);
    return STATUS_OK;
}

void saved_program_bind_kernels(struct saved_program *program, const uint64_t ids[]) {
    struct batch_cursor cursor;
    batch_cursor_init(&cursor, program->message->definition->operations);
    for (int64_t *number; (number = next_launch(&cursor));)
        *number = (int64_t)ids[*number - 1];
}

/* ---- writing ---- */

/* The bytes of the captured tensors in a file, with their sums. */
static uint64_t data_bytes(unsigned n, const struct tensor_type *const captured[]) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += (uint64_t)type_bytes(captured[i]) + SAVED_PROGRAM_SUM_BYTES;
    return bytes;
}

static int pack(const Tensord__SavedProgram *message, enum saved_program_place place, uint64_t data, uint8_t **head,
                size_t *head_bytes, struct fault *fault) {
    const uint32_t numbers[2] = {message->n_kernels ? SAVED_PROGRAM_VERSION_KERNELS : SAVED_PROGRAM_VERSION, place};
    size_t bytes = tensord__saved_program__get_packed_size(message);
    if (bytes > SAVED_PROGRAM_MESSAGE_MAX)
        return fault_set(fault, STATUS_LIMIT, "a program whose description has %zu bytes, the limit is %d", bytes,
                         SAVED_PROGRAM_MESSAGE_MAX);
    size_t sum_at = SAVED_PROGRAM_START_BYTES + bytes, all = sum_at + SAVED_PROGRAM_SUM_BYTES;
    const uint64_t counts[2] = {bytes, all + (place == SAVED_PROGRAM_IN_FILE ? data : 0)};
    uint8_t *out = malloc(all);
    if (!out)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a program of %zu bytes", bytes);
    memcpy(out, magic, sizeof magic);
    memcpy(out + AT_VERSION, numbers, sizeof numbers);
    memcpy(out + AT_MESSAGE_BYTES, counts, sizeof counts);
    tensord__saved_program__pack(message, out + SAVED_PROGRAM_START_BYTES);
    const uint64_t sum = crc64(0, out, sum_at);
    memcpy(out + sum_at, &sum, sizeof sum);
    *head = out;
    *head_bytes = all;
    return STATUS_OK;
}

/* Kernels on their way into a file. */
struct packed_kernels {
    Tensord__KernelCompile messages[SAVED_PROGRAM_KERNELS_MAX], *list[SAVED_PROGRAM_KERNELS_MAX];
};

/* Puts the kernels into the message, and their numbers into the launches. */
static int pack_kernels(Tensord__SavedProgram *message, unsigned n, const struct saved_kernel kernels[],
                        struct packed_kernels *packed, struct fault *fault) {
    struct batch_cursor cursor;
    for (unsigned i = 0; i < n; i++) {
        packed->list[i] = &packed->messages[i];
        tensord__kernel_compile__init(packed->list[i]);
        packed->list[i]->source = (char *)(uintptr_t)kernels[i].source;
        packed->list[i]->name = (char *)(uintptr_t)kernels[i].name;
    }
    message->n_kernels = n;
    message->kernels = packed->list;
    batch_cursor_init(&cursor, message->definition->operations);
    for (int64_t *id; (id = next_launch(&cursor));) {
        unsigned number = 0;
        while (number < n && kernels[number].id != (uint64_t)*id)
            number++;
        *id = number < n ? number + 1 : 0;
    }
    return check_kernels(message, fault);
}

int saved_program_pack(Tensord__ProgramDefine *definition, unsigned n_captured,
                       const struct tensor_type *const captured[], unsigned n_kernels,
                       const struct saved_kernel kernels[], enum saved_program_place place, uint64_t publication,
                       uint8_t **head, size_t *head_bytes, struct fault *fault) {
    Tensord__SavedProgram message = TENSORD__SAVED_PROGRAM__INIT;
    message.definition = definition;
    if (n_kernels > SAVED_PROGRAM_KERNELS_MAX)
        return fault_set(fault, STATUS_LIMIT, "a program with %u kernels, the limit is %d", n_kernels,
                         SAVED_PROGRAM_KERNELS_MAX);
    CLEANUP(free) struct packed_kernels *packed = malloc(sizeof *packed);
    if (!packed)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a program of %u kernels", n_kernels);
    int code = place == SAVED_PROGRAM_UNDER_NAMES ? refuse_kernels(&message, place, fault)
                                                  : pack_kernels(&message, n_kernels, kernels, packed, fault);
    if (code != STATUS_OK)
        return code;
    CLEANUP(free) int64_t *types = malloc((size_t)n_captured * (2 + SHAPE_RANK_MAX) * sizeof *types + 1);
    if (!types)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a program of %u captured tensors", n_captured);
    for (unsigned i = 0; i < n_captured; i++)
        message.n_captured += program_type_write(captured[i], types + message.n_captured);
    for (size_t i = 0; i < definition->n_captures; i++)
        definition->captures[i] = 0;
    definition->program = 0;
    message.captured = types;
    message.publication = publication;
    message.writer = (char *)(uintptr_t)("tensord " TENSORD_VERSION);
    return pack(&message, place, data_bytes(n_captured, captured), head, head_bytes, fault);
}

/* ---- reading ---- */

int saved_program_head_bytes(const uint8_t start[SAVED_PROGRAM_START_BYTES], uint64_t file_bytes, size_t *bytes,
                             struct fault *fault) {
    uint64_t message = get64(start + AT_MESSAGE_BYTES), least = SAVED_PROGRAM_START_BYTES + SAVED_PROGRAM_SUM_BYTES;
    uint32_t version = get32(start + AT_VERSION);
    if (memcmp(start, magic, sizeof magic))
        return WRONG(fault, "is no saved program");
    if (version < SAVED_PROGRAM_VERSION || version > SAVED_PROGRAM_VERSION_KERNELS)
        return fault_set(fault, STATUS_VERSION,
                         "is a program in version %" PRIu32
                         " of the format, and this version of tensord reads versions %d to %d",
                         version, SAVED_PROGRAM_VERSION, SAVED_PROGRAM_VERSION_KERNELS);
    if (get32(start + AT_PLACE) > SAVED_PROGRAM_UNDER_NAMES)
        return WRONG(fault, "has its captured tensors in an unknown place, %" PRIu32, get32(start + AT_PLACE));
    if (get64(start + AT_FILE_BYTES) != file_bytes)
        return WRONG(fault, "has %" PRIu64 " bytes, and should have %" PRIu64, file_bytes,
                     get64(start + AT_FILE_BYTES));
    if (file_bytes < least || message > file_bytes - least || message > SAVED_PROGRAM_MESSAGE_MAX)
        return WRONG(fault, "has an impossible length of its description, %" PRIu64 " bytes", message);
    *bytes = (size_t)(least + message);
    return STATUS_OK;
}

static int unpack(struct saved_program *program, const uint8_t *message, size_t bytes, struct fault *fault) {
    enum { FIELDS_MAX = 2 * OP_PROGRAM_VALUES_MAX * (2 + SHAPE_RANK_MAX) };
    if (message_fields_look(&tensord__saved_program__descriptor, message, bytes, FIELDS_MAX) != MESSAGE_FIELDS_FINE)
        return WRONG(fault, "has a malformed description");
    if (message_has_nul(&tensord__saved_program__descriptor, message, bytes))
        return WRONG(fault, "has a text with a NUL byte");
    bool no_memory;
    program->message =
        (Tensord__SavedProgram *)message_unpack(&tensord__saved_program__descriptor, message, bytes, &no_memory);
    if (no_memory)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "needs more memory than there is: %zu bytes, unpacked", bytes);
    if (!program->message || !program->message->definition || !program->message->definition->operations)
        return WRONG(fault, "has a malformed description");
    return STATUS_OK;
}

static int check(struct saved_program *program, uint32_t version, uint64_t file_bytes, struct fault *fault) {
    const Tensord__SavedProgram *message = program->message;
    uint64_t bytes = program->head_bytes;
    CLEANUP(free) struct tensor_type *captured = malloc((message->n_captured / 2 + 1) * sizeof *captured);
    if (!captured)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to check a program");
    int code = program_types_read(message->captured, message->n_captured, captured, &program->n_captured, fault);
    if (code != STATUS_OK)
        return code;
    if (program->n_captured != message->definition->n_captures)
        return WRONG(fault, "has %u types of captured tensors, which are %zu", program->n_captured,
                     message->definition->n_captures);
    for (unsigned i = 0; i < program->n_captured && program->place == SAVED_PROGRAM_IN_FILE; i++) {
        bytes += (uint64_t)type_bytes(&captured[i]) + SAVED_PROGRAM_SUM_BYTES;
        if (bytes > file_bytes) /* before the sum overflows */
            break;
    }
    if (bytes != file_bytes)
        return WRONG(fault, "does not have the bytes of its %u captured tensors behind its head", program->n_captured);
    bool kernels = version == SAVED_PROGRAM_VERSION_KERNELS && program->place == SAVED_PROGRAM_IN_FILE;
    code = kernels ? STATUS_OK : refuse_kernels(message, program->place, fault);
    if (code == STATUS_OK)
        code = program_types_init(&program->types, message->definition, captured, fault);
    if (code != STATUS_OK || !kernels)
        return code;
    code = check_kernels(message, fault);
    if (code != STATUS_OK)
        program_types_finish(&program->types);
    return code;
}

int saved_program_parse(struct saved_program *program, const uint8_t *head, size_t bytes, uint64_t file_bytes,
                        struct fault *fault) {
    size_t whole;
    *program = (struct saved_program){.head_bytes = bytes};
    if (bytes < SAVED_PROGRAM_START_BYTES || file_bytes < bytes)
        return WRONG(fault, "is too short for a saved program");
    int code = saved_program_head_bytes(head, file_bytes, &whole, fault);
    if (code != STATUS_OK)
        return code;
    size_t sum_at = whole - SAVED_PROGRAM_SUM_BYTES;
    if (bytes < whole || get64(head + sum_at) != crc64(0, head, sum_at))
        return WRONG(fault, "is damaged: the checksum of its description is wrong");
    program->head_bytes = whole;
    program->place = (enum saved_program_place)get32(head + AT_PLACE);
    code = unpack(program, head + SAVED_PROGRAM_START_BYTES, sum_at - SAVED_PROGRAM_START_BYTES, fault);
    if (code == STATUS_OK)
        code = check(program, get32(head + AT_VERSION), file_bytes, fault);
    if (code != STATUS_OK) {
        program->types = (struct program_types){.types = NULL};
        saved_program_finish(program);
    }
    return code;
}

static int read_whole(int fd, void *to, size_t bytes, struct fault *fault) {
    if (whole_read(fd, to, bytes, 0))
        return STATUS_OK;
    return WRONG(fault, "%s", errno ? strerror(errno) : "has been cut off meanwhile");
}

int saved_program_read(struct saved_program *program, int fd, struct fault *fault) {
    uint8_t start[SAVED_PROGRAM_START_BYTES];
    struct stat stat;
    size_t bytes = 0;
    if (fstat(fd, &stat) || !S_ISREG(stat.st_mode))
        return WRONG(fault, "is no ordinary file");
    if (stat.st_size < SAVED_PROGRAM_START_BYTES)
        return WRONG(fault, "is too short for a saved program");
    int code = read_whole(fd, start, sizeof start, fault);
    if (code == STATUS_OK)
        code = saved_program_head_bytes(start, (uint64_t)stat.st_size, &bytes, fault);
    if (code != STATUS_OK)
        return code;
    if (get32(start + AT_PLACE) != SAVED_PROGRAM_IN_FILE)
        return WRONG(fault, "was the value of a name, and its captured tensors are not in it");
    CLEANUP(free) uint8_t *head = malloc(bytes);
    if (!head)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a program of %zu bytes", bytes);
    code = read_whole(fd, head, bytes, fault);
    return code == STATUS_OK ? saved_program_parse(program, head, bytes, (uint64_t)stat.st_size, fault) : code;
}

void saved_program_finish(struct saved_program *program) {
    if (program->message)
        tensord__saved_program__free_unpacked(program->message, NULL);
    program_types_finish(&program->types);
}
