/* `tensord --check-config`: all that a start looks at before it listens, but for what other processes hold. */
#pragma once

#include "server/front/config.h"

/* STATUS_OK, or what a start would end with. Opens no socket and writes nothing. */
int config_check(const struct config *config, struct fault *fault);
