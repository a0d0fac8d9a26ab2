/* The source's side of copies between devices (link.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/process/log.h"
#include "server/worker/connection.h"

enum { LINK_WANTED_MS = 10000 }; /* for the front to reply: the reply is lost if the channel is full */

/* A device to which copies go. It exists while it has routes, or is crowded. */
struct link_destination {
    LIST_ENTRY(link_destination) entry;
    unsigned routes;
    bool crowded; /* its worker took no link: until the next tick the front is not asked for links to it */
    struct link_route_queue parked;   /* routes that wait for that tick */
    char device[LINK_DEVICE_MAX + 1]; /* "": all destinations beyond LINK_DESTINATIONS_MAX */
};

/* A connection's copies to one destination that have no link yet. */
struct link_route {
    LIST_ENTRY(link_route) own; /* of the connection's */
    /* In links.asking of the connection, or destination->parked, while `copies` is not empty. */
    TAILQ_ENTRY(link_route) turn;
    struct connection *connection;
    struct link_destination *destination;
    struct link_out_queue copies; /* copies in the state NEW */
    unsigned outs;                /* copies in the states NEW and WANTED */
    bool parked;
};

/* A CopyOut, and the source's end of its link. */
struct link_out {
    LIST_ENTRY(link_out) own;   /* of the connection's */
    TAILQ_ENTRY(link_out) turn; /* in route->copies while NEW, in service->links.wanted while WANTED */
    struct connection *connection;
    struct link_route *route; /* NULL while OPEN */
    struct feed feed;
    struct reply reply;
    struct reply_queue queue;
    bool begun;  /* the first frame has been made */
    bool hungry; /* nothing can be sent before the next part has come */
    enum { LINK_OUT_NEW, LINK_OUT_WANTED, LINK_OUT_OPEN } state;
    uv_poll_t poll; /* in use while OPEN */
    int fd;
    uint64_t cost;
    uint64_t deadline_ms; /* while WANTED */
    char device[LINK_DEVICE_MAX + 1];
    uint8_t ticket[LINK_TICKET_BYTES];
};

static void link_out_free(uv_handle_t *handle) {
    free(handle->data);
}

/* ---- destinations, and routes to them ---- */

static void link_destination_let_go(struct link_table *table, struct link_destination *destination) {
    if (destination->routes || destination->crowded)
        return;
    LIST_REMOVE(destination, entry);
    table->n_destinations--;
    free(destination);
}

/* Finds or creates a destination. A client may name devices that do not exist, so when there are many names, all
 * further names share one destination. NULL without memory. */
static struct link_destination *link_destination_find(struct link_table *table, const char *device) {
    struct link_destination *destination;
    LIST_FOREACH(destination, &table->destinations, entry)
        if (!strcmp(destination->device, device))
            return destination;
    if (table->n_destinations >= LINK_DESTINATIONS_MAX && *device)
        return link_destination_find(table, "");
    destination = calloc(1, sizeof *destination);
    if (!destination)
        return NULL;
    TAILQ_INIT(&destination->parked);
    snprintf(destination->device, sizeof destination->device, "%s", device);
    LIST_INSERT_HEAD(&table->destinations, destination, entry);
    table->n_destinations++;
    return destination;
}

/* Finds or creates the connection's route to this device. NULL without memory. */
static struct link_route *link_route_find(struct connection *connection, const char *device) {
    struct link_table *table = &connection->service->links;
    struct link_destination *destination = link_destination_find(table, device);
    struct link_route *route;
    if (!destination)
        return NULL;
    LIST_FOREACH(route, &connection->links.routes, own)
        if (route->destination == destination)
            return route;
    route = calloc(1, sizeof *route);
    if (!route) {
        link_destination_let_go(table, destination);
        return NULL;
    }
    route->connection = connection;
    route->destination = destination;
    destination->routes++;
    TAILQ_INIT(&route->copies);
    LIST_INSERT_HEAD(&connection->links.routes, route, own);
    return route;
}

