/* The daemon's figures as JSON: one shape for tensorctl's --json and the daemon's own /status.json. Bytes are integers,
 * null is what is not available. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/wire/tensord.pb-c.h"

enum status_json_view { STATUS_JSON_ALL, STATUS_JSON_DEVICES, STATUS_JSON_SESSIONS };

/* One JSON value and a newline, over several indented lines if `pretty`. */
void status_json_write(FILE *out, const Tensord__Status *status, enum status_json_view view, bool pretty);
/* The same for the table of operations and what each device has of it; always pretty. */
void status_json_write_operations(FILE *out, const Tensord__OperationList *list);

/* What is worked out of the figures in a status, the same for whoever shows them. */

/* The bound below which this part of all times lies, in seconds; infinite among the longest ones, which have none. NaN where
 * fewer than two of the measured times lie beyond it, so that it says nothing. NULL has no times. */
double figures_quantile(const Tensord__Histogram *histogram, double part);
uint64_t figures_count(const Tensord__Histogram *histogram);

/* The program's name, of a client that says "name libtensord/1.2". `size` of 64 is enough for the one of a session. */
void figures_program(const char *client, char *program, unsigned size);
