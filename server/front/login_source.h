/* Where failed logins came from, and for how long whoever comes from there has to wait: a delay that doubles with each
 * failure, until a minute has gone without one. Front thread only. */
#pragma once

#include <stdint.h>

#include "server/ipc/peer.h"

enum {
    LOGIN_SOURCES_MAX = 1024, /* that are remembered; then the oldest is forgotten */
    LOGIN_FREE_FAILURES = 3,  /* before a source is slowed down */
    LOGIN_DELAY_MS = 100,     /* at first, doubled with each failure, */
    LOGIN_DELAY_MAX_MS = 2000,
};

struct login_source {
    struct source source;
    unsigned failures;
    uint64_t last_ns; /* of the last one */
};

/* All zeroes: no failures. */
struct login_source_table {
    struct login_source sources[LOGIN_SOURCES_MAX];
    unsigned n_sources;
};

/* One more failure, at `now_ns` of uv_hrtime(); how many there are. */
unsigned login_source_fail(struct login_source_table *table, const struct source *source, uint64_t now_ns);
/* By how much a login from there is put off. */
uint64_t login_source_delay_ms(const struct login_source_table *table, const struct source *source, uint64_t now_ns);
/* The same for those who cannot be put off: how much is left of that since the last failure. */
uint64_t login_source_left_ms(const struct login_source_table *table, const struct source *source, uint64_t now_ns);
