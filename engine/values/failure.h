/* Why a tensor has no value: the root cause, shared by everything computed from it. Owner thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/device/launch.h"

struct ledger;

struct failure {
    unsigned references;
    struct ledger *ledger; /* its host memory is charged to this one; NULL: to none */
    enum status code;
    char message[256];
    char operation[OPERATION_NAME_MAX + 1]; /* the operation's name, "" where there was none */
    char label[OPERATION_LABEL_MAX + 1];
    uint64_t sequence; /* number of the operation in its session, from 1 */
};

/* With one reference. Never NULL: out of host memory, a static failure that says so takes its place. */
struct failure *failure_create(const struct fault *fault, const char *operation, const char *label, uint64_t sequence);
struct failure *failure_ref(struct failure *failure);
/* Whether it is that static failure. */
bool failure_stands_in(const struct failure *failure);
/* The same failure, for the operation with this number: itself, or a copy. Never NULL. */
struct failure *failure_numbered(struct failure *failure, uint64_t sequence);
/* Whether a failure with these would be equal, but for the number of its operation. */
bool failure_same(const struct failure *failure, const struct fault *fault, const char *operation, const char *label);
/* Private: nobody refers to it. */
void failure_free(struct failure *failure);
/* Takes NULL. */
static inline void failure_unref(struct failure *failure) {
    if (failure && !--failure->references)
        failure_free(failure);
}
