/* Looks into the plan of a recorded program. */
#pragma once

#include <stdint.h>

struct session;

/* How many launches a run of the program makes, which has run; 0: there is no such program, or its device fuses nothing. */
unsigned recorded_steps(struct session *session, uint64_t id);
