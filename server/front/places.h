/* Places for connections (max-connections). A session that has lost its connection keeps its place until its client comes
 * back or its lease is over; a client that comes back says so in its preamble, and takes a kept place where no other is
 * free. So the preamble is read, for a moment, also of those that come when all is taken. Before that those that have not
 * said Hello give their places up, the oldest first (struct lobby). Some places are kept for those whom the system vouches for,
 * some of them for admins, and some beyond all others for control connections of admins, who are to look and to help when
 * all is taken. Front thread only. */
#pragma once

#include <stdbool.h>

#include "server/front/roster.h"
#include "server/ipc/peer.h"

struct front;

enum {
    /* Places for those that come back, beyond those that are kept: a client may learn of its connection's end long before
     * the worker does, and then its session does not count as one that has lost it. */
    PLACES_BESIDE = 32,
    PLACES_UNDECIDED_MAX = 64, /* connections that came when all was taken, and whose preamble is not here yet */
    PLACES_UNDECIDED_MS = 1000,
    PLACES_OPERATORS = 16, /* control connections beyond max-connections */
    PLACES_GUEST_MS =
        250, /* a worker's connection is let be for so long: that it has said Hello may be on its way here */
    PLACES_EVICTED_MAX = 64,   /* connections that workers have been told to end, and have not */
    PLACES_STRANGERS_PART = 4, /* this part of the places is not for those who have to log in first, */
    PLACES_ADMINS_PART = 16,   /* this one for admins alone, */
    PLACES_SOURCE_PART = 8,    /* and this one all that may come from one peer before Hello, */
    PLACES_SOURCE_LEAST = 8,   /* but at least so many */
};

enum place {
    PLACE_NONE,
    PLACE_ORDINARY,
    PLACE_UNDECIDED, /* it depends on its preamble */
    PLACE_KEPT,
    PLACE_OPERATOR,
    PLACE_KINDS
};

/* For a connection that has just come from this peer; others may be told to go. */
enum place places_find(struct front *front, const struct peer *peer);
/* For one that was undecided, and is not counted as that any more: its preamble is here, and says whether it comes back
 * and whether it is a control connection. PLACE_NONE: it must go. */
enum place places_decide(struct front *front, const struct peer *peer, bool resumes, bool control);
/* Tells the oldest one that has not said Hello to go, as lobby_oldest() finds it. False: there is none, or too many are on
 * their way out. */
bool places_evict(struct front *front, const struct source *source, enum lobby_kind kind);
/* Whether one that was an operator's by what it asked for may stay as somebody else. */
bool places_open(const struct front *front, enum role role);
