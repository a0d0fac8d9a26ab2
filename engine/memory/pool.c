#include "engine/memory/pool_impl.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/memory/draft.h"

static const size_t pool_segment_small = (size_t)2 << 20;  /* for requests up to a sixteenth of it */
static const size_t pool_segment_large = (size_t)32 << 20; /* for requests up to a quarter of it */
enum {
    POOL_LOOKS = 8, /* looks at busy pieces for each piece that was freed since the last sweep */
    POOL_SCAN = 16, /* pieces of one bin that are looked at before the next bin */
    POOL_FITS = 64, /* settled pieces that are looked at, from the best fit on, for a piece that may be taken */
    POOL_OWN = 8,   /* the same, for a piece for which the taker need not wait */
};

struct storage *pool_piece(struct pool *pool) {
    struct storage *storage = slab_take(&pool->objects);
    if (storage) {
        memset(storage, 0, sizeof *storage);
        storage->state = STORAGE_BINNED;
        pool->pieces++;
    }
    return storage;
}

void pool_recycle(struct pool *pool, struct storage *storage) {
    if (pool->walk.at == storage) { /* the walk begins anew in this segment */
        pool->walk.at = NULL;
        pool->walk.run = 0;
    }
    pool->pieces--;
    slab_give(&pool->objects, storage);
}

void pool_init(struct pool *pool, struct device *device) {
    struct device_info info;
    device_describe(device, &info);
    *pool = (struct pool){.device = device, .total = info.memory_total};
    slab_init(&pool->objects, sizeof(struct storage));
    pool->reserve = device->vtable->reserve;
    pool->release = device->vtable->release;
}

static int pool_host_reserve(struct device *device, size_t bytes, void **segment, struct fault *fault) {
    (void)device;
    *segment = aligned_alloc(4096, bytes);
    return *segment ? STATUS_OK : fault_set(fault, STATUS_OUT_OF_MEMORY, "the host has no %zu bytes", bytes);
}

static void pool_host_release(struct device *device, void *segment, size_t bytes) {
    (void)device;
    (void)bytes;
    free(segment);
}

void pool_init_host(struct pool *pool, struct device *device, uint64_t total) {
    bool own = device->vtable->host_reserve;
    *pool = (struct pool){.device = device, .total = total};
    slab_init(&pool->objects, sizeof(struct storage));
    pool->reserve = own ? device->vtable->host_reserve : pool_host_reserve;
    pool->release = own ? device->vtable->host_release : pool_host_release;
}

/* ---- taking ---- */

static struct storage *pool_take_idle(struct pool *pool, size_t bytes) {
    return pool_cut(pool, pool_set_fit(&pool->idle, bytes), bytes);
}

/* Whether work on `stream` (NULL: the host, at once) may use the storage without waiting. */
static bool storage_fits(struct storage *storage, size_t bytes, const struct stream *stream) {
    if (storage->bytes < bytes)
        return false;
    if (stream && storage->uses.count == 1 && storage->uses.use[0].stream == stream)
        return true;
    return uses_idle(&storage->uses);
}

/* A whole piece of about the size that was freed lately. */
static struct storage *pool_take_binned(struct pool *pool, size_t bytes, const struct stream *stream) {
    unsigned first = pool_bin(bytes);
    for (unsigned i = first; i <= first + 1 && i < POOL_BINS; i++) {
        int scanned = 0;
        for (struct storage *storage = pool->binned[i]; storage && scanned < POOL_SCAN;
             storage = storage->next, scanned++)
            if (storage_fits(storage, bytes, stream)) {
                storage_list_remove(storage);
                pool->n_binned--;
                return storage;
            }
    }
    return NULL;
}

/* Busy storage for which the taker need not wait, among the best fits. */
static struct storage *pool_take_own(struct pool *pool, size_t bytes, const struct stream *stream, int looks) {
    struct storage *storage = pool_set_fit(&pool->busy, bytes);
    while (storage && looks-- && !storage_fits(storage, bytes, stream))
        storage = pool_set_after(&pool->busy, storage);
    return looks >= 0 ? pool_cut(pool, storage, bytes) : NULL;
}

