/* What one session has of memory: of the device's, of the host's, and on its way between the two. All of it is charged
 * before it is taken, to the session and its tenant, and within the limits of both. Owner thread. */
#pragma once

#include "engine/memory/pool.h"
#include "engine/memory/staging.h"
#include "engine/memory/tenant.h"

struct memory;

struct ledger {
    struct memory *memory;
    struct tenant *tenant;     /* NULL: none */
    struct payer payer;        /* of device memory */
    uint64_t apart;            /* of its bytes, those outside the pool */
    struct pool_search search; /* for the memory of the request at hand, */
    uint64_t *refused;         /* and the one of memory->refusals that it has met; NULL: none */
    uint64_t host;             /* bytes of host memory, */
    uint64_t host_peak;        /* at most so far, */
    uint64_t host_queue;       /* and those of what is queued, as of the last look */
    uint64_t host_limit;       /* 0: the tenant's */
    struct staging_account staging[STAGING_WAYS];
    struct ledger *next, **previous; /* in memory->ledgers */
};

/* Zeroed, but for the limits. */
void ledger_open(struct ledger *ledger, struct memory *memory, struct tenant *tenant);
/* It asks for nothing more: those of its transfers that wait for memory are forgotten, and what is on its way counts on, but
 * no more for its tenant. What it has stays charged. */
void ledger_end(struct ledger *ledger);
/* It has given back all device memory. */
void ledger_close(struct ledger *ledger);

/* A request begins: nothing has been refused to it. */
static inline void ledger_begin(struct ledger *ledger) {
    ledger->refused = NULL;
}
/* Counts a refusal; */
void ledger_refuse(struct ledger *ledger, enum ledger_refusal refusal);
/* which is taken back, as the request will be made again. */
static inline void ledger_pardon(struct ledger *ledger) {
    if (ledger->refused)
        --*ledger->refused;
    ledger->refused = NULL;
}

/* Storage charged to it, for work on `stream` (NULL: for the host to write now). STATUS_AGAIN: the pool does not know yet
 * whether there is some, and the request is to be put off. */
int ledger_storage(struct ledger *ledger, uint64_t bytes, struct stream *stream, struct storage **storage,
                   struct fault *fault);
/* For memory of the device outside the pool. STATUS_LIMIT, or STATUS_OUT_OF_MEMORY for more than the device has. */
int ledger_take_apart(struct ledger *ledger, uint64_t bytes, struct fault *fault);
void ledger_give_apart(struct ledger *ledger, uint64_t bytes);

/* Host memory. Charges so much more, or refuses: STATUS_LIMIT, with words, which say of what kind the session has `n`. */
int ledger_take_host(struct ledger *ledger, uint64_t bytes, size_t n, const char *kind, struct fault *fault);
bool ledger_has_host(const struct ledger *ledger, uint64_t bytes);
/* Charges what is there already: next to something that was asked for. */
void ledger_note_host(struct ledger *ledger, uint64_t bytes);
void ledger_give_host(struct ledger *ledger, uint64_t bytes);
/* So much is queued now. */
void ledger_set_queue(struct ledger *ledger, uint64_t bytes);

/* ---- what the sessions of a tenant have together; owner thread, but for `share` ---- */

struct tenant {
    struct memory *memory;
    char name[TENANT_NAME_MAX + 1];
    struct tenant_limits limits;
    struct run_share *share;
    unsigned sessions;
    unsigned ending; /* sessions that have ended, and whose memory is still charged here */
    bool gone;       /* destroyed; freed when those have given it back */
    struct payer payer;
    uint64_t staging;
    uint64_t host;
};

/* A session comes, ends, and has given back everything. Each takes NULL. */
void tenant_join(struct tenant *tenant);
void tenant_end(struct tenant *tenant);
void tenant_leave(struct tenant *tenant);
