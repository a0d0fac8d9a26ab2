/* What a process prepares before its libuv loop runs. */
#pragma once

#include <stdint.h>
#include <uv.h>

#include "proto/ops/status.h"

/* As many descriptors as so many connections may need: two each while one is handed over, and some for everything else. It
 * raises the soft limit, which is for programs that use select(), or lowers it to that, so that loop_reserve() costs
 * kilobytes where the system would allow a billion. Workers inherit it. */
void loop_limit_descriptors(uint64_t connections);

/* The same while the loop runs, for more connections than before: only ever raises it, as far as the system lets it, and makes
 * room in the loop. On failure nothing has changed. */
int loop_raise_descriptors(uv_loop_t *loop, uint64_t connections, struct fault *fault);

/* libuv has a place for each descriptor number that it watches, and ends the process where it finds no memory for more of
 * them. This makes as many as the process may have descriptors, once, before clients come. */
int loop_reserve(uv_loop_t *loop, struct fault *fault);