/* What can still be reserved, in whole pages. */
static uint64_t pool_unreserved(const struct pool *pool) {
    return (pool->total > pool->reserved ? pool->total - pool->reserved : 0) & ~UINT64_C(4095);
}

static size_t pool_segment_bytes(const struct pool *pool, size_t bytes) {
    size_t wanted = bytes <= pool_segment_small / 16  ? pool_segment_small
                    : bytes <= pool_segment_large / 4 ? pool_segment_large
                                                      : (bytes + pool_segment_small - 1) & ~(pool_segment_small - 1);
    uint64_t left = pool_unreserved(pool);
    if (wanted > left) /* the device is nearly full: the segment gets all that is left */
        wanted = (size_t)left;
    return wanted >= bytes ? wanted : 0;
}

static void pool_hold_up(const struct pool *pool, bool begins) {
    if (pool->blocks)
        pool->blocks(pool->owner, begins);
}

/* The pool may be the first to find that a device has failed: work that would show it later need not be queued there. */
static int pool_reserve(struct pool *pool, size_t bytes, void **data) {
    struct fault fault;
    pool_hold_up(pool, true);
    int code = pool->reserve(pool->device, bytes, data, &fault);
    pool_hold_up(pool, false);
    if (code == STATUS_DEVICE_LOST && pool->lost)
        pool->lost(pool->owner, &fault);
    return code;
}

static int pool_grow(struct pool *pool, size_t bytes) {
    size_t wanted = pool_segment_bytes(pool, bytes);
    if (!wanted)
        return STATUS_OUT_OF_MEMORY;
    struct segment *segment = malloc(sizeof *segment);
    struct storage *storage = pool_piece(pool);
    void *data = NULL;
    pool->starved = !segment || !storage;
    int code = pool->starved ? STATUS_NO_HOST_MEMORY : pool_reserve(pool, wanted, &data);
    pool->coming |= code == STATUS_AGAIN;
    if (code != STATUS_OK) {
        free(segment);
        if (storage)
            pool_recycle(pool, storage);
        return code == STATUS_AGAIN ? STATUS_AGAIN : STATUS_OUT_OF_MEMORY;
    }
    *segment = (struct segment){.pool = pool,
                                .data = data,
                                .bytes = wanted,
                                .first = storage,
                                .next = pool->segments,
                                .previous = &pool->segments};
    if (segment->next)
        segment->next->previous = &segment->next;
    pool->segments = segment;
    pool->reserved += wanted;
    pool->reservations++;
    storage->data = data;
    storage->bytes = wanted;
    storage->segment = segment;
    storage_settle(pool, storage);
    return STATUS_OK;
}

/* Gives an idle segment back to the device. */
static void pool_shrink(struct pool *pool, struct segment *segment) {
    storage_leave(pool, segment->first);
    pool_recycle(pool, segment->first);
    if (pool->walk.segment == segment) {
        pool->walk.segment = segment->next;
        pool->walk.at = NULL;
        pool->walk.run = 0;
    }
    *segment->previous = segment->next;
    if (segment->next)
        segment->next->previous = segment->previous;
    pool_hold_up(pool, true);
    pool->release(pool->device, segment->data, segment->bytes);
    pool_hold_up(pool, false);
    pool->reserved -= segment->bytes;
    pool->releases++;
    free(segment);
}

/* Gives idle segments back to the device and reserves one of another size: as many as are needed for that, or all if the device itself
 * has no more memory. STATUS_AGAIN: one call must not give back so many, or the device has not got back all that was given. */
static int pool_reshape(struct pool *pool, size_t bytes) {
    int left = POOL_TRIM;
    if (!pool->idle_bytes || pool_unreserved(pool) + pool->idle_bytes < bytes)
        return STATUS_OUT_OF_MEMORY;
    for (; left && pool->idle_segments && pool_unreserved(pool) < bytes; left--)
        pool_shrink(pool, pool->idle_segments);
    if (pool_unreserved(pool) < bytes)
        return STATUS_AGAIN;
    int code = pool_grow(pool, bytes);
    if (code == STATUS_OK || code == STATUS_AGAIN || pool->starved)
        return code;
    for (; left && pool->idle_segments; left--)
        pool_shrink(pool, pool->idle_segments);
    return pool->idle_segments ? STATUS_AGAIN : pool_grow(pool, bytes);
}

