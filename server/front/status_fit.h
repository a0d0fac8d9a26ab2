/* A Status of what was asked for, which one frame can carry, however many sessions there are. */
#pragma once

#include <stddef.h>

#include "proto/wire/tensord.pb-c.h"

/* Leaves out the sessions and programs of other principals. */
void status_keep(Tensord__Status *status, const char *principal);
/* Leaves out what the message can spare until it has at most `most` bytes: first labels and messages of failures, then the sessions with least memory
 * in use, which it counts in sessions_left_out; then programs. Devices and principals stay. Reorders the sessions. */
void status_fit(Tensord__Status *status, size_t most);
