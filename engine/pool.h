/* The memory pool of a device: stream-ordered, caching, owner thread only.
 *
 * Storage is taken and freed when operations are *enqueued*. Freed storage remembers its last uses; whoever takes it
 * next on another stream waits for them (stream order, no synchronisation), and taking it again on the same stream
 * costs nothing. Recently freed storage waits in bins by size, the newest first; idle storage is merged with its
 * neighbours when a bin has nothing that fits, and so is busy storage before anybody is refused; but for storage whose
 * users wait for bytes from another device, which only their own session may have before they are done: others could
 * come to wait for each other in a circle. Segments come from the device and go back when nobody needs them.
 *
 * Why not CUDA's own stream-ordered allocator, cudaMallocAsync, for tensors, too: who may have a block is decided here when
 * an operation is enqueued, on the owner's thread, which knows the session to charge and can refuse the one operation
 * with figures; cudaMallocAsync decides when the submitter comes to it, when it is too late to refuse, on another thread, and
 * cannot tell the largest free block. It would be a call of the driver for each result and each free, where this is
 * a look into a list. And one allocator serves all kinds of devices, so that its rules are tested where there is no GPU.
 * Libraries' workspaces do come from cudaMallocAsync (engine/cuda/cuda_stream.c): only the submitter knows their sizes,
 * they are few, and a launch can go without. */
#pragma once

#include "engine/device.h"
#include "engine/stream.h"

struct held_account;
struct session;
struct segment;

/* One block of memory; live while somebody holds a reference. Owner thread. */
struct storage {
    uint8_t *data;
    size_t bytes;   /* a multiple of POOL_ALIGNMENT */
    size_t charged; /* of them asked for, rounded: what accounts and figures count */
    unsigned references;
    struct uses uses;
    struct session *session;     /* whose account it is charged to; NULL when free */
    struct held_account *holder; /* or this one (engine/held.h) */

    /* private to the pool */
    struct segment *segment;
    struct storage *before, *after; /* neighbours by address within the segment */
    struct storage *next, **previous;
    enum { STORAGE_LIVE, STORAGE_BINNED, STORAGE_IDLE } state;
};

enum { POOL_ALIGNMENT = 64, POOL_BINS = 512 };

struct pool {
    struct device *device;
    int (*reserve)(struct device *device, size_t bytes, void **segment, struct fault *fault);
    void (*release)(struct device *device, void *segment, size_t bytes);
    void (*lost)(void *owner, const struct fault *fault); /* reserve found the device failed for good; may be NULL */
    void (*held_up)(void *owner, bool begins);            /* around reserve and release, which may wait; may be NULL */
    void *owner;
    uint64_t total;                  /* bytes it may reserve */
    uint64_t reserved;               /* taken from the device */
    uint64_t reservations, releases; /* of segments, ever: neither moves while work goes its usual way */
    uint64_t live, peak;
    struct segment *segments;
    struct storage *binned[POOL_BINS]; /* freed, perhaps not yet idle; newest first */
    struct storage *idle[POOL_BINS];   /* idle and merged */
    struct storage *spare;             /* unused storage objects */
    size_t pieces;                     /* storage objects in segments, live or not */
    size_t unsettled;                  /* of these, freed since all that were idle were merged last */
};

void pool_init(struct pool *pool, struct device *device);
/* Of host memory that launches reach, up to `total` bytes. */
void pool_init_host(struct pool *pool, struct device *device, uint64_t total);
/* All storage must have been freed and be idle. */
void pool_finish(struct pool *pool);

/* Memory for `bytes` (more than 0) with one reference. With a stream, for work enqueued there: the caller makes the
 * stream wait for storage->uses. Without one, for the host to write now: only memory that nothing uses any more.
 * Returns STATUS_OUT_OF_MEMORY without words: the caller knows whose memory it is. */
int pool_take(struct pool *pool, size_t bytes, struct stream *stream, struct storage **storage);
struct storage *storage_ref(struct storage *storage);
/* The last reference frees the storage and takes it off its session's account. Takes NULL. */
void storage_unref(struct pool *pool, struct storage *storage);

/* The size that pool_take() charges for `bytes`; 0 where that overflows. */
size_t pool_rounded(uint64_t bytes);
/* The largest size that pool_take() would find if all queued work had run. */
uint64_t pool_largest_free(struct pool *pool);
/* Gives segments without live or busy storage back to the device, down to `keep` reserved bytes. */
void pool_trim(struct pool *pool, uint64_t keep);
