#include "server/worker/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/program/fusion.h"
#include "server/worker/compile.h"
#include "server/worker/connection.h"
#include "server/worker/lease.h"
#include "server/worker/pending_reply.h"
#include "server/worker/publish.h"
#include "server/worker/state.h"

enum {
    SERVICE_ARENA_BYTES = 2 << 20,
    /* A message of 1 MiB unpacks into less than this, even in the worst case, which is a message of empty strings. */
    SERVICE_ARENA_MAX = 64 << 20,
    SERVICE_ROUNDS = 4, /* in one turn, in which connections continue with their frames */
    SERVICE_ENDS_STEPS = 4,
};

/* ---- memory for messages ---- */

enum { ARENA_ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t bytes;
    _Alignas(ARENA_ALIGN) uint8_t data[];
};

static struct arena_block *arena_block_create(size_t bytes) {
    struct arena_block *block = malloc(sizeof *block + bytes);
    if (block)
        *block = (struct arena_block){.bytes = bytes};
    return block;
}

static void *arena_protobuf_allocate(void *owner, size_t bytes) {
    return arena_allocate(owner, bytes);
}

static void arena_protobuf_free(void *owner, void *memory) {
    (void)owner;
    (void)memory;
}

int arena_init(struct arena *arena, size_t block, size_t limit) {
    *arena = (struct arena){
        .allocator = {arena_protobuf_allocate, arena_protobuf_free, arena},
        .limit = limit,
    };
    arena->first = arena->current = arena_block_create(block);
    if (!arena->first)
        return -ENOMEM;
    arena->total = block;
    return 0;
}

static void arena_free_from(struct arena_block *block) {
    while (block) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
}

void arena_finish(struct arena *arena) {
    arena_free_from(arena->first);
    *arena = (struct arena){0};
}

/* Adds a block for `bytes`, and, if the limit allows, of the first one's size at least. */
static struct arena_block *arena_grow(struct arena *arena, size_t bytes) {
    size_t room = arena->limit - arena->total, size = bytes > arena->first->bytes ? bytes : arena->first->bytes;
    if (arena->total > arena->limit || bytes > room)
        return NULL;
    if (size > room)
        size = bytes;
    struct arena_block *block = arena_block_create(size);
    if (!block) {
        arena->starved = true;
        return NULL;
    }
    arena->total += size;
    arena->current->next = block;
    arena->current = block;
    arena->used = 0;
    return block;
}

void *arena_allocate(struct arena *arena, size_t bytes) {
    struct arena_block *block = arena->current;
    void *memory;
    if (bytes > SIZE_MAX - ARENA_ALIGN)
        return NULL;
    bytes = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (bytes > block->bytes - arena->used) {
        block = arena_grow(arena, bytes);
        if (!block)
            return NULL;
    }
    memory = block->data + arena->used;
    arena->used += bytes;
    return memory;
}

void arena_reset(struct arena *arena) {
    if (arena->first->next) {
        arena_free_from(arena->first->next);
        arena->first->next = NULL;
        arena->current = arena->first;
        arena->total = arena->first->bytes;
    }
    arena->used = 0;
    arena->resets++;
    arena->starved = false;
}

/* ---- waking ---- */

void service_wake(void *owner) {
    struct service *service = owner;
    if (!atomic_exchange(&service->awake, true))
        uv_async_send(&service->async);
}

void service_busy(struct service *service) {
    service->active = true;
    if (!service->turn_ns) {
        budget_look(service->budget);
        service->turn_ns = service->budget->now_ns;
    }
    /* `awake` is always changed by an exchange: it sees everything that was done before the exchange whose value it
     * replaces. */
    if (!atomic_load_explicit(&service->awake, memory_order_relaxed))
        atomic_exchange(&service->awake, true);
}

static void service_on_async(uv_async_t *async) {
    service_busy(async->data); /* the end of the turn polls */
}

static void service_on_idle(uv_idle_t *idle) {
    service_busy(idle->data); /* keeps the loop from sleeping while frames are buffered */
}

/* ---- the turn ---- */

/* A connection with small replies goes first, so that large replies of others do not delay it. */
void service_mark_dirty(struct service *service, struct connection *connection) {
    if (connection->turn.dirty || connection->state == CONNECTION_ENDED)
        return;
    connection->turn.dirty = true;
    if (connection->out.queue.bulk)
        TAILQ_INSERT_TAIL(&service->dirty, connection, turn.dirty_link);
    else
        TAILQ_INSERT_HEAD(&service->dirty, connection, turn.dirty_link);
}

