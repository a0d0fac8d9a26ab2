#include "server/front/lobby.h"

#include <uv.h>

void lobby_init(struct lobby *lobby) {
    TAILQ_INIT(&lobby->head);
}

void lobby_enter(struct lobby *lobby, struct lobby_entry *entry, enum lobby_kind kind, const struct source *source) {
    lobby_leave(lobby, entry);
    entry->kind = kind;
    entry->source = *source;
    entry->since_ns = uv_hrtime();
    TAILQ_INSERT_TAIL(&lobby->head, entry, link);
}

void lobby_leave(struct lobby *lobby, struct lobby_entry *entry) {
    if (entry->kind == LOBBY_NOT_HERE)
        return;
    TAILQ_REMOVE(&lobby->head, entry, link);
    entry->kind = LOBBY_NOT_HERE;
}

unsigned lobby_count(const struct lobby *lobby, const struct source *source) {
    const struct lobby_entry *entry;
    unsigned count = 0;
    TAILQ_FOREACH(entry, &lobby->head, link)
    count += source_same(&entry->source, source);
    return count;
}

struct lobby_entry *lobby_oldest(const struct lobby *lobby, const struct source *source, enum lobby_kind kind) {
    struct lobby_entry *entry;
    TAILQ_FOREACH(entry, &lobby->head, link)
    if ((!source || source_same(&entry->source, source)) && (kind == LOBBY_NOT_HERE || entry->kind == kind))
        return entry;
    return NULL;
}
