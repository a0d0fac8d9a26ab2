/* The source's side of copies between devices (link.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/process/log.h"
#include "server/worker/connection.h"

enum {
    LINK_WANTED_MS = 10000, /* for the front to reply: the reply is lost if the channel is full */
    LINK_AGAIN_MORE = 2,    /* copies of a route that ask again when one of them may go: so their number grows fast */
};

/* A device to which copies go. It exists while it has routes, or is crowded. */
struct link_destination {
    LIST_ENTRY(link_destination) entry;
    unsigned routes;
    bool crowded; /* its worker took no link: until the next tick the front is not asked for links to it */
    struct link_route_queue parked;   /* routes that wait for that tick */
    struct link_routes refusing;      /* routes with copies that were refused */
    char device[LINK_DEVICE_MAX + 1]; /* "": all destinations beyond LINK_DESTINATIONS_MAX */
};

/* A connection's copies to one destination. The destination's session reads its CopyIns in the same order, so if it does
 * not expect one of these copies, it does not expect later ones, either. */
struct link_route {
    LIST_ENTRY(link_route) own; /* of the connection's */
    /* In links.asking of the connection, or destination->parked, while `copies` is not empty. */
    TAILQ_ENTRY(link_route) turn;
    struct connection *connection;
    struct link_destination *destination;
    struct link_out_queue unready;   /* copies in the state UNREADY, */
    struct link_out_queue copies;    /* NEW, */
    struct link_out_queue refused;   /* and REFUSED; while there are some */
    LIST_ENTRY(link_route) refusing; /* the route is in destination->refusing */
    uint64_t unexpected;             /* number of the first copy that was refused; copies after it are not asked for */
    unsigned outs;                   /* copies in all states, */
    unsigned early;                  /* and those that have asked early and have no value yet */
    bool parked;
};

/* A CopyOut, and the source's end of its link. */
struct link_out {
    LIST_ENTRY(link_out) own;   /* of the connection's */
    TAILQ_ENTRY(link_out) turn; /* in the route's queue for its state, or in service->links.wanted while WANTED */
    struct connection *connection;
    struct link_route *route;
    uint64_t number; /* in the order of the connection's CopyOuts */
    struct feed feed;
    struct reply reply;
    struct reply_queue queue;
    bool begun;  /* the first frame has been made */
    bool hungry; /* nothing can be sent before the next part has come */
    bool early;  /* it counts in route->early */
    bool go;     /* the destination takes the bytes */
    enum {
        LINK_OUT_UNREADY, /* its value has not come, and others ask before it */
        LINK_OUT_NEW,     /* the front may be asked for its link */
        LINK_OUT_REFUSED, /* the destination did not expect it, or one before it */
        LINK_OUT_WANTED,  /* the front has been asked */
        LINK_OUT_OPEN,
    } state;
    uv_poll_t *poll; /* while OPEN */
    int fd;
    uint64_t cost;
    uint64_t deadline_ms; /* while WANTED */
    char device[LINK_DEVICE_MAX + 1];
    uint8_t ticket[LINK_TICKET_BYTES];
};

static void link_out_free(uv_handle_t *handle) {
    free(handle);
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
    LIST_INIT(&destination->refusing);
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
    route->unexpected = UINT64_MAX;
    TAILQ_INIT(&route->unready);
    TAILQ_INIT(&route->copies);
    TAILQ_INIT(&route->refused);
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
    struct link_route *route = out->route;
    if (out->state == LINK_OUT_UNREADY) {
        TAILQ_REMOVE(&route->unready, out, turn);
    } else if (out->state == LINK_OUT_NEW) {
        TAILQ_REMOVE(&route->copies, out, turn);
        if (TAILQ_EMPTY(&route->copies))
            link_route_unqueue(route);
    } else if (out->state == LINK_OUT_REFUSED) {
        TAILQ_REMOVE(&route->refused, out, turn);
        if (TAILQ_EMPTY(&route->refused))
            LIST_REMOVE(route, refusing);
    } else if (out->state == LINK_OUT_WANTED) {
        TAILQ_REMOVE(&table->wanted, out, turn);
        table->n_wanted--;
    }
}