/* The front may be asked for the copies of this route: it joins the routes of its connection that take turns. */
static void link_route_queue(struct link_route *route) {
    struct link_ends *ends = &route->connection->links;
    if (TAILQ_EMPTY(&ends->asking))
        TAILQ_INSERT_TAIL(&route->connection->service->links.turns, route->connection, links.turn);
    TAILQ_INSERT_TAIL(&ends->asking, route, turn);
}

static void link_route_unqueue(struct link_route *route) {
    struct link_ends *ends = &route->connection->links;
    if (route->parked) {
        TAILQ_REMOVE(&route->destination->parked, route, turn);
        route->parked = false;
        return;
    }
    TAILQ_REMOVE(&ends->asking, route, turn);
    if (TAILQ_EMPTY(&ends->asking))
        TAILQ_REMOVE(&route->connection->service->links.turns, route->connection, links.turn);
}

static void link_route_park(struct link_route *route) {
    link_route_unqueue(route);
    route->parked = true;
    TAILQ_INSERT_TAIL(&route->destination->parked, route, turn);
}

/* ---- copies ---- */

/* Puts the copy into its route, where it waits until the front is asked for its link. `again`: as the first of the
 * route. */
static void link_out_queue(struct link_out *out, bool again) {
    struct link_route *route = out->route;
    if (TAILQ_EMPTY(&route->copies))
        link_route_queue(route);
    out->state = LINK_OUT_NEW;
    if (again)
        TAILQ_INSERT_HEAD(&route->copies, out, turn);
    else
        TAILQ_INSERT_TAIL(&route->copies, out, turn);
}

/* Takes the copy out of the list for its state. */
static void link_out_unqueue(struct link_out *out) {
    struct link_table *table = &out->connection->service->links;
    if (out->state == LINK_OUT_NEW) {
        TAILQ_REMOVE(&out->route->copies, out, turn);
        if (TAILQ_EMPTY(&out->route->copies))
            link_route_unqueue(out->route);
    } else if (out->state == LINK_OUT_WANTED) {
        TAILQ_REMOVE(&table->wanted, out, turn);
        table->n_wanted--;
    }
}

/* The copy does not need a link any more. */
static void link_out_leave_route(struct link_out *out) {
    struct link_route *route = out->route;
    out->route = NULL;
    if (!route || --route->outs)
        return;
    LIST_REMOVE(route, own);
    route->destination->routes--;
    link_destination_let_go(&out->connection->service->links, route->destination);
    free(route);
}

static void link_out_destroy(struct link_out *out) {
    link_out_unqueue(out);
    link_out_leave_route(out);
    LIST_REMOVE(out, own);
    feed_finish(&out->feed);
    pending_reply_discharge(out->connection, out->cost);
    if (out->state == LINK_OUT_OPEN) {
        uv_close((uv_handle_t *)&out->poll, link_out_free);
        close(out->fd);
    } else {
        free(out);
    }
}

static void link_out_on_poll(uv_poll_t *poll, int status, int events);

static bool link_out_ready(const struct link_out *out) {
    return out->begun && !out->hungry;
}

/* Writes what the socket takes, and ends the copy when all is sent or nobody wants it any more. */
static void link_out_write(struct link_out *out) {
    struct transport transport = {.fd = out->fd}; /* between processes of one daemon: in the clear */
    int left = reply_queue_write(&out->queue, &transport, CONNECTION_WRITE_BYTES, &out->connection->service->bytes_out);
    int events = out->hungry ? UV_DISCONNECT : UV_WRITABLE | UV_DISCONNECT;
    if (left < 0 || (left == 0 && !out->hungry) || uv_poll_start(&out->poll, events, link_out_on_poll) < 0)
        link_out_destroy(out);
}

