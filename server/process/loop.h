/* What a process prepares before its libuv loop runs. */
#pragma once

#include <stdint.h>
#include <uv.h>

#include "proto/ops/status.h"

/* Sets the limit of descriptors to the number that so many connections may need: two for each while it is handed over,
 * and some for other things. This raises the soft limit, which is low for programs that use select(); or it lowers the
 * limit, so that loop_reserve() costs kilobytes even if the system would allow a billion descriptors. Workers inherit
 * the limit. */
void loop_limit_descriptors(uint64_t connections);

/* The same while the loop runs, for more connections than before: only raises the limit, as far as the system allows,
 * and reserves memory in the loop. On failure nothing has changed. */
int loop_raise_descriptors(uv_loop_t *loop, uint64_t connections, struct fault *fault);

/* libuv has an entry for each descriptor number that it watches, and ends the process if it finds no memory for
 * another one. This makes as many entries as the process may have descriptors, before clients come. */
int loop_reserve(uv_loop_t *loop, struct fault *fault);
