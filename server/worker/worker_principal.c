#include "server/worker/worker_principal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ops/counter.h"
#include "server/users/users.h"
#include "server/worker/connection.h"

enum {
    PRINCIPAL_BURST_PART = 5,         /* this part of a second's bytes can be saved up, */
    PRINCIPAL_BURST_LEAST = 64 << 10, /* and at least so many bytes */
    PRINCIPAL_GRANT_LEAST = 4 << 10,  /* for each connection that waits: with less it would only pass headers */
};
#define PRINCIPAL_SECOND_NS UINT64_C(1000000000)

/* ---- life ---- */

static void worker_principal_set_limits(struct worker_principal *principal, const struct limits *limits) {
    const struct tenant_limits tenant = {
        .bytes = limits->principal_bytes,
        .host_bytes = limits->principal_host_bytes,
        .staging = limits->principal_staging,
        .weight = (uint32_t)limits->weight,
        .operation_ns = limits->operation_time * 1000000,
    };
    principal->limits = *limits;
    tenant_set_limits(principal->tenant, &tenant);
}

static uint64_t worker_principal_burst(const struct worker_principal *principal) {
    uint64_t part = principal->limits.principal_rate / PRINCIPAL_BURST_PART;
    return part > PRINCIPAL_BURST_LEAST ? part : PRINCIPAL_BURST_LEAST;
}

/* The counts of a principal that has left: if it comes back its counts continue. */
struct worker_principal_past {
    struct worker_principal_past *next;
    char key[PRINCIPAL_NAME_BYTES];
    struct work_done work;
    uint64_t bytes;
};
enum { WORKER_PRINCIPAL_PASTS_MAX = 1024 /* the oldest goes */ };

static void worker_principal_remember(const struct worker_principal *principal) {
    struct worker_principal_past **link = &principal->service->pasts, *past = malloc(sizeof *past);
    unsigned count = 1;
    if (!past)
        return;
    *past = (struct worker_principal_past){.next = *link, .work = principal->ended, .bytes = principal->bytes};
    memcpy(past->key, principal->key, sizeof past->key);
    for (*link = past; *link && count <= WORKER_PRINCIPAL_PASTS_MAX; link = &(*link)->next)
        count++;
    past = *link;
    *link = NULL;
    free(past);
}

static void worker_principal_recall(struct worker_principal *principal) {
    struct worker_principal_past **link = &principal->service->pasts, *past;
    while (*link && strcmp((*link)->key, principal->key) != 0)
        link = &(*link)->next;
    past = *link;
    if (!past)
        return;
    principal->ended = principal->work = past->work;
    principal->bytes = principal->measured = past->bytes;
    *link = past->next;
    free(past);
}

void worker_principal_forget_all(struct service *service) {
    for (struct worker_principal_past *past = service->pasts, *next; past; past = next) {
        next = past->next;
        free(past);
    }
    service->pasts = NULL;
}

static int worker_principal_create(struct service *service, const char *key, const struct limits *limits,
                                   struct worker_principal **result, struct fault *fault) {
    struct worker_principal *principal = calloc(1, sizeof *principal);
    if (!principal)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a principal");
    int error =
        tenant_create(engine_memory(service->engine), key, &(struct tenant_limits){0}, &principal->tenant, fault);
    if (error) {
        free(principal);
        return error;
    }
    principal->service = service;
    TAILQ_INIT(&principal->publishes);
    snprintf(principal->key, sizeof principal->key, "%s", key);
    principal_key_name(key, principal->name);
    principal->refilled_ns = principal->measured_ns = clock_now_ns();
    worker_principal_recall(principal);
    principal->limits = *limits;
    principal->tokens = (int64_t)worker_principal_burst(principal);
    principal->next = service->principals;
    principal->previous = &service->principals;
    if (principal->next)
        principal->next->previous = &principal->next;
    service->principals = principal;
    *result = principal;
    return STATUS_OK;
}

int worker_principal_join(struct service *service, const char *key, const struct limits *limits,
                          struct worker_principal **result, struct fault *fault) {
    struct worker_principal *principal = service->principals;
    int error;
    while (principal && strcmp(principal->key, key) != 0)
        principal = principal->next;
    if (!principal) {
        error = worker_principal_create(service, key, limits, &principal, fault);
        if (error)
            return error;
    }
    worker_principal_set_limits(principal, limits);
    principal->connections++;
    *result = principal;
    return STATUS_OK;
}

static void worker_principal_set_session_limits(struct service *service, const struct worker_principal *principal) {
    const struct limits *limits = &principal->limits;
    for (struct connection *c = service->connections; c; c = c->next)
        if (c->principal == principal && c->session)
            session_set_limits(c->session, limits->session_bytes, limits->session_host_bytes,
                               (uint32_t)limits->session_tensors, (uint32_t)limits->session_streams);
}

