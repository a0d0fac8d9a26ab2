/* Staging memory: host memory on the way to a device and from it, shared by all sessions. Whoever wants some
 * when there is none waits for it: a transfer is never refused for that, and goes on in parts.
 *
 * A session has an account for each way that memory takes, so that no way waits for another. An account that holds
 * nothing may take whatever is left. One that holds something may have more, up to its share, as long as a piece is left
 * for each account that holds nothing, and a quarter of all for sessions to come. So clients that never read their
 * fetches, or never send the rest of a chunk, hold up nobody, as long as there are four pieces for each session; a piece
 * is a mebibyte, which is what transfers use. Memory counts until the device has done with it, too. Those
 * who wait are served in their order, and always before those who come later in the same account: a transfer's parts
 * are needed in their order.
 *
 * Sessions that belong to a tenant may hold no more together than its limit, where it has one. That too holds for what
 * an account takes beyond its first piece only.
 *
 * No circle of those who wait. What a client's chunks take is released by work that may wait for another device's
 * bytes (STAGING_LINK), and these again by work that waits for others of that kind: so each such copy may have a first
 * piece beyond its account's share. Parts (STAGING_OUT) wait for readers alone. What is taken for work that is
 * still to come (STAGING_EARLY) is in an account of its own, for which nobody waits.
 *
 * Owner thread. */
#pragma once

#include "engine/memory/pool.h"
#include "engine/memory/staging_wait.h"
#include "engine/order/order.h"

struct memory;
struct tenant;

/* Memory given back that the device still uses up to a point. */
struct staging_flight {
    struct use until;
    uint64_t bytes;
    struct staging_flight *next;
};

struct staging_account {
    uint64_t bytes;        /* those in flight included */
    unsigned waiting;      /* waits in the queue, */
    unsigned answered;     /* and those that are to be told */
    uint64_t refused;      /* number of the last look in which one of them got nothing */
    bool modest;           /* no piece is kept for it */
    struct tenant *tenant; /* that what it holds counts for, too; NULL: none */
    struct staging_flight *flights, *flights_last;
    struct waiter waiter; /* for the first flight, while somebody waits for memory */
    struct memory *memory;
};

struct staging {
    struct pool pool;
    struct pool_search search; /* for whoever asks */
    uint64_t used;             /* bytes, by all accounts */
    unsigned active;           /* accounts that hold something, the modest ones apart */
    bool moved; /* something was given back since a look at those who wait began, or it found no end in the pool */
    uint64_t looks, looked_ns;
    struct staging_wait *waits, **waits_last;
    struct staging_wait *grant_at;                  /* of these, where the look at them goes on; NULL: at the first */
    struct staging_wait *answered, **answered_last; /* to be told at the next poll */
    struct staging_account orphans;                 /* what ended sessions have in flight */
    struct slab flights;
};

void staging_init(struct memory *memory, struct device *device, uint64_t total);
/* No ledger is left, and nothing runs any more. */
void staging_finish(struct staging *staging);

/* Memory for `bytes` that nothing uses any more, with one reference. STATUS_AGAIN: there is none now; `wait` is called once,
 * and then the same call has the answer (NULL: the caller does not wait). STATUS_DEVICE_LOST, or STATUS_NO_HOST_MEMORY where
 * waiting would not help, with words. */
int staging_take(struct ledger *ledger, enum staging_way way, size_t bytes, struct staging_wait *wait,
                 struct storage **storage, struct fault *fault);
/* Takes NULL. The device may still use it, by what its uses say. */
void staging_give(struct ledger *ledger, enum staging_way way, struct storage *storage);
/* The taker wants it no more. */
void staging_cancel(struct staging_wait *wait);
/* For ledger_open() and ledger_end(). */
void staging_join(struct ledger *ledger);
void staging_leave(struct ledger *ledger);
/* Whether staging_poll() has something to do. */
static inline bool staging_due(const struct staging *staging) {
    return staging->answered || (staging->waits && (staging->moved || staging->grant_at));
}
/* Serves those who wait. */
void staging_poll(struct memory *memory);
