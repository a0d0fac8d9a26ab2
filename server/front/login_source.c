#include "server/front/login_source.h"

#define LOGIN_MS_NS UINT64_C(1000000)
#define LOGIN_MEMORY_NS (60000 * LOGIN_MS_NS) /* without a failure, after which all are forgotten */

static const struct login_source *login_source_find(const struct login_source_table *table,
                                                    const struct source *source) {
    for (unsigned i = 0; i < table->n_sources; i++)
        if (source_same(&table->sources[i].source, source))
            return &table->sources[i];
    return NULL;
}

/* Its entry, new or with the failures that still count. */
static struct login_source *login_source_take(struct login_source_table *table, const struct source *source,
                                              uint64_t now_ns) {
    struct login_source *entry = (struct login_source *)(uintptr_t)login_source_find(table, source);
    if (entry && now_ns - entry->last_ns <= LOGIN_MEMORY_NS)
        return entry;
    if (!entry && table->n_sources < LOGIN_SOURCES_MAX) {
        entry = &table->sources[table->n_sources++];
    } else if (!entry) {
        entry = table->sources;
        for (unsigned i = 1; i < LOGIN_SOURCES_MAX; i++)
            if (table->sources[i].last_ns < entry->last_ns)
                entry = &table->sources[i];
    }
    *entry = (struct login_source){.source = *source};
    return entry;
}

unsigned login_source_fail(struct login_source_table *table, const struct source *source, uint64_t now_ns) {
    struct login_source *entry = login_source_take(table, source, now_ns);
    entry->last_ns = now_ns;
    entry->failures += entry->failures < UINT32_MAX;
    return entry->failures;
}

uint64_t login_source_delay_ms(const struct login_source_table *table, const struct source *source, uint64_t now_ns) {
    const struct login_source *entry = login_source_find(table, source);
    uint64_t delay = LOGIN_DELAY_MS;
    if (!entry || entry->failures < LOGIN_FREE_FAILURES || now_ns - entry->last_ns > LOGIN_MEMORY_NS)
        return 0;
    for (unsigned i = LOGIN_FREE_FAILURES; i < entry->failures && delay < LOGIN_DELAY_MAX_MS; i++)
        delay *= 2;
    return delay < LOGIN_DELAY_MAX_MS ? delay : LOGIN_DELAY_MAX_MS;
}

uint64_t login_source_left_ms(const struct login_source_table *table, const struct source *source, uint64_t now_ns) {
    uint64_t delay = login_source_delay_ms(table, source, now_ns);
    uint64_t gone = delay ? (now_ns - login_source_find(table, source)->last_ns) / LOGIN_MS_NS : 0;
    return delay > gone ? delay - gone : 0;
}