void worker_principal_change_limits(struct service *service, const char *name, const struct limits *limits) {
    for (struct worker_principal *at = service->principals; at; at = at->next) {
        if (*name ? strcmp(at->name, name) != 0 : users_is_name(at->name))
            continue;
        struct limits now = *limits;
        if (now.principal_sessions == LIMITS_QUARTER && !at->limits.principal_sessions)
            now.principal_sessions = 0; /* an admin has no limit by default; a login sets it again */
        worker_principal_set_limits(at, &now);
        worker_principal_set_session_limits(service, at);
        worker_principal_wake(at);
    }
}

static void worker_principal_destroy_unused(struct worker_principal *principal) {
    if (principal->connections || principal->holders)
        return;
    worker_principal_remember(principal);
    *principal->previous = principal->next;
    if (principal->next)
        principal->next->previous = principal->previous;
    tenant_destroy(principal->tenant);
    free(principal);
}

void worker_principal_leave(struct worker_principal *principal) {
    if (!principal)
        return;
    principal->connections--;
    worker_principal_destroy_unused(principal);
}

int worker_principal_hold(struct service *service, const char *key, const struct limits *limits,
                          struct worker_principal **result, struct fault *fault) {
    struct worker_principal *principal = service->principals;
    while (principal && strcmp(principal->key, key) != 0)
        principal = principal->next;
    if (!principal) {
        int error = worker_principal_create(service, key, limits, &principal, fault);
        if (error)
            return error;
        worker_principal_set_limits(principal, limits);
    }
    principal->holders++;
    *result = principal;
    return STATUS_OK;
}

void worker_principal_retire(struct worker_principal *principal) {
    principal->connections--;
    principal->holders++;
}

void worker_principal_let_go(struct worker_principal *principal) {
    principal->holders--;
    worker_principal_destroy_unused(principal);
}

/* ---- sessions ---- */

int worker_principal_open_session(struct worker_principal *principal, struct fault *fault) {
    uint64_t limit = limits_of_places(principal->limits.principal_sessions, principal->service->limits.sessions);
    if (limit && principal->sessions >= limit) {
        principal->service->refusals[REFUSAL_PRINCIPAL_SESSIONS]++;
        return fault_set(fault, STATUS_LIMIT, "%s has %u session%s on %s, and may have no more than %" PRIu64,
                         principal->name, principal->sessions, principal->sessions == 1 ? "" : "s",
                         principal->service->device, limit);
    }
    principal->sessions++;
    return STATUS_OK;
}

static void work_done_add(struct work_done *to, const struct work_done *work) {
    to->ops += work->ops;
    to->device_ns += work->device_ns;
    to->failures += work->failures;
}

struct work_done work_done_of(const struct session_stats *stats) {
    struct work_done work = {.ops = stats->ops_done, .device_ns = stats->device_ns};
    for (unsigned code = 1; code < STATUS_COUNT; code++)
        work.failures += stats->failures[code];
    return work;
}

void work_rates_measure(struct work_rates *rates, const struct work_done *work, uint64_t now_ns) {
    uint64_t ns = now_ns - rates->measured_ns;
    double seconds = rates->measured_ns ? (double)ns / 1e9 : 0;
    if (rates->measured_ns && ns < PRINCIPAL_SECOND_NS)
        return;
    rates->ops_per_s = counter_rate(rates->measured.ops, work->ops, seconds);
    rates->device_ratio = counter_rate(rates->measured.device_ns, work->device_ns, seconds) / 1e9;
    rates->measured = *work;
    rates->measured_ns = now_ns;
}

void worker_principal_close_session(struct connection *connection, const struct work_done *work) {
    struct worker_principal *principal = connection->principal;
    work_done_add(&principal->ended, work);
    principal->sessions--;
    principal->operations -= connection->hold.operations;
    connection->hold.operations = 0;
    principal->waiting -= connection->hold.principal;
    connection->hold.principal = false;
    worker_principal_wake(principal); /* its operations have become room for others */
}

/* ---- operations in flight ---- */

static struct connection *worker_principal_next(const struct worker_principal *principal,
                                                struct connection *connection) {
    while (connection && (connection->principal != principal || !connection->session))
        connection = connection->next;
    return connection;
}

/* Counts each session's operations again; returns the connection with the most in flight. */
static struct connection *worker_principal_look(struct worker_principal *principal) {
    struct connection *fullest = NULL, *at = worker_principal_next(principal, principal->service->connections);
    for (; at; at = worker_principal_next(principal, at->next)) {
        worker_principal_count(principal, &at->hold.operations, session_queued(at->session));
        if (!fullest || at->hold.operations > fullest->hold.operations)
            fullest = at;
    }
    return fullest;
}

static void worker_principal_on_room(void *owner) {
    worker_principal_wake(((struct connection *)owner)->principal);
}

