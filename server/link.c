#include "server/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/frame.h"
#include "server/cause.h"
#include "server/connection.h"
#include "server/log.h"

enum {
    LINK_MESSAGE_MAX = 4 << 10,
    LINK_BUFFER_BYTES = 16 << 10,
    LINK_TURN_BYTES = 4 << 20,
    LINK_WANTED_MS = 10000, /* for the front to answer; its answer is lost where the channel was full */
};

/* A CopyIn: an id that is bound and waits for its bytes. */
struct copy_in {
    struct copy_in *next, **previous;
    struct connection *connection;
    struct link_in *link; /* NULL: has not come yet */
    struct upload upload;
    int64_t received;
    uint64_t deadline_ms;
    char source[LINK_DEVICE_MAX + 1]; /* "": the client did not say */
    uint8_t ticket[LINK_TICKET_BYTES];
};

/* The destination's end of a link. */
struct link_in {
    struct link_in *next, **previous;
    struct service *service;
    struct copy_in *copy; /* NULL: its CopyIn has not come yet */
    uv_poll_t poll;
    int fd;
    struct frame_reader reader;
    bool begun;           /* its first frame has come */
    struct failure cause; /* why the source sends nothing; code STATUS_OK where it does */
    uint64_t deadline_ms;
    char device[LINK_DEVICE_MAX + 1];
    uint8_t ticket[LINK_TICKET_BYTES];
};

/* A CopyOut, and the source's end of its link. */
struct link_out {
    struct link_out *next, **previous;
    struct connection *connection;
    struct fetch fetch;
    struct reply reply;
    struct reply_queue queue;
    bool ready; /* `reply` says what there is to send */
    enum { LINK_OUT_NEW, LINK_OUT_WANTED, LINK_OUT_OPEN } state;
    uv_poll_t poll; /* in use while OPEN */
    int fd;
    uint64_t cost;
    uint64_t deadline_ms; /* while WANTED */
    char device[LINK_DEVICE_MAX + 1];
    uint8_t ticket[LINK_TICKET_BYTES];
};

/* In a time that tells nothing: who knows a ticket may write into another client's tensor. */
static bool link_ticket_equal(const uint8_t *a, const uint8_t *b) {
    unsigned difference = 0;

    for (unsigned i = 0; i < LINK_TICKET_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

void link_table_init(struct link_table *table) {
    *table = (struct link_table){0};
    table->outs_tail = &table->outs;
}

static int link_watch(struct service *service, uv_poll_t *poll, int fd, void *owner) {
    int error;

    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    error = uv_poll_init(service->loop, poll, fd);
    poll->data = owner;
    return error;
}

/* ---- the destination's end ---- */

static void link_in_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void link_in_destroy(struct link_in *link) {
    struct link_table *table = &link->service->links;

    if (!link->copy)
        table->n_idle--;
    else
        link->copy->link = NULL;
    *link->previous = link->next;
    if (link->next)
        link->next->previous = link->previous;
    frame_reader_finish(&link->reader);
    uv_close((uv_handle_t *)&link->poll, link_in_closed);
    close(link->fd);
}

/* The copy is over, complete or with a cause; its link goes with it. */
static void copy_in_finish(struct copy_in *copy, const struct failure *cause) {
    struct link_table *table = &copy->connection->service->links;

    if (copy->link)
        link_in_destroy(copy->link);
    *copy->previous = copy->next;
    if (copy->next)
        copy->next->previous = copy->previous;
    table->n_copies--;
    upload_finish(&copy->upload, cause);
    free(copy);
}

static void copy_in_fail(struct copy_in *copy, const struct fault *fault) {
    struct failure cause;

    cause_set(&cause, fault);
    copy_in_finish(copy, &cause);
}

/* The root cause goes on unchanged, as if the operation had failed here. */
static int link_source_failure(const Tensord__Error *error, struct failure *cause) {
    bool known = error->code > STATUS_OK && error->code < STATUS_COUNT;

    *cause = (struct failure){
        .code = known ? (enum status)error->code : STATUS_INTERNAL,
        .sequence = error->sequence,
    };
    snprintf(cause->message, sizeof cause->message, "%s", error->message);
    snprintf(cause->operation, sizeof cause->operation, "%s", error->operation);
    snprintf(cause->label, sizeof cause->label, "%s", error->label);
    return (int)cause->code;
}

static int link_in_check(struct link_in *link, const Tensord__LinkData *data, uint64_t payload, struct fault *fault) {
    const struct copy_in *copy = link->copy;
    uint64_t bytes = (uint64_t)copy->upload.bytes;

    if (data->error)
        return link_source_failure(data->error, &link->cause);
    if (data->total != bytes)
        return fault_set(fault, STATUS_SHAPE, "%s has %lu bytes to copy, the tensor for them %lu", link->device,
                         data->total, bytes);
    if (data->offset != (uint64_t)copy->received || payload > bytes - (uint64_t)copy->received)
        return fault_set(fault, STATUS_INTERNAL, "%s sent %lu bytes for offset %lu where %ld was due", link->device,
                         payload, data->offset, copy->received);
    return STATUS_OK;
}

static int link_in_on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                              struct fault *fault) {
    struct link_in *link = owner;
    struct arena *arena = &link->service->arena;
    Tensord__LinkData *data;
    int status;

    if (header->type != FRAME_LINK_DATA)
        return fault_set(fault, STATUS_INTERNAL, "%s sent %s over a link", link->device, frame_type_name(header->type));
    arena_reset(arena);
    data = tensord__link_data__unpack(&arena->allocator, header->message_bytes, message);
    if (!data)
        return fault_set(fault, STATUS_INTERNAL, "%s sent a malformed message over a link", link->device);
    status = link_in_check(link, data, header->payload_bytes, fault);
    link->begun = true;
    if (status == STATUS_OK && header->payload_bytes > 0)
        *sink = link->copy->upload.data + link->copy->received;
    return status;
}

static int link_in_on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct link_in *link = owner;

    (void)fault;
    link->copy->received += (int64_t)header->payload_bytes;
    link->service->bytes_in += header->payload_bytes;
    return STATUS_OK;
}

