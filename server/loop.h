/* What a process prepares before its libuv loop runs. */
#pragma once

#include <stdint.h>
#include <uv.h>

#include "proto/status.h"

/* As many descriptors as so many connections may need: two each while one is handed over, and some for everything else. It
 * raises the soft limit, which is for programs that use select(), or lowers it to that, so that loop_reserve() costs
 * kilobytes where the system would allow a billion. Workers inherit it. */
void loop_limit_descriptors(uint64_t connections);

/* libuv has a place for each descriptor number that it watches, and ends the process where it finds no memory for more of
 * them. This makes as many as the process may have descriptors, once, before clients come. */
int loop_reserve(uv_loop_t *loop, struct fault *fault);
