#include "engine/memory/staging.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "engine/device/clock.h"
#include "engine/memory/memory.h"

/* The waits are looked at again after this long, even if nothing is known to have moved: a flight for which there was no memory is not
 * noticed. */
enum { STAGING_LOOK_NS = 100 * 1000 * 1000 };

enum {
    STAGING_PIECE = 1 << 20,
    STAGING_SHARES = 16,      /* an account's share is a sixteenth of all memory, */
    STAGING_SHARE_PIECES = 4, /* but so many pieces at least */
    STAGING_SPARE = 4,        /* a quarter of all memory is left to sessions to come */
    STAGING_WAIT_STEPS = 2,   /* of the budget, for a look at one wait */
    STAGING_READY_STEPS = 8,  /* and for one call of ready() */
};

void staging_init(struct memory *memory, struct device *device, uint64_t total) {
    struct staging *staging = &memory->staging;
    *staging = (struct staging){.orphans.memory = memory};
    pool_init_host(&staging->pool, device, total);
    slab_init(&staging->flights, sizeof(struct staging_flight));
    staging->orphans.modest = true;
    staging->waits_last = &staging->waits;
    staging->answered_last = &staging->answered;
}

/* ---- accounts ---- */

static void account_charge(struct staging *staging, struct staging_account *account, uint64_t bytes) {
    staging->active += account->bytes == 0 && !account->modest;
    account->bytes += bytes;
    staging->used += bytes;
    if (account->tenant)
        account->tenant->staging += bytes;
}

static void account_discharge(struct staging *staging, struct staging_account *account, uint64_t bytes) {
    account->bytes -= bytes;
    staging->used -= bytes;
    if (account->tenant)
        account->tenant->staging -= bytes;
    staging->active -= account->bytes == 0 && !account->modest;
    staging->moved = true;
}

static void flight_recycle(struct staging *staging, struct staging_flight *flight) {
    slab_give(&staging->flights, flight);
}

/* Only the first flight is looked at: if flights do not end in their order, some are noticed a little late. */
static void account_collect(struct staging *staging, struct staging_account *account) {
    struct staging_flight *flight;
    while ((flight = account->flights) && point_reached(flight->until.stream, flight->until.number)) {
        account->flights = flight->next;
        account_discharge(staging, account, flight->bytes);
        flight_recycle(staging, flight);
    }
}

static void staging_collect(struct memory *memory) {
    struct staging *staging = &memory->staging;
    account_collect(staging, &staging->orphans);
    for (struct ledger *ledger = memory->ledgers; ledger; ledger = ledger->next)
        for (int way = 0; way < STAGING_WAYS; way++)
            account_collect(staging, &ledger->staging[way]);
}

static void account_append(struct staging_account *account, struct staging_flight *first, struct staging_flight *last) {
    if (account->flights)
        account->flights_last->next = first;
    else
        account->flights = first;
    account->flights_last = last;
}

static bool account_tenant_may(const struct staging_account *account, uint64_t bytes) {
    const struct tenant *tenant = account->tenant;
    uint64_t limit = tenant ? tenant->limits.staging : 0;
    return !limit || (bytes <= limit && tenant->staging <= limit - bytes);
}

/* Whether an account may take `bytes` more: see the header. `first`: for the first piece of a transfer. */
static bool account_may(const struct memory *memory, const struct staging_account *account, uint64_t bytes,
                        bool first) {
    const struct staging *staging = &memory->staging;
    uint64_t total = staging->pool.total, left = total - staging->used;
    if (bytes > left)
        return false;
    if (account->bytes == 0 && !account->modest)
        return true;
    if (!first && !account_tenant_may(account, bytes))
        return false;
    uint64_t least = (uint64_t)STAGING_SHARE_PIECES * STAGING_PIECE;
    uint64_t share = total / STAGING_SHARES > least ? total / STAGING_SHARES : least;
    uint64_t waiting = (uint64_t)memory->n_ledgers * (STAGING_WAYS - 1) - staging->active;
    uint64_t reserve = waiting * STAGING_PIECE + total / STAGING_SPARE;
    return (first || account->bytes + bytes <= share) && left - bytes >= reserve;
}

/* ---- taking ---- */

static struct storage *staging_try(struct ledger *ledger, enum staging_way way, size_t bytes, bool first) {
    struct memory *memory = ledger->memory;
    struct staging *staging = &memory->staging;
    struct staging_account *account = &ledger->staging[way];
    struct storage *storage;
    account_collect(staging, account);
    if (!staging->waits && !account_may(memory, account, bytes, first))
        staging_collect(memory); /* while there are waits, account_arm() has the ends of flights told */
    if (!account_may(memory, account, bytes, first))
        return NULL;
    int code = pool_take(&staging->pool, bytes, NULL, &staging->search, &storage);
    staging->search.on = code == STATUS_AGAIN;
    staging->moved |= code == STATUS_AGAIN; /* the next look goes on */
    if (code != STATUS_OK)
        return NULL;
    account_charge(staging, account, storage->charged);
    return storage;
}