void service_mark_more(struct service *service, struct connection *connection) {
    if (connection->turn.more || connection->state == CONNECTION_ENDED)
        return;
    connection->turn.more = connection->turn.used_ns < SERVICE_LIGHT_NS ? &service->light : &service->heavy;
    TAILQ_INSERT_TAIL(connection->turn.more, connection, turn.more_link);
}

static void service_on_again(uv_timer_t *again) {
    struct service *service = again->data;
    struct connection *connection;
    while ((connection = TAILQ_FIRST(&service->waiting))) {
        TAILQ_REMOVE(&service->waiting, connection, turn.more_link);
        connection->turn.more = NULL;
        service_mark_more(service, connection);
    }
    uv_idle_start(&service->idle, service_on_idle); /* otherwise the loop would sleep before it goes on with them */
}

void service_mark_waiting(struct service *service, struct connection *connection) {
    if (connection->turn.more || connection->state == CONNECTION_ENDED)
        return;
    connection->turn.more = &service->waiting;
    TAILQ_INSERT_TAIL(&service->waiting, connection, turn.more_link);
    if (!uv_is_active((uv_handle_t *)&service->again))
        uv_timer_start(&service->again, service_on_again, SERVICE_AGAIN_MS, 0);
}

void service_mark_ending(struct service *service, struct connection *connection) {
    TAILQ_INSERT_TAIL(&service->ending, connection, turn.more_link);
}

void service_mark_giving_up(struct service *service, struct connection *connection) {
    if (connection->end.listed)
        return;
    connection->end.listed = true;
    TAILQ_INSERT_TAIL(&service->giving_up, connection, turn.end_link);
}

/* Writes all small replies, and large ones as far as the turn has time. */
static void service_flush(struct service *service) {
    struct connection *connection;
    bool some = false;
    while ((connection = TAILQ_FIRST(&service->dirty))) {
        if (connection->out.queue.bulk && some && (budget_look(service->budget), service_is_late(service)))
            return;
        some |= connection->out.queue.bulk != NULL;
        TAILQ_REMOVE(&service->dirty, connection, turn.dirty_link);
        connection->turn.dirty = false;
        connection_flush(connection);
    }
}

/* Continues with the connections that wait in the queue now, each once, as far as the turn has time, but with at least
 * one. */
static void service_resume_queue(struct service *service, struct connection_queue *queue) {
    struct connection *connection, *last = TAILQ_LAST(queue, connection_queue);
    bool end = !last;
    while (!end && (connection = TAILQ_FIRST(queue))) {
        end = connection == last;
        TAILQ_REMOVE(queue, connection, turn.more_link);
        connection->turn.more = NULL;
        connection_resume(connection);
        end |= service_is_late(service);
    }
}

static void service_resume(struct service *service) {
    service_resume_queue(service, &service->light);
    service_resume_queue(service, &service->heavy);
}

/* Takes steps of the ends of connections, as far as the budget goes. */
static void service_end_some(struct service *service) {
    struct budget *budget = service->budget;
    struct connection *connection;
    bool over = false;
    while (!over && (connection = TAILQ_FIRST(&service->giving_up))) {
        if (!connection_give_up_some(connection))
            return;
        over = budget_spent(budget, SERVICE_ENDS_STEPS);
    }
    while (!over && (connection = TAILQ_FIRST(&service->ending))) {
        TAILQ_REMOVE(&service->ending, connection, turn.more_link);
        if (!connection_end_some(connection)) {
            TAILQ_INSERT_HEAD(&service->ending, connection, turn.more_link);
            return;
        }
        over = budget_spent(budget, SERVICE_ENDS_STEPS);
    }
}

static bool service_is_ending(const struct service *service) {
    return !TAILQ_EMPTY(&service->ending) || !TAILQ_EMPTY(&service->giving_up);
}

static bool service_has_more(const struct service *service) {
    return !TAILQ_EMPTY(&service->light) || !TAILQ_EMPTY(&service->heavy);
}

static bool service_has_state_replies(const struct service *service) {
    return service->names.state && state_has_replies(service->names.state);
}

/* Whether the loop must go on with the next turn at once. */
static bool service_has_work(const struct service *service) {
    return service_has_more(service) || !TAILQ_EMPTY(&service->dirty) || service_is_ending(service) ||
           !TAILQ_EMPTY(&service->publishes) || service_has_state_replies(service) || engine_due(service->engine);
}

static void service_check_device(struct service *service) {
    struct fault fault = {0};
    if (service->failed || engine_fault(service->engine, &fault) == STATUS_OK)
        return;
    service->failed = true;
    if (service->options.failed)
        service->options.failed(service->options.owner, &fault);
}

