/* The memory pool of a device: stream-ordered, caching, owner thread only.
 *
 * Storage is taken and freed when operations are *enqueued*. Freed storage remembers its last uses; whoever takes it
 * next on another stream waits for them (stream order, no synchronisation), and taking it again on the same stream
 * costs nothing. What was freed lately waits in bins by size, the newest first. When a bin has nothing that fits, or there
 * are POOL_BINNED_MAX of these, they are settled: merged with their neighbours and filed by size (pool_settle.c), those that
 * nothing uses any more apart from those that are still busy. Unlike neighbours stay apart, so that nobody waits for more
 * than he must, until somebody needs the whole. Memory whose users wait for bytes from another device is had by its own
 * session alone before they are done: others could come to wait for each other in a circle. Segments come from the device
 * and go back when nobody needs them.
 *
 * No call walks all pieces. Each free pays for settling its piece once, in bounded time; what fits best, what is
 * largest, and whether whole segments would help, is known from the files by size; a request for more than is free at all, or
 * than neighbours could come to, is refused at once. Anything else is refused when all memory that waits for its users has been
 * looked at since the request came: whether these have ended, and whether it can be joined with its neighbours. One call
 * looks twice at POOL_SWEEP pieces and at a few neighbours of each, makes POOL_JOINS joins each time, and gives back POOL_TRIM
 * segments, at most. Where that is not all, the caller is told to come again, and does not find less for that: what has been
 * joined stays so, and until all who wait have been served or refused what is freed is joined at once.
 *
 * Memory that waits for another device's bytes is the exception: together with other memory it is joined for its own session at
 * one go, from POOL_RUN_LOOKS pieces at most, and not found where that takes more.
 *
 * Why not CUDA's own stream-ordered allocator, cudaMallocAsync, for tensors, too: who may have a block is decided here when
 * an operation is enqueued, on the owner's thread, which knows the session to charge and can refuse the one operation
 * with figures; cudaMallocAsync decides when the submitter comes to it, when it is too late to refuse, on another thread, and
 * cannot tell the largest free block. It would be a call of the driver for each result and each free, where this is
 * a look into a list. And one allocator serves all kinds of devices, so that its rules are tested where there is no GPU.
 * Kernels' workspaces come from here too (op_kernel.workspace). But what cublasLt wants for a product does come from
 * cudaMallocAsync (engine/cuda/cuda_stream.c): how much that is, and which operands must be packed for it, only cublasLt tells,
 * which the submitter asks, and a launch can go without. */
#pragma once

#include "engine/device/device.h"
#include "engine/memory/slab.h"
#include "engine/order/stream.h"

struct segment;

/* Who pays for device memory, and what has been charged to that payer and to those it is part of. Plain data. */
struct payer {
    uint64_t bytes, peak;
    uint64_t limit;      /* 0: none of its own */
    struct payer *whole; /* its bytes are this one's, too; NULL: nobody's */
};

static inline void payer_charge(struct payer *payer, uint64_t bytes) {
    for (; payer; payer = payer->whole) {
        payer->bytes += bytes;
        if (payer->bytes > payer->peak)
            payer->peak = payer->bytes;
    }
}

static inline void payer_discharge(struct payer *payer, uint64_t bytes) {
    for (; payer; payer = payer->whole)
        payer->bytes -= bytes;
}

