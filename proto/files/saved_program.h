/* Recorded programs in files, and as values of names. All numbers are little-endian.
 *
 *   offset  0  8 bytes "TSDPROG\n"
 *           8  u32  version of the format: 1; 2: the operations launch clients' kernels, which are in the message
 *          12  u32  where the captured tensors' elements are: 0: behind the head; 1: under names
 *          16  u64  bytes of the message
 *          24  u64  bytes of the file
 *          32  the message, SavedProgram (proto/wire/tensord.proto)
 *              u64  CRC-64/XZ of everything so far: here the head ends
 *   then of each captured tensor, in the order of message SavedProgram:
 *              its elements, row-major
 *              u64  CRC-64/XZ of them
 *
 * Operations have the numbers and attributes of the protocol, which never change their meaning; a reader refuses operations that it does not know.
 * Everything in a head is checked before any of it is used. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/wire/program.h"

enum {
    SAVED_PROGRAM_VERSION = 1,         /* of a program without kernels, */
    SAVED_PROGRAM_VERSION_KERNELS = 2, /* and with some, which only a file can have */
    SAVED_PROGRAM_KERNELS_MAX = 256,   /* as many as a session may have */
    SAVED_PROGRAM_START_BYTES = 32,
    SAVED_PROGRAM_SUM_BYTES = 8,
    /* A definition is a message, and types of captured tensors take some 100 bytes each at most. */
    SAVED_PROGRAM_MESSAGE_MAX = 2 << 20,
};

enum saved_program_place {
    SAVED_PROGRAM_IN_FILE,
    SAVED_PROGRAM_UNDER_NAMES,
};

/* A client's kernel: its id in the session, and what it is compiled of. */
struct saved_kernel {
    uint64_t id;
    const char *source, *name;
};

struct saved_program {
    Tensord__SavedProgram *message; /* with definition and operations */
    struct program_types types;     /* of all its tensors: parameters, captured ones, outputs */
    unsigned n_captured;
    enum saved_program_place place;
    size_t head_bytes;
};

/* The type of captured tensor i. */
static inline const struct tensor_type *saved_program_captured(const struct saved_program *program, unsigned i) {
    return &program->types.types[program->types.n_parameters + i];
}

/* Makes *head, malloc'ed, of a definition, the types of what it captures and the kernels that it launches, each of which has another id. The ids in the definition
 * become 0, and those of kernels become their numbers. STATUS_UNSUPPORTED: a program with kernels for a name; STATUS_INVALID_ARGUMENT: a kernel is missing, or not
 * launched, or has a name that a file cannot have; STATUS_NO_HOST_MEMORY, STATUS_LIMIT. */
int saved_program_pack(Tensord__ProgramDefine *definition, unsigned n_captured,
                       const struct tensor_type *const captured[], unsigned n_kernels,
                       const struct saved_kernel kernels[], enum saved_program_place place, uint64_t publication,
                       uint8_t **head, size_t *head_bytes, struct fault *fault);

/* The bytes of the head of a file that has `file_bytes`, by how it begins. STATUS_INVALID_ARGUMENT: it is no program; STATUS_VERSION: this version
 * does not know its format. */
int saved_program_head_bytes(const uint8_t start[SAVED_PROGRAM_START_BYTES], uint64_t file_bytes, size_t *bytes,
                             struct fault *fault);
/* Parses a whole head. On failure there is nothing to finish; the message says what is wrong. */
int saved_program_parse(struct saved_program *program, const uint8_t *head, size_t bytes, uint64_t file_bytes,
                        struct fault *fault);
/* Reads and parses the head of an open file, which has the captured tensors in it. */
int saved_program_read(struct saved_program *program, int fd, struct fault *fault);
/* Gives the launches in the definition the ids that a session's kernels have: those of message->kernels, in their order. Once. */
void saved_program_bind_kernels(struct saved_program *program, const uint64_t ids[]);
void saved_program_finish(struct saved_program *program);