static void link_out_on_poll(uv_poll_t *poll, int status, int events) {
    struct link_out *out = poll->data;
    service_busy(out->connection->service);
    if (status < 0 || events & UV_DISCONNECT)
        link_out_destroy(out);
    else if (link_out_ready(out))
        link_out_write(out);
}

static void link_out_sent(struct reply *reply) {
    (void)reply; /* then the queue is empty, which ends the link */
}

static void link_out_hungry(struct reply *reply) {
    struct link_out *out = (struct link_out *)((char *)reply - offsetof(struct link_out, reply));
    enum feed_state state = feed_next(&out->feed);
    out->hungry = state == FEED_WAITING;
    if (out->hungry)
        return;
    if (state == FEED_READY)
        feed_reply_next(&out->feed, reply);
    else
        reply_failure(reply, FRAME_LINK_DATA, 0, &out->feed.failure);
    reply_queue_add(&out->queue, reply);
}

static void link_out_came(struct feed *feed, const struct failure *failure) {
    struct link_out *out = (struct link_out *)((char *)feed - offsetof(struct link_out, feed));
    if (failure)
        reply_failure(&out->reply, FRAME_LINK_DATA, 0, failure);
    else if (!out->begun)
        feed_reply(feed, &out->reply, FRAME_LINK_DATA, 0);
    else
        feed_reply_next(feed, &out->reply);
    out->begun = true;
    out->hungry = false;
    reply_queue_add(&out->queue, &out->reply);
    /* The first write comes from the poll handle: this is a callback of the engine, and may not finish the feed. */
    if (out->state == LINK_OUT_OPEN)
        uv_poll_start(&out->poll, UV_WRITABLE | UV_DISCONNECT, link_out_on_poll);
}

/* Asks the front for the link of this copy. False: ask again later. */
static bool link_out_ask_for(struct service *service, struct link_out *out) {
    struct link_table *table = &service->links;
    int error = service->options.want_link ? service->options.want_link(service->options.owner, out->device,
                                                                        out->connection->principal->name, out->ticket)
                                           : -ENOTSUP;
    if (error == -EAGAIN)
        return false;
    if (error) {
        log_event_from(LOG_LEVEL_WARNING, out->device, "link_failed", "device", out->device, "cause", strerror(-error),
                       NULL);
        link_out_destroy(out);
        return true;
    }
    link_out_unqueue(out);
    out->state = LINK_OUT_WANTED;
    out->deadline_ms = clock_now_ms() + LINK_WANTED_MS;
    TAILQ_INSERT_TAIL(&table->wanted, out, turn);
    table->n_wanted++;
    return true;
}

/* Asks the front for links, up to LINK_WANTED_MAX at a time: connections take turns, and so do the routes of a
 * connection; of a route the oldest copy is first. */
static void link_out_ask(struct service *service) {
    struct link_table *table = &service->links;
    struct connection *connection;
    while (table->n_wanted < LINK_WANTED_MAX && (connection = TAILQ_FIRST(&table->turns))) {
        struct link_route *route = TAILQ_FIRST(&connection->links.asking);
        if (route->destination->crowded) {
            link_route_park(route);
            continue;
        }
        TAILQ_REMOVE(&table->turns, connection, links.turn);
        TAILQ_INSERT_TAIL(&table->turns, connection, links.turn);
        TAILQ_REMOVE(&connection->links.asking, route, turn);
        TAILQ_INSERT_TAIL(&connection->links.asking, route, turn);
        if (!link_out_ask_for(service, TAILQ_FIRST(&route->copies)))
            return;
    }
}

