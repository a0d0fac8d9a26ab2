#include "server/principal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/connection.h"

enum {
    PRINCIPAL_BURST_PART = 5,         /* this part of a second's bytes can be saved up, */
    PRINCIPAL_BURST_LEAST = 64 << 10, /* and at least so many bytes */
    PRINCIPAL_GRANT_LEAST = 4 << 10,  /* to each connection that waits, or they would only pass headers */
};
#define PRINCIPAL_SECOND_NS UINT64_C(1000000000)

/* ---- life ---- */

static void principal_set_limits(struct principal *principal, const struct limits *limits) {
    const struct tenant_limits tenant = {
        .bytes = limits->principal_bytes,
        .staging = limits->principal_staging,
        .weight = (uint32_t)limits->weight,
    };

    principal->limits = *limits;
    tenant_set_limits(principal->tenant, &tenant);
}

static uint64_t principal_burst(const struct principal *principal) {
    uint64_t part = principal->limits.principal_rate / PRINCIPAL_BURST_PART;

    return part > PRINCIPAL_BURST_LEAST ? part : PRINCIPAL_BURST_LEAST;
}

static int principal_create(struct service *service, const char *name, const struct limits *limits,
                            struct principal **result, struct fault *fault) {
    struct principal *principal = calloc(1, sizeof *principal);
    int status;

    if (!principal)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a principal");
    status = tenant_create(service->engine, name, &(struct tenant_limits){0}, &principal->tenant, fault);
    if (status) {
        free(principal);
        return status;
    }
    principal->service = service;
    snprintf(principal->name, sizeof principal->name, "%s", name);
    principal->refilled_ns = principal->measured_ns = service_now_ns();
    principal->limits = *limits;
    principal->tokens = (int64_t)principal_burst(principal);
    principal->next = service->principals;
    principal->previous = &service->principals;
    if (principal->next)
        principal->next->previous = &principal->next;
    service->principals = principal;
    *result = principal;
    return STATUS_OK;
}

int principal_join(struct service *service, const char *name, const struct limits *limits, struct principal **result,
                   struct fault *fault) {
    struct principal *principal = service->principals;
    int status;

    while (principal && strcmp(principal->name, name) != 0)
        principal = principal->next;
    if (!principal) {
        status = principal_create(service, name, limits, &principal, fault);
        if (status)
            return status;
    }
    principal_set_limits(principal, limits);
    principal->connections++;
    *result = principal;
    return STATUS_OK;
}

void principal_leave(struct principal *principal) {
    if (!principal || --principal->connections)
        return;
    *principal->previous = principal->next;
    if (principal->next)
        principal->next->previous = principal->previous;
    tenant_destroy(principal->tenant);
    free(principal);
}

/* ---- sessions ---- */

int principal_open_session(struct principal *principal, struct fault *fault) {
    uint64_t limit = principal->limits.principal_sessions;

    if (limit && principal->sessions >= limit) {
        principal->service->refusals[REFUSAL_PRINCIPAL_SESSIONS]++;
        return fault_set(fault, STATUS_LIMIT, "%s has %u sessions on %s, and may have no more than %" PRIu64,
                         principal->name, principal->sessions, principal->service->device, limit);
    }
    principal->sessions++;
    return STATUS_OK;
}

void principal_close_session(struct connection *connection) {
    struct principal *principal = connection->account;

    principal->sessions--;
    principal->operations -= connection->operations_seen;
    connection->operations_seen = 0;
    principal->waiting -= connection->wait_principal;
    connection->wait_principal = false;
    principal_wake(principal); /* there is its room now */
}

/* ---- operations in flight ---- */

static void principal_note(struct connection *connection, uint64_t queued) {
    struct principal *principal = connection->account;

    principal->operations += queued - connection->operations_seen;
    connection->operations_seen = queued;
}

static struct connection *principal_next(const struct principal *principal, struct connection *connection) {
    while (connection && (connection->account != principal || !connection->session))
        connection = connection->next;
    return connection;
}

/* Looks at each session; returns the one with most in flight. */
static struct connection *principal_look(struct principal *principal) {
    struct connection *fullest = NULL, *at = principal_next(principal, principal->service->connections);

    for (; at; at = principal_next(principal, at->next)) {
        principal_note(at, session_queued(at->session));
        if (!fullest || at->operations_seen > fullest->operations_seen)
            fullest = at;
    }
    return fullest;
}

static void principal_on_room(void *owner) {
    principal_wake(((struct connection *)owner)->account);
}

