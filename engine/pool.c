#include "engine/pool.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device_impl.h"
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
enum { POOL_SCAN = 16, POOL_SPARE_GROUP = 64 };

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

static struct storage *pool_spare(struct pool *pool) {
    struct storage *storage = pool->spare;
    if (storage)
        pool->spare = storage->next;
    else
        storage = malloc(sizeof *storage);
    if (storage)
        memset(storage, 0, sizeof *storage);
    return storage;
}

static void pool_recycle(struct pool *pool, struct storage *storage) {
    storage->next = pool->spare;
    pool->spare = storage;
}

void pool_init(struct pool *pool, struct device *device) {
    struct device_info info;
    device_describe(device, &info);
    memset(pool, 0, sizeof *pool);
    pool->device = device;
    pool->total = info.memory_total;
}

static void storage_set_idle(struct pool *pool, struct storage *storage) {
    storage->state = STORAGE_IDLE;
    list_insert(&pool->idle[pool_bin(storage->bytes)], storage);
}

/* Takes idle storage with its idle neighbours together; `storage` is in no list. */
static void pool_merge(struct pool *pool, struct storage *storage) {
    struct storage *before = storage->before, *after = storage->after;
    if (after && after->state == STORAGE_IDLE) {
        list_remove(after);
        storage->bytes += after->bytes;
        storage->after = after->after;
        if (after->after)
            after->after->before = storage;
        pool_recycle(pool, after);
    }
    if (before && before->state == STORAGE_IDLE) {
        list_remove(before);
        before->bytes += storage->bytes;
        before->after = storage->after;
        if (storage->after)
            storage->after->before = before;
        pool_recycle(pool, storage);
        storage = before;
    }
    storage_set_idle(pool, storage);
}

/* Merges everything in the bins that has become idle. */
static void pool_settle(struct pool *pool) {
    for (unsigned i = 0; i < POOL_BINS; i++)
        for (struct storage *storage = pool->binned[i], *next; storage; storage = next) {
            next = storage->next;
            if (!uses_idle(&storage->uses))
                continue;
            list_remove(storage);
            pool_merge(pool, storage);
        }
}

/* Cuts `bytes` off idle storage, which must be out of its list. */
static struct storage *pool_split(struct pool *pool, struct storage *storage, size_t bytes) {
    if (storage->bytes > bytes) {
        struct storage *rest = pool_spare(pool);
        if (rest) { /* without an object for the rest, the whole is handed out */
            rest->data = storage->data + bytes;
            rest->bytes = storage->bytes - bytes;
            rest->segment = storage->segment;
            rest->before = storage;
            rest->after = storage->after;
            if (rest->after)
                rest->after->before = rest;
            storage->after = rest;
            storage->bytes = bytes;
            storage_set_idle(pool, rest);
        }
    }
    return storage;
}

static struct storage *pool_take_idle(struct pool *pool, size_t bytes) {
    for (unsigned i = pool_bin(bytes); i < POOL_BINS; i++) {
        struct storage *best = NULL;
        int scanned = 0;
        for (struct storage *storage = pool->idle[i]; storage && scanned < POOL_SCAN;
             storage = storage->next, scanned++)
            if (storage->bytes >= bytes && (!best || storage->bytes < best->bytes))
                best = storage;
        if (best) {
            list_remove(best);
            return pool_split(pool, best, bytes);
        }
    }
    return NULL;
}

/* Whether work on `stream` (NULL: the host, at once) may use the storage without waiting. */
static bool storage_fits(struct storage *storage, size_t bytes, const struct stream *stream) {
    if (storage->bytes < bytes)
        return false;
    if (stream && storage->uses.count == 1 && storage->uses.use[0].stream == stream)
        return true;
    return uses_idle(&storage->uses);
}

/* From the bins: storage of about the size; with `busy`, also such as the caller must wait for. */
static struct storage *pool_take_binned(struct pool *pool, size_t bytes, const struct stream *stream, bool busy) {
    unsigned first = pool_bin(bytes);
    unsigned last = busy ? POOL_BINS - 1 : first + 1 < POOL_BINS ? first + 1 : first;
    for (unsigned i = first; i <= last; i++) {
        int scanned = 0;
        for (struct storage *storage = pool->binned[i]; storage && scanned < POOL_SCAN;
             storage = storage->next, scanned++)
            if (busy ? storage->bytes >= bytes : storage_fits(storage, bytes, stream)) {
                list_remove(storage);
                return storage;
            }
    }
    return NULL;
}

