#include "server/worker/answer.h"

#include <stdlib.h>
#include <string.h>

#include "proto/ops/kernel.h"
#include "proto/wire/batch.h"
#include "server/worker/compile.h"
#include "server/worker/connection.h"
#include "server/worker/publish.h"

void answer_print(const struct connection *connection, const struct reply *reply) {
    struct frame_header header;

    if (connection->service->wire &&
        frame_header_decode(reply->head, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, NULL) == STATUS_OK)
        wire_print(stderr, "->", &header, reply->head + FRAME_HEADER_BYTES);
}

void answer_charge(struct connection *connection, uint64_t cost) {
    connection->out.cost += cost;
}

void answer_discharge(struct connection *connection, uint64_t cost) {
    connection->out.cost -= cost;
    if (connection->hold.output && connection->out.cost <= connection->principal->limits.session_out_bytes / 2) {
        connection->hold.output = false;
        service_mark_more(connection->service, connection);
    }
}

/* The cost of fetching tensor `id`: its size, but never more than a quarter of the window of reply bytes, so that requests are
 * still read while a large tensor is on its way. (The bytes themselves are the session's own device memory, which is limited
 * elsewhere.) */
static uint64_t answer_fetch_cost(const struct connection *connection, uint64_t id) {
    uint64_t most = connection->principal->limits.session_out_bytes / 4, bytes = 0;
    struct tensor_type type;

    if (session_type(connection->session, id, &type))
        bytes = (uint64_t)type_bytes(&type);
    return bytes < most ? bytes : most;
}

/* Queues the reply that has been put into `answer`. */
static void answer_queue(struct answer *answer) {
    struct connection *connection = answer->connection;

    answer_print(connection, &answer->reply);
    if (answer->once)
        outcome_remember(&connection->lease.outcomes, &answer->reply);
    reply_queue_add(&connection->out.queue, &answer->reply);
    service_mark_dirty(connection->service, connection);
}

static void answer_unlink(struct answer *answer) {
    if (answer->connection->request.publishing == answer)
        answer->connection->request.publishing = NULL;
    if (!answer->previous)
        return;
    *answer->previous = answer->next;
    if (answer->next)
        answer->next->previous = answer->previous;
    answer->previous = NULL;
}

/* Memory for last words is kept: a connection that ends because there is no memory has to say so. */
static void answer_free(struct service *service, struct answer *answer) {
    if (service->spare)
        free(answer);
    else
        service->spare = answer;
}

/* A client whose connection is lost will ask again. */
static void answer_drop_compile(struct answer *answer) {
    const struct connection *connection = answer->connection;

    if (connection->state != CONNECTION_OPEN || !connection->end.unplugging || !compile_leave(answer->compile))
        compile_let_go(answer->compile);
}

static void answer_destroy(struct answer *answer) {
    if (answer->kind == ANSWER_FETCH)
        feed_finish(&answer->feed);
    else if (answer->kind == ANSWER_WAIT && answer->previous)
        wait_cancel(&answer->wait);
    else if (answer->kind == ANSWER_COMPILE)
        answer_drop_compile(answer);
    else if (answer->kind == ANSWER_PUBLISH)
        publish_destroy(answer->publish);
    else if (answer->kind == ANSWER_SAVED)
        state_wait_cancel(&answer->saved);
    else if (answer->kind == ANSWER_DATA)
        free(answer->data);
    answer_unlink(answer);
    answer_discharge(answer->connection, answer->cost);
    answer_free(answer->connection->service, answer);
}

static void answer_sent(struct reply *reply) {
    struct answer *answer = (struct answer *)((char *)reply - offsetof(struct answer, reply));

    /* All of a value, and not a failure or what was left of a queue that was cleared. */
    if (answer->kind == ANSWER_FETCH && reply->total && reply->offset >= reply->total)
        histogram_add(&answer->connection->service->fetch_time, clock_now_ns() - answer->asked_ns, 1);
    answer_destroy(answer);
}

static void answer_init(struct answer *answer, struct connection *connection, int kind, uint64_t sequence,
                        uint64_t bytes) {
    memset((char *)answer + sizeof answer->reply, 0, sizeof *answer - sizeof answer->reply);
    answer->reply.sent = answer_sent;
    answer->connection = connection;
    answer->once = connection->lease.once;
    answer->kind = kind;
    answer->sequence = sequence;
    answer->cost = sizeof *answer + bytes;
    answer_charge(connection, answer->cost);
}

static struct answer *answer_create(struct connection *connection, int kind, uint64_t sequence, uint64_t bytes) {
    struct answer *answer = malloc(sizeof *answer);

    if (answer)
        answer_init(answer, connection, kind, sequence, bytes);
    return answer;
}

static void answer_link(struct answer *answer) {
    struct connection *connection = answer->connection;

    answer->next = connection->out.pending;
    answer->previous = &connection->out.pending;
    if (answer->next)
        answer->next->previous = &answer->next;
    connection->out.pending = answer;
}

