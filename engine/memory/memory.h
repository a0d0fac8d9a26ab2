/* The memory of one device, the host memory for transfers to and from it, and the accounts to which they are charged. Memory uses
 * engine/order: storage is handed on before its last users have run, to a stream that waits for them. Owner thread. */
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
    uint64_t last_tenant; /* number of the newest one */
    uint64_t refusals[LEDGER_REFUSALS];
    uint64_t host;      /* bytes of host memory that all sessions have, */
    uint64_t host_most; /* and the most that it was since the last malloc_trim() */
    bool trim_more;     /* memory_rest() is to be called again: more is to be given back to the device */
};

/* `blocks` and `owner` as in struct pool; `staging`: bytes of staging memory, 0: the usual size. */
void memory_init(struct memory *memory, struct order *order, uint64_t staging, void (*blocks)(void *owner, bool begins),
                 void *owner);
/* No ledger is left, and nothing runs any more. */
void memory_finish(struct memory *memory);
/* When no session is left: gives most of the reserved memory back to the device, some in each call; sets memory->trim_more if there is
 * more. On a device that has failed it may wait for ever. */
void memory_rest(struct memory *memory);
/* When nothing runs: gives host memory back to the system that sessions have freed, if that is much. It may take a quarter of a
 * second, for which others would wait. */
void memory_rest_host(struct memory *memory);
/* The sessions have so many bytes of host memory more, or, modulo 2^64, less. */
static inline void memory_count_host(struct memory *memory, uint64_t more) {
    memory->host += more;
    if (memory->host > memory->host_most)
        memory->host_most = memory->host;
}
