/* What a process needs to serve TLS, as one sealed piece of memory behind a descriptor: the front reads and checks the
 * files, the workers get what it took from them, so all have the same at any time. It is in no file, and nobody can
 * change it. */
#pragma once

#include "proto/net/tls.h"

enum { CREDENTIALS_TEXT_MAX = 1 << 20 }; /* bytes of one PEM text */

/* Sets *fd, close-on-exec and the caller's. */
int credentials_seal(const struct tls_server_options *options, int *fd, struct fault *fault);
/* A context from it. Leaves `fd` as it is. */
int credentials_open(int fd, struct tls_context **context, struct fault *fault);
