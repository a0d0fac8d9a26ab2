/* How much of it: a smoke test by default; what scripts/soak asks for otherwise. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>

/* TENSORD_SOAK_SECONDS is set by scripts/soak. */
static inline bool soak_is_long(void) {
    return getenv("TENSORD_SOAK_SECONDS") != NULL;
}

static inline int soak_seconds(int brief) {
    const char *seconds = getenv("TENSORD_SOAK_SECONDS");
    return seconds && atoi(seconds) > 0 ? atoi(seconds) : brief;
}