/* Whether it may have so much more, by its own limit. */
static inline bool payer_fits(const struct payer *payer, uint64_t bytes) {
    return !payer->limit || (bytes <= payer->limit && payer->bytes <= payer->limit - bytes);
}

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
        struct {                 /* live */
            size_t charged;      /* bytes asked for, rounded: what payers and figures count */
            struct payer *payer; /* whom it is charged to; NULL: nobody */
            bool held;           /* which is a name's (engine/session/held.h), no session's */
        };
        struct { /* settled: private to pool_settle.c */
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

enum {
    POOL_ALIGNMENT = 64,
    POOL_BINS = 512,
    POOL_BINNED_MAX = 1024,
    /* In one call: */
    POOL_SWEEP = 1024,     /* looks at what waits for its users, */
    POOL_JOINS = 4096,     /* joins of that with neighbours, */
    POOL_RUN_LOOKS = 4096, /* looks at neighbours for figures, or for one who alone may have them, */
    POOL_TRIM = 64,        /* and segments given back */
};

/* A request on its way through several calls of pool_take(), for all the memory of one operation. Its caller's, empty at first.
 * Private to the pool. */
struct pool_search {
    bool on;
    bool joins;     /* neighbours together may be what it needs */
    size_t bytes;   /* the least that was asked for */
    uint64_t until; /* by then all has been looked at that waited when it came */
};

/* Over all runs of settled neighbours, in as many calls as it takes, for figures. */
struct pool_walk {
    bool on;
    struct segment *segment; /* where it is, */
    struct storage *at;      /* and the next piece there; NULL: the first */
    uint64_t run;            /* what the pieces before it come to */
    uint64_t seen;           /* the longest so far */
    uint64_t most;           /* no run comes to more of those that are new since it began */
};

/* Settled storage of one state, by size. */
struct pool_set {
    uint64_t filled[POOL_BINS / 64]; /* bins that have some */
    struct storage *bins[POOL_BINS];
};

struct pool {
    struct device *device;
    int (*reserve)(struct device *device, size_t bytes, void **segment, struct fault *fault);
    void (*release)(struct device *device, void *segment, size_t bytes);
    void (*lost)(void *owner, const struct fault *fault); /* reserve found the device failed for good; may be NULL */
    void (*blocks)(void *owner, bool begins);             /* around reserve and release, which may wait; may be NULL */
    void *owner;                                          /* for these two */
    uint64_t total;                                       /* bytes it may reserve */
    uint64_t reserved;                                    /* taken from the device */
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
    size_t pieces;  /* storage objects in segments, live or not */
    uint64_t looks; /* at BUSY and TIED, ever */
    /* Seams: where one settled piece follows another. Nowhere do neighbours with a seam between them come to more than
     * `run_most` bytes. */
    size_t seams;
    uint64_t run_most;
    uint64_t run_seen; /* the longest run at the end of the last walk */
    struct pool_walk walk;
    uint64_t join_until; /* for so many looks unlike neighbours are joined, */
    uint64_t wanted;     /* that come to so many bytes together */
    struct slab objects; /* storage */
    bool starved;        /* the search at hand failed for want of host memory */
};

void pool_init(struct pool *pool, struct device *device);
/* Of host memory that launches reach, up to `total` bytes. */
void pool_init_host(struct pool *pool, struct device *device, uint64_t total);
/* All storage must have been freed and be idle. */
void pool_finish(struct pool *pool);

/* Memory for `bytes` (more than 0) with one reference. With a stream, for work enqueued there: the caller makes the
 * stream wait for storage->uses. Without one, for the host to write now: only memory that nothing uses any more.
 * Returns STATUS_OUT_OF_MEMORY, or STATUS_NO_HOST_MEMORY, without words: the caller knows whose memory it is. STATUS_AGAIN: that
 * is not certain yet, and takes more calls with the same `search`, each in a turn of its own; NULL where the caller does not
 * come again. */
int pool_take(struct pool *pool, size_t bytes, struct stream *stream, struct pool_search *search,
              struct storage **storage);
static inline struct storage *storage_ref(struct storage *storage) {
    storage->references++;
    return storage;
}
/* The last reference frees the storage, and whoever pays pays no more. Takes NULL. */
void storage_unref(struct storage *storage);

/* The size that pool_take() charges for `bytes`; 0 where that overflows. */
static inline size_t pool_rounded(uint64_t bytes) {
    if (bytes == 0 || bytes > SIZE_MAX / 4)
        return 0;
    return ((size_t)bytes + POOL_ALIGNMENT - 1) & ~(size_t)(POOL_ALIGNMENT - 1);
}
/* The largest size that pool_take() would find if all queued work had run. With more than POOL_RUN_LOOKS pieces that are free
 * next to others it takes several calls to see all of them, and the figure is of the last time when that was so. */
uint64_t pool_largest_free(struct pool *pool);
/* Gives segments without live or busy storage back to the device, down to `keep` reserved bytes, and no more than a few
 * at a time: true if there are more. */
bool pool_trim(struct pool *pool, uint64_t keep);
