/* The memory that one session has: device memory, host memory, and staging memory between the two. All of it is charged before it is
 * taken, to the session and its tenant, within the limits of both. Owner thread. */
#pragma once

#include "engine/memory/pool.h"
#include "engine/memory/staging.h"
#include "engine/memory/tenant.h"

struct memory;

struct ledger {
    struct memory *memory;
    struct draft *draft;       /* not NULL: storage is only planned (draft.h), and nothing is charged */
    struct tenant *tenant;     /* NULL: none */
    struct payer payer;        /* of device memory */
    uint64_t apart;            /* those of the payer's bytes that are outside the pool */
    struct pool_search search; /* for the memory of the present request */
    bool waits; /* the present request found the device full, and memory that was given back there is not free yet */
    uint64_t *refused;   /* the counter in memory->refusals that the present request has raised; NULL: none */
    uint64_t host;       /* bytes of host memory, without the queues */
    uint64_t host_queue; /* bytes of its queues, as of the last look */
    uint64_t host_limit; /* 0: the tenant's */
    struct staging_account staging[STAGING_WAYS];
    struct ledger *next, **previous; /* in memory->ledgers */
};

/* `ledger` is zeroed before, except for its limits. */
void ledger_open(struct ledger *ledger, struct memory *memory, struct tenant *tenant);
/* The session asks for nothing more. Its transfers that wait for memory are forgotten. Staging memory that the device still uses stays
 * counted, but no longer for the tenant. All other memory stays charged. */
void ledger_end(struct ledger *ledger);
/* The session has given back all device memory. */
void ledger_close(struct ledger *ledger);

/* A request begins, of which nothing has been refused yet. */
static inline void ledger_begin(struct ledger *ledger) {
    ledger->refused = NULL;
}
/* Counts a refusal. */
void ledger_refuse(struct ledger *ledger, enum ledger_refusal refusal);
/* Takes the count back, because the request will be made again. */
static inline void ledger_pardon(struct ledger *ledger) {
    if (ledger->refused)
        --*ledger->refused;
    ledger->refused = NULL;
}

/* Storage charged to the ledger, for work on `stream` (NULL: for the host to write now). STATUS_AGAIN: the pool does not know yet
 * whether there is storage; the request is to be made again later. */
int ledger_storage(struct ledger *ledger, uint64_t bytes, struct stream *stream, struct storage **storage,
                   struct fault *fault);
/* Charges device memory outside the pool. STATUS_LIMIT, or STATUS_OUT_OF_MEMORY for more than the device has. */
int ledger_take_apart(struct ledger *ledger, uint64_t bytes, struct fault *fault);
void ledger_give_apart(struct ledger *ledger, uint64_t bytes);

/* Charges host memory, or refuses: STATUS_LIMIT with a message that says how many (`n`) objects of which kind the session has. */
int ledger_take_host(struct ledger *ledger, uint64_t bytes, size_t n, const char *kind, struct fault *fault);
bool ledger_has_host(const struct ledger *ledger, uint64_t bytes);
/* Charges host memory that has been taken already, with memory that was asked for. */
void ledger_note_host(struct ledger *ledger, uint64_t bytes);
void ledger_give_host(struct ledger *ledger, uint64_t bytes);
/* The session's queues have so many bytes now. */
void ledger_set_queue(struct ledger *ledger, uint64_t bytes);

/* ---- the memory that a tenant's sessions have together; owner thread, except `share` ---- */

struct tenant {
    struct memory *memory;
    uint64_t number; /* from 1 on; none has it again */
    char name[TENANT_NAME_MAX + 1];
    struct tenant_limits limits;
    struct run_share *share;
    unsigned sessions;
    unsigned ending; /* sessions that have ended, and whose memory is still charged here */
    bool gone;       /* destroyed; freed when these sessions have given their memory back */
    struct payer payer;
    uint64_t staging;
    uint64_t host;
};

/* A session of the tenant begins; ends; has given back all memory. Each takes NULL. */
void tenant_join(struct tenant *tenant);
void tenant_end(struct tenant *tenant);
void tenant_leave(struct tenant *tenant);
