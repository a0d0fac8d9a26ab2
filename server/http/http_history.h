/* The last minutes of each device, so that a dashboard that has just been opened has something to show. Front
 * thread. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "proto/ops/status.h"

struct supervisor;

enum { HTTP_HISTORY_STEP_MS = 1000, HTTP_HISTORY_SAMPLES = 300 };

struct http_history {
    struct http_sample *samples; /* a ring of HTTP_HISTORY_SAMPLES for each device, one behind the other */
    unsigned n_devices, count, next;
};

int http_history_init(struct http_history *history, unsigned n_devices, struct fault *fault);
void http_history_finish(struct http_history *history);
/* Once every HTTP_HISTORY_STEP_MS: what the snapshots say now. */
void http_history_sample(struct http_history *history, const struct supervisor *supervisor);
/* As JSON: an array for each figure, the oldest first. */
void http_history_write(const struct http_history *history, const struct supervisor *supervisor, FILE *out);
