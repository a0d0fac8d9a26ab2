/* What a principal may do: observe, run or admin, each with all that the ones before it may. The one table of messages
 * and roles is in role.c; front and worker ask it for every message. Plain functions, any thread. */
#pragma once

#include <stdbool.h>

#include "proto/ops/status.h"

/* The order is the meaning: a role may do what asks for it or for one before it. */
enum role {
    ROLE_NONE, /* has not said yet who it is */
    ROLE_OBSERVE,
    ROLE_RUN,
    ROLE_ADMIN,
    ROLE_NOBODY, /* of a message: no client may send it there */
};

enum role_place { ROLE_ON_CONTROL, ROLE_ON_DEVICE };

/* "observe", "run", "admin"; "none" for the others. */
const char *role_name(enum role role);
/* ROLE_NONE for another word. */
enum role role_parse(const char *text);

/* The least role that may send frames of this type there; ROLE_NOBODY also for what is no type. */
enum role role_least(enum role_place place, unsigned frame_type);
/* STATUS_OK; STATUS_DENIED, where the fault names principal, role, message and the role that it takes; STATUS_PROTOCOL for
 * what nobody may send there. */
int role_check(enum role_place place, unsigned frame_type, enum role role, const char *principal, struct fault *fault);
