#include "server/process/log_limit.h"

#include <string.h>

#define LOG_LIMIT_SECOND_NS UINT64_C(1000000000)

static void log_limit_refill(struct log_limit_bucket *bucket, uint64_t now_ns) {
    uint64_t passed = now_ns - bucket->last_ns;
    bucket->spent_ns = bucket->spent_ns > passed ? bucket->spent_ns - passed : 0;
    bucket->last_ns = now_ns;
}

static bool log_limit_has(const struct log_limit_bucket *bucket, unsigned burst, unsigned per_s) {
    return bucket->spent_ns <= (burst - 1) * (LOG_LIMIT_SECOND_NS / per_s);
}

/* The source that was quiet for longest makes room; what it has missed is told of at once or never, so one that has
 * missed nothing goes first. */
static struct log_limit_source *log_limit_replace(struct log_limit *limit) {
    struct log_limit_source *oldest = limit->sources;
    for (unsigned i = 1; i < LOG_LIMIT_SOURCES; i++) {
        struct log_limit_source *at = &limit->sources[i];
        bool silent = at->suppressed == 0, oldest_silent = oldest->suppressed == 0;
        if (silent > oldest_silent || (silent == oldest_silent && at->bucket.last_ns < oldest->bucket.last_ns))
            oldest = at;
    }
    return oldest;
}

static struct log_limit_source *log_limit_find(struct log_limit *limit, const char *name) {
    struct log_limit_source *source;
    for (unsigned i = 0; i < limit->n_sources; i++)
        if (!strncmp(limit->sources[i].name, name, LOG_LIMIT_NAME_BYTES - 1))
            return &limit->sources[i];
    if (limit->n_sources < LOG_LIMIT_SOURCES)
        source = &limit->sources[limit->n_sources++];
    else
        source = log_limit_replace(limit);
    *source = (struct log_limit_source){.suppressed = 0};
    memcpy(source->name, name, strnlen(name, LOG_LIMIT_NAME_BYTES - 1));
    return source;
}

bool log_limit_take(struct log_limit *limit, const char *name, uint64_t now_ns) {
    struct log_limit_source *source = log_limit_find(limit, name);
    log_limit_refill(&source->bucket, now_ns);
    log_limit_refill(&limit->all, now_ns);
    if (log_limit_has(&source->bucket, LOG_LIMIT_BURST, LOG_LIMIT_PER_S) &&
        log_limit_has(&limit->all, LOG_LIMIT_ALL_BURST, LOG_LIMIT_ALL_PER_S)) {
        source->bucket.spent_ns += LOG_LIMIT_SECOND_NS / LOG_LIMIT_PER_S;
        limit->all.spent_ns += LOG_LIMIT_SECOND_NS / LOG_LIMIT_ALL_PER_S;
        return true;
    }
    if (!source->suppressed++)
        source->since_ns = now_ns;
    return false;
}

bool log_limit_tell(struct log_limit *limit, uint64_t now_ns, char *name, uint64_t *lines) {
    for (unsigned i = 0; i < limit->n_sources; i++) {
        struct log_limit_source *source = &limit->sources[i];
        if (!source->suppressed || now_ns - source->since_ns < LOG_LIMIT_TELL_S * LOG_LIMIT_SECOND_NS)
            continue;
        log_limit_refill(&limit->all, now_ns);
        if (!log_limit_has(&limit->all, LOG_LIMIT_ALL_BURST, LOG_LIMIT_ALL_PER_S))
            return false;
        limit->all.spent_ns += LOG_LIMIT_SECOND_NS / LOG_LIMIT_ALL_PER_S;
        memcpy(name, source->name, LOG_LIMIT_NAME_BYTES);
        *lines = source->suppressed;
        source->suppressed = 0;
        return true;
    }
    return false;
}
