/* What a principal may do: observe, run or admin. Each role includes the roles before it. The only table of messages
 * and roles is in role.c; front and worker use it for each message. Plain functions, any thread. */
#pragma once

#include <stdbool.h>

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

/* The least role that may send frames of this type there; ROLE_NOBODY also for an unknown type. */
enum role role_least(enum role_place place, unsigned frame_type);
/* STATUS_DENIED: the fault names the principal, its role, the message and the role that it needs. STATUS_PROTOCOL:
 * nobody may send this there. */
int role_check(enum role_place place, unsigned frame_type, enum role role, const char *principal, struct fault *fault);