/* The copy waits until the destination has read more CopyIns. It is in no queue. */
static void link_out_refuse(struct link_out *out) {
    struct link_route *route = out->route;
    if (TAILQ_EMPTY(&route->refused))
        LIST_INSERT_HEAD(&route->destination->refusing, route, refusing);
    out->state = LINK_OUT_REFUSED;
    TAILQ_INSERT_TAIL(&route->refused, out, turn);
}

/* The first `n` copies that were refused may ask again. */
static void link_route_again(struct link_route *route, unsigned n) {
    struct link_out *out;
    route->unexpected = UINT64_MAX;
    for (; n && (out = TAILQ_FIRST(&route->refused)); n--) {
        link_out_unqueue(out);
        link_out_queue(out, false);
    }
}

static void link_destination_again(struct link_destination *destination) {
    struct link_route *next;
    for (struct link_route *route = LIST_FIRST(&destination->refusing); route; route = next) {
        next = LIST_NEXT(route, refusing);
        link_route_again(route, LINK_WANTED_MAX);
    }
}

/* Lets the oldest copies without a value ask for their links. */
static void link_route_promote(struct link_route *route) {
    struct link_out *out;
    while (route->early < LINK_EARLY_MAX && (out = TAILQ_FIRST(&route->unready))) {
        link_out_unqueue(out);
        out->early = true;
        route->early++;
        link_out_queue(out, false);
    }
}

static void link_out_no_longer_early(struct link_out *out) {
    if (!out->early)
        return;
    out->early = false;
    out->route->early--;
    link_route_promote(out->route);
}

static void link_out_leave_route(struct link_out *out) {
    struct link_route *route = out->route;
    link_out_no_longer_early(out);
    if (--route->outs)
        return;
    LIST_REMOVE(route, own);
    route->destination->routes--;
    link_destination_let_go(&out->connection->service->links, route->destination);
    free(route);
}

static void link_out_close(struct link_out *out) {
    if (out->state != LINK_OUT_OPEN)
        return;
    uv_close((uv_handle_t *)out->poll, link_out_free);
    close(out->fd);
    out->poll = NULL;
    out->fd = -1;
}

static void link_out_destroy(struct link_out *out) {
    link_out_unqueue(out);
    link_out_leave_route(out);
    LIST_REMOVE(out, own);
    feed_finish(&out->feed);
    pending_reply_discharge(out->connection, out->cost);
    link_out_close(out);
    free(out);
}

static void link_out_on_poll(uv_poll_t *poll, int status, int events);

static bool link_out_ready(const struct link_out *out) {
    return out->go && out->begun && !out->hungry;
}

/* What the link is watched for, besides its end. */
static int link_out_watch(struct link_out *out) {
    int events = !out->go ? UV_READABLE : link_out_ready(out) ? UV_WRITABLE : 0;
    return uv_poll_start(out->poll, events | UV_DISCONNECT, link_out_on_poll);
}

/* Writes what the socket takes, and ends the copy when all is sent or nobody wants it any more. */
static void link_out_write(struct link_out *out) {
    struct transport transport = {.fd = out->fd}; /* between processes of one daemon: in the clear */
    int left = reply_queue_write(&out->queue, &transport, CONNECTION_WRITE_BYTES, &out->connection->service->bytes_out);
    if (left < 0 || (left == 0 && !out->hungry) || link_out_watch(out) < 0)
        link_out_destroy(out);
}

/* The destination says whether it takes the bytes. If not, its end is closed. */
static void link_out_hear(struct link_out *out) {
    struct link_route *route = out->route;
    uint8_t word = 0;
    ssize_t got = recv(out->fd, &word, sizeof word, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got == 1 && word == LINK_NOT_YET) {
        link_out_close(out);
        link_out_refuse(out);
        route->unexpected = out->number < route->unexpected ? out->number : route->unexpected;
    } else if (got == 1 && word == LINK_GO) {
        out->go = true;
        link_route_again(route, LINK_AGAIN_MORE);
        if (link_out_watch(out) < 0)
            link_out_destroy(out);
    } else {
        link_out_destroy(out);
    }
}