static const struct frame_handler link_in_handler = {link_in_on_message, link_in_on_payload};

/* A tensor without bytes is complete with its first frame, any other one with its last byte. */
static bool link_in_complete(const struct link_in *link) {
    const struct copy_in *copy = link->copy;

    return link->begun && copy->received == copy->upload.bytes && link->reader.state == FRAME_READER_HEADER;
}

static ssize_t link_in_read(struct link_in *link, struct fault *fault) {
    uint8_t *place;
    size_t want;
    ssize_t got;

    frame_reader_want(&link->reader, &place, &want);
    do
        got = recv(link->fd, place, want, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0) {
        fault_set(fault, STATUS_DEVICE_LOST, "%s was lost while copying", link->device);
        return -1;
    }
    return frame_reader_advance(&link->reader, (size_t)got, &link_in_handler, link, fault) ? -1 : got;
}

/* Nothing more comes: for what the source has said, or for what went wrong here. */
static void link_in_broken(struct link_in *link, const struct fault *fault) {
    struct failure cause = link->cause;

    if (cause.code == STATUS_OK)
        cause_set(&cause, fault);
    copy_in_finish(link->copy, &cause);
}

static void link_in_on_poll(uv_poll_t *poll, int status, int events) {
    struct link_in *link = poll->data;
    struct fault fault = {0};
    size_t read = 0;

    (void)events;
    service_busy(link->service);
    if (status < 0) {
        fault_set(&fault, STATUS_DEVICE_LOST, "%s was lost while copying", link->device);
        copy_in_fail(link->copy, &fault);
        return;
    }
    while (read < LINK_TURN_BYTES) {
        ssize_t got = link_in_read(link, &fault);

        if (got == 0)
            return;
        if (got < 0) {
            link_in_broken(link, &fault);
            return;
        }
        if (link_in_complete(link)) {
            copy_in_finish(link->copy, NULL);
            return;
        }
        read += (size_t)got;
    }
}

