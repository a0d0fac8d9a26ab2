/* The destination's side of copies between devices (link.h). */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/session/host.h"
#include "proto/wire/frame.h"
#include "server/process/log.h"
#include "server/worker/connection.h"
#include "server/worker/reply.h"

enum {
    LINK_MESSAGE_MAX = 4 << 10,
    LINK_BUFFER_BYTES = 16 << 10,
    LINK_TURN_BYTES = 1 << 20,
};

/* A CopyIn: an id that is bound and waits for its bytes. */
struct copy_in {
    LIST_ENTRY(copy_in) all;  /* in the table's list */
    LIST_ENTRY(copy_in) near; /* in the table's list of this ticket's bucket */
    LIST_ENTRY(copy_in) own;  /* in the connection's list */
    struct connection *connection;
    struct link_in *link; /* NULL: the link has not come yet */
    struct upload upload;
    int64_t received;
    uint64_t deadline_ms;
    struct link_origin *origin;
    uint8_t ticket[LINK_TICKET_BYTES];
};

/* A device from which copies of a connection come. The source takes the copies of a session in the order of their
 * CopyOuts, so as long as it sends some, the later ones are only not computed yet. */
struct link_origin {
    LIST_ENTRY(link_origin) own;      /* in the connection's list */
    unsigned copies, linked;          /* copies, and those that have a link */
    uint64_t heard_ms;                /* when a link came or ended last */
    char device[LINK_DEVICE_MAX + 1]; /* "": the client did not say */
};

/* A device whose link was not taken, because its CopyIn had not come. */
struct link_refusal {
    LIST_ENTRY(link_refusal) entry;
    char device[LINK_DEVICE_MAX + 1];
};

/* The destination's end of a link. */
struct link_in {
    LIST_ENTRY(link_in) all; /* in the table's list of links, or of idle ones */
    struct service *service;
    struct copy_in *copy; /* NULL: its CopyIn has not come yet */
    uv_poll_t poll;
    int fd;
    struct frame_reader reader;
    bool begun;           /* its first frame has come */
    struct failure cause; /* why the source sends nothing; STATUS_OK: it sends */
    uint64_t came_ms;
    char device[LINK_DEVICE_MAX + 1];
    char principal[PRINCIPAL_NAME_BYTES]; /* whose copy it is */
    uint8_t ticket[LINK_TICKET_BYTES];
};

/* Until when the other side may come. With a lease the client has more time: it may have to reconnect before it can ask
 * the other device. */
static uint64_t link_in_deadline(const struct service *service, uint64_t lease_ms) {
    return clock_now_ms() + service->limits.transfer_timeout_ms + lease_ms;
}

/* ---- where copies come from ---- */

/* Finds or creates the connection's entry. NULL without memory. */
static struct link_origin *link_origin_find(struct connection *connection, const char *device) {
    struct link_origin *origin;
    LIST_FOREACH(origin, &connection->links.origins, own)
        if (!strcmp(origin->device, device))
            return origin;
    origin = calloc(1, sizeof *origin);
    if (!origin)
        return NULL;
    snprintf(origin->device, sizeof origin->device, "%s", device);
    LIST_INSERT_HEAD(&connection->links.origins, origin, own);
    return origin;
}

static void link_origin_let_go(struct link_origin *origin) {
    if (origin->copies)
        return;
    LIST_REMOVE(origin, own);
    free(origin);
}

static void link_origin_linked(struct link_origin *origin, bool linked) {
    origin->linked += linked ? 1 : -1U;
    origin->heard_ms = clock_now_ms();
}

static struct link_refusal *link_refusal_find(const struct link_table *table, const char *device) {
    struct link_refusal *refusal;
    LIST_FOREACH(refusal, &table->refusals, entry)
        if (!strcmp(refusal->device, device))
            return refusal;
    return NULL;
}

/* Without memory the source asks again after a while. */
static void link_refusal_note(struct link_table *table, const char *device) {
    struct link_refusal *refusal = link_refusal_find(table, device) ? NULL : calloc(1, sizeof *refusal);
    if (!refusal)
        return;
    snprintf(refusal->device, sizeof refusal->device, "%s", device);
    LIST_INSERT_HEAD(&table->refusals, refusal, entry);
}

