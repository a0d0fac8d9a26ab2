/* Memory's last uses: the points that must be reached before somebody else may write there. Owner thread. */
#pragma once

#include "engine/order/stream.h"

struct use {
    struct stream *stream;
    uint64_t number;
};
enum { USES_MAX = 4 };
struct uses {
    struct use use[USES_MAX];
    unsigned count;
};

/* Adds a use; uses that have run by now are dropped to make room. False: full. */
bool uses_add(struct uses *uses, struct stream *stream, uint64_t number);
/* Adds all of `more`; false, with nothing changed: they are too many. */
bool uses_join(struct uses *uses, const struct uses *more);
/* Drops what has run; true when nothing is left. */
bool uses_idle(struct uses *uses);
