#include "engine/pool_impl.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device_impl.h"
#include "engine/held.h"
#include "engine/session_impl.h"

static const size_t pool_segment_small = (size_t)2 << 20;  /* for requests up to a sixteenth of it */
static const size_t pool_segment_large = (size_t)32 << 20; /* for requests up to a quarter of it */
enum {
    POOL_LOOKS = 8,    /* at free pieces, for each one freed since the last time */
    POOL_SCAN = 16,    /* storage looked at in one bin before the next bin is */
    POOL_FITS = 64,    /* settled storage looked at, from the best fit on, for some that may be had */
    POOL_OWN = 8,      /* the same for some that costs no wait */
    POOL_TRIM = 64,    /* segments given back at a time */
    POOL_NEAR = 32,    /* neighbours looked at on each side of a new piece, before any length is taken for possible */
};

size_t pool_rounded(uint64_t bytes) {
    if (bytes == 0 || bytes > SIZE_MAX / 4)
        return 0;
    return ((size_t)bytes + POOL_ALIGNMENT - 1) & ~(size_t)(POOL_ALIGNMENT - 1);
}

static struct storage *pool_piece(struct pool *pool) {
    struct storage *storage = slab_take(&pool->objects);
    if (storage) {
        memset(storage, 0, sizeof *storage);
        storage->state = STORAGE_BINNED;
        pool->pieces++;
    }
    return storage;
}

