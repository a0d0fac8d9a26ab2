/* Operations of the suite that run as recorded programs of one operation each. */
#pragma once

#include "engine/program/program.h"

enum { REPLAYED_INPUTS = 64, REPLAYED_OUTPUTS = 64 }; /* operations with more run as they are */

/* Whether the environment asks for it. */
bool replayed_wanted(void);
/* As session_submit(). `program`: an id that the session has not used. */
int replayed_submit(struct session *session, const struct op_request *request, uint64_t program);
