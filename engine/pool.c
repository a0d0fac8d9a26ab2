#include "engine/pool.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device_impl.h"
#include "engine/held.h"
#include "engine/session_impl.h"

/* A piece of device memory cut into storage. */
struct segment {
    uint8_t *data;
    size_t bytes;
    struct storage *first;
    struct segment *next;
};

static const size_t pool_segment_small = (size_t)2 << 20;  /* for requests up to a sixteenth of it */
static const size_t pool_segment_large = (size_t)32 << 20; /* for requests up to a quarter of it */
enum {
    POOL_LOOKS = 8,      /* at free pieces, for each one freed since the last time */
    POOL_SCAN = 16,      /* storage looked at in one bin before the next bin is */
    POOL_WALK = 1 << 16, /* pieces that are walked for a figure; of more, an estimate has to do */
};

size_t pool_rounded(uint64_t bytes) {
    if (bytes == 0 || bytes > SIZE_MAX / 4)
        return 0;
    return ((size_t)bytes + POOL_ALIGNMENT - 1) & ~(size_t)(POOL_ALIGNMENT - 1);
}

/* Bins: one for each multiple of 64 bytes up to 1 KiB, then eight for each doubling. All storage in a bin above
 * pool_bin(bytes) has at least `bytes`; in that bin itself it must be asked. */
static unsigned pool_bin(size_t bytes) {
    size_t units = bytes / POOL_ALIGNMENT;
    if (units < 16)
        return (unsigned)units;
    unsigned log2 = 63u - (unsigned)__builtin_clzll(units);
    return 16 + (log2 - 4) * 8 + (unsigned)((units >> (log2 - 3)) & 7);
}

static void list_insert(struct storage **list, struct storage *storage) {
    storage->next = *list;
    storage->previous = list;
    if (*list)
        (*list)->previous = &storage->next;
    *list = storage;
}

static void list_remove(struct storage *storage) {
    *storage->previous = storage->next;
    if (storage->next)
        storage->next->previous = storage->previous;
}

static struct storage *pool_piece(struct pool *pool) {
    struct storage *storage = pool->spare;
    if (storage)
        pool->spare = storage->next;
    else
        storage = malloc(sizeof *storage);
    if (storage) {
        memset(storage, 0, sizeof *storage);
        pool->pieces++;
    }
    return storage;
}

static void pool_recycle(struct pool *pool, struct storage *storage) {
    pool->pieces--;
    storage->next = pool->spare;
    pool->spare = storage;
}

void pool_init(struct pool *pool, struct device *device) {
    struct device_info info;
    device_describe(device, &info);
    *pool = (struct pool){.device = device, .total = info.memory_total};
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
    pool->reserve = own ? device->vtable->host_reserve : pool_host_reserve;
    pool->release = own ? device->vtable->host_release : pool_host_release;
}

/* Files free storage where its uses say. */
static void storage_file(struct pool *pool, struct storage *storage) {
    bool idle = uses_idle(&storage->uses);
    storage->state = idle ? STORAGE_IDLE : STORAGE_BINNED;
    list_insert(idle ? &pool->idle[pool_bin(storage->bytes)] : &pool->binned[pool_bin(storage->bytes)], storage);
}

/* Adds the piece after `storage` to it. */
static void storage_absorb(struct pool *pool, struct storage *storage) {
    struct storage *after = storage->after;
    storage->bytes += after->bytes;
    storage->after = after->after;
    if (after->after)
        after->after->before = storage;
    pool_recycle(pool, after);
}

/* Files idle storage together with its idle neighbours; `storage` is in no list. */
static void pool_merge(struct pool *pool, struct storage *storage) {
    struct storage *before = storage->before;
    if (storage->after && storage->after->state == STORAGE_IDLE) {
        list_remove(storage->after);
        storage_absorb(pool, storage);
    }
    if (before && before->state == STORAGE_IDLE) {
        list_remove(before);
        storage_absorb(pool, before);
        storage = before;
    }
    storage_file(pool, storage);
}

/* Merges everything in the bins that has become idle. */
static void pool_settle(struct pool *pool) {
    pool->unsettled = 0;
    for (unsigned i = 0; i < POOL_BINS; i++)
        for (struct storage *storage = pool->binned[i], *next; storage; storage = next) {
            next = storage->next;
            if (!uses_idle(&storage->uses))
                continue;
            list_remove(storage);
            pool_merge(pool, storage);
        }
}

static bool uses_join(struct uses *uses, const struct uses *more) {
    struct uses joined = *uses;
    for (unsigned i = 0; i < more->count; i++)
        if (!uses_add(&joined, more->use[i].stream, more->use[i].number))
            return false;
    *uses = joined;
    return true;
}

