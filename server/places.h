/* Places for connections (max-connections). A session that has lost its connection keeps its place until its client comes
 * back or its lease is over; a client that comes back says so in its preamble, and takes a kept place where no other is
 * free. So the preamble is read, for a moment, also of those that come when all is taken. Front thread only. */
#pragma once

#include <stdbool.h>

struct front;

enum {
    /* Places for those that come back, beyond those that are kept: a client may learn of its connection's end long before
     * the worker does, and then its session does not count as one that has lost it. */
    PLACES_BESIDE = 32,
    PLACES_UNDECIDED_MAX = 64, /* connections that came when all was taken, and whose preamble is not here yet */
    PLACES_UNDECIDED_MS = 1000,
};

enum place {
    PLACE_NONE,
    PLACE_ORDINARY,
    PLACE_UNDECIDED, /* it depends on its preamble */
    PLACE_KEPT,
    PLACE_KINDS
};

/* For a connection that has just come; `stranger`: one that has to log in first. Such connections leave some of the
 * places to those whom the system vouches for, the operator among them. */
enum place places_find(const struct front *front, bool stranger);
/* For one that was undecided, and is not counted as that any more: its preamble is here. PLACE_NONE: it must go. */
enum place places_decide(const struct front *front, bool stranger, bool resumes);
