/* The memory pool of a device: stream-ordered, caching, owner thread only.
 *
 * Storage is taken and freed when operations are *enqueued*. Freed storage remembers its last uses; whoever takes it
 * next on another stream waits for them (stream order, no synchronisation), and taking it again on the same stream
 * costs nothing. What was freed lately waits in bins by size, the newest first. When a bin has nothing that fits, or there
 * are POOL_BINNED_MAX of these, they are settled: merged with their neighbours and filed by size (pool_set.c), those that
 * nothing uses any more apart from those that are still busy. Unlike neighbours stay apart, so that nobody waits for more
 * than he must, until somebody needs the whole. Memory whose users wait for bytes from another device is had by its own
 * session alone before they are done: others could come to wait for each other in a circle. Segments come from the device
 * and go back when nobody needs them.
 *
 * No call walks all pieces. Each free pays for settling its piece once, in bounded time; what fits best, what is
 * largest, and whether whole segments would help, is known from the files by size; a request for more than is free at all is
 * refused at once. Two searches have limits, POOL_SWEEP and POOL_RUN_LOOKS: for busy memory that has become idle, which the
 * host alone needs, and for neighbours that are unlike. They go on where they stopped, so that with more pieces than that
 * a later request finds what an earlier one did not.
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
#include "engine/slab.h"
#include "engine/stream.h"

struct held_account;
struct session;
struct segment;

/* One block of memory; live while somebody holds a reference. Owner thread. */
struct storage {
    uint8_t *data;
    size_t bytes; /* a multiple of POOL_ALIGNMENT */
    unsigned references;
    enum storage_state {
        STORAGE_LIVE,
        STORAGE_BINNED, /* freed, and not settled since */
        STORAGE_IDLE,   /* settled: nothing uses it, */
        STORAGE_BUSY,   /* or something did, at the last look, that ends by itself, */
        STORAGE_TIED,   /* or that may wait for another device */
    } state;
    struct uses uses;
    union {
        struct {                         /* live */
            size_t charged;              /* bytes asked for, rounded: what accounts and figures count */
            struct session *session;     /* whose account it is charged to */
            struct held_account *holder; /* or this one (engine/held.h) */
        };
        struct { /* settled: private to pool_set.c */
            struct storage *up, *down[2];
        };
    };

    /* private to the pool */
    struct segment *segment;
    struct storage *before, *after;   /* neighbours by address within the segment */
    struct storage *next, **previous; /* in a bin; settled: among those of one size */
    struct storage *older, *newer;    /* BUSY, TIED: in the order of the looks at them */
    bool mate;                        /* settled: hangs on another one of its size */
};

enum { POOL_ALIGNMENT = 64, POOL_BINS = 512, POOL_BINNED_MAX = 1024, POOL_SWEEP = 1024, POOL_RUN_LOOKS = 4096 };

/* Settled storage of one state, by size (pool_set.c). */
struct pool_set {
    uint64_t filled[POOL_BINS / 64]; /* bins that have some */
    struct storage *bins[POOL_BINS];
};

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
    struct segment *segments;          /* all of them */
    struct segment *idle_segments;     /* of which nothing is in use */
    uint64_t idle_bytes;               /* of these */
    uint64_t free_bytes;               /* of segments of which all is settled, idle or not */
    struct storage *binned[POOL_BINS]; /* newest first */
    struct pool_set idle, busy, tied;
    struct storage *oldest, *newest; /* of BUSY and TIED */
    size_t n_waiting;                /* of these */
    size_t n_binned;
    size_t pieces; /* storage objects in segments, live or not */
    /* Seams: where one settled piece follows another. Nowhere do neighbours with a seam between them come to more than
     * `run_most` bytes. A round looks at all of them, in as many calls as it takes. */
    size_t seams;
    uint64_t run_most;
    bool round;               /* one is under way: */
    struct storage *round_at; /* the next piece; NULL: that was the last */
    uint64_t round_most;      /* so far */
    struct slab objects;      /* storage */
    bool starved; /* the search at hand failed for want of host memory */
};

void pool_init(struct pool *pool, struct device *device);
/* Of host memory that launches reach, up to `total` bytes. */
void pool_init_host(struct pool *pool, struct device *device, uint64_t total);
/* All storage must have been freed and be idle. */
void pool_finish(struct pool *pool);

/* Memory for `bytes` (more than 0) with one reference. With a stream, for work enqueued there: the caller makes the
 * stream wait for storage->uses. Without one, for the host to write now: only memory that nothing uses any more.
 * Returns STATUS_OUT_OF_MEMORY, or STATUS_NO_HOST_MEMORY, without words: the caller knows whose memory it is. */
int pool_take(struct pool *pool, size_t bytes, struct stream *stream, struct storage **storage);
struct storage *storage_ref(struct storage *storage);
/* The last reference frees the storage and takes it off its session's account. Takes NULL. */
void storage_unref(struct pool *pool, struct storage *storage);

/* The size that pool_take() charges for `bytes`; 0 where that overflows. */
size_t pool_rounded(uint64_t bytes);
/* The largest size that pool_take() would find if all queued work had run; less where more than POOL_RUN_LOOKS pieces would
 * have to be looked at. */
uint64_t pool_largest_free(struct pool *pool);
/* Gives segments without live or busy storage back to the device, down to `keep` reserved bytes, and no more than a few
 * at a time: true if there are more. */
bool pool_trim(struct pool *pool, uint64_t keep);