/* Whether free storage may be had by who waits for its users. Users that wait for bytes from another device do so for its
 * sessions, which may wait for sessions here: two of them could wait for each other. Users of the taker's own session
 * (`taker`, a stream of it; NULL: of none) came before it there, too, and so did what they wait for. */
static bool storage_awaitable(const struct storage *storage, const struct stream *taker) {
    if (storage->state == STORAGE_LIVE)
        return false;
    for (unsigned i = 0; i < storage->uses.count; i++) {
        const struct use *use = &storage->uses.use[i];
        bool own = taker && use->stream->group == taker->group;
        if (!own && !stream_certain(use->stream, use->number))
            return false;
    }
    return true;
}

/* Whether the storage and neighbours after it come to `bytes`. *last is the last one that was looked at. */
static bool storage_run_reaches(struct storage *storage, size_t bytes, const struct stream *taker,
                                struct storage **last) {
    size_t run = 0;
    *last = storage;
    for (struct storage *at = storage; at && run < bytes && storage_awaitable(at, taker); at = at->after) {
        run += at->bytes;
        *last = at;
    }
    return run >= bytes;
}

/* Merges neighbours that are still busy as well: whoever takes the whole waits for the users of all its parts. For a taker,
 * whose own may be among them, only as much as it needs: nobody else could have the rest. */
static void pool_settle_busy(struct pool *pool, size_t bytes, const struct stream *taker) {
    for (struct segment *segment = pool->segments; segment; segment = segment->next)
        for (struct storage *storage = segment->first, *last; storage; storage = storage->after) {
            if (!storage_awaitable(storage, taker))
                continue;
            if (taker && !storage_run_reaches(storage, bytes, taker, &last)) {
                storage = last;
                continue;
            }
            list_remove(storage);
            while ((!taker || storage->bytes < bytes) && storage->after && storage_awaitable(storage->after, taker) &&
                   uses_join(&storage->uses, &storage->after->uses)) {
                list_remove(storage->after);
                storage_absorb(pool, storage);
            }
            storage_file(pool, storage);
        }
}

/* Cuts `bytes` off free storage that is out of its list. The rest has the same uses. */
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
    storage_file(pool, rest);
    return storage;
}

/* The smallest of the first `scan` pieces in a list that has `bytes`. */
static struct storage *list_best(struct storage *list, size_t bytes, size_t scan) {
    struct storage *best = NULL;
    for (struct storage *storage = list; storage && scan; storage = storage->next, scan--)
        if (storage->bytes >= bytes && (!best || storage->bytes < best->bytes))
            best = storage;
    return best;
}

/* From lists by size; the rest of what is found is filed again. */
static struct storage *pool_take_from(struct pool *pool, struct storage **lists, size_t bytes, size_t scan) {
    for (unsigned i = pool_bin(bytes); i < POOL_BINS; i++) {
        struct storage *best = list_best(lists[i], bytes, scan);
        if (!best)
            continue;
        list_remove(best);
        return pool_split(pool, best, bytes);
    }
    return NULL;
}

static struct storage *pool_take_idle(struct pool *pool, size_t bytes) {
    return pool_take_from(pool, pool->idle, bytes, POOL_SCAN);
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
                list_remove(storage);
                return storage;
            }
    }
    return NULL;
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
    if (!segment || !storage || pool_reserve(pool, wanted, &data) != STATUS_OK) {
        free(segment);
        if (storage)
            pool_recycle(pool, storage);
        return STATUS_OUT_OF_MEMORY;
    }
    *segment = (struct segment){.data = data, .bytes = wanted, .first = storage, .next = pool->segments};
    pool->segments = segment;
    pool->reserved += wanted;
    pool->reservations++;
    storage->data = data;
    storage->bytes = wanted;
    storage->segment = segment;
    storage_file(pool, storage);
    return STATUS_OK;
}

/* What is to be waited for. */
static struct storage *pool_take_busy(struct pool *pool, size_t bytes, const struct stream *taker) {
    pool_settle_busy(pool, bytes, taker);
    struct storage *best = pool_take_from(pool, pool->idle, bytes, SIZE_MAX);
    if (best)
        return best;
    for (unsigned i = pool_bin(bytes); i < POOL_BINS && !best; i++)
        for (struct storage *storage = pool->binned[i]; storage; storage = storage->next)
            if (storage->bytes >= bytes && (!best || storage->bytes < best->bytes) && storage_awaitable(storage, taker))
                best = storage;
    if (!best)
        return NULL;
    list_remove(best);
    return pool_split(pool, best, bytes);
}

