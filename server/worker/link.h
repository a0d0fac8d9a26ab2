/* Copies between devices, from worker to worker. CopyOut at the source and CopyIn at the destination carry the same
 * ticket, and the front makes a socket pair and gives one end to each worker. Any of the three may come first: each
 * side waits for the others, for a bounded time and in bounded numbers.
 *
 * The source asks for a link when the value is there, and for the oldest copies of a session earlier. When the
 * destination has link and CopyIn it sends LINK_GO, and the bytes follow. If it has no CopyIn yet, and keeps enough
 * links that wait for theirs, it sends LINK_NOT_YET and closes its end: the source asks again when the destination has
 * read a CopyIn from it. A session with many copies is not read until some have come. So nobody waits for a copy that
 * was enqueued later: whatever is oldest in the order of its client has its CopyIn read and its link made.
 *
 * link_in.c is the destination's side, link_out.c the source's. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "engine/session/session.h"
#include "proto/ops/status.h"
#include "server/users/principal.h"

enum {
    LINK_TICKET_BYTES = 16,
    LINK_DEVICE_MAX = 31,
    /* Of copies that one worker expects; a session with more is not read until half of them have come. */
    LINK_COPIES_MAX = 4096,  /* all together, */
    LINK_PRINCIPAL_PART = 4, /* a principal may have 1/4 of them, */
    LINK_SESSION_PART = 8,   /* and a session 1/8; */
    LINK_SESSION_LEAST = 64, /* so many a session may have whatever others have: those may wait for this one */
    LINK_IDLE_MAX = 256,  /* links that wait for their CopyIn; 1/LINK_PRINCIPAL_PART of them for a principal's copies */
    LINK_EARLY_MAX = 64,  /* copies of a session to a device that ask for a link before their value is there */
    LINK_WANTED_MAX = 32, /* links that the front is asked for at one time; sessions take turns */
    LINK_DROP_STEPS = 8,  /* of the budget, for a copy that ends with its connection */
    LINK_DESTINATIONS_MAX = 64, /* destinations with an entry of their own: as many as there may be devices */
    LINK_BUCKETS = 256,         /* by a ticket's first byte, in which copies are looked for */
    LINK_UNNOTED_MAX = 16,      /* copies for which the source had no memory, and that wait for their links */
};

/* What the destination says first on a link. */
enum { LINK_GO = 1, LINK_NOT_YET = 2 };

struct connection;
struct service;
struct link_in;
struct link_origin;
struct link_refusal;
struct link_out;
struct copy_in;
struct link_destination;
struct link_route;

LIST_HEAD(link_copies, copy_in);
LIST_HEAD(link_ins, link_in);
LIST_HEAD(link_origins, link_origin);
LIST_HEAD(link_refusals, link_refusal);
LIST_HEAD(link_outs, link_out);
LIST_HEAD(link_routes, link_route);
LIST_HEAD(link_destinations, link_destination);
TAILQ_HEAD(link_out_queue, link_out);
TAILQ_HEAD(link_route_queue, link_route);
TAILQ_HEAD(link_turns, connection);

/* A CopyOut that the source had no memory to note. When its link comes the destination is told, instead of waiting in vain. */
struct link_unnoted {
    uint64_t deadline_ms; /* for the link; 0: this place is free */
    bool asked;           /* the front has been asked for the link */
    char device[LINK_DEVICE_MAX + 1];
    char principal[PRINCIPAL_NAME_BYTES];
    uint8_t ticket[LINK_TICKET_BYTES];
};

struct link_table {
    struct link_copies copies, by_ticket[LINK_BUCKETS];
    struct link_ins links, idle;   /* with a CopyIn, and those that wait for theirs */
    struct link_refusals refusals; /* devices whose links were not taken, and that wait to be told of a CopyIn */
    struct link_out_queue wanted;  /* copies for which the front has been asked for a link */
    struct link_turns turns;       /* connections with copies for which the front may be asked now */
    struct link_destinations destinations; /* of copies without a link */
    unsigned n_copies, n_idle, n_wanted, n_destinations;
    struct link_unnoted unnoted[LINK_UNNOTED_MAX];
};