int answer_message(struct connection *connection, unsigned type, uint64_t sequence, const ProtobufCMessage *message) {
    struct answer *answer = answer_create(connection, ANSWER_PLAIN, sequence, 0);

    if (!answer)
        return STATUS_NO_HOST_MEMORY;
    reply_message(&answer->reply, type, sequence, message);
    answer_queue(answer);
    return STATUS_OK;
}

int answer_outcome(struct connection *connection, const struct outcome *outcome) {
    struct answer *answer = answer_create(connection, ANSWER_PLAIN, outcome->sequence, 0);

    if (!answer)
        return STATUS_NO_HOST_MEMORY;
    reply_frame(&answer->reply, outcome->type, outcome->sequence, outcome->frame, outcome->bytes);
    answer_queue(answer);
    return STATUS_OK;
}

struct answer *answer_fault(struct connection *connection, unsigned type, uint64_t sequence,
                            const struct fault *fault) {
    struct service *service = connection->service;
    struct answer *answer = answer_create(connection, ANSWER_PLAIN, sequence, 0);

    if (!answer && type == FRAME_ERROR && service->spare) {
        answer = service->spare;
        service->spare = NULL;
        answer_init(answer, connection, ANSWER_PLAIN, sequence, 0);
    }
    if (!answer)
        return NULL;
    reply_fault(&answer->reply, type, sequence, fault);
    if (type != FRAME_ERROR)
        answer_queue(answer);
    return answer;
}

static void answer_came(struct feed *feed, const struct failure *failure) {
    struct answer *answer = (struct answer *)((char *)feed - offsetof(struct answer, feed));

    answer_unlink(answer);
    if (failure) {
        reply_failure(&answer->reply, FRAME_FETCH_CHUNK, answer->sequence, failure);
    } else if (!answer->begun) {
        feed_reply(feed, &answer->reply, FRAME_FETCH_CHUNK, answer->sequence);
    } else {
        feed_reply_next(feed, &answer->reply);
    }
    answer->begun = true;
    answer_queue(answer);
}

static void answer_hungry(struct reply *reply) {
    struct answer *answer = (struct answer *)((char *)reply - offsetof(struct answer, reply));

    switch (feed_next(&answer->feed)) {
    case FEED_READY:
        feed_reply_next(&answer->feed, reply);
        answer_queue(answer);
        return;
    case FEED_FAILED:
        reply_failure(reply, FRAME_FETCH_CHUNK, answer->sequence, &answer->feed.failure);
        answer_queue(answer);
        return;
    case FEED_WAITING:
        answer_link(answer);
    }
}

int answer_fetch(struct connection *connection, uint64_t sequence, uint64_t id, uint64_t offset) {
    struct answer *answer = answer_create(connection, ANSWER_FETCH, sequence, answer_fetch_cost(connection, id));

    if (!answer)
        return STATUS_NO_HOST_MEMORY;
    answer->asked_ns = clock_now_ns();
    answer->reply.hungry = answer_hungry;
    answer->feed.came = answer_came;
    answer->feed.from = offset < INT64_MAX ? (int64_t)offset : INT64_MAX;
    answer_link(answer);
    if (feed_start(&answer->feed, connection->session, id) == STATUS_OK)
        return STATUS_OK;
    answer_destroy(answer);
    return STATUS_AGAIN;
}

static void answer_waited(struct wait *wait, const struct failure *failure) {
    struct answer *answer = (struct answer *)((char *)wait - offsetof(struct answer, wait));
    const Tensord__Done done = TENSORD__DONE__INIT;

    answer_unlink(answer);
    if (failure)
        reply_failure(&answer->reply, FRAME_DONE, answer->sequence, failure);
    else
        reply_message(&answer->reply, FRAME_DONE, answer->sequence, &done.base);
    answer_queue(answer);
}

int answer_wait(struct connection *connection, uint64_t sequence, uint64_t id) {
    struct answer *answer = answer_create(connection, ANSWER_WAIT, sequence, 0);

    if (!answer)
        return STATUS_NO_HOST_MEMORY;
    answer->wait.done = answer_waited;
    answer_link(answer);
    session_wait(connection->session, id, &answer->wait);
    return STATUS_OK;
}

int answer_compile(struct connection *connection, uint64_t sequence, uint64_t kernel, const char *source,
                   const char *name) {
    struct answer *answer = answer_create(connection, ANSWER_COMPILE, sequence, strlen(source));
    struct fault fault;

    if (!answer)
        return STATUS_NO_HOST_MEMORY;
    if (compile_start(answer, kernel, source, name, &answer->compile, &fault) == STATUS_OK) {
        answer_link(answer);
        return STATUS_OK;
    }
    answer->kind = ANSWER_PLAIN;
    reply_fault(&answer->reply, FRAME_KERNEL_COMPILED, sequence, &fault);
    answer_queue(answer);
    return STATUS_OK;
}

/* Keeps as much of the log as is sent, and charges that; lets the source go where the cache does not want it. Returns the
 * log's bytes. */
static size_t answer_keep_log(struct answer *answer, struct kernel_job *job) {
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
    answer->cost += bytes;
    answer_charge(answer->connection, bytes);
    return bytes;
}

