#include "server/places.h"

#include "server/front.h"

struct places_taken {
    uint64_t ordinary; /* by connections in ordinary places */
    uint64_t kept;     /* for sessions without a connection */
    uint64_t coming;   /* connections in places for those that come back, which have not yet */
};

static struct places_taken places_count(const struct front *front) {
    const unsigned *arrivals = front->arrivals.places;
    struct places_taken taken = {.coming = arrivals[PLACE_KEPT]};
    /* In this order: a connection that ends meanwhile is counted rather twice than not at all (struct stats_places). */
    taken.ordinary = arrivals[PLACE_ORDINARY] + front->controls.count + supervisor_connections(&front->supervisor);
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

static bool places_open(const struct front *front, bool stranger) {
    struct places_taken taken = places_count(front);
    uint64_t places = front->config->max_connections;
    return taken.ordinary + taken.kept < places - (stranger ? places / 4 : 0);
}

enum place places_find(const struct front *front, bool stranger) {
    if (places_open(front, stranger))
        return PLACE_ORDINARY;
    unsigned undecided = stranger ? PLACES_UNDECIDED_MAX / 2 : PLACES_UNDECIDED_MAX;
    return front->arrivals.places[PLACE_UNDECIDED] < undecided ? PLACE_UNDECIDED : PLACE_NONE;
}

enum place places_decide(const struct front *front, bool stranger, bool resumes) {
    if (places_open(front, stranger))
        return PLACE_ORDINARY;
    struct places_taken taken = places_count(front);
    uint64_t besides = stranger ? PLACES_BESIDE / 2 : PLACES_BESIDE;
    return resumes && taken.coming < taken.kept + besides ? PLACE_KEPT : PLACE_NONE;
}
