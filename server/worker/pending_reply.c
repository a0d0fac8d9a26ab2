#include "server/worker/pending_reply.h"

#include <stdlib.h>
#include <string.h>

#include "proto/ops/kernel.h"
#include "proto/wire/batch.h"
#include "server/worker/compile.h"
#include "server/worker/connection.h"
#include "server/worker/publish.h"

void pending_reply_print(const struct connection *connection, const struct reply *reply) {
    struct frame_header header;
    if (connection->service->wire &&
        frame_header_decode(reply->head, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, NULL) == STATUS_OK)
        wire_print(stderr, "->", &header, reply->head + FRAME_HEADER_BYTES);
}

void pending_reply_charge(struct connection *connection, uint64_t cost) {
    connection->out.cost += cost;
    connection_count_host(connection);
}

void pending_reply_discharge(struct connection *connection, uint64_t cost) {
    connection->out.cost -= cost;
    connection_count_host(connection);
    if (connection->hold.output && connection->out.cost <= connection->principal->limits.session_out_bytes / 2) {
        connection->hold.output = false;
        service_mark_more(connection->service, connection);
    }
}

/* The cost of fetching tensor `id`: its size, but never more than a quarter of the window of reply bytes, so that
 * requests are still read while a large tensor is on its way. (The bytes themselves are the session's own device
 * memory, which is limited elsewhere.) */
static uint64_t pending_reply_fetch_cost(const struct connection *connection, uint64_t id) {
    uint64_t most = connection->principal->limits.session_out_bytes / 4, bytes = 0;
    struct tensor_type type;
    if (session_type(connection->session, id, &type))
        bytes = (uint64_t)type_bytes(&type);
    return bytes < most ? bytes : most;
}

/* Queues the reply that has been put into `pending`. */
static void pending_reply_queue(struct pending_reply *pending) {
    struct connection *connection = pending->connection;
    pending_reply_print(connection, &pending->reply);
    if (pending->once)
        outcome_remember(&connection->lease.outcomes, &pending->reply);
    reply_queue_add(&connection->out.queue, &pending->reply);
    service_mark_dirty(connection->service, connection);
}

static void pending_reply_unlink(struct pending_reply *pending) {
    if (pending->connection->request.publishing == pending)
        pending->connection->request.publishing = NULL;
    if (!pending->previous)
        return;
    *pending->previous = pending->next;
    if (pending->next)
        pending->next->previous = pending->previous;
    pending->previous = NULL;
}

/* If the service has no spare reply, it keeps this one: a connection that ends because there is no memory must be able
 * to say so. */
static void pending_reply_free(struct service *service, struct pending_reply *pending) {
    if (service->spare)
        free(pending);
    else
        service->spare = pending;
}

/* A client that has lost its connection will ask for the same kernel again, so its compilation may continue. */
static void pending_reply_drop_compile(struct pending_reply *pending) {
    const struct connection *connection = pending->connection;
    if (connection->state != CONNECTION_OPEN || !connection->end.unplugging || !compile_leave(pending->compile))
        compile_let_go(pending->compile);
}

static void pending_reply_destroy(struct pending_reply *pending) {
    pending->connection->out.values -= pending->values;
    if (pending->kind == PENDING_FETCH)
        feed_finish(&pending->feed);
    else if (pending->kind == PENDING_WAIT && pending->previous)
        wait_cancel(&pending->wait);
    else if (pending->kind == PENDING_COMPILE)
        pending_reply_drop_compile(pending);
    else if (pending->kind == PENDING_PUBLISH)
        publish_destroy(pending->publish);
    else if (pending->kind == PENDING_SAVED)
        state_wait_cancel(&pending->saved);
    else if (pending->kind == PENDING_DATA)
        free(pending->data);
    pending_reply_unlink(pending);
    pending_reply_discharge(pending->connection, pending->cost);
    pending_reply_free(pending->connection->service, pending);
}

static void pending_reply_sent(struct reply *reply) {
    struct pending_reply *pending = (struct pending_reply *)((char *)reply - offsetof(struct pending_reply, reply));
    /* A whole value was sent. (A failure has no bytes, and a reply that was dropped has not reached its total.) */
    if (pending->kind == PENDING_FETCH && reply->total && reply->offset >= reply->total)
        histogram_add(&pending->connection->service->fetch_time, clock_now_ns() - pending->asked_ns, 1);
    pending_reply_destroy(pending);
}

