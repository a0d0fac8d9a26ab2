/* How often each limit was met, by its key: something was refused or closed, or (the last ones) only held back until
 * there was room. Counted by each worker since its start, and by the front for what it decides. */
#pragma once

#include <stdint.h>

#include "engine/engine.h"

#define REFUSAL_TABLE(X)                                                                                               \
    X(MAX_CONNECTIONS, "max-connections")                                                                              \
    X(PRINCIPAL_CONNECTIONS, "principal-connections")                                                                  \
    X(MAX_SESSIONS, "max-sessions")                                                                                    \
    X(PRINCIPAL_SESSIONS, "principal-sessions")                                                                        \
    X(SESSION_BYTES, "session-bytes")                                                                                  \
    X(PRINCIPAL_BYTES, "principal-bytes")                                                                              \
    X(SESSION_HOST_BYTES, "session-host-bytes")                                                                        \
    X(PRINCIPAL_HOST_BYTES, "principal-host-bytes")                                                                    \
    X(SESSION_TENSORS, "session-tensors")                                                                              \
    X(SESSION_STREAMS, "session-streams")                                                                              \
    X(HELLO_TIMEOUT, "hello-timeout")                                                                                  \
    X(IDLE_TIMEOUT, "idle-timeout")                                                                                    \
    X(SESSION_OPERATIONS, "session-operations")                                                                        \
    X(PRINCIPAL_OPERATIONS, "principal-operations")                                                                    \
    X(SESSION_OUT_BYTES, "session-out-bytes")                                                                          \
    X(PRINCIPAL_RATE, "principal-rate")

enum refusal {
#define X(NAME, key) REFUSAL_##NAME,
    REFUSAL_TABLE(X)
#undef X
        REFUSAL_COUNT
};

/* Of those up to this one something was refused or closed; the others held something back. */
enum { REFUSAL_LAST_HARD = REFUSAL_IDLE_TIMEOUT };

static inline const char *refusal_key(enum refusal refusal) {
    static const char *const keys[] = {
#define X(NAME, key) key,
        REFUSAL_TABLE(X)
#undef X
    };
    return keys[refusal];
}

/* Adds what the engine has counted. */
static inline void refusal_add_engine(uint64_t counts[REFUSAL_COUNT], const struct engine_stats *stats) {
    counts[REFUSAL_SESSION_BYTES] += stats->refusals[LEDGER_REFUSED_SESSION_BYTES];
    counts[REFUSAL_PRINCIPAL_BYTES] += stats->refusals[LEDGER_REFUSED_TENANT_BYTES];
    counts[REFUSAL_SESSION_HOST_BYTES] += stats->refusals[LEDGER_REFUSED_SESSION_HOST];
    counts[REFUSAL_PRINCIPAL_HOST_BYTES] += stats->refusals[LEDGER_REFUSED_TENANT_HOST];
    counts[REFUSAL_SESSION_TENSORS] += stats->refusals[LEDGER_REFUSED_TENSORS];
    counts[REFUSAL_SESSION_STREAMS] += stats->refusals[LEDGER_REFUSED_STREAMS];
}