static void link_in_match(struct link_in *link, struct copy_in *copy) {
    struct fault fault;

    link->service->links.n_idle--;
    link->copy = copy;
    copy->link = link;
    /* From here on the source is known to be alive; its death shows as the end of the link. */
    if (uv_poll_start(&link->poll, UV_READABLE, link_in_on_poll) == 0)
        return;
    fault_set(&fault, STATUS_INTERNAL, "cannot watch the link from %s", link->device);
    copy_in_fail(copy, &fault);
}

/* Takes `fd` on success. */
static struct link_in *link_in_create(struct service *service, const char *device, const uint8_t *ticket, int fd) {
    struct link_table *table = &service->links;
    struct link_in *link = calloc(1, sizeof *link);

    if (!link || frame_reader_init(&link->reader, LINK_BUFFER_BYTES) || link_watch(service, &link->poll, fd, link)) {
        if (link)
            frame_reader_finish(&link->reader);
        free(link);
        return NULL;
    }
    frame_reader_limits(&link->reader, LINK_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    link->service = service;
    link->fd = fd;
    link->deadline_ms = service_now_ms() + service->limits.transfer_timeout_ms;
    snprintf(link->device, sizeof link->device, "%s", device[0] ? device : "the source device");
    memcpy(link->ticket, ticket, LINK_TICKET_BYTES);
    link->next = table->links;
    link->previous = &table->links;
    if (link->next)
        link->next->previous = &link->next;
    table->links = link;
    table->n_idle++;
    return link;
}

void link_accept(struct service *service, const char *device, const uint8_t ticket[LINK_TICKET_BYTES], int fd) {
    struct link_table *table = &service->links;
    struct copy_in *copy = table->copies;
    struct link_in *link = NULL;
    struct fault fault;

    while (copy && (copy->link || !link_ticket_equal(copy->ticket, ticket)))
        copy = copy->next;
    /* Links that nobody has asked for yet must not keep out those that somebody waits for. */
    if (fd >= 0 && (copy || table->n_idle < LINK_IDLE_MAX))
        link = link_in_create(service, device, ticket, fd);
    if (link && copy)
        link_in_match(link, copy);
    if (link)
        return;
    log_event(LOG_LEVEL_WARNING, "link_refused", "device", device, NULL);
    if (fd >= 0)
        close(fd);
    if (copy) {
        fault_set(&fault, STATUS_LIMIT, "%s has no descriptor or memory left for a link from %s", service->device,
                  device);
        copy_in_fail(copy, &fault);
    }
}

void link_peer_lost(struct service *service, const char *device) {
    struct copy_in *next;
    struct fault fault;

    fault_set(&fault, STATUS_DEVICE_LOST, "%s was lost before it had sent its tensor", device);
    for (struct copy_in *copy = service->links.copies; copy; copy = next) {
        next = copy->next;
        if (!copy->link && !strcmp(copy->source, device))
            copy_in_fail(copy, &fault);
    }
}

/* Why this CopyIn cannot be: STATUS_OK if it can. */
static int link_receive_check(const struct link_table *table, const uint8_t *ticket, const struct copy_in *copy,
                              struct fault *fault) {
    if (!copy)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to receive a copy");
    if (table->n_copies >= LINK_COPIES_MAX)
        return fault_set(fault, STATUS_LIMIT, "%d copies to this device are under way already", LINK_COPIES_MAX);
    for (const struct copy_in *other = table->copies; other; other = other->next)
        if (link_ticket_equal(other->ticket, ticket))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the ticket of this copy is in use");
    return STATUS_OK;
}

static void copy_in_list(struct link_table *table, struct copy_in *copy) {
    copy->next = table->copies;
    copy->previous = &table->copies;
    if (copy->next)
        copy->next->previous = &copy->next;
    table->copies = copy;
    table->n_copies++;
}

void link_receive(struct connection *connection, const struct upload_request *request, const char *source,
                  const uint8_t ticket[LINK_TICKET_BYTES], const struct fault *refused) {
    struct service *service = connection->service;
    struct link_table *table = &service->links;
    struct copy_in *copy = calloc(1, sizeof *copy);
    struct upload stillborn, *upload = copy ? &copy->upload : &stillborn;
    struct failure cause;
    struct fault fault;

    if (!refused && link_receive_check(table, ticket, copy, &fault))
        refused = &fault;
    if (session_upload(connection->session, request, upload) != STATUS_OK) {
        free(copy);
        return;
    }
    if (refused) {
        cause_set(&cause, refused);
        upload_finish(upload, &cause);
        free(copy);
        return;
    }
    copy->connection = connection;
    snprintf(copy->source, sizeof copy->source, "%s", source);
    copy->deadline_ms = service_now_ms() + service->limits.transfer_timeout_ms;
    memcpy(copy->ticket, ticket, LINK_TICKET_BYTES);
    copy_in_list(table, copy);
    for (struct link_in *link = table->links; link; link = link->next)
        if (!link->copy && link_ticket_equal(link->ticket, ticket)) {
            link_in_match(link, copy);
            return;
        }
}

/* ---- the source's end ---- */

static void link_out_free(uv_handle_t *handle) {
    free(handle->data);
}

static void link_out_unlist(struct link_out *out) {
    struct link_table *table = &out->connection->service->links;

    *out->previous = out->next;
    if (out->next)
        out->next->previous = out->previous;
    else
        table->outs_tail = out->previous;
    if (out->state == LINK_OUT_WANTED)
        table->n_wanted--;
}

static void link_out_destroy(struct link_out *out) {
    link_out_unlist(out);
    fetch_release(&out->fetch);
    connection_discharge(out->connection, out->cost);
    if (out->state == LINK_OUT_OPEN) {
        uv_close((uv_handle_t *)&out->poll, link_out_free);
        close(out->fd);
    } else {
        free(out);
    }
}

static void link_out_on_poll(uv_poll_t *poll, int status, int events);

/* Writes what there is to write, and ends when all is out or nobody wants it any more. */
static void link_out_write(struct link_out *out) {
    int left = reply_queue_write(&out->queue, out->fd, CONNECTION_WRITE_BYTES, &out->connection->service->bytes_out);

    if (left <= 0 || uv_poll_start(&out->poll, UV_WRITABLE | UV_DISCONNECT, link_out_on_poll) < 0)
        link_out_destroy(out);
}

static void link_out_on_poll(uv_poll_t *poll, int status, int events) {
    struct link_out *out = poll->data;

    service_busy(out->connection->service);
    if (status < 0 || events & UV_DISCONNECT)
        link_out_destroy(out);
    else if (out->ready)
        link_out_write(out);
}

static void link_out_sent(struct reply *reply) {
    (void)reply; /* the queue is then empty, and that ends the link */
}

static void link_out_fetched(struct fetch *fetch, const struct failure *failure) {
    struct link_out *out = (struct link_out *)((char *)fetch - offsetof(struct link_out, fetch));

    if (failure)
        reply_failure(&out->reply, FRAME_LINK_DATA, 0, failure);
    else
        reply_data(&out->reply, FRAME_LINK_DATA, 0, fetch->data, (uint64_t)fetch->bytes);
    out->reply.sent = link_out_sent;
    reply_queue_add(&out->queue, &out->reply);
    out->ready = true;
    /* The first write comes from the poll handle: this is a callback of the engine, and may not release the fetch. */
    if (out->state == LINK_OUT_OPEN)
        uv_poll_start(&out->poll, UV_WRITABLE | UV_DISCONNECT, link_out_on_poll);
}

/* Asks the front for links in the order of the copies, so many at a time. */
static void link_ask(struct service *service) {
    struct link_table *table = &service->links;
    struct link_out *next;

    for (struct link_out *out = table->outs; out && table->n_wanted < LINK_WANTED_MAX; out = next) {
        int error;

        next = out->next;
        if (out->state != LINK_OUT_NEW)
            continue;
        error = service->options.want_link
                    ? service->options.want_link(service->options.owner, out->device, out->ticket)
                    : -ENOTSUP;
        if (error == -EAGAIN)
            return;
        if (error) {
            log_event(LOG_LEVEL_WARNING, "link_failed", "device", out->device, "reason", strerror(-error), NULL);
            link_out_destroy(out);
        } else {
            out->state = LINK_OUT_WANTED;
            out->deadline_ms = service_now_ms() + LINK_WANTED_MS;
            table->n_wanted++;
        }
    }
}

void link_send(struct connection *connection, uint64_t id, const char *device,
               const uint8_t ticket[LINK_TICKET_BYTES]) {
    struct link_table *table = &connection->service->links;
    struct link_out *out = calloc(1, sizeof *out);

    if (!out) {
        log_event(LOG_LEVEL_WARNING, "link_failed", "device", device, "reason", "no memory", NULL);
        return; /* the destination times out */
    }
    out->connection = connection;
    out->fd = -1;
    out->fetch.done = link_out_fetched;
    /* Not the tensor's bytes: they leave by the link, so a client that does not read cannot hold them up. */
    out->cost = sizeof *out;
    connection_charge(connection, out->cost);
    reply_queue_init(&out->queue);
    snprintf(out->device, sizeof out->device, "%s", device);
    memcpy(out->ticket, ticket, LINK_TICKET_BYTES);
    out->previous = table->outs_tail;
    *table->outs_tail = out;
    table->outs_tail = &out->next;
    session_fetch(connection->session, id, &out->fetch);
    link_ask(connection->service);
}

void link_granted(struct service *service, const uint8_t ticket[LINK_TICKET_BYTES], int fd, const struct fault *fault) {
    struct link_out *out = service->links.outs;

    while (out && (out->state != LINK_OUT_WANTED || !link_ticket_equal(out->ticket, ticket)))
        out = out->next;
    if (!out) { /* its connection has gone meanwhile */
        if (fd >= 0)
            close(fd);
    } else if (fd < 0) {
        log_event(LOG_LEVEL_WARNING, "link_failed", "device", out->device, "reason", fault->message, NULL);
        link_out_destroy(out);
    } else if (link_watch(service, &out->poll, fd, out) < 0) {
        close(fd);
        link_out_destroy(out);
    } else {
        service->links.n_wanted--;
        out->state = LINK_OUT_OPEN;
        out->fd = fd;
        uv_poll_start(&out->poll, out->ready ? UV_WRITABLE | UV_DISCONNECT : UV_DISCONNECT, link_out_on_poll);
    }
    link_ask(service);
}

/* ---- both ---- */

void link_tick(struct service *service, uint64_t now_ms) {
    struct copy_in *next_copy;
    struct link_in *next_link;
    struct link_out *next_out;
    struct fault fault;

    for (struct copy_in *copy = service->links.copies; copy; copy = next_copy) {
        next_copy = copy->next;
        if (copy->link || now_ms < copy->deadline_ms)
            continue;
        fault_set(&fault, STATUS_TIMED_OUT, "the source of this copy did not come within %u ms",
                  service->limits.transfer_timeout_ms);
        copy_in_fail(copy, &fault);
    }
    for (struct link_in *link = service->links.links; link; link = next_link) {
        next_link = link->next;
        if (!link->copy && now_ms >= link->deadline_ms)
            link_in_destroy(link);
    }
    for (struct link_out *out = service->links.outs; out; out = next_out) {
        next_out = out->next;
        if (out->state == LINK_OUT_WANTED && now_ms >= out->deadline_ms)
            link_out_destroy(out);
    }
    link_ask(service);
}

void link_drop_connection(struct connection *connection) {
    struct link_table *table = &connection->service->links;
    const struct failure gone = {.code = STATUS_CANCELLED, .message = "the connection ended before the copy had come"};
    struct copy_in *next_copy;
    struct link_out *next_out;

    for (struct copy_in *copy = table->copies; copy; copy = next_copy) {
        next_copy = copy->next;
        if (copy->connection == connection)
            copy_in_finish(copy, &gone);
    }
    for (struct link_out *out = table->outs; out; out = next_out) {
        next_out = out->next;
        if (out->connection == connection)
            link_out_destroy(out);
    }
}

bool link_busy(const struct connection *connection) {
    const struct link_table *table = &connection->service->links;

    for (const struct copy_in *copy = table->copies; copy; copy = copy->next)
        if (copy->connection == connection)
            return true;
    for (const struct link_out *out = table->outs; out; out = out->next)
        if (out->connection == connection)
            return true;
    return false;
}

void link_table_finish(struct service *service) {
    while (service->links.links)
        link_in_destroy(service->links.links);
}
