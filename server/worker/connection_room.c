/* What holds a connection up: operations in flight, replies, staging memory, and its rate. */
#include "server/worker/connection_impl.h"

#include "engine/memory/host.h"

void connection_on_room(void *owner) {
    struct connection *connection = owner;

    connection->wait_room = false;
    service_mark_more(connection->service, connection);
    account_wake(connection->account);
}

void connection_on_staging(struct connection *connection) {
    connection->wait_staging = false;
    service_mark_more(connection->service, connection);
}

bool connection_over(struct connection *connection) {
    const struct limits *limits = &connection->account->limits;
    uint64_t *refusals = connection->service->refusals, queued;

    if (connection->login == CONNECTION_LOGGING_IN)
        return true; /* Hello waits for the answer */
    if (!connection->session)
        return false;
    queued = session_queued(connection->session);
    if (!connection->wait_room && queued > limits->session_operations) {
        connection->wait_room = true;
        refusals[REFUSAL_SESSION_OPERATIONS]++;
        session_notify_room(connection->session, limits->session_operations / 2, connection_on_room, connection);
    }
    if (!connection->wait_output && connection->out_cost > limits->session_out_bytes) {
        connection->wait_output = true;
        refusals[REFUSAL_SESSION_OUT_BYTES]++;
    }
    return account_over(connection, queued) || connection->wait_room || connection->wait_output ||
           connection->wait_staging;
}

uint64_t connection_fetch_cost(const struct connection *connection, uint64_t id) {
    uint64_t most = connection->account->limits.session_out_bytes / 4, bytes = 0;
    struct tensor_type type;

    if (session_type(connection->session, id, &type))
        bytes = (uint64_t)type_bytes(&type);
    return bytes < most ? bytes : most;
}

void connection_count_host(struct connection *connection) {
    uint64_t bytes = sizeof *connection + connection->reader.capacity + connection->lease.cut.capacity;

    if (!connection->session || bytes == connection->host)
        return;
    host_give(connection->session, connection->host);
    host_note(connection->session, bytes);
    connection->host = bytes;
}

void connection_charge(struct connection *connection, uint64_t cost) {
    connection->out_cost += cost;
}

void connection_discharge(struct connection *connection, uint64_t cost) {
    connection->out_cost -= cost;
    if (connection->wait_output && connection->out_cost <= connection->account->limits.session_out_bytes / 2) {
        connection->wait_output = false;
        service_mark_more(connection->service, connection);
    }
}

void connection_hold_rate(struct connection *connection) {
    if (connection->wait_rate)
        return;
    connection->wait_rate = true;
    connection->account->throttled++;
    connection->service->refusals[REFUSAL_PRINCIPAL_RATE]++;
}

void connection_let_rate(struct connection *connection) {
    connection->account->throttled -= connection->wait_rate;
    connection->wait_rate = false;
}

void connection_keep_reading(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN && !connection->reader.paused && !connection->wait_rate &&
        transport_more(&connection->transport))
        service_mark_more(connection->service, connection);
}

void connection_on_rate(struct connection *connection) {
    connection_let_rate(connection);
    connection_keep_reading(connection);
    connection_watch(connection);
    connection_flush(connection); /* before reading takes all of it, or its client would hear nothing */
}
