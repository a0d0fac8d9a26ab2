#include "engine/failure.h"

#include <stdio.h>
#include <stdlib.h>

static struct failure failure_no_memory = {
    .references = 1,
    .code = STATUS_NO_HOST_MEMORY,
    .message = "the daemon is out of host memory",
};

struct failure *failure_create(const struct fault *fault, const char *operation, const char *label, uint64_t sequence) {
    struct failure *failure = malloc(sizeof *failure);
    if (!failure)
        return failure_ref(&failure_no_memory);
    failure->references = 1;
    failure->code = fault->code;
    snprintf(failure->message, sizeof failure->message, "%s", fault->message);
    snprintf(failure->operation, sizeof failure->operation, "%s", operation ? operation : "");
    snprintf(failure->label, sizeof failure->label, "%s", label ? label : "");
    failure->sequence = sequence;
    return failure;
}

struct failure *failure_ref(struct failure *failure) {
    failure->references++;
    return failure;
}

void failure_unref(struct failure *failure) {
    if (failure && --failure->references == 0)
        free(failure);
}
