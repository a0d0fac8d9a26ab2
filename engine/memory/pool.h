/* The memory pool of a device: stream-ordered, caching, owner thread only.
 *
 * Storage is taken and freed when operations are *enqueued*. Freed storage remembers its last uses. If another stream takes it next,
 * that stream waits for these uses (by stream order, without synchronisation); if the same stream takes it, that costs nothing.
 * Pieces that were freed lately wait in bins by size, the newest first. When a bin has no piece that fits, or there are
 * POOL_BINNED_MAX such pieces, they are settled: merged with their neighbours and filed by size (pool_settle.c), idle pieces, which
 * nothing uses any more, apart from busy ones. Neighbours with different states or users stay apart, so that no taker waits for
 * more users than it must, until a request needs the whole. If the users of a piece wait for bytes from another device, only
 * their own session may take the piece before they are done: else sessions could come to wait for each other in a circle.
 * Segments come from the device and go back when they are not needed.
 *
 * No call walks all pieces. Each free pays for settling its piece once, in bounded time. The files by size tell which piece fits best,
 * which is the largest, and whether whole segments would help. A request for more than is free at all, or than neighbours could
 * come to, is refused at once. Other requests are refused when all pieces that wait for their users have been looked at since
 * the request came: whether the users have ended, and whether the pieces can be joined with their neighbours. One call at most
 * looks twice at POOL_SWEEP pieces and at a few neighbours of each, makes POOL_JOINS joins each time, and gives back POOL_TRIM
 * segments. If that is not all, the caller is told to come again, and finds no less then: joined pieces stay joined, and as long as
 * requests wait, freed pieces are joined at once.
 *
 * Pieces that wait for another device's bytes are the exception: they are joined with other pieces for their own session in one call,
 * which looks at POOL_RUN_LOOKS pieces at most, and finds nothing if more would be needed.
 *
 * Why tensors do not come from cudaMallocAsync, CUDA's own stream-ordered allocator: here the owner's thread decides who may have a
 * block when an operation is enqueued; it knows the session to charge, and can refuse the one operation with figures.
 * cudaMallocAsync decides later, on the submitter's thread, when it is too late to refuse, and cannot tell the largest free block.
 * It would take a call of the driver for each result and each free; the pool takes a look into a list. And one allocator serves
 * all kinds of devices, so that its rules are tested without a GPU. Kernels' workspaces come from the pool too
 * (op_kernel.workspace). But cublasLt's workspaces for products come from cudaMallocAsync (engine/cuda/cuda_stream.c): only
 * cublasLt, which the submitter asks, tells how large they are and which operands must be packed, and a launch can do without. */
#pragma once

#include "engine/device/device.h"
#include "engine/memory/slab.h"
#include "engine/order/stream.h"

struct segment;

