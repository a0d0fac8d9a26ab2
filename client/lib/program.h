/* Programs of a device, and their loops. */
#pragma once

#include <stdint.h>

#include "client/tensord.h"
#include "proto/ops/shape.h"
#include "proto/wire/tensord.pb-c.h"

/* Under the device's lock. */
struct programs {
    struct td_program *first;
    uint64_t last_id; /* the last id that was given out, to a program or a loop */
};

void programs_finish(struct programs *programs);

/* The id, the lists and what they point to are constant. A program keeps its definition, for recordings that run it and to be saved, and so the handles of what it
 * has captured, and of the kernels that it launches, live as long. */
struct td_program {
    struct td_device *device;
    struct td_program *next, *previous; /* under the device's lock, */
    struct program_loop *loops;         /* as are these */
    uint64_t id;
    unsigned n_parameters, n_results, n_consumed;
    struct tensor_type *parameters, *results;
    uint32_t *consumed; /* the parameters whose inputs a run releases */
    unsigned n_captured;
    struct td_tensor **captured; /* held from when the device has the program, */
    unsigned n_kernels;
    struct td_kernel **kernels; /* and so are these, each of which comes once */
    uint8_t *definition;        /* message ProgramDefine; the ids in it are without meaning */
    size_t definition_bytes;
};

/* A program whose lists the caller fills; NULL out of memory. */
struct td_program *program_create(struct td_device *device, unsigned n_parameters, unsigned n_results,
                                  unsigned n_consumed, unsigned n_captured, unsigned n_kernels);
/* Of one that the device does not have. */
void program_destroy(struct td_program *program);
/* Sends the definition, whose id it sets, behind the upload `gate`: the device has the program from then on, and holds what it captures. After
 * an error the caller still has it. */
int program_define(struct td_program *program, Tensord__ProgramDefine *definition, uint64_t gate);

/* The inputs that a run releases, in their order; an error's code if one comes twice. */
int program_take_consumed(const struct td_program *program, struct td_tensor *const *inputs,
                          struct td_tensor **consumed);
/* A run or a loop that has been checked, in a recording of the thread on the program's device. On failure the results are not touched; operations that have
 * been recorded stay, but nobody uses them. */
int program_inline(struct td_program *program, int64_t times, const td_loop *loop, struct td_tensor *const *inputs,
                   struct td_tensor **results);