/* It waits for the fullest session to become half as full, unless that one's own connection waits for the same. */
static void principal_wait(struct connection *connection, struct connection *fullest) {
    struct principal *principal = connection->account;

    if (!connection->wait_principal)
        principal->service->refusals[REFUSAL_PRINCIPAL_OPERATIONS]++;
    principal->waiting += !connection->wait_principal;
    connection->wait_principal = true;
    if (!fullest->wait_room)
        session_notify_room(fullest->session, fullest->operations_seen / 2, principal_on_room, fullest);
}

bool principal_over(struct connection *connection, uint64_t queued) {
    struct principal *principal = connection->account;
    struct connection *fullest = NULL;

    principal_note(connection, queued);
    if (principal->operations > principal->limits.principal_operations)
        fullest = principal_look(principal);
    if (principal->operations > principal->limits.principal_operations) {
        principal_wait(connection, fullest);
        return true;
    }
    principal->waiting -= connection->wait_principal;
    connection->wait_principal = false;
    return false;
}

void principal_wake(struct principal *principal) {
    struct connection *at = principal->waiting ? principal_next(principal, principal->service->connections) : NULL;

    for (; at; at = principal_next(principal, at->next)) {
        if (!at->wait_principal)
            continue;
        at->wait_principal = false;
        service_mark_more(principal->service, at);
    }
    principal->waiting = 0;
}

/* ---- bytes a second ---- */

/* What was received before a drain is finished in its time, and last words leave at once. */
static bool principal_is_limited(const struct connection *connection) {
    return connection->account->limits.principal_rate && connection->state == CONNECTION_OPEN &&
           !connection->service->draining;
}

size_t principal_allowance(const struct connection *connection) {
    int64_t tokens = connection->account->tokens;

    if (!principal_is_limited(connection))
        return SIZE_MAX;
    if (connection->grant < tokens)
        tokens = connection->grant;
    return tokens > 0 ? (size_t)tokens : 0;
}

void principal_spend(struct connection *connection, size_t bytes) {
    struct principal *principal = connection->account;

    principal->bytes += bytes;
    if (!principal_is_limited(connection))
        return;
    principal->tokens -= (int64_t)bytes;
    connection->grant -= (int64_t)bytes;
}

static void principal_refill(struct principal *principal, uint64_t now_ns) {
    uint64_t rate = principal->limits.principal_rate, burst = principal_burst(principal);
    uint64_t ns = now_ns - principal->refilled_ns;

    if (ns > PRINCIPAL_SECOND_NS)
        ns = PRINCIPAL_SECOND_NS; /* more than fits in any case, and no overflow */
    principal->refilled_ns = now_ns;
    principal->tokens += (int64_t)((double)rate * (double)ns / (double)PRINCIPAL_SECOND_NS);
    if (principal->tokens > (int64_t)burst)
        principal->tokens = (int64_t)burst;
}

/* Those who wait get equal parts, so that the one that comes first does not take all. */
static void principal_grant(struct connection *connection) {
    struct principal *principal = connection->account;
    int64_t part = principal->tokens;

    if (principal->throttled > 1) {
        part /= principal->throttled;
        if (part < PRINCIPAL_GRANT_LEAST)
            part = PRINCIPAL_GRANT_LEAST;
    }
    connection->grant = part;
}

static void principal_measure_rate(struct principal *principal, uint64_t now_ns) {
    uint64_t ns = now_ns - principal->measured_ns;

    if (ns < PRINCIPAL_SECOND_NS)
        return;
    principal->bytes_per_s = (double)(principal->bytes - principal->measured) / ((double)ns / 1e9);
    principal->measured = principal->bytes;
    principal->measured_ns = now_ns;
}

void principal_measure(struct service *service, uint64_t now_ns) {
    for (struct connection *at = service->connections; at; at = at->next)
        if (at->session)
            principal_note(at, session_queued(at->session));
    for (struct principal *at = service->principals; at; at = at->next)
        principal_measure_rate(at, now_ns);
}

/* Those of one principal that wait for operations in flight, where nobody could be asked to tell. */
static void principal_recheck(struct principal *principal) {
    principal_look(principal);
    if (principal->operations <= principal->limits.principal_operations)
        principal_wake(principal);
}

void principal_tick(struct service *service, uint64_t now_ns) {
    for (struct principal *at = service->principals; at; at = at->next) {
        if (at->limits.principal_rate)
            principal_refill(at, now_ns);
        if (at->waiting)
            principal_recheck(at);
    }
    for (struct connection *c = service->connections; c; c = c->next)
        if (c->account->limits.principal_rate)
            principal_grant(c);
    for (struct connection *c = service->connections; c; c = c->next)
        if (c->wait_rate && principal_allowance(c) > 0)
            connection_on_rate(c);
}
