/* What the client shows to be somebody: from the program, the environment, or a file that the environment names. */
#pragma once

#include "proto/ops/status.h"

enum { TOKEN_BYTES_MAX = 256 };

/* `given`, else $TENSORD_TOKEN, else what stands in the file that $TENSORD_TOKEN_FILE names; "" where there is none of
 * them. `given` "" means none. No fault has the token in its words. The caller wipes it. */
int token_find(const char *given, char token[TOKEN_BYTES_MAX], struct fault *fault);
