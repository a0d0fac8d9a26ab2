/* A fault of the server's as the cause of a tensor's failure: without operation, which the engine then names. */
#pragma once

#include <stdio.h>

#include "engine/order/failure.h"

static inline void cause_set(struct failure *cause, const struct fault *fault) {
    *cause = (struct failure){.code = fault->code};
    snprintf(cause->message, sizeof cause->message, "%s", fault->message);
}