static void wait_link(struct staging_wait *wait, struct staging_wait ***last) {
    wait->next = NULL;
    wait->previous = *last;
    **last = wait;
    *last = &wait->next;
}

static void wait_unlink(struct staging *staging, struct staging_wait *wait) {
    if (staging->grant_at == wait)
        staging->grant_at = wait->next;
    *wait->previous = wait->next;
    if (wait->next)
        wait->next->previous = wait->previous;
    else if (staging->waits_last == &wait->next)
        staging->waits_last = wait->previous;
    else
        staging->answered_last = wait->previous;
    wait->previous = NULL;
}

static void wait_answer(struct staging *staging, struct staging_wait *wait) {
    struct staging_account *account = &wait->ledger->staging[wait->way];
    account->waiting--;
    account->answered++;
    wait->answered = true;
    wait_unlink(staging, wait);
    wait_link(wait, &staging->answered_last);
}

/* Looks at the waits, from where the budget ended the last look, and grants memory. staging_poll() calls ready() later. */
static void staging_grant(struct memory *memory) {
    struct staging *staging = &memory->staging;
    bool broken = atomic_load(&memory->order->broken);
    bool again = staging->grant_at && staging->moved, over = false; /* what has moved may help waits before grant_at */
    staging->moved = false;
    if (!staging->grant_at) {
        staging->grant_at = staging->waits;
        staging->looks++;
    }
    for (struct staging_wait *wait; (wait = staging->grant_at) && !over;) {
        struct staging_account *account = &wait->ledger->staging[wait->way];
        over = budget_spent(&memory->order->budget, STAGING_WAIT_STEPS);
        staging->grant_at = wait->next;
        if (account->refused == staging->looks && !wait->first && !broken)
            continue;
        wait->granted = broken ? NULL : staging_try(wait->ledger, wait->way, wait->bytes, wait->first);
        if (wait->granted || broken || (staging->used == 0 && !staging->moved))
            wait_answer(staging, wait);
        else
            account->refused = staging->looks; /* later waits of the account are skipped in this look */
    }
    staging->moved |= again;
}

static int staging_refuse(const struct staging *staging, size_t bytes, struct fault *fault) {
    return fault_set(fault, STATUS_NO_HOST_MEMORY,
                     "no %zu bytes of staging memory: of %" PRIu64 ", %" PRIu64 " are reserved and %" PRIu64
                     " on their way",
                     bytes, staging->pool.total, staging->pool.reserved, staging->used);
}

static void account_arm(struct memory *memory, struct staging_account *account);
static void staging_arm(struct memory *memory);

static void wait_begin(struct memory *memory, struct staging_wait *wait) {
    bool first = !memory->staging.waits;
    wait->answered = false;
    wait_link(wait, &memory->staging.waits_last);
    wait->ledger->staging[wait->way].waiting++;
    if (first)
        staging_arm(memory);
}

int staging_take(struct ledger *ledger, enum staging_way way, size_t bytes, struct staging_wait *wait,
                 struct storage **result, struct fault *fault) {
    struct memory *memory = ledger->memory;
    struct staging *staging = &memory->staging;
    size_t rounded = pool_rounded(bytes);
    if (wait && wait->granted) {
        *result = wait->granted;
        wait->granted = NULL;
        return STATUS_OK;
    }
    if (order_fault(memory->order, fault) != STATUS_OK)
        return STATUS_DEVICE_LOST;
    if (!rounded || rounded > staging->pool.total)
        return staging_refuse(staging, bytes, fault);
    if (staging->waits && (staging->moved || staging->grant_at))
        staging_grant(memory);
    bool first = wait && wait->first, behind = ledger->staging[way].waiting && !first;
    struct storage *storage = behind ? NULL : staging_try(ledger, way, rounded, first);
    if (storage) {
        *result = storage;
        return STATUS_OK;
    }
    if (!wait || wait->previous)
        return STATUS_AGAIN;
    if (staging->used == 0 && !staging->moved) /* no memory will be given back: the host has no more */
        return staging_refuse(staging, bytes, fault);
    wait->ledger = ledger;
    wait->way = way;
    wait->bytes = rounded;
    wait_begin(memory, wait);
    return STATUS_AGAIN;
}

void staging_cancel(struct staging_wait *wait) {
    if (wait->granted)
        staging_give(wait->ledger, wait->way, wait->granted);
    wait->granted = NULL;
    if (!wait->previous)
        return;
    struct staging *staging = &wait->ledger->memory->staging;
    struct staging_account *account = &wait->ledger->staging[wait->way];
    account->answered -= wait->answered;
    account->waiting -= !wait->answered;
    wait_unlink(staging, wait);
    staging->moved = true; /* other waits may have been behind it */
}