/* A CopyIn has come, and no link: the source may have asked too early. */
static void link_refusal_end(struct service *service, const char *device) {
    struct link_refusal *refusal = link_refusal_find(&service->links, device);
    if (!refusal)
        return;
    if (service->options.link_room)
        service->options.link_room(service->options.owner, device);
    LIST_REMOVE(refusal, entry);
    free(refusal);
}

/* ---- links and copies ---- */

/* The bucket depends on the first byte of the ticket alone, so the time that a search takes reveals nothing of the other bytes. */
static struct link_copies *link_bucket(struct link_table *table, const uint8_t *ticket) {
    return &table->by_ticket[ticket[0] % LINK_BUCKETS];
}

static struct copy_in *copy_in_find(struct link_table *table, const uint8_t *ticket) {
    struct copy_in *copy;
    LIST_FOREACH(copy, link_bucket(table, ticket), near)
        if (link_ticket_equal(copy->ticket, ticket))
            return copy;
    return NULL;
}

static void link_in_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void link_in_destroy(struct link_in *link) {
    struct link_table *table = &link->service->links;
    if (!link->copy) {
        table->n_idle--;
    } else {
        link_origin_linked(link->copy->origin, false);
        link->copy->link = NULL;
    }
    LIST_REMOVE(link, all);
    frame_reader_finish(&link->reader);
    uv_close((uv_handle_t *)&link->poll, link_in_closed);
    close(link->fd);
}

/* Whether the connection has 1/part of the copies, or more, at which it is not read. */
static bool link_in_fills(const struct connection *connection, unsigned part) {
    unsigned own = connection->links.n_copies;
    return own >= LINK_COPIES_MAX / LINK_SESSION_PART / part ||
           (own >= LINK_SESSION_LEAST / part &&
            (connection->principal->copies >= LINK_COPIES_MAX / LINK_PRINCIPAL_PART / part ||
             connection->service->links.n_copies >= LINK_COPIES_MAX / part));
}

bool link_in_full(const struct connection *connection) {
    return link_in_fills(connection, 1);
}

static void link_in_let_read(struct connection *connection) {
    if (!connection->hold.copies || link_in_fills(connection, 2))
        return;
    connection->hold.copies = false;
    service_mark_more(connection->service, connection);
}

/* A copy is over. Others are read again when half of what they share is free. */
static void link_in_drained(struct connection *connection) {
    const struct service *service = connection->service;
    link_in_let_read(connection);
    if (connection->principal->copies == LINK_COPIES_MAX / LINK_PRINCIPAL_PART / 2 - 1 ||
        service->links.n_copies == LINK_COPIES_MAX / 2 - 1)
        for (struct connection *at = service->connections; at; at = at->next)
            link_in_let_read(at);
}

/* The copy is over, complete or with a cause; its link goes with it. */
static void copy_in_finish(struct copy_in *copy, const struct failure *cause) {
    struct link_table *table = &copy->connection->service->links;
    if (copy->link)
        link_in_destroy(copy->link);
    LIST_REMOVE(copy, all);
    LIST_REMOVE(copy, near);
    LIST_REMOVE(copy, own);
    table->n_copies--;
    host_give(copy->connection->session, sizeof *copy);
    copy->connection->links.n_copies--;
    copy->connection->principal->copies--;
    copy->origin->copies--;
    link_origin_let_go(copy->origin);
    upload_finish(&copy->upload, cause);
    link_in_drained(copy->connection);
    free(copy);
}

static void copy_in_fail(struct copy_in *copy, const struct fault *fault) {
    struct failure cause;
    cause_set(&cause, fault);
    copy_in_finish(copy, &cause);
}