/* The copies of a connection. */
struct link_ends {
    struct link_copies copies;
    unsigned n_copies;
    struct link_origins origins; /* of `copies`, by source */
    struct link_outs outs;
    uint64_t n_sent;                /* CopyOuts so far */
    struct link_routes routes;      /* of `outs`, by destination */
    struct link_route_queue asking; /* the routes for which the front may be asked now; */
    TAILQ_ENTRY(connection) turn;   /* the connection is in table->turns while there are some */
};

static inline void link_table_init(struct link_table *table) {
    *table = (struct link_table){.n_copies = 0};
    TAILQ_INIT(&table->wanted);
    TAILQ_INIT(&table->turns);
}

static inline void link_ends_init(struct link_ends *ends) {
    *ends = (struct link_ends){0};
    LIST_INIT(&ends->routes);
    TAILQ_INIT(&ends->asking);
}

/* Whether a copy from or to the connection's session is in progress. */
static inline bool link_busy(const struct link_ends *ends) {
    return !LIST_EMPTY(&ends->copies) || !LIST_EMPTY(&ends->outs);
}

/* Takes the same time for all tickets: a client that knows a ticket may write into another client's tensor. */
static inline bool link_ticket_equal(const uint8_t *a, const uint8_t *b) {
    unsigned difference = 0;
    for (unsigned i = 0; i < LINK_TICKET_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

/* ---- the destination's side: ids that wait for their bytes, and the links that bring them ---- */

/* CopyIn: binds request->id to the bytes that a link with this ticket will bring from the device `source`. The id is
 * poisoned if `refused` is not NULL or the copy cannot be expected. STATUS_AGAIN: nothing has been done, because there
 * is no memory yet. */
int link_in_expect(struct connection *connection, const struct upload_request *request, const char *source,
                   const uint8_t ticket[LINK_TICKET_BYTES], const struct fault *refused);
/* A link from the front, for a copy of this principal. Takes over `fd`; -1: this process had no free descriptor for
 * it. */
void link_in_accept(struct service *service, const char *device, const char *principal,
                    const uint8_t ticket[LINK_TICKET_BYTES], int fd);
/* The worker of `device` has ended: fails copies that wait for a link from it. A link that has come ends by itself. */
void link_in_peer_lost(struct service *service, const char *device);
/* The client has gone or come back: its copies get their whole time to begin again, and the time of a lease besides. */
void link_in_extend(struct connection *connection);
/* Whether the connection may not be read before some of its copies have come. */
bool link_in_full(const struct connection *connection);
/* Ends copies and links that have waited too long. */
void link_in_tick(struct service *service, uint64_t now_ms);
/* Ends the connection's copies, before its session ends. False: the budget has ended before all have. */
bool link_in_drop_connection(struct connection *connection);
/* Ends all links; the loop must run once more to close the handles. */
void link_in_finish(struct service *service);

/* ---- the source's side: tensors that wait for a link or are on their way ---- */

/* CopyOut: sends tensor `id`, or the cause of its failure, to `device`. Without host memory the destination's tensor fails with
 * NO_HOST_MEMORY. STATUS_AGAIN: nothing has been done, because there is no memory yet. */
int link_out_send(struct connection *connection, uint64_t id, const char *device,
                  const uint8_t ticket[LINK_TICKET_BYTES]);
/* The front's reply. Takes over `fd`; -1: there is no link, and `fault` says why. */
void link_out_granted(struct service *service, const uint8_t ticket[LINK_TICKET_BYTES], int fd,
                      const struct fault *fault);
/* The worker of `device` has read a CopyIn after it had not taken links: it is asked again. */
void link_out_room(struct service *service, const char *device);
/* Asks the front for links of copies whose values have come in this turn. */
void link_out_turn(struct service *service);
/* Ends copies for which the front has sent no reply, and asks it again for links to workers that took none before. */
void link_out_tick(struct service *service, uint64_t now_ms);
/* As link_in_drop_connection(). */
bool link_out_drop_connection(struct connection *connection);
/* Call it after the connections have ended. */
void link_out_finish(struct service *service);
