/* The roster: which principals are connected, over all devices. With it the front enforces the limits of connections
 * and sessions before a worker gets a connection. A connection is a worker's guest from the time it is handed over
 * until the worker says that it has ended, or the worker itself ends; each guest counts as a session. Front thread
 * only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/front/turns.h"
#include "server/ipc/peer.h"
#include "server/users/limits.h"
#include "server/users/principal.h"

struct worker_slot;

/* The lobby: connections that have not said Hello, in the order in which they came. They may be with the front,
 * waiting for their preamble or for Hello as control connections, or with a worker. When other connections want
 * places, these give theirs up, the oldest first. */
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
/* The entry is embedded in the connection; nothing is allocated. */
void lobby_enter(struct lobby *lobby, struct lobby_entry *entry, enum lobby_kind kind, const struct source *source);
/* The connection has said Hello, or has ended. Does nothing for an entry that is not in the lobby. */
void lobby_leave(struct lobby *lobby, struct lobby_entry *entry);
/* How many have come from this source. */
unsigned lobby_count(const struct lobby *lobby, const struct source *source);
/* The oldest entry of this source (NULL: of any) and kind (LOBBY_NOT_HERE: of any); NULL: there is none. */
struct lobby_entry *lobby_oldest(const struct lobby *lobby, const struct source *source, enum lobby_kind kind);

enum { ROSTER_NAME_BYTES = PRINCIPAL_NAME_BYTES, ROSTER_BUCKETS = 1024 };

/* A principal that has a connection. */
struct roster_entry {
    char name[ROSTER_NAME_BYTES];
    unsigned connections;    /* of all kinds; */
    unsigned sessions;       /* connections that are guests; */
    unsigned evicted;        /* guests that have been told to end, whose places other connections have */
    struct turn_queue turns; /* its control connections that wait for a turn */
    LIST_ENTRY(roster_entry) link;
};

struct roster_guest {
    uint64_t session;
    struct roster_entry *entry;
    const struct worker_slot *slot;
    struct lobby_entry waiting; /* until it has said Hello */
    bool evicted;               /* its worker has been told to end it */
    bool kept;                  /* it has a kept place (places.h), so that its end frees no ordinary place */
    LIST_ENTRY(roster_guest) link;
};

struct roster {
    LIST_HEAD(, roster_entry) entries;
    LIST_HEAD(roster_bucket, roster_guest) guests[ROSTER_BUCKETS]; /* by session */
    uint64_t places, session_places; /* of all principals; a quarter of them is a principal's default limit */
    struct lobby lobby;
    unsigned n_evicted, n_ordinary_evicted; /* evicted guests that have not ended; and those without a kept place */
};

void roster_init(struct roster *roster);
void roster_finish(struct roster *roster);

/* Counts a connection for a principal. STATUS_LIMIT: it has as many as `limits` allow (NULL: any number). */
int roster_join(struct roster *roster, const char *name, const struct limits *limits, struct roster_entry **entry,
                struct fault *fault);
/* Counts a connection for this principal instead of for `*entry` (NULL: it was not counted). The limit is checked only
 * if the principal is another one; on failure nothing changes. */
int roster_move(struct roster *roster, struct roster_entry **entry, const char *name, const struct limits *limits,
                struct fault *fault);
/* Takes NULL. */
void roster_leave(struct roster_entry *entry);
/* NULL: the principal has no connection. */
struct roster_entry *roster_find(const struct roster *roster, const char *name);

/* Makes a counted connection (`*entry`, which becomes NULL) the guest of a worker. STATUS_LIMIT: the principal has as
 * many sessions as `limits` allow (NULL: any number); then `*entry` is unchanged. */
int roster_host(struct roster *roster, struct roster_entry **entry, const struct limits *limits, uint64_t session,
                const struct worker_slot *slot, struct fault *fault);
/* The guest has logged in as another principal, whose limits of connections and sessions are checked. On failure
 * nothing changes. */
int roster_identify(struct roster *roster, uint64_t session, const char *name, const struct limits *limits,
                    struct fault *fault);
/* Puts the guest, which has not said Hello, into the lobby. `kept`: it has a kept place. */
void roster_await(struct roster *roster, uint64_t session, const struct source *source, bool kept);
/* The guest has said Hello, also if it was told to end: it leaves the lobby. */
void roster_greet(struct roster *roster, const struct worker_slot *slot, uint64_t session);
/* The guest with this entry gives up its place: returns its worker and sets *session. */
const struct worker_slot *roster_evict(struct roster *roster, struct lobby_entry *waiting, uint64_t *session);
/* The connection was not handed over after all: it is no guest any more, and the caller owns its count. NULL: there is
 * no such guest. */
struct roster_entry *roster_take_back(struct roster *roster, uint64_t session);
/* The guest has ended; session 0: all guests of this worker have. */
void roster_gone(struct roster *roster, const struct worker_slot *slot, uint64_t session);
