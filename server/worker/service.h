/* The service: one engine for many connections on one libuv loop. It has everything that the connections share, and the turn of
 * the loop: all that was read is submitted, the engine is kicked and polled once, and the replies go out. A worker has
 * one service; the fuzzer and the benchmarks have one without a worker process.
 *
 * Loop thread only, except for service_wake(). The loop thread is the engine's owner thread. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "engine/engine.h"
#include "server/ipc/channel.h"
#include "server/ipc/stats_page.h"
#include "server/process/clock.h"
#include "server/process/handshake.h"
#include "server/worker/compile.h"
#include "server/worker/compile_fused.h"
#include "server/worker/link.h"
#include "server/worker/names.h"
#include "server/worker/trace_feed.h"
#include "server/worker/worker_principal.h"

struct pending_reply;
struct connection;

/* A connection is in each queue at most once. */
TAILQ_HEAD(connection_queue, connection);

/* A connection's places in the queues of its service. */
struct service_turn {
    TAILQ_ENTRY(connection) dirty_link, more_link, end_link;
    bool dirty;
    struct connection_queue *more; /* the queue where it waits with frames; NULL: none */
    uint64_t used_ns;              /* of the loop's time since the last tick */
};

enum {
    SERVICE_TICK_MS = 100,
    SERVICE_FLUSH_MS = 2000, /* for the last replies of a connection that is closing */
    /* The longest time that a turn spends on clients' frames; connections that have not been read by then wait for a
     * later turn. The same holds for each other part of a turn: callbacks, ends, large replies. */
    SERVICE_TURN_NS = 1000 * 1000,
    SERVICE_AGAIN_MS = 1,          /* from one look to the next whether the device has got back its memory */
    SERVICE_SHARE_NS = 250 * 1000, /* the share of one connection in a turn */
    SERVICE_LIGHT_NS =
        1000 * 1000, /* a connection that has used less than this since the last tick comes before the others */
};

struct arena_block;

/* A bump allocator for the messages of one frame: protobuf-c unpacks into it, and the next frame begins with it empty. */
struct arena {
    ProtobufCAllocator allocator; /* what protobuf-c's unpack functions take; its free does nothing */
    struct arena_block *first, *current;
    size_t used;  /* bytes taken of `current` */
    size_t total; /* bytes of all blocks */
    size_t limit;
    uint64_t resets; /* since the start */
    bool starved;    /* since the last reset there was no memory for it: the message may be well-formed */
};

/* Keeps one block of `block` bytes over resets, and never holds more than `limit` in all. -ENOMEM without memory. */
int arena_init(struct arena *arena, size_t block, size_t limit);
void arena_finish(struct arena *arena);
/* NULL past the limit or without memory. Aligned to 16 bytes, valid until the next reset. */
void *arena_allocate(struct arena *arena, size_t bytes);
void arena_reset(struct arena *arena);

struct service_options {
    const char *device, *kind; /* "cpu:1", "cpu"; copied */
    uint64_t epoch;
    struct channel_limits limits; /* a 0 is replaced by a default */
    /* All may be NULL. */
    /* A copy of `principal` needs a link to `device`. 0; -EAGAIN: ask again later. NULL: CopyOut does nothing. */
    int (*want_link)(void *owner, const char *device, const char *principal, const uint8_t ticket[LINK_TICKET_BYTES]);
    /* The worker of `device` may ask again for links that were not taken. If the message is lost it asks after a while. */
    void (*link_room)(void *owner, const char *device);
    void (*left)(void *owner, uint64_t session);    /* the connection of this session number has ended, */
    void (*greeted)(void *owner, uint64_t session); /* or has said Hello */
    /* Which principal is the client with this token ("": none)? The reply comes by connection_granted() or
     * connection_denied(). 0; -EAGAIN: ask again later. NULL: the peer's principal stays, and a peer that has to log in
     * is denied. */
    int (*login)(void *owner, const struct connection *connection, const char *token);
    void (*tick)(void *owner);                              /* each SERVICE_TICK_MS */
    void (*failed)(void *owner, const struct fault *fault); /* the device is lost; called once */
    void (*ended)(void *owner); /* after service_drain() or a failure, when the last connection is gone; called once */
    /* The program that compiles user kernels in processes of its own (compile_process.h); not copied. NULL: they are
     * compiled in this process, which a kernel's source can crash, so only programs that serve nobody else leave it
     * out. */
    const char *compiler;
    const char *cache_dir; /* where kernels of programs are kept (code_cache.h); not copied. NULL: nowhere */
    void *owner;
};

