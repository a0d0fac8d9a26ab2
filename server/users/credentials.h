/* All that a process needs to serve TLS, in one sealed memory file behind a descriptor. The front reads and checks the
 * files of certificates and sends the descriptor to the workers, so that all processes have the same certificates at
 * any time. The memory file has no name, and nobody can change it. */
#pragma once

#include "proto/net/tls.h"

enum { CREDENTIALS_TEXT_MAX = 1 << 20 }; /* bytes of one PEM text */

/* Sets *fd, close-on-exec and the caller's. */
int credentials_seal(const struct tls_server_options *options, int *fd, struct fault *fault);
/* Makes a context from it. `fd` stays the caller's. */
int credentials_open(int fd, struct tls_context **context, struct fault *fault);
