/* The configuration in force, for who asks on a control connection. Front thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct config;

/* Appends a Config frame; STATUS_NO_HOST_MEMORY. */
int status_append_config(const struct config *config, uint64_t sequence, uint8_t **bytes, size_t *size);