/* Whether a taker may be given free storage and wait for its users. Users that wait for bytes from another device wait for sessions
 * of that device, which may wait for sessions here: two sessions could wait for each other. But users of the taker's own session
 * came before the taker on the other device, too, and so did the work that they wait for. `taker`: a stream of the session; NULL:
 * of none. */
static bool storage_awaitable(const struct storage *storage, const struct stream *taker) {
    for (unsigned i = 0; i < storage->uses.count; i++) {
        const struct use *use = &storage->uses.use[i];
        bool own = taker && use->stream->group == taker->group;
        if (!own && !stream_certain(use->stream, use->number))
            return false;
    }
    return true;
}

/* The first of the best fits of one state that may be taken. */
static struct storage *pool_take_waiting(struct pool *pool, const struct pool_set *set, size_t bytes,
                                         const struct stream *taker, int looks) {
    struct storage *storage = pool_set_fit(set, bytes);
    while (storage && looks-- && !storage_awaitable(storage, taker))
        storage = pool_set_after(set, storage);
    return looks >= 0 ? pool_cut(pool, storage, bytes) : NULL;
}

/* Merges settled neighbours from `storage` on until they come to `bytes`: the taker of the whole waits for the users of all parts.
 * False, and nothing is changed: they do not come to that, or have too many users; *last is the last piece that was looked at. */
static bool storage_merge(struct pool *pool, struct storage *storage, size_t bytes, const struct stream *taker,
                          struct storage **last, size_t *looks) {
    struct uses uses = {.count = 0};
    size_t run = 0;
    *last = storage;
    for (struct storage *at = storage; run < bytes; at = at->after, --*looks) {
        if (!*looks || !storage_settled(at) || !storage_awaitable(at, taker) || !uses_join(&uses, &at->uses))
            return false;
        run += at->bytes;
        *last = at;
    }
    storage_leave(pool, storage);
    while (storage->bytes < bytes) {
        storage_leave(pool, storage->after);
        storage_absorb(pool, storage);
    }
    storage->uses = uses;
    return true;
}

/* Merges tied storage, for which only its own session may wait, with neighbours. Looks only at runs in which `tied` is the first tied
 * piece, so that each run is looked at once. The result is in no list. */
static struct storage *storage_merge_tied(struct pool *pool, struct storage *tied, size_t bytes,
                                          const struct stream *taker, size_t *looks) {
    struct storage *at = tied, *last;
    for (; *looks && storage_settled(at->before) && storage_awaitable(at->before, taker); at = at->before, --*looks)
        if (at->before->state == STORAGE_TIED)
            return NULL;
    for (; *looks && storage_settled(at) && storage_awaitable(at, taker); at = last->after)
        if (storage_merge(pool, at, bytes, taker, &last, looks))
            return at;
    return NULL;
}

static struct storage *pool_take_tied(struct pool *pool, size_t bytes, const struct stream *taker) {
    struct storage *storage = pool_take_waiting(pool, &pool->tied, bytes, taker, POOL_SWEEP);
    size_t looks = bytes <= pool->run_most ? POOL_RUN_LOOKS : 0;
    if (storage || !looks)
        return storage;
    for (struct storage *tied = pool_set_fit(&pool->tied, POOL_ALIGNMENT); tied && looks;
         tied = pool_set_after(&pool->tied, tied), looks -= looks > 0)
        if (storage_awaitable(tied, taker) && (storage = storage_merge_tied(pool, tied, bytes, taker, &looks)))
            return pool_split(pool, storage, bytes);
    return NULL;
}

