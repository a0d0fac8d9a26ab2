/* What a principal may do: observe, run or admin. Each role includes the roles before it. The only table of messages
 * and roles is in role.c; front and worker use it for each message. Plain functions, any thread. */
#pragma once

#include <stdint.h>

#include "proto/ops/status.h"

/* In this order. */
enum role {
    ROLE_NONE, /* the client has not logged in */
    ROLE_OBSERVE,
    ROLE_RUN,
    ROLE_ADMIN,
    ROLE_NOBODY, /* of a message: no client may send it there */
};

enum role_place { ROLE_ON_CONTROL, ROLE_ON_DEVICE };

/* "observe", "run", "admin", or "none". */
const char *role_name(enum role role);
/* ROLE_NONE: the text is no role. */
enum role role_parse(const char *text);

/* By frame type and role_place: the least role, or ROLE_NONE for an unknown type. Read it by role_least(). */
enum { ROLE_TYPES = 128 };
extern const uint8_t role_rows[ROLE_TYPES][2];

/* The least role that may send frames of this type there; ROLE_NOBODY also for an unknown type. */
static inline enum role role_least(enum role_place place, unsigned frame_type) {
    enum role least = frame_type < ROLE_TYPES ? (enum role)role_rows[frame_type][place] : ROLE_NONE;
    return least == ROLE_NONE ? ROLE_NOBODY : least;
}

/* Says why role_check() denies a message. */
int role_deny(enum role_place place, unsigned frame_type, enum role role, const char *principal, struct fault *fault);
/* STATUS_DENIED: the fault names the principal, its role, the message and the role that it needs. STATUS_PROTOCOL:
 * nobody may send this there. */
static inline int role_check(enum role_place place, unsigned frame_type, enum role role, const char *principal,
                             struct fault *fault) {
    return role >= role_least(place, frame_type) && role <= ROLE_ADMIN
               ? STATUS_OK
               : role_deny(place, frame_type, role, principal, fault);
}