struct service {
    uv_loop_t *loop;
    struct engine *engine;
    struct budget *budget; /* the engine's: how long the present work may take */
    char device[32], kind[16];
    uint64_t epoch;
    struct channel_limits limits;
    struct service_options options;
    struct arena arena;
    struct link_table links;
    struct handshakes handshakes;
    struct compile_queue compiles;
    struct compile_fused fused;
    struct trace_feed trace;
    struct names names;
    struct pending_reply *spare;         /* for an Error frame when there is no memory; NULL while it is in use */
    struct connection *connections;      /* all of them, newest first */
    struct worker_principal *principals; /* principals that have connections or named tensors here */
    struct worker_principal_past *pasts; /* principals that have left (worker_principal.c) */
    uint64_t refusals[REFUSAL_COUNT];    /* the engine counts its own */
    struct connection_queue dirty;       /* connections with replies to write; those with large replies last */
    /* Connections that have frames to continue with: `light` ones have used little time lately. */
    struct connection_queue light, heavy;
    struct connection_queue waiting; /* those whose next request waits for memory that the device gets back */
    struct connection_queue ending;  /* connections that have ended, and whose memory is being given back */
    struct connection_queue giving_up;
    struct worker_principal_queue publishes; /* principals with Publishes whose names are being bound */
    uint64_t turn_ns;                        /* when this turn began; 0: it has not begun */
    unsigned sessions;
    uint64_t arrived;             /* connections that have come from the front */
    uint64_t bytes_in, bytes_out; /* tensor bytes */
    struct stats_places *places;  /* where ends of connections and so on are counted; NULL: nowhere */
    struct histogram fetch_time;
    uint64_t rejections[STATUS_COUNT]; /* connections ended before their session began, by code */
    bool wire;                         /* TENSORD_DEBUG contains the word wire */
    bool active;                       /* something happened since the owner last set it to false */
    bool failed, draining, ended;
    uint64_t drain_deadline_ms;
    /* True while the loop is awake: then a completion needs no system call, because the end of the turn polls
     * anyway. */
    _Atomic bool awake;
    uv_async_t async;
    uv_check_t check;
    uv_idle_t idle;
    uv_timer_t timer, alarm, again; /* `alarm`: of service_at(), `again`: for those who are `waiting` */
};

/* In two steps, because engine_create() needs service_wake() and the service as its owner: init, engine_create, start.
 * From the start on the service owns the engine. */
int service_init(struct service *service, uv_loop_t *loop, const struct service_options *options, struct fault *fault);
int service_start(struct service *service, struct engine *engine, struct fault *fault);
/* Destroys all connections and the engine, and closes the handles. The caller runs the loop until they are closed, and
 * then frees the service. */
void service_finish(struct service *service);

/* struct engine_options.wake, with the service as owner. Any thread. */
void service_wake(void *owner);

/* The end of this turn writes the connection's replies. */
void service_mark_dirty(struct service *service, struct connection *connection);
/* The end of this turn continues with the connection's frames. */
void service_mark_more(struct service *service, struct connection *connection);
/* The same, but only after a while, in which the device may have got back memory. */
void service_mark_waiting(struct service *service, struct connection *connection);
/* The connection has ended, and nobody uses it any more: the ends of this turn and of later ones give its memory back.
 */
void service_mark_ending(struct service *service, struct connection *connection);
/* The connection still exists: the ends of this turn and of later ones drop the work of its lost socket, or reply to
 * its pending requests with the fault that it was given. */
void service_mark_giving_up(struct service *service, struct connection *connection);
/* A callback of the loop's own handles calls it before it does work. */
void service_busy(struct service *service);
/* Whether this turn has lasted long enough: work that can wait for the next turn should wait. */
static inline bool service_is_late(const struct service *service) {
    return service->budget->now_ns - service->turn_ns >= SERVICE_TURN_NS;
}

/* Takes no new work. Requests that have been received are finished within limits.drain_timeout_ms, and get their
 * replies; then each connection gets an Error STATUS_DRAINING and is closed. */
void service_drain(struct service *service);
/* Replies to all pending requests with `fault`, and closes all connections. */
void service_fail(struct service *service, const struct fault *fault);

/* These three count for the front's places (struct stats_places). A connection has ended; `kept`: it came in through a
 * kept place (server/front/places.h) and had not settled. */
void service_count_departed(struct service *service, bool kept);
/* A connection from a kept place has settled: it continues its session. */
void service_count_settled(struct service *service);
/* true: a session has lost its connection. false: a session no longer waits for a connection. */
void service_count_detached(struct service *service, bool detached);
/* Looks at leases and at a drain at this time (of clock_now_ms()) instead of with the next tick, so that their memory
 * is free at once. */
void service_at(struct service *service, uint64_t when_ms);