/* Before anybody is refused: everything free is merged, what is idle goes back to the device to be reserved in another
 * shape, and a stream may have what it must wait for: first what anybody may wait for, which is then not merged with
 * anything else. */
static struct storage *pool_find_hard(struct pool *pool, size_t bytes, const struct stream *stream) {
    pool_trim(pool, 0);
    if (pool_grow(pool, bytes) == STATUS_OK)
        return pool_take_idle(pool, bytes);
    if (!stream)
        return pool_take_from(pool, pool->idle, bytes, SIZE_MAX);
    struct storage *storage = pool_take_busy(pool, bytes, NULL);
    return storage ? storage : pool_take_busy(pool, bytes, stream);
}

/* Whether merging comes before growing. It looks at all that is free: for large requests, and where memory runs short, that
 * is always worth it, else once so much has been freed that a free pays for a few looks. */
static bool pool_should_settle(const struct pool *pool, size_t bytes) {
    return bytes >= pool_segment_small || pool->reserved + bytes > pool->total / 2 ||
           pool->unsettled >= pool->pieces / POOL_LOOKS;
}

/* In order of price: what was just freed, idle memory, idle memory merged anew, a new segment, anything at all. */
static struct storage *pool_find(struct pool *pool, size_t bytes, const struct stream *stream) {
    struct storage *storage = pool_take_binned(pool, bytes, stream);
    if (!storage)
        storage = pool_take_idle(pool, bytes);
    if (!storage && pool_should_settle(pool, bytes)) {
        pool_settle(pool);
        storage = pool_take_idle(pool, bytes);
    }
    if (!storage && pool_grow(pool, bytes) == STATUS_OK)
        storage = pool_take_idle(pool, bytes);
    return storage ? storage : pool_find_hard(pool, bytes, stream);
}

int pool_take(struct pool *pool, size_t bytes, struct stream *stream, struct storage **result) {
    size_t rounded = pool_rounded(bytes);
    struct storage *storage = rounded ? pool_find(pool, rounded, stream) : NULL;
    if (!storage)
        return STATUS_OUT_OF_MEMORY;
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
    storage->session = NULL;
    storage->holder = NULL;
    storage->state = STORAGE_BINNED;
    list_insert(&pool->binned[pool_bin(storage->bytes)], storage);
    pool->unsettled++;
}

/* The longest run of free pieces in a segment; *whole says that it is all of it. */
static uint64_t segment_largest_free(const struct segment *segment, bool *whole) {
    uint64_t run = 0, largest = 0;
    *whole = true;
    for (const struct storage *storage = segment->first; storage; storage = storage->after) {
        run = storage->state == STORAGE_LIVE ? 0 : run + storage->bytes;
        *whole = *whole && storage->state != STORAGE_LIVE;
        if (run > largest)
            largest = run;
    }
    return largest;
}

uint64_t pool_largest_free(struct pool *pool) {
    uint64_t largest = 0, free_segments = 0;
    for (const struct segment *segment = pool->segments; segment; segment = segment->next) {
        bool whole = false;
        uint64_t run = pool->pieces <= POOL_WALK ? segment_largest_free(segment, &whole) : 0;
        if (whole)
            free_segments += segment->bytes;
        if (run > largest)
            largest = run;
    }
    /* Segments that are free go back to the device, so that one as large as all of them can be had. */
    uint64_t left = pool->total > pool->reserved ? pool->total - pool->reserved : 0;
    uint64_t fresh = (left + free_segments) & ~UINT64_C(4095);
    return fresh > largest ? fresh : largest;
}

void pool_trim(struct pool *pool, uint64_t keep) {
    pool_settle(pool);
    for (struct segment **link = &pool->segments; *link && pool->reserved > keep;) {
        struct segment *segment = *link;
        struct storage *storage = segment->first;
        if (storage->state != STORAGE_IDLE || storage->bytes != segment->bytes) {
            link = &segment->next;
            continue;
        }
        list_remove(storage);
        pool_recycle(pool, storage);
        *link = segment->next;
        pool_hold_up(pool, true);
        pool->release(pool->device, segment->data, segment->bytes);
        pool_hold_up(pool, false);
        pool->reserved -= segment->bytes;
        pool->releases++;
        free(segment);
    }
}

void pool_finish(struct pool *pool) {
    pool_trim(pool, 0);
    for (struct storage *storage = pool->spare, *next; storage; storage = next) {
        next = storage->next;
        free(storage);
    }
    pool->spare = NULL;
}