int link_out_send(struct connection *connection, uint64_t id, const char *device,
                  const uint8_t ticket[LINK_TICKET_BYTES]) {
    struct link_ends *ends = &connection->links;
    struct link_out *out = calloc(1, sizeof *out);
    struct link_route *route = out ? link_route_find(connection, device) : NULL;
    if (!route) {
        free(out);
        log_event_from(LOG_LEVEL_WARNING, device, "link_failed", "device", device, "cause", "no memory", NULL);
        return STATUS_OK; /* the destination times out */
    }
    out->connection = connection;
    out->fd = -1;
    out->feed.came = link_out_came;
    out->reply.sent = link_out_sent;
    out->reply.hungry = link_out_hungry;
    /* Without the tensor's bytes: they leave by the link, so a client that does not read cannot delay them. */
    out->cost = sizeof *out + sizeof *route;
    pending_reply_charge(connection, out->cost);
    reply_queue_init(&out->queue);
    snprintf(out->device, sizeof out->device, "%s", device);
    memcpy(out->ticket, ticket, LINK_TICKET_BYTES);
    out->route = route;
    route->outs++;
    link_out_queue(out, false);
    LIST_INSERT_HEAD(&ends->outs, out, own);
    if (feed_start(&out->feed, connection->session, id) == STATUS_AGAIN) {
        link_out_destroy(out);
        return STATUS_AGAIN;
    }
    link_out_ask(connection->service);
    return STATUS_OK;
}

/* The other worker took no link now. Links to it are not asked for before the next tick. */
static void link_out_put_back(struct link_out *out) {
    link_out_unqueue(out);
    link_out_queue(out, true);
    out->route->destination->crowded = true;
}

void link_out_granted(struct service *service, const uint8_t ticket[LINK_TICKET_BYTES], int fd,
                      const struct fault *fault) {
    struct link_out *out;
    TAILQ_FOREACH(out, &service->links.wanted, turn)
        if (link_ticket_equal(out->ticket, ticket))
            break;
    if (!out) { /* the connection has ended meanwhile */
        if (fd >= 0)
            close(fd);
    } else if (fd < 0 && fault->code == STATUS_LIMIT) {
        link_out_put_back(out);
    } else if (fd < 0) {
        log_event_from(LOG_LEVEL_WARNING, out->device, "link_failed", "device", out->device, "cause", fault->message,
                       NULL);
        link_out_destroy(out);
    } else if (uv_poll_init(service->loop, &out->poll, fd) < 0) {
        close(fd);
        link_out_destroy(out);
    } else {
        link_out_unqueue(out);
        link_out_leave_route(out);
        out->state = LINK_OUT_OPEN;
        out->poll.data = out;
        out->fd = fd;
        uv_poll_start(&out->poll, link_out_ready(out) ? UV_WRITABLE | UV_DISCONNECT : UV_DISCONNECT, link_out_on_poll);
    }
    link_out_ask(service);
}

/* ---- time, and the ends of others ---- */

void link_out_tick(struct service *service, uint64_t now_ms) {
    struct link_destination *destination, *next;
    struct link_route *route;
    struct link_out *out;
    /* They are in the order in which the front was asked, so the first one has the earliest deadline. */
    while ((out = TAILQ_FIRST(&service->links.wanted)) && now_ms >= out->deadline_ms)
        link_out_destroy(out);
    for (destination = LIST_FIRST(&service->links.destinations); destination; destination = next) {
        next = LIST_NEXT(destination, entry);
        destination->crowded = false;
        while ((route = TAILQ_FIRST(&destination->parked))) {
            link_route_unqueue(route);
            link_route_queue(route);
        }
        link_destination_let_go(&service->links, destination);
    }
    link_out_ask(service);
}

bool link_out_drop_connection(struct connection *connection) {
    while (!LIST_EMPTY(&connection->links.outs)) {
        link_out_destroy(LIST_FIRST(&connection->links.outs));
        if (budget_spent(connection->service->budget, LINK_DROP_STEPS))
            break;
    }
    return LIST_EMPTY(&connection->links.outs);
}

void link_out_finish(struct service *service) {
    struct link_destination *destination;
    while ((destination = LIST_FIRST(&service->links.destinations))) {
        destination->crowded = false;
        link_destination_let_go(&service->links, destination);
    }
}