static void service_check_drain(struct service *service) {
    uint64_t now = clock_now_ms();
    struct connection *connection = service->connections;
    struct fault fault;
    if (now < service->drain_deadline_ms)
        service_at(service, service->drain_deadline_ms);
    fault_set(&fault, STATUS_DRAINING, "%s is shutting down", service->device);
    while (connection) {
        struct connection *next = connection->next;
        if (now >= service->drain_deadline_ms || connection_idle(connection))
            connection_give_up(connection, &fault);
        connection = next;
    }
    service_flush(service);
}

static void service_check_end(struct service *service) {
    if (!service->failed && service->draining)
        service_check_drain(service);
    if ((!service->failed && !service->draining) || service->connections || service->ended ||
        service_is_ending(service))
        return;
    service->ended = true;
    if (service->options.ended)
        service->options.ended(service->options.owner);
}

/* The end of a turn: everything that the loop's handles have read has been submitted by now. */
static void service_on_check(uv_check_t *check) {
    struct service *service = check->data;
    struct budget *budget = service->budget;
    unsigned rounds = 0;
    do {
        engine_kick(service->engine);
        /* Work that completes from here on wakes the loop; engine_poll() finds the work that completed before. */
        atomic_exchange(&service->awake, false);
        budget_go_on(budget, SERVICE_TURN_NS);
        engine_poll(service->engine);
        if (!TAILQ_EMPTY(&service->links.turns))
            link_out_turn(service);
        if (fusions_wait(engine_kernels(service->engine)))
            compile_fused_next(service);
        if (service->compiles.turns || service->fused.compiled) /* else there is no code to unload */
            compile_release_unused(service);
        service_check_device(service);
        if (service->trace.connection && trace_feed_turn(service))
            service_wake(service);
        if (service_has_state_replies(service))
            state_reply_some(service->names.state, budget);
        if (!TAILQ_EMPTY(&service->publishes))
            publish_turn(service);
        service_end_some(service);
        service_flush(service);
        /* Callbacks and replies may have enqueued more, such as the next parts of a fetch. */
        if (!service_has_more(service) && !engine_due(service->engine))
            break;
        service_busy(service);
        service_resume(service);
    } while (++rounds < SERVICE_ROUNDS && !service_is_late(service));
    if (rounds)
        engine_kick(service->engine);
    service_check_end(service);
    if (service_has_work(service))
        uv_idle_start(&service->idle, service_on_idle);
    else
        uv_idle_stop(&service->idle);
    service->turn_ns = 0;
}

/* Looks at leases and at a drain when their time has come, so that the memory of a session whose lease is over, and the
 * whole device after a drain, is free at once. lease_tick() and service_check_drain() set the next alarm. */
static void service_on_alarm(uv_timer_t *alarm) {
    struct service *service = alarm->data;
    struct connection *connection = service->connections;
    uint64_t now = clock_now_ms();
    while (connection) {
        struct connection *next = connection->next;
        if (!connection->socket.poll) /* without a socket: its lease runs */
            lease_tick(connection, now);
        connection = next;
    }
    uv_idle_start(&service->idle, service_on_idle); /* otherwise the loop would sleep before it looks at a drain */
}

void service_at(struct service *service, uint64_t when_ms) {
    uint64_t now = clock_now_ms(), left = when_ms > now ? when_ms - now : 0;
    uv_update_time(service->loop);
    if (!uv_is_active((uv_handle_t *)&service->alarm) || uv_timer_get_due_in(&service->alarm) > left)
        uv_timer_start(&service->alarm, service_on_alarm, left, 0);
}

static void service_on_timer(uv_timer_t *timer) {
    struct service *service = timer->data;
    uint64_t now = clock_now_ms();
    struct connection *connection = service->connections;
    while (connection) {
        struct connection *next = connection->next;
        connection_tick(connection, now);
        connection = next;
    }
    worker_principal_tick(service, clock_now_ns());
    link_in_tick(service, now);
    link_out_tick(service, now);
    if (service->trace.connection)
        trace_feed_tick(service);
    engine_tick(service->engine);
    if (service->options.tick)
        service->options.tick(service->options.owner);
    if (service_has_work(service))
        uv_idle_start(&service->idle, service_on_idle); /* otherwise the loop would sleep before it looks at them */
}

/* ---- places ---- */

void service_count_departed(struct service *service, bool kept) {
    if (kept)
        service_count_settled(service);
    if (service->places)
        atomic_fetch_add(&service->places->departed, 1);
}

