/* A status of the daemon as JSON, in the same form for tensorctl's --json and the daemon's /status.json, and figures that are
 * computed from a status. Bytes are integers; null means that a value is not available. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/wire/tensord.pb-c.h"

enum status_json_view { STATUS_JSON_ALL, STATUS_JSON_DEVICES, STATUS_JSON_SESSIONS, STATUS_JSON_PROGRAMS };

/* One JSON value and a newline, over several indented lines if `pretty`. */
void status_json_write(FILE *out, const Tensord__Status *status, enum status_json_view view, bool pretty);
/* The same for the table of operations, and which of them each device has; always pretty. */
void status_json_write_operations(FILE *out, const Tensord__OperationList *list);

/* ---- figures that are computed from a status ---- */

/* A bound in seconds below which this part of all times lies; infinite if it lies among the longest times, which have no bound.
 * NaN if fewer than two of the measured times lie beyond the bound, because the bound is then not reliable. NULL: no times. */
double figures_quantile(const Tensord__Histogram *histogram, double part);
/* The number of times. */
uint64_t figures_count(const Tensord__Histogram *histogram);

/* The program's name, for a client "name libtensord/1.2". A `size` of 64 is enough for the client of a session. */
void figures_program(const char *client, char *program, unsigned size);