static void pending_reply_init(struct pending_reply *pending, struct connection *connection, int kind,
                               uint64_t sequence, uint64_t bytes) {
    memset((char *)pending + sizeof pending->reply, 0, sizeof *pending - sizeof pending->reply);
    pending->reply.sent = pending_reply_sent;
    pending->connection = connection;
    pending->once = connection->lease.once;
    pending->kind = kind;
    pending->sequence = sequence;
    pending->cost = sizeof *pending + bytes;
    pending->values = kind == PENDING_FETCH ? bytes : 0;
    connection->out.values += pending->values;
    pending_reply_charge(connection, pending->cost);
}

static struct pending_reply *pending_reply_create(struct connection *connection, int kind, uint64_t sequence,
                                                  uint64_t bytes) {
    struct pending_reply *pending = malloc(sizeof *pending);
    if (pending)
        pending_reply_init(pending, connection, kind, sequence, bytes);
    return pending;
}

static void pending_reply_link(struct pending_reply *pending) {
    struct connection *connection = pending->connection;
    pending->next = connection->out.pending;
    pending->previous = &connection->out.pending;
    if (pending->next)
        pending->next->previous = &pending->next;
    connection->out.pending = pending;
}

int pending_reply_message(struct connection *connection, unsigned type, uint64_t sequence,
                          const ProtobufCMessage *message) {
    struct pending_reply *pending = pending_reply_create(connection, PENDING_PLAIN, sequence, 0);
    if (!pending)
        return STATUS_NO_HOST_MEMORY;
    reply_message(&pending->reply, type, sequence, message);
    pending_reply_queue(pending);
    return STATUS_OK;
}

int pending_reply_outcome(struct connection *connection, const struct outcome *outcome) {
    struct pending_reply *pending = pending_reply_create(connection, PENDING_PLAIN, outcome->sequence, 0);
    if (!pending)
        return STATUS_NO_HOST_MEMORY;
    reply_frame(&pending->reply, outcome->type, outcome->sequence, outcome->frame, outcome->bytes);
    pending_reply_queue(pending);
    return STATUS_OK;
}

int pending_reply_fault(struct connection *connection, unsigned type, uint64_t sequence, const struct fault *fault) {
    struct pending_reply *pending = pending_reply_create(connection, PENDING_PLAIN, sequence, 0);
    if (!pending)
        return STATUS_NO_HOST_MEMORY;
    reply_fault(&pending->reply, type, sequence, fault);
    pending_reply_queue(pending);
    return STATUS_OK;
}

struct pending_reply *pending_reply_last(struct connection *connection, const struct fault *fault) {
    struct service *service = connection->service;
    struct pending_reply *pending = pending_reply_create(connection, PENDING_PLAIN, 0, 0);
    if (!pending && service->spare) {
        pending = service->spare;
        service->spare = NULL;
        pending_reply_init(pending, connection, PENDING_PLAIN, 0, 0);
    }
    if (pending)
        reply_fault(&pending->reply, FRAME_ERROR, 0, fault);
    return pending;
}

static void pending_reply_came(struct feed *feed, const struct failure *failure) {
    struct pending_reply *pending = (struct pending_reply *)((char *)feed - offsetof(struct pending_reply, feed));
    pending_reply_unlink(pending);
    if (failure) {
        reply_failure(&pending->reply, FRAME_FETCH_CHUNK, pending->sequence, failure);
    } else if (!pending->begun) {
        feed_reply(feed, &pending->reply, FRAME_FETCH_CHUNK, pending->sequence);
    } else {
        feed_reply_next(feed, &pending->reply);
    }
    pending->begun = true;
    pending_reply_queue(pending);
}

static void pending_reply_hungry(struct reply *reply) {
    struct pending_reply *pending = (struct pending_reply *)((char *)reply - offsetof(struct pending_reply, reply));
    switch (feed_next(&pending->feed)) {
    case FEED_READY:
        feed_reply_next(&pending->feed, reply);
        pending_reply_queue(pending);
        return;
    case FEED_FAILED:
        reply_failure(reply, FRAME_FETCH_CHUNK, pending->sequence, &pending->feed.failure);
        pending_reply_queue(pending);
        return;
    case FEED_WAITING:
        pending_reply_link(pending);
    }
}

