/* The daemon's figures in Prometheus' text format (0.0.4). */
#pragma once

#include <stdio.h>

#include "proto/wire/tensord.pb-c.h"

/* What is not part of a Status. */
struct http_metrics_extra {
    double now_s;             /* seconds since 1970 */
    const uint64_t *requests; /* HTTP_CODES of them: responded by HTTP, by the first digit of the code */
};

void http_metrics_write(FILE *out, const Tensord__Status *status, const struct http_metrics_extra *extra);
