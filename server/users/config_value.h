/* The texts that configuration values are written in. Each returns STATUS_OK, or STATUS_INVALID_ARGUMENT with a fault
 * that shows the text and what would be right; outputs are untouched on failure. */
#pragma once

#include <stdint.h>

#include "server/front/config.h"

/* Without white space at both ends; changes `text`. */
char *config_value_trim(char *text);
int config_value_count(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault);
int config_value_octal(const char *text, uint64_t maximum, uint64_t *value, struct fault *fault);
/* "64M", "1T": powers of 1024. */
int config_value_bytes(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault);
/* "250ms", "5s", "10m", "8h", "7d", "0"; milliseconds. */
int config_value_duration(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault);
/* "publish", "drain", or a duration, also as a plain number of seconds: as struct state has it (state.h). */
int config_value_sync(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault);
/* The other way: the largest unit that says it exactly. */
void config_value_bytes_text(uint64_t bytes, char *out, size_t size);
void config_value_duration_text(uint64_t milliseconds, char *out, size_t size);
void config_value_sync_text(uint64_t milliseconds, char *out, size_t size);
/* "yes" or "no", as 1 and 0. */
int config_value_switch(const char *text, uint64_t *value, struct fault *fault);
/* "none", "all", or principals as "uid:1000" with commas between them; written to `list` of CONFIG_PRINCIPALS_MAX bytes
 * without white space. */
int config_value_principals(const char *text, char *list, struct fault *fault);
/* "none", "optional", "required": enum config_client_auth. */
int config_value_client_auth(const char *text, uint64_t *value, struct fault *fault);
/* A path, written to `path` of CONFIG_PATH_MAX bytes. */
int config_value_path(const char *text, char *path, struct fault *fault);
/* "auto", or names as "cpu" and "cpu:1" with commas between them. */
int config_value_devices(struct config *config, const char *text, struct fault *fault);
/* HOST:PORT, kept as it is (CONFIG_URL_MAX bytes). */
int config_value_address(const char *text, char *address, struct fault *fault);
/* Names with commas between them (CONFIG_PRINCIPALS_MAX bytes). */
int config_value_hosts(const char *text, char *list, struct fault *fault);