/* Looks at pieces that wait for their users, for a request that may have been made before. False: there are more pieces to look at. */
static bool pool_search(struct pool *pool, size_t bytes, const struct stream *stream, struct pool_search *search) {
    bool joins = stream && bytes <= pool->run_most;
    if (!search->on || bytes < search->bytes || joins > search->joins)
        *search = (struct pool_search){true, joins, bytes, pool->looks + pool->n_waiting};
    if (search->joins) {
        pool->wanted = pool_joins(pool) && pool->wanted < search->bytes ? pool->wanted : search->bytes;
        pool->join_until = pool->join_until > search->until ? pool->join_until : search->until;
    }
    bool all = pool_sweep(pool, POOL_SWEEP, bytes, stream ? STORAGE_BUSY : STORAGE_IDLE);
    return all || pool->looks >= search->until;
}

/* Whether another look at pieces that wait for their users could bring `bytes`: the users may have ended, or neighbours may be joined.
 * A request for a stream does not need the look if a busy piece is large enough: it can wait for that piece. */
static bool pool_may_find(struct pool *pool, size_t bytes, const struct stream *stream) {
    if (pool_set_largest(&pool->busy) >= bytes)
        return !stream;
    return bytes <= pool->run_most || pool_set_largest(&pool->tied) >= bytes ||
           pool_unreserved(pool) + pool->free_bytes >= bytes;
}

/* The last means before a request is refused. All freed storage is settled. Pieces that wait for their users are looked at again where
 * that could help. Idle segments go back to the device, and one of another size is reserved. A stream may take storage for which it
 * must wait: first storage for which anybody may wait. *code: STATUS_AGAIN if all this has not come to its end. */
static struct storage *pool_find_hard(struct pool *pool, size_t bytes, const struct stream *stream,
                                      struct pool_search *search, int *code) {
    if (bytes > pool->total - pool->live)
        return NULL;
    pool_settle(pool);
    if (!pool->seams)
        pool->run_most = 0;
    bool whole = !pool_may_find(pool, bytes, stream) || pool_search(pool, bytes, stream, search);
    struct storage *storage = pool_take_idle(pool, bytes);
    int reshaped = storage ? STATUS_OK : pool_reshape(pool, bytes);
    if (!storage && reshaped == STATUS_OK)
        storage = pool_take_idle(pool, bytes);
    if (!storage && !stream)
        storage = pool_take_own(pool, bytes, NULL, POOL_FITS);
    if (!storage && stream)
        storage = pool_take_waiting(pool, &pool->busy, bytes, NULL, POOL_FITS);
    if (!storage && stream)
        storage = pool_take_tied(pool, bytes, stream);
    if (!storage && !pool->starved && (!whole || reshaped == STATUS_AGAIN || pool->coming))
        *code = STATUS_AGAIN;
    return storage;
}

/* Whether to settle freed storage before reserving a new segment: always for large requests and when memory runs short; else when so
 * many pieces have been freed that a few looks at busy pieces are paid for. */
static bool pool_should_settle(const struct pool *pool, size_t bytes) {
    return bytes >= pool_segment_small || pool->reserved + bytes > pool->total / 2 ||
           pool->n_binned >= pool->pieces / POOL_LOOKS;
}

/* In order of price: storage that was just freed, idle storage, storage that is settled now, a new segment, the last means. */
static struct storage *pool_find(struct pool *pool, size_t bytes, const struct stream *stream,
                                 struct pool_search *search, int *code) {
    struct storage *storage = pool_take_binned(pool, bytes, stream);
    if (!storage)
        storage = pool_take_idle(pool, bytes);
    if (!storage && pool_should_settle(pool, bytes)) {
        size_t looks = POOL_LOOKS * (pool->n_binned + 1);
        pool_settle(pool);
        pool_sweep(pool, looks < POOL_SWEEP ? looks : POOL_SWEEP, SIZE_MAX, STORAGE_IDLE);
        storage = pool_take_idle(pool, bytes);
    }
    if (!storage && stream)
        storage = pool_take_own(pool, bytes, stream, POOL_OWN);
    if (!storage && pool_grow(pool, bytes) == STATUS_OK)
        storage = pool_take_idle(pool, bytes);
    return storage ? storage : pool_find_hard(pool, bytes, stream, search, code);
}