void answer_compiled(struct answer *answer) {
    struct kernel_job *job = &answer->compile->job;
    Tensord__KernelCompiled compiled = TENSORD__KERNEL_COMPILED__INIT;
    Tensord__Error error = TENSORD__ERROR__INIT;
    struct fault fault;
    size_t log = answer_keep_log(answer, job);

    answer_unlink(answer);
    if (kernel_job_bind(job, answer->connection->session, answer->compile->kernel, &fault) != STATUS_OK) {
        error.code = fault.code;
        error.message = fault.message;
        error.operation = "kernel";
        compiled.error = &error;
    }
    reply_message_data(&answer->reply, FRAME_KERNEL_COMPILED, answer->sequence, &compiled.base, (uint8_t *)job->log,
                       log);
    answer_queue(answer);
}

int answer_reserve(struct service *service) {
    service->spare = malloc(sizeof *service->spare);
    return service->spare ? STATUS_OK : STATUS_NO_HOST_MEMORY;
}

void answer_unreserve(struct service *service) {
    free(service->spare);
    service->spare = NULL;
}

int answer_publish(struct connection *connection, uint64_t sequence, const Tensord__Publish *message) {
    struct answer *answer = answer_create(connection, ANSWER_PUBLISH, sequence, publish_cost(message));

    if (!answer)
        return STATUS_NO_HOST_MEMORY;
    answer_link(answer);
    answer->publish = publish_create(answer, message);
    if (!answer->publish) {
        answer_destroy(answer);
        return STATUS_NO_HOST_MEMORY;
    }
    connection->request.publishing = answer;
    return answer_publish_on(connection);
}

int answer_publish_on(struct connection *connection) {
    struct publish *publish = connection->request.publishing->publish;

    if (publish_hold_some(publish) == STATUS_AGAIN)
        return STATUS_AGAIN;
    connection->request.publishing = NULL;
    publish_step(publish);
    return STATUS_OK;
}

void answer_published(struct answer *answer, const struct failure *failure) {
    const Tensord__Done done = TENSORD__DONE__INIT;

    answer_unlink(answer);
    if (failure)
        reply_failure(&answer->reply, FRAME_DONE, answer->sequence, failure);
    else
        reply_message(&answer->reply, FRAME_DONE, answer->sequence, &done.base);
    answer_queue(answer);
}

static void answer_on_saved(struct state_wait *wait, const struct fault *fault) {
    struct answer *answer = (struct answer *)((char *)wait - offsetof(struct answer, saved));
    const Tensord__Done done = TENSORD__DONE__INIT;

    answer_unlink(answer);
    if (fault)
        reply_fault(&answer->reply, FRAME_DONE, answer->sequence, fault);
    else
        reply_message(&answer->reply, FRAME_DONE, answer->sequence, &done.base);
    answer_queue(answer);
}

void answer_changed(struct answer *answer, const char *principal) {
    if (answer->once)
        outcome_changed(&answer->connection->lease.outcomes, answer->sequence, principal);
}

int answer_saved(struct connection *connection, uint64_t sequence, const char *principal) {
    struct answer *answer = answer_create(connection, ANSWER_SAVED, sequence, 0);

    if (!answer)
        return STATUS_NO_HOST_MEMORY;
    answer->saved.done = answer_on_saved;
    answer_link(answer);
    if (names_wait(&connection->service->names, principal, &answer->saved))
        answer_changed(answer, principal);
    else
        answer_on_saved(&answer->saved, NULL);
    return STATUS_OK;
}

int answer_data(struct connection *connection, unsigned type, uint64_t sequence, const ProtobufCMessage *message,
                uint8_t *data, size_t bytes) {
    struct answer *answer = answer_create(connection, ANSWER_DATA, sequence, bytes);

    if (!answer) {
        free(data);
        return STATUS_NO_HOST_MEMORY;
    }
    answer->data = data;
    reply_message_data(&answer->reply, type, sequence, message, data, bytes);
    answer_queue(answer);
    return STATUS_OK;
}

bool answer_cancel_some(struct connection *connection) {
    while (connection->out.pending) {
        answer_destroy(connection->out.pending);
        if (budget_spent(connection->service->budget, CONNECTION_REPLY_STEPS))
            break;
    }
    return !connection->out.pending;
}

void answer_fail(struct connection *connection, const struct fault *fault) {
    struct answer *answer = connection->out.pending;
    unsigned type = FRAME_DONE;

    if (answer->kind == ANSWER_FETCH) {
        type = FRAME_FETCH_CHUNK;
        feed_finish(&answer->feed);
    } else if (answer->kind == ANSWER_COMPILE) {
        type = FRAME_KERNEL_COMPILED;
        compile_let_go(answer->compile);
    } else if (answer->kind == ANSWER_PUBLISH) {
        publish_destroy(answer->publish);
    } else if (answer->kind == ANSWER_SAVED) {
        state_wait_cancel(&answer->saved);
    } else {
        wait_cancel(&answer->wait);
    }
    answer_unlink(answer);
    answer->kind = ANSWER_PLAIN;
    reply_fault(&answer->reply, type, answer->sequence, fault);
    answer_queue(answer);
}