int pending_reply_fetch(struct connection *connection, uint64_t sequence, uint64_t id, uint64_t offset) {
    struct pending_reply *pending =
        pending_reply_create(connection, PENDING_FETCH, sequence, pending_reply_fetch_cost(connection, id));
    if (!pending)
        return STATUS_NO_HOST_MEMORY;
    pending->asked_ns = clock_now_ns();
    pending->reply.hungry = pending_reply_hungry;
    pending->feed.came = pending_reply_came;
    pending->feed.from = offset < INT64_MAX ? (int64_t)offset : INT64_MAX;
    pending_reply_link(pending);
    if (feed_start(&pending->feed, connection->session, id) == STATUS_OK)
        return STATUS_OK;
    pending_reply_destroy(pending);
    return STATUS_AGAIN;
}

void pending_reply_done(struct pending_reply *pending, const struct failure *failure) {
    const Tensord__Done done = TENSORD__DONE__INIT;
    pending_reply_unlink(pending);
    if (failure)
        reply_failure(&pending->reply, FRAME_DONE, pending->sequence, failure);
    else
        reply_message(&pending->reply, FRAME_DONE, pending->sequence, &done.base);
    pending_reply_queue(pending);
}

static void pending_reply_waited(struct wait *wait, const struct failure *failure) {
    pending_reply_done((struct pending_reply *)((char *)wait - offsetof(struct pending_reply, wait)), failure);
}

int pending_reply_wait(struct connection *connection, uint64_t sequence, uint64_t id) {
    struct pending_reply *pending = pending_reply_create(connection, PENDING_WAIT, sequence, 0);
    if (!pending)
        return STATUS_NO_HOST_MEMORY;
    pending->wait.done = pending_reply_waited;
    pending_reply_link(pending);
    session_wait(connection->session, id, &pending->wait);
    return STATUS_OK;
}

int pending_reply_compile(struct connection *connection, uint64_t sequence, uint64_t kernel, const char *source,
                          const char *name) {
    struct pending_reply *pending = pending_reply_create(connection, PENDING_COMPILE, sequence, strlen(source));
    struct fault fault;
    if (!pending)
        return STATUS_NO_HOST_MEMORY;
    if (compile_start(pending, kernel, source, name, &pending->compile, &fault) == STATUS_OK) {
        pending_reply_link(pending);
        return STATUS_OK;
    }
    pending->kind = PENDING_PLAIN;
    reply_fault(&pending->reply, FRAME_KERNEL_COMPILED, sequence, &fault);
    pending_reply_queue(pending);
    return STATUS_OK;
}

/* Cuts the log to the bytes that are sent, and charges them; frees the source unless the cache needs it. Returns the
 * log's bytes. */
static size_t pending_reply_keep_log(struct pending_reply *pending, struct kernel_job *job) {
    size_t bytes = job->log ? strlen(job->log) : 0;
    if (bytes > KERNEL_LOG_MAX) {
        char *cut = realloc(job->log, KERNEL_LOG_MAX + 1);
        bytes = KERNEL_LOG_MAX;
        if (cut)
            job->log = cut;
        job->log[bytes] = 0;
    }
    if (!job->code) {
        free(job->source);
        job->source = NULL;
    }
    pending->cost += bytes;
    pending_reply_charge(pending->connection, bytes);
    return bytes;
}

void pending_reply_compiled(struct pending_reply *pending) {
    struct kernel_job *job = &pending->compile->job;
    Tensord__KernelCompiled compiled = TENSORD__KERNEL_COMPILED__INIT;
    Tensord__Error error = TENSORD__ERROR__INIT;
    struct fault fault;
    size_t log = pending_reply_keep_log(pending, job);
    pending_reply_unlink(pending);
    if (kernel_job_bind(job, pending->connection->session, pending->compile->kernel, &fault) != STATUS_OK) {
        error.code = fault.code;
        error.message = fault.message;
        error.operation = "kernel";
        compiled.error = &error;
    }
    reply_message_data(&pending->reply, FRAME_KERNEL_COMPILED, pending->sequence, &compiled.base, (uint8_t *)job->log,
                       log);
    pending_reply_queue(pending);
}