static size_t pool_segment_bytes(const struct pool *pool, size_t bytes) {
    size_t wanted = bytes <= pool_segment_small / 16  ? pool_segment_small
                    : bytes <= pool_segment_large / 4 ? pool_segment_large
                                                      : (bytes + pool_segment_small - 1) & ~(pool_segment_small - 1);
    uint64_t left = pool->total > pool->reserved ? pool->total - pool->reserved : 0;
    if (wanted > left) /* the device is nearly full: no more than needed */
        wanted = (bytes + 4095) & ~(size_t)4095;
    return wanted <= left ? wanted : 0;
}

static int pool_grow(struct pool *pool, size_t bytes) {
    size_t wanted = pool_segment_bytes(pool, bytes);
    if (!wanted)
        return STATUS_OUT_OF_MEMORY;
    struct segment *segment = malloc(sizeof *segment);
    struct storage *storage = pool_spare(pool);
    void *data = NULL;
    if (!segment || !storage || pool->device->vtable->reserve(pool->device, wanted, &data, NULL) != STATUS_OK) {
        free(segment);
        if (storage)
            pool_recycle(pool, storage);
        return STATUS_OUT_OF_MEMORY;
    }
    *segment = (struct segment){.data = data, .bytes = wanted, .first = storage, .next = pool->segments};
    pool->segments = segment;
    pool->reserved += wanted;
    storage->data = data;
    storage->bytes = wanted;
    storage->segment = segment;
    storage_set_idle(pool, storage);
    return STATUS_OK;
}

/* In order of price: what was just freed, idle memory, a new segment, idle memory merged anew, memory given back and
 * reserved in another shape, and, for streams, memory to wait for. */
static struct storage *pool_find(struct pool *pool, size_t bytes, struct stream *stream) {
    struct storage *storage = pool_take_binned(pool, bytes, stream, false);
    if (!storage)
        storage = pool_take_idle(pool, bytes);
    if (!storage && (bytes >= pool_segment_small || pool->reserved + bytes > pool->total / 2)) {
        pool_settle(pool);
        storage = pool_take_idle(pool, bytes);
    }
    if (!storage && pool_grow(pool, bytes) == STATUS_OK)
        storage = pool_take_idle(pool, bytes);
    if (!storage) {
        pool_trim(pool, 0);
        if (pool_grow(pool, bytes) == STATUS_OK)
            storage = pool_take_idle(pool, bytes);
    }
    if (!storage)
        storage = pool_take_idle(pool, bytes);
    if (!storage && stream)
        storage = pool_take_binned(pool, bytes, stream, true);
    return storage;
}

int pool_take(struct pool *pool, size_t bytes, struct stream *stream, struct storage **result) {
    size_t rounded = pool_rounded(bytes);
    struct storage *storage = rounded ? pool_find(pool, rounded, stream) : NULL;
    if (!storage)
        return STATUS_OUT_OF_MEMORY;
    storage->state = STORAGE_LIVE;
    storage->references = 1;
    storage->session = NULL;
    pool->live += storage->bytes;
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
    pool->live -= storage->bytes;
    if (storage->session)
        session_discharge(storage->session, storage->bytes);
    storage->session = NULL;
    storage->state = STORAGE_BINNED;
    list_insert(&pool->binned[pool_bin(storage->bytes)], storage);
}

uint64_t pool_largest_free(struct pool *pool) {
    uint64_t largest = pool->total > pool->reserved ? pool->total - pool->reserved : 0;
    for (int i = POOL_BINS - 1; i >= 0; i--) {
        for (const struct storage *storage = pool->idle[i]; storage; storage = storage->next)
            if (storage->bytes > largest)
                largest = storage->bytes;
        if (pool->idle[i])
            break;
    }
    for (int i = POOL_BINS - 1; i >= 0; i--) {
        for (const struct storage *storage = pool->binned[i]; storage; storage = storage->next)
            if (storage->bytes > largest)
                largest = storage->bytes;
        if (pool->binned[i])
            break;
    }
    return largest;
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
        pool->device->vtable->release(pool->device, segment->data, segment->bytes);
        pool->reserved -= segment->bytes;
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
