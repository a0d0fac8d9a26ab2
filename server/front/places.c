#include "server/front/places.h"

#include "server/front/front.h"

struct places_taken {
    uint64_t ordinary; /* connections in ordinary places */
    uint64_t kept;     /* places that sessions without a connection keep */
    uint64_t coming;   /* connections in kept places that have not continued their session yet */
};

static struct places_taken places_count(const struct front *front) {
    const unsigned *arrivals = front->arrivals.places;
    struct places_taken taken = {.coming = arrivals[PLACE_KEPT]};
    /* In this order, so that a connection that ends meanwhile is counted twice rather than not at all (struct
     * stats_places). */
    taken.ordinary = arrivals[PLACE_ORDINARY] + front->controls.count - front->controls.operators +
                     supervisor_connections(&front->supervisor);
    uint64_t evicted = front->roster.n_ordinary_evicted;
    taken.ordinary -= evicted < taken.ordinary ? evicted : taken.ordinary;
    for (unsigned i = 0; i < front->supervisor.n_slots; i++) {
        const struct worker_slot *slot = &front->supervisor.slots[i];
        if (!slot->process)
            continue;
        const struct stats_places *places = &slot->process->page->places;
        uint64_t coming = slot->handed_kept - atomic_load(&places->settled);
        taken.ordinary -= coming; /* the worker counts all of its connections together */
        taken.coming += coming;
        taken.kept += atomic_load(&places->detached);
    }
    return taken;
}

bool places_open(const struct front *front, enum role role) {
    struct places_taken taken = places_count(front);
    uint64_t places = front->config->max_connections;
    uint64_t left = role == ROLE_NONE    ? places / PLACES_STRANGERS_PART
                    : role == ROLE_ADMIN ? 0
                                         : places / PLACES_ADMINS_PART;
    return taken.ordinary + taken.kept < places - left;
}

/* The oldest connection that may be evicted. Guests of workers are left out while the workers have not carried out many
 * evictions yet. */
static struct lobby_entry *places_oldest(const struct front *front, const struct source *source, enum lobby_kind kind) {
    const struct lobby *lobby = &front->roster.lobby;
    struct lobby_entry *oldest = lobby_oldest(lobby, source, kind);
    if (!oldest || oldest->kind != LOBBY_GUEST || front->roster.n_evicted < PLACES_EVICTED_MAX)
        return oldest;
    if (kind != LOBBY_NOT_HERE)
        return NULL;
    struct lobby_entry *arrival = lobby_oldest(lobby, source, LOBBY_ARRIVAL);
    struct lobby_entry *control = lobby_oldest(lobby, source, LOBBY_CONTROL);
    return !arrival || (control && control->since_ns < arrival->since_ns) ? control : arrival;
}

bool places_evict(struct front *front, const struct source *source, enum lobby_kind kind) {
    struct lobby_entry *oldest = places_oldest(front, source, kind);
    struct channel_message message = {.type = CHANNEL_EVICT};
    if (!oldest ||
        (oldest->kind == LOBBY_GUEST && uv_hrtime() - oldest->since_ns < PLACES_GUEST_MS * UINT64_C(1000000)))
        return false;
    front->refusals[REFUSAL_MAX_CONNECTIONS]++;
    if (oldest->kind == LOBBY_ARRIVAL) {
        arrival_evict(oldest);
    } else if (oldest->kind == LOBBY_CONTROL) {
        control_evict(oldest);
    } else {
        const struct worker_slot *slot = roster_evict(&front->roster, oldest, &message.connection.session);
        worker_slot_send((struct worker_slot *)(uintptr_t)slot, &message, -1);
    }
    return true;
}

enum place places_find(struct front *front, const struct peer *peer) {
    uint64_t most = front->config->max_connections / PLACES_SOURCE_PART;
    enum role role = peer->principal.role;
    if (lobby_count(&front->roster.lobby, &peer->source) >= (most < PLACES_SOURCE_LEAST ? PLACES_SOURCE_LEAST : most))
        places_evict(front, &peer->source, LOBBY_NOT_HERE);
    if (places_open(front, role) || (places_evict(front, NULL, LOBBY_NOT_HERE) && places_open(front, role)))
        return PLACE_ORDINARY;
    unsigned undecided = role == ROLE_NONE ? PLACES_UNDECIDED_MAX / 2 : PLACES_UNDECIDED_MAX;
    return front->arrivals.places[PLACE_UNDECIDED] < undecided ? PLACE_UNDECIDED : PLACE_NONE;
}

/* Whether an admin, or a client that may log in as one, gets a place beyond max-connections. */
static bool places_operator(struct front *front, enum role role) {
    const struct control_list *controls = &front->controls;
    if (role != ROLE_ADMIN && role != ROLE_NONE)
        return false;
    if (controls->operators >= PLACES_OPERATORS)
        places_evict(front, NULL, LOBBY_CONTROL);
    return controls->operators < PLACES_OPERATORS;
}

enum place places_decide(struct front *front, const struct peer *peer, bool resumes, bool control) {
    enum role role = peer->principal.role;
    if (places_open(front, role))
        return PLACE_ORDINARY;
    if (control)
        return places_operator(front, role) ? PLACE_OPERATOR : PLACE_NONE;
    struct places_taken taken = places_count(front);
    uint64_t besides = role == ROLE_NONE ? PLACES_BESIDE / 2 : PLACES_BESIDE;
    return resumes && taken.coming < taken.kept + besides ? PLACE_KEPT : PLACE_NONE;
}