/* ---- giving back ---- */

/* A use that has not been reached, if there is one: the last in the list. */
static const struct use *storage_last_use(const struct storage *storage) {
    const struct use *last = &storage->uses.use[0];
    for (unsigned i = 1; i < storage->uses.count; i++)
        if (!point_reached(storage->uses.use[i].stream, storage->uses.use[i].number))
            last = &storage->uses.use[i];
    return last;
}

void staging_give(struct ledger *ledger, enum staging_way way, struct storage *storage) {
    if (!storage)
        return;
    struct staging *staging = &ledger->memory->staging;
    struct staging_account *account = &ledger->staging[way];
    struct staging_flight *flight = NULL;
    if (!uses_idle(&storage->uses)) {
        flight = slab_take(&staging->flights);
    }
    if (flight) {
        *flight = (struct staging_flight){*storage_last_use(storage), storage->charged, NULL};
        account_append(account, flight, flight);
        if (staging->waits)
            account_arm(ledger->memory, account);
    } else {
        account_discharge(staging, account, storage->charged);
    }
    storage_unref(storage);
}

static void account_leave(struct memory *memory, struct staging_account *account) {
    struct staging_account *orphans = &memory->staging.orphans;
    waiter_cancel(&account->waiter);
    if (account->flights)
        account_append(orphans, account->flights, account->flights_last);
    orphans->bytes += account->bytes;
    memory->staging.active -= account->bytes > 0 && !account->modest;
    if (account->tenant)
        account->tenant->staging -= account->bytes;
    *account = (struct staging_account){.memory = memory};
    if (memory->staging.waits)
        account_arm(memory, orphans);
}

void staging_join(struct ledger *ledger) {
    ledger->staging[STAGING_EARLY].modest = true;
    for (int way = 0; way < STAGING_WAYS; way++) {
        ledger->staging[way].tenant = ledger->tenant;
        ledger->staging[way].memory = ledger->memory;
    }
}

void staging_leave(struct ledger *ledger) {
    struct staging *staging = &ledger->memory->staging;
    struct staging_wait *const lists[] = {staging->waits, staging->answered};
    unsigned waits = 0;
    for (int way = 0; way < STAGING_WAYS; way++)
        waits += ledger->staging[way].waiting + ledger->staging[way].answered;
    for (int i = 0; i < 2 && waits; i++)
        for (struct staging_wait *wait = lists[i], *next; wait; wait = next) {
            next = wait->next;
            if (wait->ledger == ledger)
                staging_cancel(wait);
        }
    for (int way = 0; way < STAGING_WAYS; way++)
        account_leave(ledger->memory, &ledger->staging[way]);
}

/* ---- waits ---- */

static void account_reached(struct waiter *waiter) {
    struct staging_account *account =
        (struct staging_account *)((char *)waiter - offsetof(struct staging_account, waiter));
    if (account->memory->staging.waits)
        account_arm(account->memory, account);
    else
        account_collect(&account->memory->staging, account);
}

/* While there are waits, the ends of flights must be noticed: so each account with flights has a waiter then. */
static void account_arm(struct memory *memory, struct staging_account *account) {
    account_collect(&memory->staging, account);
    const struct staging_flight *first = account->flights;
    if (!account->waiter.stream && first)
        waiter_begin(&account->waiter, first->until.stream, first->until.number, account_reached);
}

static void staging_arm(struct memory *memory) {
    account_arm(memory, &memory->staging.orphans);
    for (struct ledger *ledger = memory->ledgers; ledger; ledger = ledger->next)
        for (int way = 0; way < STAGING_WAYS; way++)
            account_arm(memory, &ledger->staging[way]);
}

void staging_poll(struct memory *memory) {
    struct staging *staging = &memory->staging;
    uint64_t now = clock_now();
    bool late = !staging->grant_at && now - staging->looked_ns >= STAGING_LOOK_NS;
    if (late) {
        staging->looked_ns = now;
        staging_arm(memory);
    }
    if (late || staging->moved || staging->grant_at || atomic_load(&memory->order->broken))
        staging_grant(memory);
    bool over = false;
    for (struct staging_wait *wait; (wait = staging->answered) && !over;) {
        wait->ledger->staging[wait->way].answered--;
        wait_unlink(staging, wait);
        wait->ready(wait);
        over = budget_spent(&memory->order->budget, STAGING_READY_STEPS);
    }
}

void staging_finish(struct staging *staging) {
    while (staging->orphans.flights) {
        struct staging_flight *flight = staging->orphans.flights;
        staging->orphans.flights = flight->next;
        flight_recycle(staging, flight);
    }
    slab_finish(&staging->flights);
    pool_finish(&staging->pool);
}