void service_count_settled(struct service *service) {
    if (service->places)
        atomic_fetch_add(&service->places->settled, 1);
}

void service_count_detached(struct service *service, bool detached) {
    if (service->places)
        atomic_fetch_add(&service->places->detached, detached ? 1 : UINT64_MAX);
}

/* ---- life ---- */

static void service_default(uint32_t *limit, uint32_t value) {
    if (!*limit)
        *limit = value;
}

static void service_limits(struct channel_limits *limits) {
    service_default(&limits->sessions, STATS_SESSIONS_MAX);
    service_default(&limits->hello_timeout_ms, 5000);
    service_default(&limits->transfer_timeout_ms, 10000);
    service_default(&limits->drain_timeout_ms, 10000);
    limits_fill(&limits->each);
}

int service_init(struct service *service, uv_loop_t *loop, const struct service_options *options, struct fault *fault) {
    const char *debug = getenv("TENSORD_DEBUG");
    *service = (struct service){.loop = loop, .epoch = options->epoch, .limits = options->limits, .options = *options};
    if (pending_reply_reserve(service) || arena_init(&service->arena, SERVICE_ARENA_BYTES, SERVICE_ARENA_MAX))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to read messages into");
    snprintf(service->device, sizeof service->device, "%s", options->device);
    snprintf(service->kind, sizeof service->kind, "%s", options->kind);
    service->options.device = service->device;
    service->options.kind = service->kind;
    service->wire = debug && strstr(debug, "wire");
    service_limits(&service->limits);
    TAILQ_INIT(&service->dirty);
    TAILQ_INIT(&service->light);
    TAILQ_INIT(&service->heavy);
    TAILQ_INIT(&service->waiting);
    TAILQ_INIT(&service->ending);
    TAILQ_INIT(&service->giving_up);
    TAILQ_INIT(&service->publishes);
    link_table_init(&service->links);
    compile_queue_init(&service->compiles);
    names_init(&service->names, service);
    handshakes_init(&service->handshakes, loop);
    uv_async_init(loop, &service->async, service_on_async);
    uv_check_init(loop, &service->check);
    uv_idle_init(loop, &service->idle);
    uv_timer_init(loop, &service->timer);
    uv_timer_init(loop, &service->alarm);
    uv_timer_init(loop, &service->again);
    service->async.data = service->check.data = service->idle.data = service->timer.data = service->alarm.data =
        service->again.data = service;
    return STATUS_OK;
}

int service_start(struct service *service, struct engine *engine, struct fault *fault) {
    int error = uv_check_start(&service->check, service_on_check);
    service->engine = engine;
    service->budget = engine_budget(engine);
    if (!error)
        error = uv_timer_start(&service->timer, service_on_timer, SERVICE_TICK_MS, SERVICE_TICK_MS);
    return error ? fault_set(fault, STATUS_INTERNAL, "event loop: %s", uv_strerror(error)) : STATUS_OK;
}

void service_finish(struct service *service) {
    compile_fused_stop(service);
    for (;;) {
        service->budget->until_ns = BUDGET_UNLIMITED;
        while (service->connections)
            connection_destroy(service->connections, "the device is closed");
        service_end_some(service);
        if (!service->compiles.busy)
            break;
        uv_run(service->loop, UV_RUN_ONCE); /* until compilers notice that they have no client any more */
    }
    handshakes_finish(&service->handshakes);
    link_in_finish(service);
    link_out_finish(service);
    names_finish(&service->names);
    worker_principal_forget_all(service);
    arena_finish(&service->arena);
    pending_reply_unreserve(service);
    engine_destroy(service->engine); /* before the async handle, which the engine's submitter uses */
    uv_close((uv_handle_t *)&service->async, NULL);
    uv_close((uv_handle_t *)&service->check, NULL);
    uv_close((uv_handle_t *)&service->idle, NULL);
    uv_close((uv_handle_t *)&service->timer, NULL);
    uv_close((uv_handle_t *)&service->alarm, NULL);
    uv_close((uv_handle_t *)&service->again, NULL);
}

void service_drain(struct service *service) {
    struct connection *connection = service->connections;
    if (service->draining)
        return;
    service->draining = true;
    service->drain_deadline_ms = clock_now_ms() + service->limits.drain_timeout_ms;
    while (connection) {
        struct connection *next = connection->next;
        connection_drain(connection);
        connection = next;
    }
    service_busy(service);
}

void service_fail(struct service *service, const struct fault *fault) {
    for (struct connection *connection = service->connections; connection; connection = connection->next)
        connection_give_up(connection, fault);
    service_flush(service);
}
