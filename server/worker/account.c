#include "server/worker/account.h"

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
    PRINCIPAL_GRANT_LEAST = 4 << 10,  /* to each connection that waits, or they would only pass headers */
};
#define PRINCIPAL_SECOND_NS UINT64_C(1000000000)

/* ---- life ---- */

static void account_set_limits(struct account *account, const struct limits *limits) {
    const struct tenant_limits tenant = {
        .bytes = limits->principal_bytes,
        .host_bytes = limits->principal_host_bytes,
        .staging = limits->principal_staging,
        .weight = (uint32_t)limits->weight,
        .operation_ns = limits->operation_time * 1000000,
    };
    account->limits = *limits;
    tenant_set_limits(account->tenant, &tenant);
}

static uint64_t account_burst(const struct account *account) {
    uint64_t part = account->limits.principal_rate / PRINCIPAL_BURST_PART;
    return part > PRINCIPAL_BURST_LEAST ? part : PRINCIPAL_BURST_LEAST;
}

/* Of principals that have left, so that what is counted of them does not begin anew when they come back. */
struct account_past {
    struct account_past *next;
    char key[PRINCIPAL_NAME_BYTES];
    struct account_work work;
    uint64_t bytes;
};
enum { ACCOUNT_PASTS_MAX = 1024 /* the oldest goes */ };

static void account_remember(const struct account *account) {
    struct account_past **link = &account->service->pasts, *past = malloc(sizeof *past);
    unsigned count = 1;
    if (!past)
        return;
    *past = (struct account_past){.next = *link, .work = account->ended, .bytes = account->bytes};
    memcpy(past->key, account->key, sizeof past->key);
    for (*link = past; *link && count <= ACCOUNT_PASTS_MAX; link = &(*link)->next)
        count++;
    past = *link;
    *link = NULL;
    free(past);
}

static void account_recall(struct account *account) {
    struct account_past **link = &account->service->pasts, *past;
    while (*link && strcmp((*link)->key, account->key) != 0)
        link = &(*link)->next;
    past = *link;
    if (!past)
        return;
    account->ended = account->work = past->work;
    account->bytes = account->measured = past->bytes;
    *link = past->next;
    free(past);
}

void account_forget_all(struct service *service) {
    for (struct account_past *past = service->pasts, *next; past; past = next) {
        next = past->next;
        free(past);
    }
    service->pasts = NULL;
}

static int account_create(struct service *service, const char *key, const struct limits *limits,
                          struct account **result, struct fault *fault) {
    struct account *account = calloc(1, sizeof *account);
    int status;
    if (!account)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a principal");
    status = tenant_create(service->engine, key, &(struct tenant_limits){0}, &account->tenant, fault);
    if (status) {
        free(account);
        return status;
    }
    account->service = service;
    snprintf(account->key, sizeof account->key, "%s", key);
    principal_key_name(key, account->name);
    account->refilled_ns = account->measured_ns = clock_now_ns();
    account_recall(account);
    account->limits = *limits;
    account->tokens = (int64_t)account_burst(account);
    account->next = service->accounts;
    account->previous = &service->accounts;
    if (account->next)
        account->next->previous = &account->next;
    service->accounts = account;
    *result = account;
    return STATUS_OK;
}

int account_join(struct service *service, const char *key, const struct limits *limits, struct account **result,
                 struct fault *fault) {
    struct account *account = service->accounts;
    int status;
    while (account && strcmp(account->key, key) != 0)
        account = account->next;
    if (!account) {
        status = account_create(service, key, limits, &account, fault);
        if (status)
            return status;
    }
    account_set_limits(account, limits);
    account->connections++;
    *result = account;
    return STATUS_OK;
}

static void account_set_session_limits(struct service *service, const struct account *account) {
    const struct limits *limits = &account->limits;
    for (struct connection *c = service->connections; c; c = c->next)
        if (c->account == account && c->session)
            session_set_limits(c->session, limits->session_bytes, limits->session_host_bytes,
                               (uint32_t)limits->session_tensors, (uint32_t)limits->session_streams);
}

void account_change_limits(struct service *service, const char *name, const struct limits *limits) {
    for (struct account *at = service->accounts; at; at = at->next) {
        if (*name ? strcmp(at->name, name) != 0 : users_is_name(at->name))
            continue;
        struct limits now = *limits;
        if (now.principal_sessions == LIMITS_QUARTER && !at->limits.principal_sessions)
            now.principal_sessions = 0; /* an admin's, by default; a login sets it again */
        account_set_limits(at, &now);
        account_set_session_limits(service, at);
        account_wake(at);
    }
}

