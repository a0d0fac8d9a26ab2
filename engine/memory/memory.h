/* The memory of one device, and of the host on the way to it and from it; and whose it is. It stands on the order of what runs:
 * storage is handed on before its last users have run, to whoever waits for them on a stream. Owner thread. */
#pragma once

#include "engine/memory/ledger.h"
#include "engine/order/order.h"

struct memory {
    struct order *order;
    void (*blocks)(void *owner, bool begins); /* as in struct pool */
    void *owner;
    struct pool pool;
    struct staging staging;
    struct ledger *ledgers;
    unsigned n_ledgers;
    uint64_t refusals[LEDGER_REFUSALS];
    uint64_t host_freed; /* bytes of host memory that ended sessions had, since the host got some back last */
    bool trim_more;      /* at rest, and more than one call's share is to be given back to the device */
};

/* `blocks` and `owner` as in struct pool; `staging` of 0: the usual size. */
void memory_init(struct memory *memory, struct order *order, uint64_t staging, void (*blocks)(void *owner, bool begins),
                 void *owner);
/* No ledger is left, and nothing runs any more. */
void memory_finish(struct memory *memory);
/* Nobody uses any: most of what is reserved goes back to the device, some at a time: memory->trim_more where that is
 * not all. On a device that has failed it may wait for ever. */
void memory_rest(struct memory *memory);
/* And of the host's memory what sessions have left. */
void memory_rest_host(struct memory *memory);
