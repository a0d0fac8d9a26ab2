/* How much of the log clients may fill. A line that a client causes is counted for its source (an address, a network,
 * a uid) and for all sources together, and is left out if either has had too many. Lines that are left out are
 * counted, and the count is reported regularly. Plain data, with the caller's clock; one thread of a process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    LOG_LIMIT_SOURCES = 256,    /* in the table; one more replaces the one that was quiet for longest */
    LOG_LIMIT_BURST = 200,      /* lines of one source at once, */
    LOG_LIMIT_PER_S = 2,        /* and so many a second */
    LOG_LIMIT_ALL_BURST = 1000, /* the same for all sources together */
    LOG_LIMIT_ALL_PER_S = 20,
    LOG_LIMIT_TELL_S = 10, /* after which a source's missing lines are reported */
    LOG_LIMIT_NAME_BYTES = 48,
};

struct log_limit_bucket {
    uint64_t spent_ns; /* how far the lines written are ahead of the rate; shrinks as time passes */
    uint64_t last_ns;
};

struct log_limit_source {
    char name[LOG_LIMIT_NAME_BYTES];
    struct log_limit_bucket bucket;
    uint64_t suppressed, since_ns; /* lines, since the first of them */
};

/* All zeroes: nothing has been written yet. */
struct log_limit {
    struct log_limit_source sources[LOG_LIMIT_SOURCES];
    unsigned n_sources;
    struct log_limit_bucket all;
};

/* Whether a line of this source may be written at `now_ns`; if not it is counted. */
bool log_limit_take(struct log_limit *limit, const char *source, uint64_t now_ns);
/* Finds a source whose lines were left out a while ago: sets its name (LOG_LIMIT_NAME_BYTES) and the number of lines,
 * which starts again at 0. False: there is none. */
bool log_limit_tell(struct log_limit *limit, uint64_t now_ns, char *name, uint64_t *lines);
