/* Who is connected, by principal, over all devices: so that the front can hold a principal to its connections and
 * sessions before a worker hears of them. A connection is a guest of a worker from when it is handed over until the
 * worker says that it is gone, or ends itself; each of them counts as a session. Front thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/ipc/peer.h"
#include "server/users/limits.h"
#include "server/users/principal.h"

struct worker_slot;

/* Connections that have not said Hello, in the order in which they came, wherever they are: with the front before their
 * preamble is here, on their way to be control connections, or with a worker. They are the ones that give their places up
 * when others want them: the oldest goes first. */
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

enum { ROSTER_NAME_BYTES = PRINCIPAL_NAME_BYTES, ROSTER_BUCKETS = 1024 };

/* One principal; it is here as long as it has a connection. */
struct roster_entry {
    char name[ROSTER_NAME_BYTES];
    unsigned connections; /* of all kinds, */
    unsigned sessions;    /* and of these with workers */
    unsigned evicted;     /* and of these about to end, whose places others have */
    LIST_ENTRY(roster_entry) link;
};

struct roster_guest {
    uint64_t session;
    struct roster_entry *entry;
    const struct worker_slot *slot;
    struct lobby_entry waiting; /* until it has said Hello */
    bool evicted;               /* its worker has been told to end it, */
    bool kept;                  /* which frees a place for those that come back alone */
    LIST_ENTRY(roster_guest) link;
};

struct roster {
    LIST_HEAD(, roster_entry) entries;
    LIST_HEAD(roster_bucket, roster_guest) guests[ROSTER_BUCKETS]; /* by session */
    uint64_t places, session_places;                               /* of which a quarter may be taken by default */
    struct lobby lobby;
    unsigned n_evicted, n_ordinary_evicted; /* guests that are, and are still here; but for `kept` */
};

void roster_init(struct roster *roster);
void roster_finish(struct roster *roster);

/* Counts a connection. STATUS_LIMIT where the principal has as many as these limits allow (NULL: any number). */
int roster_join(struct roster *roster, const char *name, const struct limits *limits, struct roster_entry **entry,
                struct fault *fault);
/* Counts it for this principal instead of `*entry`, or for the first time (NULL). The limit holds for one that is new to
 * it; on failure it stays where it was. */
int roster_move(struct roster *roster, struct roster_entry **entry, const char *name, const struct limits *limits,
                struct fault *fault);
/* Takes NULL. */
void roster_leave(struct roster_entry *entry);
/* The principal's entry; NULL: it has no connection. */
struct roster_entry *roster_find(const struct roster *roster, const char *name);

/* Hands a connection that has been counted (`*entry`, which becomes NULL) to a worker. STATUS_LIMIT where the principal
 * has as many sessions as these limits allow (NULL: any number); then it is still the caller's. */
int roster_host(struct roster *roster, struct roster_entry **entry, const struct limits *limits, uint64_t session,
                const struct worker_slot *slot, struct fault *fault);
/* The guest turns out to be somebody else: both limits hold for the new name. On failure it stays who it was. */
int roster_identify(struct roster *roster, uint64_t session, const char *name, const struct limits *limits,
                    struct fault *fault);
/* The guest has not said Hello, and came from there. `kept`: in a place for those that come back. */
void roster_await(struct roster *roster, uint64_t session, const struct source *source, bool kept);
/* It has; or what was told to end goes on. */
void roster_greet(struct roster *roster, const struct worker_slot *slot, uint64_t session);
/* One that waits gives its place up; its worker and its number. */
const struct worker_slot *roster_evict(struct roster *roster, struct lobby_entry *waiting, uint64_t *session);
/* It was not handed over after all; the caller counts for it again. NULL: there is no such guest. */
struct roster_entry *roster_take_back(struct roster *roster, uint64_t session);
/* The guest is gone; session 0: all of this worker's are. */
void roster_gone(struct roster *roster, const struct worker_slot *slot, uint64_t session);
