/* What the daemon says of itself over a control connection. Everything asserts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/tensord.pb-c.h"

/* A fresh control connection each time; the caller frees it with status_free. */
Tensord__Status *status_get(const char *url);
/* With the sessions and programs of this principal alone. */
Tensord__Status *status_get_of(const char *url, const char *principal);
void status_free(Tensord__Status *status);
const Tensord__DeviceStatus *status_device(const Tensord__Status *status, const char *name);
/* The sessions of one device. */
unsigned status_sessions(const Tensord__Status *status, const char *device);

/* Looks again and again until `holds(status, argument)`; asserts that it does before the deadline. */
typedef bool status_condition(const Tensord__Status *status, const void *argument);
void status_until(const char *url, status_condition *holds, const void *argument, int milliseconds);
/* The same without asserting. */
bool status_becomes(const char *url, status_condition *holds, const void *argument, int milliseconds);

/* The devices in one line, for messages of failed tests; returns `text`. */
enum { STATUS_TEXT_MAX = 512 };
char *status_text_of(const char *url, char text[STATUS_TEXT_MAX]);

/* Conditions. */
bool status_all_ready(const Tensord__Status *status, const void *none);
struct status_is {
    const char *device;
    const char *state; /* NULL: any */
    uint64_t epoch;    /* at least; 0: any */
};
/* argument: struct status_is */
bool status_device_is(const Tensord__Status *status, const void *is);

struct status_baseline {
    const char *device;
    uint64_t live;
    unsigned sessions;
};
/* Waits until figures younger than this call say that live bytes and sessions of the device are at most these and that
 * nothing is queued; false when the deadline came first. */
bool status_settles(const char *url, const struct status_baseline *baseline, int milliseconds);

/* Shorthands that fetch a status for one fact. */
int status_worker_pid(const char *url, const char *device);
uint64_t status_epoch(const char *url, const char *device);
struct status_baseline status_baseline_of(const char *url, const char *device);