/* Keeps the root cause unchanged, as if the operation had failed here. */
static int link_in_source_failure(const Tensord__Error *error, struct failure *cause) {
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
        return link_in_source_failure(data->error, &link->cause);
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
    if (header->type != FRAME_LINK_DATA)
        return fault_set(fault, STATUS_INTERNAL, "%s sent %s over a link", link->device, frame_type_name(header->type));
    arena_reset(arena);
    data = tensord__link_data__unpack(&arena->allocator, header->message_bytes, message);
    if (!data && arena->starved)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to read what %s sent", link->device);
    if (!data)
        return fault_set(fault, STATUS_INTERNAL, "%s sent a malformed message over a link", link->device);
    int error = link_in_check(link, data, header->payload_bytes, fault);
    link->begun = true;
    if (error != STATUS_OK || header->payload_bytes == 0)
        return error;
    *sink = upload_chunk(&link->copy->upload, link->copy->received, (int64_t)header->payload_bytes);
    return link->copy->upload.later ? STATUS_AGAIN : STATUS_OK; /* AGAIN: copy_in_room() continues */
}

static int link_in_on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct link_in *link = owner;
    (void)fault;
    upload_chunk_done(&link->copy->upload);
    link->copy->received += (int64_t)header->payload_bytes;
    link->service->bytes_in += header->payload_bytes;
    return STATUS_OK;
}

static const struct frame_handler link_in_handler = {link_in_on_message, link_in_on_payload};

/* Whether all of the tensor has come. A tensor without bytes is complete with its first frame. */
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

/* Nothing more comes: fails the copy with the source's cause, or else with `fault`. */
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
    /* A socket whose other end was closed with unread bytes has an error, and may still have the source's last words:
     * they are read first, then the error shows. */
    if (status < 0 && uv_poll_start(&link->poll, UV_READABLE, link_in_on_poll)) {
        fault_set(&fault, STATUS_DEVICE_LOST, "%s was lost while copying", link->device);
        copy_in_fail(link->copy, &fault);
        return;
    }
    while (read < LINK_TURN_BYTES && !link->reader.paused) {
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
    if (link->reader.paused) /* the rest is read first, then the end of the source shows */
        uv_poll_stop(&link->poll);
}

/* There is staging memory for the chunk that has been put off. */
static void copy_in_room(struct upload *upload) {
    struct copy_in *copy = (struct copy_in *)((char *)upload - offsetof(struct copy_in, upload));
    struct link_in *link = copy->link;
    struct fault fault = {0};
    if (frame_reader_resume(&link->reader, &link_in_handler, link, &fault))
        link_in_broken(link, &fault);
    else if (link_in_complete(link))
        copy_in_finish(copy, NULL);
    else if (!link->reader.paused && uv_poll_start(&link->poll, UV_READABLE, link_in_on_poll)) {
        fault_set(&fault, STATUS_INTERNAL, "cannot watch the link from %s", link->device);
        copy_in_fail(copy, &fault);
    }
}

static void link_in_match(struct link_in *link, struct copy_in *copy) {
    const uint8_t go = LINK_GO;
    struct link_table *table = &link->service->links;
    struct fault fault;
    LIST_REMOVE(link, all);
    LIST_INSERT_HEAD(&table->links, link, all);
    table->n_idle--;
    link->copy = copy;
    copy->link = link;
    link_origin_linked(copy->origin, true);
    send(link->fd, &go, sizeof go, MSG_DONTWAIT | MSG_NOSIGNAL); /* if the source has gone, the next read says so */
    /* From here on the source is known to be alive: if it dies, the link ends. */
    if (uv_poll_start(&link->poll, UV_READABLE, link_in_on_poll) == 0)
        return;
    fault_set(&fault, STATUS_INTERNAL, "cannot watch the link from %s", link->device);
    copy_in_fail(copy, &fault);
}