/* The connection waits until the fullest session is half as full, unless the fullest one waits for the same. */
static void worker_principal_wait(struct connection *connection, struct connection *fullest) {
    struct worker_principal *principal = connection->principal;
    if (!connection->hold.principal)
        principal->service->refusals[REFUSAL_PRINCIPAL_OPERATIONS]++;
    principal->waiting += !connection->hold.principal;
    connection->hold.principal = true;
    if (!fullest->hold.room)
        session_notify_drained(fullest->session, fullest->hold.operations / 2, worker_principal_on_room, fullest);
}

void worker_principal_hold_back(struct connection *connection) {
    struct worker_principal *principal = connection->principal;
    struct connection *fullest = NULL;
    if (principal->operations > principal->limits.principal_operations)
        fullest = worker_principal_look(principal);
    if (principal->operations > principal->limits.principal_operations) {
        worker_principal_wait(connection, fullest);
        return;
    }
    principal->waiting -= connection->hold.principal;
    connection->hold.principal = false;
}

void worker_principal_wake(struct worker_principal *principal) {
    struct connection *at =
        principal->waiting ? worker_principal_next(principal, principal->service->connections) : NULL;
    for (; at; at = worker_principal_next(principal, at->next)) {
        if (!at->hold.principal)
            continue;
        at->hold.principal = false;
        service_mark_more(principal->service, at);
    }
    principal->waiting = 0;
}

/* ---- bytes a second ---- */

/* Not during a drain, whose requests are finished in time, and not for last frames, which leave at once. */
static bool worker_principal_is_limited(const struct connection *connection) {
    return connection->principal->limits.principal_rate && connection->state == CONNECTION_OPEN &&
           !connection->service->draining;
}

size_t worker_principal_allowance(const struct connection *connection) {
    int64_t tokens = connection->principal->tokens;
    if (!worker_principal_is_limited(connection))
        return SIZE_MAX;
    if (connection->hold.grant < tokens)
        tokens = connection->hold.grant;
    return tokens > 0 ? (size_t)tokens : 0;
}

void worker_principal_spend(struct connection *connection, size_t bytes) {
    struct worker_principal *principal = connection->principal;
    principal->bytes += bytes;
    if (!worker_principal_is_limited(connection))
        return;
    principal->tokens -= (int64_t)bytes;
    connection->hold.grant -= (int64_t)bytes;
}

static void worker_principal_refill(struct worker_principal *principal, uint64_t now_ns) {
    uint64_t rate = principal->limits.principal_rate, burst = worker_principal_burst(principal);
    uint64_t ns = now_ns - principal->refilled_ns;
    if (ns > PRINCIPAL_SECOND_NS)
        ns = PRINCIPAL_SECOND_NS; /* more would not fit anyway, and could overflow */
    principal->refilled_ns = now_ns;
    principal->tokens += (int64_t)((double)rate * (double)ns / (double)PRINCIPAL_SECOND_NS);
    if (principal->tokens > (int64_t)burst)
        principal->tokens = (int64_t)burst;
}

/* Waiting connections get equal parts, so that the first one does not take all. */
static void worker_principal_grant(struct connection *connection) {
    struct worker_principal *principal = connection->principal;
    int64_t part = principal->tokens;
    if (principal->throttled > 1) {
        part /= principal->throttled;
        if (part < PRINCIPAL_GRANT_LEAST)
            part = PRINCIPAL_GRANT_LEAST;
    }
    connection->hold.grant = part;
}

static void worker_principal_measure_rate(struct worker_principal *principal, uint64_t now_ns) {
    uint64_t ns = now_ns - principal->measured_ns;
    if (ns < PRINCIPAL_SECOND_NS)
        return;
    principal->bytes_per_s = counter_rate(principal->measured, principal->bytes, (double)ns / 1e9);
    principal->measured = principal->bytes;
    principal->measured_ns = now_ns;
}

void worker_principal_measure(struct service *service, uint64_t now_ns) {
    for (struct connection *at = service->connections; at; at = at->next)
        if (at->session)
            worker_principal_count(at->principal, &at->hold.operations, session_queued(at->session));
    for (struct worker_principal *at = service->principals; at; at = at->next)
        worker_principal_measure_rate(at, now_ns);
}

/* Counts again: without memory the engine could not promise a call of worker_principal_on_room(). */
static void worker_principal_recheck(struct worker_principal *principal) {
    worker_principal_look(principal);
    if (principal->operations <= principal->limits.principal_operations)
        worker_principal_wake(principal);
}

void worker_principal_tick(struct service *service, uint64_t now_ns) {
    for (struct worker_principal *at = service->principals; at; at = at->next) {
        if (at->limits.principal_rate)
            worker_principal_refill(at, now_ns);
        if (at->waiting)
            worker_principal_recheck(at);
    }
    for (struct connection *c = service->connections; c; c = c->next)
        if (c->principal->limits.principal_rate)
            worker_principal_grant(c);
    for (struct connection *c = service->connections, *next; c; c = next) {
        next = c->next;
        if (c->hold.rate && worker_principal_allowance(c) > 0)
            throttle_on_rate(c);
    }
}
