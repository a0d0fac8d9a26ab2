#include "engine/values/failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory/ledger.h"

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
    failure->ledger = NULL;
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

void failure_free(struct failure *failure) {
    if (failure->ledger)
        ledger_give_host(failure->ledger, sizeof *failure);
    free(failure);
}

bool failure_stands_in(const struct failure *failure) {
    return failure == &failure_no_memory;
}

struct failure *failure_numbered(struct failure *failure, uint64_t sequence) {
    struct fault fault = {.code = failure->code};
    if (failure->sequence == sequence || failure_stands_in(failure))
        return failure_ref(failure);
    memcpy(fault.message, failure->message, sizeof fault.message);
    return failure_create(&fault, failure->operation, failure->label, sequence);
}

bool failure_same(const struct failure *failure, const struct fault *fault, const char *operation, const char *label) {
    return failure->code == fault->code && !strcmp(failure->operation, operation ? operation : "") &&
           !strncmp(failure->label, label ? label : "", OPERATION_LABEL_MAX) &&
           !strcmp(failure->message, fault->message);
}