/* Takes `fd` on success. */
static struct link_in *link_in_create(struct service *service, const char *device, const char *principal,
                                      const uint8_t *ticket, int fd) {
    struct link_table *table = &service->links;
    struct link_in *link = calloc(1, sizeof *link);
    if (!link || frame_reader_init(&link->reader, LINK_BUFFER_BYTES) || uv_poll_init(service->loop, &link->poll, fd)) {
        if (link)
            frame_reader_finish(&link->reader);
        free(link);
        return NULL;
    }
    frame_reader_limits(&link->reader, LINK_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    link->service = service;
    link->poll.data = link;
    link->fd = fd;
    link->came_ms = clock_now_ms();
    snprintf(link->device, sizeof link->device, "%s", device[0] ? device : "the source device");
    snprintf(link->principal, sizeof link->principal, "%s", principal);
    memcpy(link->ticket, ticket, LINK_TICKET_BYTES);
    LIST_INSERT_HEAD(&table->idle, link, all);
    table->n_idle++;
    return link;
}

/* Limits links without a CopyIn, so that they do not keep out links that somebody waits for, and so that one
 * principal's links do not keep out those of others. */
static bool link_in_has_room(const struct link_table *table, const char *principal) {
    unsigned own = 0;
    for (const struct link_in *link = LIST_FIRST(&table->idle); link; link = LIST_NEXT(link, all))
        own += !strcmp(link->principal, principal);
    return table->n_idle < LINK_IDLE_MAX && own < LINK_IDLE_MAX / LINK_PRINCIPAL_PART;
}

/* The source keeps its copy, and asks again. */
static void link_in_put_off(struct link_table *table, const char *device, int fd) {
    const uint8_t not_yet = LINK_NOT_YET;
    link_refusal_note(table, device);
    send(fd, &not_yet, sizeof not_yet, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

void link_in_accept(struct service *service, const char *device, const char *principal,
                    const uint8_t ticket[LINK_TICKET_BYTES], int fd) {
    struct link_table *table = &service->links;
    struct copy_in *copy = copy_in_find(table, ticket);
    struct link_in *link = NULL;
    struct fault fault;
    if (copy && copy->link)
        copy = NULL;
    if (fd >= 0 && !copy && !link_in_has_room(table, principal)) {
        link_in_put_off(table, device, fd);
        return;
    }
    if (fd >= 0)
        link = link_in_create(service, device, principal, ticket, fd);
    if (link && copy)
        link_in_match(link, copy);
    if (link)
        return;
    log_event_from(LOG_LEVEL_WARNING, device, "link_refused", "device", device, NULL);
    if (fd >= 0)
        close(fd);
    if (copy) {
        fault_set(&fault, STATUS_LIMIT, "%s has no descriptor or memory left for a link from %s", service->device,
                  device);
        copy_in_fail(copy, &fault);
    }
}

void link_in_peer_lost(struct service *service, const char *device) {
    struct copy_in *next;
    struct fault fault;
    fault_set(&fault, STATUS_DEVICE_LOST, "%s was lost before it had sent its tensor", device);
    for (struct copy_in *copy = LIST_FIRST(&service->links.copies); copy; copy = next) {
        next = LIST_NEXT(copy, all);
        if (!copy->link && !strcmp(copy->origin->device, device))
            copy_in_fail(copy, &fault);
    }
}

static int copy_in_check(const struct connection *connection, const uint8_t *ticket, const struct copy_in *copy,
                         struct fault *fault) {
    if (!copy || !copy->origin)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to receive a copy");
    if (copy_in_find(&connection->service->links, ticket))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the ticket of this copy is in use");
    return STATUS_OK;
}

static void copy_in_list(struct link_table *table, struct copy_in *copy) {
    LIST_INSERT_HEAD(&table->copies, copy, all);
    LIST_INSERT_HEAD(link_bucket(table, copy->ticket), copy, near);
    table->n_copies++;
    host_note(copy->connection->session, sizeof *copy);
    LIST_INSERT_HEAD(&copy->connection->links.copies, copy, own);
    copy->connection->links.n_copies++;
    copy->connection->principal->copies++;
    copy->origin->copies++;
}

int link_in_expect(struct connection *connection, const struct upload_request *request, const char *source,
                   const uint8_t ticket[LINK_TICKET_BYTES], const struct fault *refused) {
    struct service *service = connection->service;
    struct link_table *table = &service->links;
    struct copy_in *copy = calloc(1, sizeof *copy);
    struct upload stillborn, *upload = copy ? &copy->upload : &stillborn;
    struct failure cause;
    struct fault fault;
    if (copy)
        copy->origin = link_origin_find(connection, source);
    if (!refused && copy_in_check(connection, ticket, copy, &fault))
        refused = &fault;
    int error = session_upload(connection->session, request, upload);
    if (error == STATUS_OK && refused) {
        cause_set(&cause, refused);
        upload_finish(upload, &cause);
    }
    if (error != STATUS_OK || refused) {
        if (copy && copy->origin)
            link_origin_let_go(copy->origin);
        free(copy);
        return error == STATUS_AGAIN ? STATUS_AGAIN : STATUS_OK;
    }
    copy->connection = connection;
    copy->upload.ready = copy_in_room;
    copy->deadline_ms =
        link_in_deadline(service, connection->lease.granted ? connection->principal->limits.session_lease : 0);
    memcpy(copy->ticket, ticket, LINK_TICKET_BYTES);
    copy_in_list(table, copy);
    struct link_in *link;
    LIST_FOREACH(link, &table->idle, all)
        if (link_ticket_equal(link->ticket, ticket)) {
            link_in_match(link, copy);
            return STATUS_OK;
        }
    link_refusal_end(service, source);
    return STATUS_OK;
}

/* ---- time, and the ends of others ---- */

/* Whether a client may have to reconnect before it can ask for its copy. */
static bool link_in_may_return(const struct service *service, const char *principal) {
    for (const struct connection *at = service->connections; at; at = at->next)
        if (at->lease.granted && !at->lease.goodbye && at->state == CONNECTION_OPEN &&
            !strcmp(at->principal->name, principal))
            return true;
    return false;
}

/* Whether the source will not send this copy any more. */
static bool copy_in_over(const struct service *service, const struct copy_in *copy, uint64_t now_ms) {
    const struct link_origin *origin = copy->origin;
    return !copy->link && now_ms >= copy->deadline_ms && !origin->linked &&
           now_ms >= origin->heard_ms + service->limits.transfer_timeout_ms;
}

/* Whether nobody will ask for the link any more. A waiting link holds a descriptor, so links of clients that were
 * killed in the middle of a copy must not wait as long as a lease that nobody has. */
static bool link_in_over(const struct service *service, const struct link_in *link, uint64_t now_ms) {
    uint64_t waited_ms = now_ms > link->came_ms ? now_ms - link->came_ms : 0;
    if (waited_ms < service->limits.transfer_timeout_ms)
        return false;
    return waited_ms >= service->limits.transfer_timeout_ms + service->limits.each.session_lease ||
           !link_in_may_return(service, link->principal);
}

void link_in_tick(struct service *service, uint64_t now_ms) {
    struct copy_in *next_copy;
    struct link_in *next_link;
    struct fault fault;
    for (struct copy_in *copy = LIST_FIRST(&service->links.copies); copy; copy = next_copy) {
        next_copy = LIST_NEXT(copy, all);
        if (!copy_in_over(service, copy, now_ms))
            continue; /* its client may still ask the source: see link_in_extend() */
        fault_set(&fault, STATUS_TIMED_OUT, "the source of this copy did not come within %u ms%s",
                  service->limits.transfer_timeout_ms,
                  copy->connection->lease.granted ? " and the session's lease" : "");
        copy_in_fail(copy, &fault);
    }
    for (struct link_in *link = LIST_FIRST(&service->links.idle); link; link = next_link) {
        next_link = LIST_NEXT(link, all);
        if (link_in_over(service, link, now_ms))
            link_in_destroy(link);
    }
}

void link_in_extend(struct connection *connection) {
    uint64_t deadline_ms = link_in_deadline(connection->service, connection->principal->limits.session_lease);
    struct copy_in *copy;
    LIST_FOREACH(copy, &connection->links.copies, own)
        copy->deadline_ms = deadline_ms;
}

bool link_in_drop_connection(struct connection *connection) {
    const struct failure gone = {.code = STATUS_CANCELLED, .message = "the connection ended before the copy had come"};
    while (!LIST_EMPTY(&connection->links.copies)) {
        copy_in_finish(LIST_FIRST(&connection->links.copies), &gone);
        if (budget_spent(connection->service->budget, LINK_DROP_STEPS))
            break;
    }
    return LIST_EMPTY(&connection->links.copies);
}

void link_in_finish(struct service *service) {
    struct link_refusal *refusal;
    while (!LIST_EMPTY(&service->links.links))
        link_in_destroy(LIST_FIRST(&service->links.links));
    while (!LIST_EMPTY(&service->links.idle))
        link_in_destroy(LIST_FIRST(&service->links.idle));
    while ((refusal = LIST_FIRST(&service->links.refusals))) {
        LIST_REMOVE(refusal, entry);
        free(refusal);
    }
}
