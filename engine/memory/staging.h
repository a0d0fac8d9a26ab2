/* Staging memory: host memory for data on the way to a device and from it, shared by all sessions. A transfer that needs staging memory
 * when there is none waits for it: it is never refused for that, and goes on in parts.
 *
 * A session has an account for each way (enum staging_way), so that no way waits for another. An empty account may take whatever is
 * left. An account that holds memory may take more, up to its share, as long as one piece is left for each empty account, and a
 * quarter of all memory for sessions to come. So clients that never read their fetches, or never send the rest of a chunk, hold up
 * no other session, as long as there are four pieces for each session. A piece is a mebibyte, which is what transfers use. Memory
 * counts until the device, too, has done with it. Waiting transfers are served in their order, and always before later ones of
 * the same account, because a transfer's parts are needed in their order.
 *
 * The sessions of a tenant may hold no more together than its limit, if it has one. The limit does not apply to the first piece of an
 * account.
 *
 * Why transfers never wait in a circle: memory of a client's chunks (STAGING_IN) is released by work that may wait for another device's
 * bytes, and memory of those bytes (STAGING_LINK) by work that may wait for more of them: so each copy from another device may take
 * its first piece beyond its account's share. Parts (STAGING_OUT) wait for readers alone. Memory for work that has not run yet
 * (STAGING_EARLY) has an account of its own, which never waits.
 *
 * Owner thread. */
#pragma once

#include "engine/memory/pool.h"
#include "engine/memory/staging_wait.h"
#include "engine/order/order.h"

struct memory;
struct tenant;

/* Memory that has been given back, but that the device uses until a point is reached. */
struct staging_flight {
    struct use until;
    uint64_t bytes;
    struct staging_flight *next;
};

struct staging_account {
    uint64_t bytes;        /* flights included */
    unsigned waiting;      /* waits in the queue */
    unsigned answered;     /* waits whose ready() is to be called */
    uint64_t refused;      /* number of the last look in which one of its waits got nothing */
    bool modest;           /* no piece is reserved for it when it is empty */
    struct tenant *tenant; /* which is charged, too; NULL: none */
    struct staging_flight *flights, *flights_last;
    struct waiter waiter; /* for the first flight, while any transfer waits for memory */
    struct memory *memory;
};

struct staging {
    struct pool pool;
    struct pool_search search; /* for the present request */
    uint64_t used;             /* bytes of all accounts */
    unsigned active;           /* accounts that are not empty, without the modest ones */
    bool moved; /* since the last look at the waits began, memory was given back, or the pool's search has not ended */
    uint64_t looks, looked_ns;
    struct staging_wait *waits, **waits_last;
    struct staging_wait *grant_at;                  /* the wait at which the next look goes on; NULL: the first */
    struct staging_wait *answered, **answered_last; /* waits whose ready() is called at the next poll */
    struct staging_account orphans;                 /* flights of sessions that have ended */
    struct slab flights;
};

void staging_init(struct memory *memory, struct device *device, uint64_t total);
/* No ledger is left, and nothing runs any more. */
void staging_finish(struct staging *staging);

/* Memory for `bytes` that nothing uses any more, with one reference. STATUS_AGAIN: there is none now; wait->ready() is called once, and
 * then the same call returns the result (`wait` NULL: the caller does not wait). STATUS_DEVICE_LOST, or STATUS_NO_HOST_MEMORY if
 * waiting would not help, with a message. */
int staging_take(struct ledger *ledger, enum staging_way way, size_t bytes, struct staging_wait *wait,
                 struct storage **storage, struct fault *fault);
/* Takes NULL. The device may still use the storage, until its uses have been reached. */
void staging_give(struct ledger *ledger, enum staging_way way, struct storage *storage);
/* The transfer does not want the memory any more. */
void staging_cancel(struct staging_wait *wait);
/* For ledger_open() and ledger_end(). */
void staging_join(struct ledger *ledger);
void staging_leave(struct ledger *ledger);
/* Whether staging_poll() has something to do. */
static inline bool staging_due(const struct staging *staging) {
    return staging->answered || (staging->waits && (staging->moved || staging->grant_at));
}
/* Serves the transfers that wait. */
void staging_poll(struct memory *memory);
