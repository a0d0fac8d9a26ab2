/* How much of the log others may fill: lines that clients bring about are counted against where they come from (an address,
 * a network, a uid), and against a bound for all such sources together. What is left out is counted, and told of once in a
 * while. Plain data, and the caller's clock; one thread of a process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    LOG_LIMIT_SOURCES = 256,  /* that are remembered; then the one that was quiet for longest is forgotten */
    LOG_LIMIT_BURST = 200,    /* lines of one source at once, */
    LOG_LIMIT_PER_S = 2,      /* and so many a second */
    LOG_LIMIT_ALL_BURST = 1000, /* the same of all of them */
    LOG_LIMIT_ALL_PER_S = 20,
    LOG_LIMIT_TELL_S = 10, /* after which a source's missing lines are told of */
    LOG_LIMIT_NAME_BYTES = 48,
};

struct log_limit_bucket {
    uint64_t spent_ns; /* time for which lines have been written ahead of the rate; it runs off as time passes */
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
/* A source some of whose lines were left out a while ago: its name (LOG_LIMIT_NAME_BYTES) and how many, which are 0 from now
 * on. False: there is none. */
bool log_limit_tell(struct log_limit *limit, uint64_t now_ns, char *name, uint64_t *lines);