/* An account to which device memory is charged. Plain data. */
struct payer {
    uint64_t bytes, peak;
    uint64_t limit;      /* 0: none of its own */
    struct payer *whole; /* the account that this one is part of, which is charged the same bytes; NULL: none */
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
        STORAGE_IDLE,   /* settled: nothing uses it */
        STORAGE_BUSY,   /* settled: at the last look it had users, which end by themselves */
        STORAGE_TIED,   /* settled: at the last look it had users, which may wait for another device */
        STORAGE_DRAFT,  /* of no pool: draft.h */
    } state;
    struct uses uses;
    union {
        struct {                 /* live */
            size_t charged;      /* bytes asked for, rounded: what payers and figures count */
            struct payer *payer; /* the account to which it is charged; NULL: none */
            bool held;           /* the account is of a name (engine/session/held.h), not of a session */
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
    bool mate;                        /* settled: in the list of another piece of its size, not in the tree */
};

enum {
    POOL_ALIGNMENT = 64,
    POOL_BINS = 512,
    POOL_BINNED_MAX = 1024,
    /* In one call: */
    POOL_SWEEP = 1024,     /* looks at pieces that wait for their users */
    POOL_JOINS = 4096,     /* joins of such pieces with neighbours */
    POOL_RUN_LOOKS = 4096, /* looks at neighbours for figures, or for the one session that may take them */
    POOL_TRIM = 64,        /* segments given back */
};

/* A request on its way through several calls of pool_take(), for all the memory of one operation. The caller keeps it, empty at first;
 * its content is private to the pool. */
struct pool_search {
    bool on;
    bool joins;   /* neighbours together may be large enough */
    size_t bytes; /* the smallest request so far */
    uint64_t
        until; /* when pool->looks comes to this, all pieces that waited when the request came have been looked at */
};

/* A walk over all runs of settled neighbours, for figures. It takes several calls if there are many. */
struct pool_walk {
    bool on;
    struct segment *segment; /* the segment where it is */
    struct storage *at;      /* the next piece there; NULL: the first */
    uint64_t run;            /* bytes of the run before that piece */
    uint64_t seen;           /* bytes of the longest run so far */
    uint64_t most;           /* no run that is new since the walk began has more bytes */
};

/* Settled storage of one state, by size. */
struct pool_set {
    uint64_t filled[POOL_BINS / 64]; /* bins that are not empty, as bits */
    struct storage *bins[POOL_BINS];
};

struct pool {
    struct device *device;
    int (*reserve)(struct device *device, size_t bytes, void **segment, struct fault *fault);
    void (*release)(struct device *device, void *segment, size_t bytes);
    void (*lost)(void *owner, const struct fault *fault); /* reserve found the device failed for good; may be NULL */
    void (*blocks)(void *owner, bool begins); /* around reserve and release, which may take long; may be NULL */
    void *owner;                              /* for these two */
    uint64_t total;                           /* bytes it may reserve */
    uint64_t reserved;                        /* taken from the device */
    uint64_t reservations, releases;          /* of segments, ever: neither grows while work goes its usual way */
    uint64_t live, peak;
    struct segment *segments;          /* all of them */
    struct segment *idle_segments;     /* segments that are idle as a whole */
    uint64_t idle_bytes;               /* of these segments */
    uint64_t free_bytes;               /* of segments that are settled as a whole, idle or not */
    struct storage *binned[POOL_BINS]; /* newest first */
    struct pool_set idle, busy, tied;
    struct storage *oldest, *newest; /* of BUSY and TIED storage */
    size_t n_waiting;                /* pieces of BUSY and TIED storage */
    size_t n_binned;
    size_t pieces;  /* storage objects in segments, live or not */
    uint64_t looks; /* at BUSY and TIED storage, ever */
    /* A seam is where one settled piece follows another. No run of settled neighbours has more than `run_most` bytes. */
    size_t seams;
    uint64_t run_most;
    uint64_t run_seen; /* the longest run at the end of the last walk */
    struct pool_walk walk;
    uint64_t join_until; /* until `looks` comes to this, neighbours of different states or users are joined */
    uint64_t wanted;     /* if they have so many bytes together */
    struct slab objects; /* storage */
    bool starved;        /* the present search failed because there was no host memory */
    bool coming; /* the present search found the device full, and memory that was given back there is not free yet */
};

void pool_init(struct pool *pool, struct device *device);
/* A pool of host memory that launches can use, up to `total` bytes. */
void pool_init_host(struct pool *pool, struct device *device, uint64_t total);
/* All storage must have been freed and be idle. */
void pool_finish(struct pool *pool);

/* Memory for `bytes` (more than 0) with one reference. With a stream: for work enqueued there; the caller makes the stream wait for
 * storage->uses. Without a stream: for the host to write now, so only memory that nothing uses any more. Returns
 * STATUS_OUT_OF_MEMORY or STATUS_NO_HOST_MEMORY without a message, since the caller knows whose memory it is. STATUS_AGAIN: whether
 * there is memory takes more calls with the same `search` to find out, each in a turn of its own. `search` NULL: the caller does
 * not come again. */
int pool_take(struct pool *pool, size_t bytes, struct stream *stream, struct pool_search *search,
              struct storage **storage);
static inline struct storage *storage_ref(struct storage *storage) {
    storage->references++;
    return storage;
}
/* Private: nobody refers to it. */
void storage_free(struct storage *storage);
/* The last reference frees the storage, which is then no longer charged. Takes NULL. */
static inline void storage_unref(struct storage *storage) {
    if (storage && !--storage->references)
        storage_free(storage);
}

/* The size that pool_take() charges for `bytes`; 0 where that overflows. */
static inline size_t pool_rounded(uint64_t bytes) {
    if (bytes == 0 || bytes > SIZE_MAX / 4)
        return 0;
    return ((size_t)bytes + POOL_ALIGNMENT - 1) & ~(size_t)(POOL_ALIGNMENT - 1);
}
/* The largest size that pool_take() would find if all queued work had run. If more than POOL_RUN_LOOKS pieces are free next to others,
 * seeing all of them takes several calls, and the figure is that of the last time when all had been seen. */
uint64_t pool_largest_free(struct pool *pool);
/* Gives segments without live or busy storage back to the device, until `keep` bytes are reserved, and only a few in one call. True:
 * there are more. */
bool pool_trim(struct pool *pool, uint64_t keep);
