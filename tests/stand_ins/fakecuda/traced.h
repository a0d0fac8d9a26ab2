/* What a trace says of a job (job.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/stand_ins/fakecuda/job.h"

enum { TRACED_WRONG_MAX = 256 };

struct traced {
    uint64_t began_ns, events, kernels; /* of clients, these */
    char wrong[TRACED_WRONG_MAX];       /* what a trace should not say; "": nothing */
};

/* Before the job. */
void traced_begin(struct traced *traced, struct engine *engine);
/* Stops, and looks at what was recorded. `whole`: nothing has failed, so each of the job's launches is there. */
void traced_end(struct traced *traced, struct engine *engine, const struct job *job, bool whole);