int pending_reply_reserve(struct service *service) {
    service->spare = malloc(sizeof *service->spare);
    return service->spare ? STATUS_OK : STATUS_NO_HOST_MEMORY;
}

void pending_reply_unreserve(struct service *service) {
    free(service->spare);
    service->spare = NULL;
}

int pending_reply_publish(struct connection *connection, uint64_t sequence, const Tensord__Publish *message) {
    struct pending_reply *pending = pending_reply_create(connection, PENDING_PUBLISH, sequence, publish_cost(message));
    if (!pending)
        return STATUS_NO_HOST_MEMORY;
    pending_reply_link(pending);
    pending->publish = publish_create(pending, message);
    if (!pending->publish) {
        pending_reply_destroy(pending);
        return STATUS_NO_HOST_MEMORY;
    }
    connection->request.publishing = pending;
    return pending_reply_publish_on(connection);
}

int pending_reply_publish_on(struct connection *connection) {
    struct publish *publish = connection->request.publishing->publish;
    if (publish_hold_some(publish) == STATUS_AGAIN)
        return STATUS_AGAIN;
    connection->request.publishing = NULL;
    publish_step(publish);
    return STATUS_OK;
}

static void pending_reply_on_saved(struct state_wait *wait, const struct fault *fault) {
    struct failure failure;
    if (fault)
        cause_set(&failure, fault);
    pending_reply_done((struct pending_reply *)((char *)wait - offsetof(struct pending_reply, saved)),
                       fault ? &failure : NULL);
}

void pending_reply_changed(struct pending_reply *pending, const char *principal) {
    if (pending->once)
        outcome_changed(&pending->connection->lease.outcomes, pending->sequence, principal);
}

int pending_reply_saved(struct connection *connection, uint64_t sequence, const char *principal) {
    struct pending_reply *pending = pending_reply_create(connection, PENDING_SAVED, sequence, 0);
    if (!pending)
        return STATUS_NO_HOST_MEMORY;
    pending->saved.done = pending_reply_on_saved;
    pending_reply_link(pending);
    if (names_wait(&connection->service->names, principal, &pending->saved))
        pending_reply_changed(pending, principal);
    else
        pending_reply_done(pending, NULL);
    return STATUS_OK;
}

int pending_reply_data(struct connection *connection, unsigned type, uint64_t sequence, const ProtobufCMessage *message,
                       uint8_t *data, size_t bytes) {
    struct pending_reply *pending = pending_reply_create(connection, PENDING_DATA, sequence, bytes);
    if (!pending) {
        free(data);
        return STATUS_NO_HOST_MEMORY;
    }
    pending->data = data;
    reply_message_data(&pending->reply, type, sequence, message, data, bytes);
    pending_reply_queue(pending);
    return STATUS_OK;
}

bool pending_reply_cancel_some(struct connection *connection) {
    while (connection->out.pending) {
        pending_reply_destroy(connection->out.pending);
        if (budget_spent(connection->service->budget, CONNECTION_REPLY_STEPS))
            break;
    }
    return !connection->out.pending;
}

void pending_reply_fail(struct connection *connection, const struct fault *fault) {
    struct pending_reply *pending = connection->out.pending;
    unsigned type = FRAME_DONE;
    if (pending->kind == PENDING_FETCH) {
        type = FRAME_FETCH_CHUNK;
        feed_finish(&pending->feed);
    } else if (pending->kind == PENDING_COMPILE) {
        type = FRAME_KERNEL_COMPILED;
        compile_let_go(pending->compile);
    } else if (pending->kind == PENDING_PUBLISH) {
        publish_destroy(pending->publish);
    } else if (pending->kind == PENDING_SAVED) {
        state_wait_cancel(&pending->saved);
    } else {
        wait_cancel(&pending->wait);
    }
    pending_reply_unlink(pending);
    pending->kind = PENDING_PLAIN;
    reply_fault(&pending->reply, type, pending->sequence, fault);
    pending_reply_queue(pending);
}