static void account_destroy_unused(struct account *account) {
    if (account->connections || account->kept)
        return;
    account_remember(account);
    *account->previous = account->next;
    if (account->next)
        account->next->previous = account->previous;
    tenant_destroy(account->tenant);
    free(account);
}

void account_leave(struct account *account) {
    if (!account)
        return;
    account->connections--;
    account_destroy_unused(account);
}

int account_keep(struct service *service, const char *key, const struct limits *limits, struct account **result,
                 struct fault *fault) {
    struct account *account = service->accounts;
    while (account && strcmp(account->key, key) != 0)
        account = account->next;
    if (!account) {
        int status = account_create(service, key, limits, &account, fault);
        if (status)
            return status;
        account_set_limits(account, limits);
    }
    account->kept++;
    *result = account;
    return STATUS_OK;
}

void account_retire(struct account *account) {
    account->connections--;
    account->kept++;
}

void account_let_go(struct account *account) {
    account->kept--;
    account_destroy_unused(account);
}

/* ---- sessions ---- */

int account_open_session(struct account *account, struct fault *fault) {
    uint64_t limit = limits_of_places(account->limits.principal_sessions, account->service->limits.sessions);
    if (limit && account->sessions >= limit) {
        account->service->refusals[REFUSAL_PRINCIPAL_SESSIONS]++;
        return fault_set(fault, STATUS_LIMIT, "%s has %u session%s on %s, and may have no more than %" PRIu64,
                         account->name, account->sessions, account->sessions == 1 ? "" : "s", account->service->device,
                         limit);
    }
    account->sessions++;
    return STATUS_OK;
}

static void account_add_work(struct account_work *to, const struct account_work *work) {
    to->ops += work->ops;
    to->device_ns += work->device_ns;
    to->failures += work->failures;
}

struct account_work account_work_of(const struct session_stats *stats) {
    struct account_work work = {.ops = stats->ops_done, .device_ns = stats->device_ns};
    for (unsigned code = 1; code < STATUS_COUNT; code++)
        work.failures += stats->failures[code];
    return work;
}

void account_measure_work(struct account_rates *rates, const struct account_work *work, uint64_t now_ns) {
    uint64_t ns = now_ns - rates->measured_ns;
    double seconds = rates->measured_ns ? (double)ns / 1e9 : 0;
    if (rates->measured_ns && ns < PRINCIPAL_SECOND_NS)
        return;
    rates->ops_per_s = counter_rate(rates->measured.ops, work->ops, seconds);
    rates->device_ratio = counter_rate(rates->measured.device_ns, work->device_ns, seconds) / 1e9;
    rates->measured = *work;
    rates->measured_ns = now_ns;
}

void account_close_session(struct connection *connection, const struct account_work *work) {
    struct account *account = connection->account;
    account_add_work(&account->ended, work);
    account->sessions--;
    account->operations -= connection->hold.operations;
    connection->hold.operations = 0;
    account->waiting -= connection->hold.principal;
    connection->hold.principal = false;
    account_wake(account); /* there is its room now */
}

/* ---- operations in flight ---- */

static void account_note(struct connection *connection, uint64_t queued) {
    struct account *account = connection->account;
    account->operations += queued - connection->hold.operations;
    connection->hold.operations = queued;
}

static struct connection *account_next(const struct account *account, struct connection *connection) {
    while (connection && (connection->account != account || !connection->session))
        connection = connection->next;
    return connection;
}

/* Looks at each session; returns the one with most in flight. */
static struct connection *account_look(struct account *account) {
    struct connection *fullest = NULL, *at = account_next(account, account->service->connections);
    for (; at; at = account_next(account, at->next)) {
        account_note(at, session_queued(at->session));
        if (!fullest || at->hold.operations > fullest->hold.operations)
            fullest = at;
    }
    return fullest;
}

static void account_on_room(void *owner) {
    account_wake(((struct connection *)owner)->account);
}

