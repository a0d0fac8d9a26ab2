#include "engine/order/uses.h"

static void uses_drop(struct uses *uses) {
    unsigned kept = 0;
    for (unsigned i = 0; i < uses->count; i++)
        if (!point_reached(uses->use[i].stream, uses->use[i].number))
            uses->use[kept++] = uses->use[i];
    uses->count = kept;
}

bool uses_add(struct uses *uses, struct stream *stream, uint64_t number) {
    for (unsigned i = 0; i < uses->count; i++)
        if (uses->use[i].stream == stream) {
            if (uses->use[i].number < number)
                uses->use[i].number = number;
            return true;
        }
    if (uses->count == USES_MAX)
        uses_drop(uses);
    if (uses->count == USES_MAX)
        return false;
    uses->use[uses->count++] = (struct use){stream, number};
    return true;
}

bool uses_join(struct uses *uses, const struct uses *more) {
    struct uses joined = *uses;
    for (unsigned i = 0; i < more->count; i++)
        if (!uses_add(&joined, more->use[i].stream, more->use[i].number))
            return false;
    *uses = joined;
    return true;
}

bool uses_idle(struct uses *uses) {
    if (uses->count)
        uses_drop(uses);
    return uses->count == 0;
}
