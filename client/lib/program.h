/* Programs of a device, and their loops. */
#pragma once

#include <stdint.h>

#include "client/tensord.h"
#include "proto/ops/shape.h"

/* Under the device's lock. */
struct programs {
    struct td_program *first;
    uint64_t last_id; /* the last id that was given out, to a program or a loop */
};

void programs_finish(struct programs *programs);

/* The id, the lists and what they point to are constant. */
struct td_program {
    struct td_device *device;
    struct td_program *next, *previous; /* under the device's lock, */
    struct program_loop *loops;         /* as are these */
    uint64_t id;
    unsigned n_parameters, n_results, n_consumed;
    struct tensor_type *parameters, *results;
    uint32_t *consumed; /* the parameters whose inputs a run releases */
};

/* A program whose lists the caller fills; NULL out of memory. */
struct td_program *program_create(struct td_device *device, unsigned n_parameters, unsigned n_results,
                                  unsigned n_consumed);
void program_destroy(struct td_program *program);
/* Under the device's lock: the device has the program from now on. */
void program_enter(struct td_program *program);