/* It waits for the fullest session to become half as full, unless that one's own connection waits for the same. */
static void account_wait(struct connection *connection, struct connection *fullest) {
    struct account *account = connection->account;
    if (!connection->hold.principal)
        account->service->refusals[REFUSAL_PRINCIPAL_OPERATIONS]++;
    account->waiting += !connection->hold.principal;
    connection->hold.principal = true;
    if (!fullest->hold.room)
        session_notify_room(fullest->session, fullest->hold.operations / 2, account_on_room, fullest);
}

bool account_over(struct connection *connection, uint64_t queued) {
    struct account *account = connection->account;
    struct connection *fullest = NULL;
    account_note(connection, queued);
    if (account->operations > account->limits.principal_operations)
        fullest = account_look(account);
    if (account->operations > account->limits.principal_operations) {
        account_wait(connection, fullest);
        return true;
    }
    account->waiting -= connection->hold.principal;
    connection->hold.principal = false;
    return false;
}

void account_wake(struct account *account) {
    struct connection *at = account->waiting ? account_next(account, account->service->connections) : NULL;
    for (; at; at = account_next(account, at->next)) {
        if (!at->hold.principal)
            continue;
        at->hold.principal = false;
        service_mark_more(account->service, at);
    }
    account->waiting = 0;
}

/* ---- bytes a second ---- */

/* What was received before a drain is finished in its time, and last words leave at once. */
static bool account_is_limited(const struct connection *connection) {
    return connection->account->limits.principal_rate && connection->state == CONNECTION_OPEN &&
           !connection->service->draining;
}

size_t account_allowance(const struct connection *connection) {
    int64_t tokens = connection->account->tokens;
    if (!account_is_limited(connection))
        return SIZE_MAX;
    if (connection->hold.grant < tokens)
        tokens = connection->hold.grant;
    return tokens > 0 ? (size_t)tokens : 0;
}

void account_spend(struct connection *connection, size_t bytes) {
    struct account *account = connection->account;
    account->bytes += bytes;
    if (!account_is_limited(connection))
        return;
    account->tokens -= (int64_t)bytes;
    connection->hold.grant -= (int64_t)bytes;
}

static void account_refill(struct account *account, uint64_t now_ns) {
    uint64_t rate = account->limits.principal_rate, burst = account_burst(account);
    uint64_t ns = now_ns - account->refilled_ns;
    if (ns > PRINCIPAL_SECOND_NS)
        ns = PRINCIPAL_SECOND_NS; /* more than fits in any case, and no overflow */
    account->refilled_ns = now_ns;
    account->tokens += (int64_t)((double)rate * (double)ns / (double)PRINCIPAL_SECOND_NS);
    if (account->tokens > (int64_t)burst)
        account->tokens = (int64_t)burst;
}

/* Those who wait get equal parts, so that the one that comes first does not take all. */
static void account_grant(struct connection *connection) {
    struct account *account = connection->account;
    int64_t part = account->tokens;
    if (account->throttled > 1) {
        part /= account->throttled;
        if (part < PRINCIPAL_GRANT_LEAST)
            part = PRINCIPAL_GRANT_LEAST;
    }
    connection->hold.grant = part;
}

static void account_measure_rate(struct account *account, uint64_t now_ns) {
    uint64_t ns = now_ns - account->measured_ns;
    if (ns < PRINCIPAL_SECOND_NS)
        return;
    account->bytes_per_s = counter_rate(account->measured, account->bytes, (double)ns / 1e9);
    account->measured = account->bytes;
    account->measured_ns = now_ns;
}

void account_measure(struct service *service, uint64_t now_ns) {
    for (struct connection *at = service->connections; at; at = at->next)
        if (at->session)
            account_note(at, session_queued(at->session));
    for (struct account *at = service->accounts; at; at = at->next)
        account_measure_rate(at, now_ns);
}

/* Those of one principal that wait for operations in flight, where nobody could be asked to tell. */
static void account_recheck(struct account *account) {
    account_look(account);
    if (account->operations <= account->limits.principal_operations)
        account_wake(account);
}

void account_tick(struct service *service, uint64_t now_ns) {
    for (struct account *at = service->accounts; at; at = at->next) {
        if (at->limits.principal_rate)
            account_refill(at, now_ns);
        if (at->waiting)
            account_recheck(at);
    }
    for (struct connection *c = service->connections; c; c = c->next)
        if (c->account->limits.principal_rate)
            account_grant(c);
    for (struct connection *c = service->connections, *next; c; c = next) {
        next = c->next;
        if (c->hold.rate && account_allowance(c) > 0)
            throttle_on_rate(c);
    }
}