int pool_take(struct pool *pool, size_t bytes, struct stream *stream, struct pool_search *search,
              struct storage **result) {
    struct pool_search once = {.on = false};
    size_t rounded = pool_rounded(bytes);
    int code = STATUS_OUT_OF_MEMORY;
    pool->starved = pool->coming = false;
    struct storage *storage = rounded ? pool_find(pool, rounded, stream, search ? search : &once, &code) : NULL;
    if (!storage)
        return pool->starved ? STATUS_NO_HOST_MEMORY : code;
    storage->state = STORAGE_LIVE;
    storage->references = 1;
    storage->payer = NULL;
    storage->held = false;
    storage->charged = rounded;
    pool->live += rounded;
    if (pool->live > pool->peak)
        pool->peak = pool->live;
    *result = storage;
    return STATUS_OK;
}

void storage_free(struct storage *storage) {
    if (storage->state == STORAGE_DRAFT) {
        draft_free(storage);
        return;
    }
    struct pool *pool = storage->segment->pool;
    pool->live -= storage->charged;
    payer_discharge(storage->payer, storage->charged);
    storage->state = STORAGE_BINNED;
    storage_list_insert(&pool->binned[pool_bin(storage->bytes)], storage);
    if (++pool->n_binned >= POOL_BINNED_MAX)
        pool_settle(pool);
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Goes on with the walk over all runs, or begins a new walk. Skips segments whose settled bytes are no more than the longest run so
 * far. */
static void pool_walk(struct pool *pool) {
    struct pool_walk *walk = &pool->walk;
    if (!walk->on)
        *walk = (struct pool_walk){.on = true, .segment = pool->segments};
    for (size_t looks = POOL_RUN_LOOKS; looks && walk->segment; looks--) {
        struct segment *segment = walk->segment;
        struct storage *at = walk->at ? walk->at : segment->first;
        if (segment->settled <= walk->seen)
            at = NULL;
        else
            walk->run = storage_settled(at) ? walk->run + at->bytes : 0;
        walk->seen = most(walk->seen, walk->run);
        walk->at = at ? at->after : NULL;
        if (walk->at)
            continue;
        walk->run = 0;
        walk->segment = segment->next;
    }
    if (walk->segment)
        return;
    walk->on = false;
    pool->run_most = most(walk->most, walk->seen);
    pool->run_seen = walk->seen;
}

uint64_t pool_largest_free(struct pool *pool) {
    pool_settle(pool);
    uint64_t largest =
        most(pool_set_largest(&pool->idle), most(pool_set_largest(&pool->busy), pool_set_largest(&pool->tied)));
    if (pool->seams && pool->run_most > largest) { /* run_most is an upper bound, so runs have to be looked at */
        pool_walk(pool);
        uint64_t seen = pool->walk.on ? most(pool->run_seen, pool->walk.seen) : pool->run_seen;
        largest = most(largest, least(seen, least(pool->run_most, pool->total - pool->live)));
    }
    /* Segments that are free go back to the device, so that one as large as all of them can be had. */
    uint64_t left = pool->total > pool->reserved ? pool->total - pool->reserved : 0;
    return most(largest, (left + pool->free_bytes) & ~UINT64_C(4095));
}

bool pool_trim(struct pool *pool, uint64_t keep) {
    pool_settle(pool);
    pool_sweep(pool, POOL_SWEEP, SIZE_MAX, STORAGE_IDLE);
    for (int i = 0; i < POOL_TRIM && pool->idle_segments && pool->reserved > keep; i++)
        pool_shrink(pool, pool->idle_segments);
    return pool->idle_segments && pool->reserved > keep;
}

void pool_finish(struct pool *pool) {
    size_t pieces, looks = 0;
    do { /* until a sweep of all waiting pieces frees no more */
        pieces = pool->pieces;
        pool_trim(pool, 0);
        looks = pool->pieces < pieces ? 0 : looks + POOL_SWEEP;
    } while (looks < pool->n_waiting + POOL_SWEEP);
    slab_finish(&pool->objects);
}
