/* Names of tensors: what clients, the daemon and files take for one. */
#pragma once

#include "proto/ops/status.h"

enum { NAME_BYTES_MAX = 255 };

/* STATUS_INVALID_ARGUMENT unless it has 1 to NAME_BYTES_MAX bytes of UTF-8 without control characters, and is not the key
 * that safetensors files keep for themselves. `name` ends with a NUL. */
int name_check(const char *name, struct fault *fault);
