/* Connections that have not said Hello, in the order in which they came, wherever they are: with the front before their
 * preamble is here, on their way to be control connections, or with a worker. They are the ones that give their places up
 * when others want them: the oldest goes first. Front thread only. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

#include "server/ipc/peer.h"

enum lobby_kind { LOBBY_NOT_HERE, LOBBY_ARRIVAL, LOBBY_CONTROL, LOBBY_GUEST };

struct lobby_entry {
    enum lobby_kind kind;
    struct source source;
    uint64_t since_ns; /* uv_hrtime() */
    TAILQ_ENTRY(lobby_entry) link;
};

struct lobby {
    TAILQ_HEAD(, lobby_entry) head;
};

void lobby_init(struct lobby *lobby);
/* The entry lies within what waits; nothing is allocated. */
void lobby_enter(struct lobby *lobby, struct lobby_entry *entry, enum lobby_kind kind, const struct source *source);
/* It has said Hello, or is gone. Does nothing for one that is not here. */
void lobby_leave(struct lobby *lobby, struct lobby_entry *entry);
/* How many have come from there. */
unsigned lobby_count(const struct lobby *lobby, const struct source *source);
/* NULL: there is none. `source` NULL: from anywhere; `kind` LOBBY_NOT_HERE: of any. */
struct lobby_entry *lobby_oldest(const struct lobby *lobby, const struct source *source, enum lobby_kind kind);
