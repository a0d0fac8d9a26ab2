/* Places for connections: max-connections says how many there are.
 *
 * A session that has lost its connection keeps its place until its client comes back or its lease ends. A client that
 * comes back says so in its preamble, and takes such a kept place if no other place is free. Therefore the front reads
 * the preamble of a new connection even when all places are taken.
 *
 * When places are wanted, connections that have not said Hello give theirs up, the oldest first (struct lobby). A
 * quarter of the places is closed to clients that have yet to log in, and a part of the rest is open to admins only.
 * Beyond max-connections there are a few places for control connections of admins, so that an admin can look and help
 * when all other places are taken. Front thread only. */
#pragma once

#include <stdbool.h>

#include "server/front/roster.h"
#include "server/ipc/peer.h"

struct front;

enum {
    /* Places for clients that come back, in addition to the kept ones: a client may notice the end of its connection
     * long before the worker does, and until then its session keeps no place. */
    PLACES_BESIDE = 32,
    PLACES_UNDECIDED_MAX = 64,  /* connections that came when all places were taken, and whose preamble has not come */
    PLACES_UNDECIDED_MS = 1000, /* for that preamble to come */
    PLACES_OPERATORS = 16,      /* control connections of admins beyond max-connections */
    PLACES_GUEST_MS = 250,      /* a worker's connection is not evicted before: news of its Hello may be on the way */
    PLACES_EVICTED_MAX = 64,    /* connections that workers have been told to end and have not ended */
    PLACES_STRANGERS_PART = 4,  /* 1/4 of the places is closed to clients that have to log in first, */
    PLACES_ADMINS_PART = 16,    /* 1/16 to everybody but admins, */
    PLACES_SOURCE_PART = 8,     /* and one source may have 1/8 of them before Hello, */
    PLACES_SOURCE_LEAST = 8,    /* but never fewer than this */
};

enum place {
    PLACE_NONE,      /* the connection has to go */
    PLACE_ORDINARY,  /* one of max-connections */
    PLACE_UNDECIDED, /* none yet: the preamble decides */
    PLACE_KEPT,      /* the place that a session without a connection keeps, or one of PLACES_BESIDE */
    PLACE_OPERATOR,  /* one of PLACES_OPERATORS */
    PLACE_KINDS
};

/* Finds a place for a new connection from this peer; may evict another connection. */
enum place places_find(struct front *front, const struct peer *peer);
/* Finds a place for a connection that was PLACE_UNDECIDED and is no longer counted as such, now that its preamble has
 * come: the preamble says whether the client comes back (`resumes`) and whether this is a control connection. */
enum place places_decide(struct front *front, const struct peer *peer, bool resumes, bool control);
/* Evicts the oldest connection that has not said Hello, as lobby_oldest() finds it. False: there is none, or too many
 * evicted connections have not ended yet. */
bool places_evict(struct front *front, const struct source *source, enum lobby_kind kind);
/* Whether an ordinary place is free for a principal of this role. */
bool places_open(const struct front *front, enum role role);