static void link_out_on_poll(uv_poll_t *poll, int status, int events) {
    struct link_out *out = poll->data;
    service_busy(out->connection->service);
    if (status >= 0 && !out->go)
        link_out_hear(out);
    else if (status < 0 || events & UV_DISCONNECT)
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
    /* The first write comes from the poll handle, and the front is asked at the end of the turn: this is a callback of
     * the engine, and may not finish the feed. */
    if (out->state == LINK_OUT_OPEN) {
        link_out_watch(out);
    } else if (out->state == LINK_OUT_UNREADY) {
        link_out_unqueue(out);
        link_out_queue(out, false);
    }
    link_out_no_longer_early(out);
}

static void link_out_log(const char *device, const char *cause) {
    log_event_from(LOG_LEVEL_WARNING, device, "link_failed", "device", device, "cause", cause, NULL);
}

static int link_want(struct service *service, const char *device, const char *principal, const uint8_t *ticket) {
    const struct service_options *options = &service->options;
    return options->want_link ? options->want_link(options->owner, device, principal, ticket) : -ENOTSUP;
}

/* Asks the front for the link of this copy. False: ask again later. */
static bool link_out_ask_for(struct service *service, struct link_out *out) {
    struct link_table *table = &service->links;
    int error = link_want(service, out->device, out->connection->principal->name, out->ticket);
    if (error == -EAGAIN)
        return false;
    if (error) {
        link_out_log(out->device, strerror(-error));
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
        struct link_out *out = TAILQ_FIRST(&route->copies);
        if (out->number > route->unexpected) {
            link_out_unqueue(out);
            link_out_refuse(out);
            continue;
        }
        TAILQ_REMOVE(&table->turns, connection, links.turn);
        TAILQ_INSERT_TAIL(&table->turns, connection, links.turn);
        TAILQ_REMOVE(&connection->links.asking, route, turn);
        TAILQ_INSERT_TAIL(&connection->links.asking, route, turn);
        if (!link_out_ask_for(service, out))
            return;
    }
}

void link_out_turn(struct service *service) {
    link_out_ask(service);
}

/* Uses a link to tell the destination why its copy fails, since an end without a word would look like the end of this
 * worker. Takes `fd`. Allocates nothing. */
static void link_excuse(int fd, const char *why) {
    struct failure failure = {.code = STATUS_NO_HOST_MEMORY};
    struct reply reply;
    snprintf(failure.message, sizeof failure.message, "%s", why);
    reply_failure(&reply, FRAME_LINK_DATA, 0, &failure);
    send(fd, reply.head, reply.head_bytes, MSG_DONTWAIT | MSG_NOSIGNAL); /* the first bytes of the socket: they fit */
    close(fd);
}

/* ---- copies that there is no memory to note ---- */

static void link_unnoted_ask(struct service *service, struct link_unnoted *copy) {
    int error = link_want(service, copy->device, copy->principal, copy->ticket);
    copy->asked = error != -EAGAIN; /* else the next tick asks again */
    if (error && copy->asked)
        copy->deadline_ms = 0;
}

/* STATUS_AGAIN: too many of them wait for their links. */
static int link_unnoted_add(struct connection *connection, const char *device, const uint8_t *ticket) {
    struct link_unnoted *copy = connection->service->links.unnoted, *end = copy + LINK_UNNOTED_MAX;
    while (copy < end && copy->deadline_ms)
        copy++;
    if (copy == end)
        return STATUS_AGAIN;
    link_out_log(device, "no memory");
    copy->deadline_ms = clock_now_ms() + LINK_WANTED_MS;
    snprintf(copy->device, sizeof copy->device, "%s", device);
    snprintf(copy->principal, sizeof copy->principal, "%s", connection->principal->name);
    memcpy(copy->ticket, ticket, LINK_TICKET_BYTES);
    link_unnoted_ask(connection->service, copy);
    return STATUS_OK;
}

