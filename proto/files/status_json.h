/* The daemon's figures as JSON: one shape for tensorctl's --json and the daemon's own /status.json. Bytes are integers,
 * null is what is not available. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "proto/wire/tensord.pb-c.h"

enum status_json_view { STATUS_JSON_ALL, STATUS_JSON_DEVICES, STATUS_JSON_SESSIONS };

/* One JSON value and a newline, over several indented lines if `pretty`. */
void status_json_write(FILE *out, const Tensord__Status *status, enum status_json_view view, bool pretty);
/* The same for the table of operations and what each device has of it; always pretty. */
void status_json_write_operations(FILE *out, const Tensord__OperationList *list);
