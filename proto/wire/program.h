/* Definitions of recorded programs, `message ProgramDefine`: their check, and the types of their tensors. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/ops/op.h"
#include "proto/wire/tensord.pb-c.h"

/* The tensors of a program: its parameters, what it captures, and the outputs of its operations. */
struct program_types {
    struct tensor_type *types; /* of tensor number i at i - 1 */
    size_t n, room;
    unsigned n_parameters;
};

/* Checks everything in a definition but its id, and the ids of its captured tensors: numbers, operations and results. What it captures has the types in `captured`,
 * one for each entry of message->captures. STATUS_INVALID_ARGUMENT or an operation's code says what is wrong, and then there is nothing to finish. Nothing
 * is assumed of the message; memory is bounded by its size. */
int program_types_init(struct program_types *types, const Tensord__ProgramDefine *message,
                       const struct tensor_type *captured, struct fault *fault);
void program_types_finish(struct program_types *types);
/* Reads a list of types: dtype, rank and extents of each. `types` has room for n / 2 of them. */
int program_types_read(const int64_t *list, size_t n, struct tensor_type *types, unsigned *count, struct fault *fault);
/* Writes a type as such a list has it: 2 to 2 + SHAPE_RANK_MAX numbers. Returns how many. */
size_t program_type_write(const struct tensor_type *type, int64_t *out);