/* The front's reply. False: it is for none of these copies. */
static bool link_unnoted_granted(struct service *service, const uint8_t *ticket, int fd, const struct fault *fault) {
    struct link_unnoted *copy = service->links.unnoted, *end = copy + LINK_UNNOTED_MAX;
    while (copy < end && !(copy->deadline_ms && copy->asked && link_ticket_equal(copy->ticket, ticket)))
        copy++;
    if (copy == end)
        return false;
    if (fd < 0 && fault->code == STATUS_LIMIT) { /* the other worker took no link now */
        copy->asked = false;
        return true;
    }
    if (fd >= 0)
        link_excuse(fd, "the source had no memory for this copy");
    copy->deadline_ms = 0;
    return true;
}

static void link_unnoted_tick(struct service *service, uint64_t now_ms) {
    for (struct link_unnoted *copy = service->links.unnoted; copy < service->links.unnoted + LINK_UNNOTED_MAX; copy++)
        if (copy->deadline_ms && now_ms >= copy->deadline_ms)
            copy->deadline_ms = 0;
        else if (copy->deadline_ms && !copy->asked)
            link_unnoted_ask(service, copy);
}

/* ---- from CopyOut to the link ---- */

int link_out_send(struct connection *connection, uint64_t id, const char *device,
                  const uint8_t ticket[LINK_TICKET_BYTES]) {
    struct link_ends *ends = &connection->links;
    struct link_out *out = calloc(1, sizeof *out);
    struct link_route *route = out ? link_route_find(connection, device) : NULL;
    if (!route) {
        free(out);
        return link_unnoted_add(connection, device, ticket);
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
    out->number = ends->n_sent++;
    out->route = route;
    route->outs++;
    out->state = LINK_OUT_UNREADY;
    TAILQ_INSERT_TAIL(&route->unready, out, turn);
    LIST_INSERT_HEAD(&ends->outs, out, own);
    if (feed_start(&out->feed, connection->session, id) == STATUS_AGAIN) {
        link_out_destroy(out);
        return STATUS_AGAIN;
    }
    link_route_promote(route);
    link_out_ask(connection->service);
    return STATUS_OK;
}

/* The other worker took no link now. Links to it are not asked for before the next tick. */
static void link_out_put_back(struct link_out *out) {
    link_out_unqueue(out);
    link_out_queue(out, true);
    out->route->destination->crowded = true;
}

static void link_out_open(struct service *service, struct link_out *out, int fd) {
    uv_poll_t *poll = malloc(sizeof *poll);
    if (!poll || uv_poll_init(service->loop, poll, fd) < 0) {
        free(poll);
        link_excuse(fd, "the source had no memory for the link of this copy");
        link_out_destroy(out);
        return;
    }
    link_out_unqueue(out);
    out->state = LINK_OUT_OPEN;
    out->poll = poll;
    out->poll->data = out;
    out->fd = fd;
    if (link_out_watch(out) < 0)
        link_out_destroy(out);
}

void link_out_granted(struct service *service, const uint8_t ticket[LINK_TICKET_BYTES], int fd,
                      const struct fault *fault) {
    struct link_out *out;
    TAILQ_FOREACH(out, &service->links.wanted, turn)
        if (link_ticket_equal(out->ticket, ticket))
            break;
    if (!out) {
        if (!link_unnoted_granted(service, ticket, fd, fault) && fd >= 0)
            close(fd); /* the connection has ended meanwhile */
    } else if (fd < 0 && fault->code == STATUS_LIMIT) {
        link_out_put_back(out);
    } else if (fd < 0) {
        link_out_log(out->device, fault->message);
        link_out_destroy(out);
    } else {
        link_out_open(service, out, fd);
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
    link_unnoted_tick(service, now_ms);
    for (destination = LIST_FIRST(&service->links.destinations); destination; destination = next) {
        next = LIST_NEXT(destination, entry);
        destination->crowded = false;
        while ((route = TAILQ_FIRST(&destination->parked))) {
            link_route_unqueue(route);
            link_route_queue(route);
        }
        link_destination_again(destination);
        link_destination_let_go(&service->links, destination);
    }
    link_out_ask(service);
}

void link_out_room(struct service *service, const char *device) {
    struct link_destination *destination;
    LIST_FOREACH(destination, &service->links.destinations, entry)
        if (!strcmp(destination->device, device))
            link_destination_again(destination);
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
