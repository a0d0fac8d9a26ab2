#include "server/worker/throttle.h"

#include "server/worker/connection.h"

void throttle_on_room(void *owner) {
    struct connection *connection = owner;
    connection->hold.room = false;
    service_mark_more(connection->service, connection);
    worker_principal_wake(connection->principal);
}

void throttle_on_staging(struct connection *connection) {
    connection->hold.staging = false;
    service_mark_more(connection->service, connection);
}

bool throttle_holds(struct connection *connection) {
    const struct limits *limits = &connection->principal->limits;
    uint64_t *refusals = connection->service->refusals, queued;
    if (connection->login == CONNECTION_LOGGING_IN)
        return true; /* Hello waits for the reply to the login */
    if (!connection->session)
        return false;
    queued = session_queued(connection->session);
    if (!connection->hold.room && queued > limits->session_operations) {
        connection->hold.room = true;
        refusals[REFUSAL_SESSION_OPERATIONS]++;
        session_notify_drained(connection->session, limits->session_operations / 2, throttle_on_room, connection);
    }
    if (!connection->hold.output && connection->out.cost > limits->session_out_bytes) {
        connection->hold.output = true;
        refusals[REFUSAL_SESSION_OUT_BYTES]++;
    }
    return worker_principal_over(connection, queued) || connection->hold.room || connection->hold.output ||
           connection->hold.staging;
}

void throttle_hold_rate(struct connection *connection) {
    if (connection->hold.rate)
        return;
    connection->hold.rate = true;
    connection->principal->throttled++;
    connection->service->refusals[REFUSAL_PRINCIPAL_RATE]++;
}

void throttle_let_rate(struct connection *connection) {
    connection->principal->throttled -= connection->hold.rate;
    connection->hold.rate = false;
}

void throttle_on_rate(struct connection *connection) {
    throttle_let_rate(connection);
    connection_read_on(connection);
    connection_watch(connection);
    connection_flush(connection); /* before reading takes all of it, or its client would hear nothing */
}