static void pool_recycle(struct pool *pool, struct storage *storage) {
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

/* ---- what is settled ---- */

static bool storage_settled(const struct storage *storage) {
    return storage && storage->state >= STORAGE_IDLE;
}

static struct pool_set *pool_set_of(struct pool *pool, enum storage_state state) {
    return state == STORAGE_IDLE ? &pool->idle : state == STORAGE_BUSY ? &pool->busy : &pool->tied;
}

static bool uses_certain(const struct uses *uses) {
    for (unsigned i = 0; i < uses->count; i++)
        if (!stream_certain(uses->use[i].stream, uses->use[i].number))
            return false;
    return true;
}

static enum storage_state storage_look(struct storage *storage) {
    if (uses_idle(&storage->uses))
        return STORAGE_IDLE;
    return uses_certain(&storage->uses) ? STORAGE_BUSY : STORAGE_TIED;
}

static void waiting_append(struct pool *pool, struct storage *storage) {
    storage->newer = NULL;
    storage->older = pool->newest;
    if (pool->round && !pool->round_at)
        pool->round_at = storage;
    *(pool->newest ? &pool->newest->newer : &pool->oldest) = storage;
    pool->newest = storage;
}

static void waiting_remove(struct pool *pool, struct storage *storage) {
    if (pool->round_at == storage)
        pool->round_at = storage->newer;
    *(storage->older ? &storage->older->newer : &pool->oldest) = storage->newer;
    *(storage->newer ? &storage->newer->older : &pool->newest) = storage->older;
}

static void segment_list_idle(struct pool *pool, struct segment *segment) {
    segment->idle_next = pool->idle_segments;
    segment->idle_previous = &pool->idle_segments;
    if (segment->idle_next)
        segment->idle_next->idle_previous = &segment->idle_next;
    pool->idle_segments = segment;
    pool->idle_bytes += segment->bytes;
}

static void segment_unlist_idle(struct pool *pool, struct segment *segment) {
    *segment->idle_previous = segment->idle_next;
    if (segment->idle_next)
        segment->idle_next->idle_previous = segment->idle_previous;
    segment->idle_previous = NULL;
    pool->idle_bytes -= segment->bytes;
}

/* A new seam may make a longer run than there was. */
static void pool_note_run(struct pool *pool, const struct storage *storage) {
    uint64_t run = storage->bytes;
    const struct storage *at = storage;
    for (int i = 0; run < UINT64_MAX && storage_settled(at = at->before); i++)
        run = i < POOL_NEAR ? run + at->bytes : UINT64_MAX;
    at = storage;
    for (int i = 0; run < UINT64_MAX && storage_settled(at = at->after); i++)
        run = i < POOL_NEAR ? run + at->bytes : UINT64_MAX;
    pool->run_most = run > pool->run_most ? run : pool->run_most;
    pool->round_most = run > pool->round_most ? run : pool->round_most;
}

/* Files storage that is in no list, in its state, next to neighbours that are unlike. */
static void storage_enter(struct pool *pool, struct storage *storage, enum storage_state state) {
    struct segment *segment = storage->segment;
    unsigned seams = storage_settled(storage->before) + storage_settled(storage->after);
    storage->state = state;
    pool_set_insert(pool_set_of(pool, state), storage);
    if (state != STORAGE_IDLE) {
        waiting_append(pool, storage);
        pool->n_waiting++;
    } else if (storage->bytes == segment->bytes) {
        segment_list_idle(pool, segment);
    }
    segment->settled += storage->bytes;
    if (segment->settled == segment->bytes)
        pool->free_bytes += segment->bytes;
    if (!seams)
        return;
    pool->seams += seams;
    pool_note_run(pool, storage);
}

/* Takes settled storage out of all lists. */
static void storage_leave(struct pool *pool, struct storage *storage) {
    struct segment *segment = storage->segment;
    pool_set_remove(pool_set_of(pool, storage->state), storage);
    if (storage->state != STORAGE_IDLE) {
        waiting_remove(pool, storage);
        pool->n_waiting--;
    } else if (storage->bytes == segment->bytes) {
        segment_unlist_idle(pool, segment);
    }
    if (segment->settled == segment->bytes)
        pool->free_bytes -= segment->bytes;
    segment->settled -= storage->bytes;
    storage->state = STORAGE_BINNED;
    pool->seams -= storage_settled(storage->before) + (size_t)storage_settled(storage->after);
}

/* Adds the piece after `storage` to it. Both are in no list. */
static void storage_absorb(struct pool *pool, struct storage *storage) {
    struct storage *after = storage->after;
    storage->bytes += after->bytes;
    storage->after = after->after;
    if (after->after)
        after->after->before = storage;
    pool_recycle(pool, after);
}

static bool uses_join(struct uses *uses, const struct uses *more) {
    struct uses joined = *uses;
    for (unsigned i = 0; i < more->count; i++)
        if (!uses_add(&joined, more->use[i].stream, more->use[i].number))
            return false;
    *uses = joined;
    return true;
}

/* Whether a neighbour may be merged with storage of this state without making anybody wait for other streams. */
static bool storage_like(const struct storage *storage, enum storage_state state, const struct storage *neighbour) {
    const struct uses *uses = &storage->uses, *others = &neighbour->uses;
    if (neighbour->state != state || uses->count != others->count)
        return false;
    for (unsigned i = 0; i < uses->count; i++) {
        unsigned k = 0;
        while (k < others->count && others->use[k].stream != uses->use[i].stream)
            k++;
        if (k == others->count)
            return false;
    }
    return true;
}

/* Files storage that is in no list, together with neighbours that are like it. */
static void storage_settle(struct pool *pool, struct storage *storage) {
    enum storage_state state = storage_look(storage);
    struct storage *before = storage->before;
    if (storage_settled(storage->after) && storage_like(storage, state, storage->after)) {
        uses_join(&storage->uses, &storage->after->uses);
        storage_leave(pool, storage->after);
        storage_absorb(pool, storage);
    }
    if (storage_settled(before) && storage_like(storage, state, before)) {
        uses_join(&before->uses, &storage->uses);
        storage_leave(pool, before);
        storage_absorb(pool, before);
        storage = before;
    }
    storage_enter(pool, storage, state);
}

/* Settles what was freed lately. */
static void pool_settle(struct pool *pool) {
    for (unsigned i = 0; i < POOL_BINS && pool->n_binned; i++)
        while (pool->binned[i]) {
            struct storage *storage = pool->binned[i];
            storage_list_remove(storage);
            pool->n_binned--;
            storage_settle(pool, storage);
        }
}

/* Looks at busy storage again, those first that have waited longest: it may be idle by now. */
static void pool_sweep(struct pool *pool, size_t looks) {
    if (looks > pool->n_waiting)
        looks = pool->n_waiting;
    for (; looks && pool->oldest; looks--) {
        struct storage *storage = pool->oldest;
        unsigned uses = storage->uses.count;
        if (storage_look(storage) != storage->state || storage->uses.count != uses) {
            storage_leave(pool, storage);
            storage_settle(pool, storage);
        } else {
            waiting_remove(pool, storage);
            waiting_append(pool, storage);
        }
    }
}

/* Cuts `bytes` off storage that is in no list. The rest has the same uses. */
static struct storage *pool_split(struct pool *pool, struct storage *storage, size_t bytes) {
    struct storage *rest = storage->bytes > bytes ? pool_piece(pool) : NULL;
    if (!rest) /* an exact fit; or, without an object for the rest, the whole is handed out */
        return storage;
    rest->data = storage->data + bytes;
    rest->bytes = storage->bytes - bytes;
    rest->uses = storage->uses;
    rest->segment = storage->segment;
    rest->before = storage;
    rest->after = storage->after;
    if (rest->after)
        rest->after->before = rest;
    storage->after = rest;
    storage->bytes = bytes;
    storage_settle(pool, rest);
    return storage;
}

/* Hands out settled storage; takes NULL. */
static struct storage *pool_cut(struct pool *pool, struct storage *storage, size_t bytes) {
    if (!storage)
        return NULL;
    storage_leave(pool, storage);
    return pool_split(pool, storage, bytes);
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

/* What was freed lately and is of about the size, whole. */
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

/* Of busy storage what the taker need not wait for, among the best fits. */
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
    if (wanted > left) /* the device is nearly full: all that is left, in one piece */
        wanted = (size_t)left;
    return wanted >= bytes ? wanted : 0;
}

static void pool_hold_up(const struct pool *pool, bool begins) {
    if (pool->held_up)
        pool->held_up(pool->owner, begins);
}

/* A device may be found to have failed here first, with nothing queued there to say so later. */
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
    if (pool->starved || pool_reserve(pool, wanted, &data) != STATUS_OK) {
        free(segment);
        if (storage)
            pool_recycle(pool, storage);
        return STATUS_OUT_OF_MEMORY;
    }
    *segment = (struct segment){
        .data = data, .bytes = wanted, .first = storage, .next = pool->segments, .previous = &pool->segments};
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

/* Gives a segment of which nothing is in use back to the device. */
static void pool_shrink(struct pool *pool, struct segment *segment) {
    storage_leave(pool, segment->first);
    pool_recycle(pool, segment->first);
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

/* Idle segments go back to the device to be reserved in another shape: as many as it takes, or all where the device itself
 * has no more. */
static int pool_reshape(struct pool *pool, size_t bytes) {
    if (!pool->idle_bytes || pool_unreserved(pool) + pool->idle_bytes < bytes)
        return STATUS_OUT_OF_MEMORY;
    while (pool->idle_segments && pool_unreserved(pool) < bytes)
        pool_shrink(pool, pool->idle_segments);
    int code = pool_grow(pool, bytes);
    while (code != STATUS_OK && pool->idle_segments) {
        pool_shrink(pool, pool->idle_segments);
        if (!pool->idle_segments || pool->releases % POOL_TRIM == 0)
            code = pool_grow(pool, bytes);
    }
    return code;
}

/* Whether free storage may be had by who waits for its users. Users that wait for bytes from another device do so for its
 * sessions, which may wait for sessions here: two of them could wait for each other. Users of the taker's own session
 * (`taker`, a stream of it; NULL: of none) came before it there, too, and so did what they wait for. */
static bool storage_awaitable(const struct storage *storage, const struct stream *taker) {
    for (unsigned i = 0; i < storage->uses.count; i++) {
        const struct use *use = &storage->uses.use[i];
        bool own = taker && use->stream->group == taker->group;
        if (!own && !stream_certain(use->stream, use->number))
            return false;
    }
    return true;
}

/* Of the best fits of one state the first that may be had. */
static struct storage *pool_take_waiting(struct pool *pool, const struct pool_set *set, size_t bytes,
                                         const struct stream *taker) {
    struct storage *storage = pool_set_fit(set, bytes);
    int looks = POOL_FITS;
    while (storage && looks-- && !storage_awaitable(storage, taker))
        storage = pool_set_after(set, storage);
    return looks >= 0 ? pool_cut(pool, storage, bytes) : NULL;
}

/* Merges settled neighbours from `storage` on until they come to `bytes`: whoever takes the whole waits for the users of all
 * its parts. False, and nothing is changed, where they do not, or have too many users; *last is then where that showed. */
static bool storage_join(struct pool *pool, struct storage *storage, size_t bytes, const struct stream *taker,
                         struct storage **last) {
    struct uses uses = {.count = 0};
    size_t run = 0;
    *last = storage;
    for (struct storage *at = storage; run < bytes; at = at->after) {
        if (!storage_settled(at) || !storage_awaitable(at, taker) || !uses_join(&uses, &at->uses))
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

/* The first of a run of settled neighbours in which `storage` is the first that waits; else NULL. Idle storage has none
 * beside it, so that two looks tell. */
static struct storage *run_first(struct storage *storage) {
    struct storage *before = storage->before;
    if (!storage_settled(before))
        return storage;
    return before->state == STORAGE_IDLE && !storage_settled(before->before) ? before : NULL;
}

/* Goes on with the round over all runs. Returns what comes to `bytes` and may be had, merged and in no list. A look at a run
 * begins at the first piece that waits. */
static struct storage *pool_look_round(struct pool *pool, size_t bytes, const struct stream *taker) {
    size_t looks = POOL_RUN_LOOKS;
    if (!pool->round) {
        pool->round = true;
        pool->round_at = pool->oldest;
        pool->round_most = 0;
    }
    while (pool->round_at && looks) {
        struct storage *at = run_first(pool->round_at), *last;
        uint64_t run = 0;
        pool->round_at = pool->round_at->newer;
        looks--;
        for (struct storage *piece = at; storage_settled(piece); piece = piece->after, looks -= looks > 0)
            run += piece->bytes;
        pool->round_most = run > pool->round_most ? run : pool->round_most;
        for (; run >= bytes && storage_settled(at); at = last->after, looks -= looks > 0)
            if (storage_join(pool, at, bytes, taker, &last))
                return at;
    }
    if (!pool->round_at) {
        pool->round = false;
        pool->run_most = pool->round_most;
    }
    return NULL;
}

/* Neighbours that come to `bytes` together. */
static struct storage *pool_take_run(struct pool *pool, size_t bytes, const struct stream *taker) {
    struct storage *storage = bytes <= pool->run_most ? pool_look_round(pool, bytes, taker) : NULL;
    return storage ? pool_split(pool, storage, bytes) : NULL;
}

/* Before anybody is refused: everything that was freed is settled, what is idle goes back to the device to be reserved in
 * another shape, and a stream may have what it must wait for: first what anybody may wait for. What waits is looked at again
 * where that could help. */
static struct storage *pool_find_hard(struct pool *pool, size_t bytes, const struct stream *stream) {
    if (bytes > pool->total - pool->live)
        return NULL;
    pool_settle(pool);
    if (!pool->seams)
        pool->run_most = 0;
    if (!stream || bytes <= pool->run_most || pool_unreserved(pool) + pool->free_bytes >= bytes ||
        pool_set_largest(&pool->tied) >= bytes)
        pool_sweep(pool, POOL_SWEEP);
    struct storage *storage = pool_take_idle(pool, bytes);
    if (!storage && pool_reshape(pool, bytes) == STATUS_OK)
        storage = pool_take_idle(pool, bytes);
    if (storage)
        return storage;
    if (!stream)
        return pool_take_own(pool, bytes, NULL, POOL_FITS);
    if (!(storage = pool_take_waiting(pool, &pool->busy, bytes, NULL)) &&
        !(storage = pool_take_run(pool, bytes, NULL)) &&
        !(storage = pool_take_waiting(pool, &pool->tied, bytes, stream)))
        storage = pool_take_run(pool, bytes, stream);
    return storage;
}

/* Whether settling comes before growing: for large requests, and where memory runs short, always, else once so much has been
 * freed that a few looks at what is busy are paid for. */
static bool pool_should_settle(const struct pool *pool, size_t bytes) {
    return bytes >= pool_segment_small || pool->reserved + bytes > pool->total / 2 ||
           pool->n_binned >= pool->pieces / POOL_LOOKS;
}

/* In order of price: what was just freed, idle memory, what has been settled anew, a new segment, anything at all. */
static struct storage *pool_find(struct pool *pool, size_t bytes, const struct stream *stream) {
    struct storage *storage = pool_take_binned(pool, bytes, stream);
    if (!storage)
        storage = pool_take_idle(pool, bytes);
    if (!storage && pool_should_settle(pool, bytes)) {
        size_t looks = POOL_LOOKS * (pool->n_binned + 1);
        pool_settle(pool);
        pool_sweep(pool, looks < POOL_SWEEP ? looks : POOL_SWEEP);
        storage = pool_take_idle(pool, bytes);
    }
    if (!storage && stream)
        storage = pool_take_own(pool, bytes, stream, POOL_OWN);
    if (!storage && pool_grow(pool, bytes) == STATUS_OK)
        storage = pool_take_idle(pool, bytes);
    return storage ? storage : pool_find_hard(pool, bytes, stream);
}

int pool_take(struct pool *pool, size_t bytes, struct stream *stream, struct storage **result) {
    size_t rounded = pool_rounded(bytes);
    pool->starved = false;
    struct storage *storage = rounded ? pool_find(pool, rounded, stream) : NULL;
    if (!storage)
        return pool->starved ? STATUS_NO_HOST_MEMORY : STATUS_OUT_OF_MEMORY;
    storage->state = STORAGE_LIVE;
    storage->references = 1;
    storage->session = NULL;
    storage->holder = NULL;
    storage->charged = rounded;
    pool->live += rounded;
    if (pool->live > pool->peak)
        pool->peak = pool->live;
    *result = storage;
    return STATUS_OK;
}

struct storage *storage_ref(struct storage *storage) {
    storage->references++;
    return storage;
}

void storage_unref(struct pool *pool, struct storage *storage) {
    if (!storage || --storage->references)
        return;
    pool->live -= storage->charged;
    if (storage->session)
        session_discharge(storage->session, storage->charged);
    if (storage->holder)
        held_account_discharge(storage->holder, storage->charged);
    storage->state = STORAGE_BINNED;
    storage_list_insert(&pool->binned[pool_bin(storage->bytes)], storage);
    if (++pool->n_binned >= POOL_BINNED_MAX)
        pool_settle(pool);
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

uint64_t pool_largest_free(struct pool *pool) {
    pool_settle(pool);
    uint64_t largest =
        most(pool_set_largest(&pool->idle), most(pool_set_largest(&pool->busy), pool_set_largest(&pool->tied)));
    if (pool->seams && pool->run_most > largest) { /* if that is still so */
        pool->round = false;
        pool_look_round(pool, SIZE_MAX, NULL);
        largest = most(largest, pool->round_most);
    }
    /* Segments that are free go back to the device, so that one as large as all of them can be had. */
    uint64_t left = pool->total > pool->reserved ? pool->total - pool->reserved : 0;
    return most(largest, (left + pool->free_bytes) & ~UINT64_C(4095));
}

bool pool_trim(struct pool *pool, uint64_t keep) {
    pool_settle(pool);
    pool_sweep(pool, POOL_RUN_LOOKS);
    for (int i = 0; i < POOL_TRIM && pool->idle_segments && pool->reserved > keep; i++)
        pool_shrink(pool, pool->idle_segments);
    return pool->idle_segments && pool->reserved > keep;
}

void pool_finish(struct pool *pool) {
    size_t pieces, looks = 0;
    do { /* until all that waited has been looked at to no effect */
        pieces = pool->pieces;
        pool_trim(pool, 0);
        looks = pool->pieces < pieces ? 0 : looks + POOL_RUN_LOOKS;
    } while (looks < pool->n_waiting + POOL_RUN_LOOKS);
    slab_finish(&pool->objects);
}
