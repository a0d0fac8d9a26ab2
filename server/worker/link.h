/* Copies between devices, worker to worker. The source's CopyOut and the destination's CopyIn carry the same ticket;
 * the front makes a socket pair and gives one end to each worker. Which of the three comes first is open: each side
 * waits for what is missing, a bounded time and a bounded number. What is common to both sides is here; the destination's
 * is in link_in.h, the source's in link_out.h. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

enum {
    LINK_TICKET_BYTES = 16,
    LINK_DEVICE_MAX = 31,
    LINK_COPIES_MAX = 4096,  /* copies expected by one worker, */
    LINK_PRINCIPAL_PART = 2, /* of which a principal may have this part, */
    LINK_SESSION_PART = 4,   /* and a session this */
    LINK_IDLE_MAX = 256,  /* links that wait for their CopyIn; LINK_PRINCIPAL_PART of them for a principal's copies */
    LINK_WANTED_MAX = 32, /* asked of the front at one time, in turns between sessions */
    LINK_DROP_STEPS = 8,  /* of the budget, for a copy that ends with its connection */
    LINK_DESTINATIONS_MAX = 64, /* told apart by what takes no link now: as many devices as there may be */
};

struct connection;
struct service;
struct link_in;
struct link_out;
struct copy_in;
struct link_destination;
struct link_route;

LIST_HEAD(link_copies, copy_in);
LIST_HEAD(link_outs, link_out);
LIST_HEAD(link_routes, link_route);
LIST_HEAD(link_destinations, link_destination);
TAILQ_HEAD(link_out_queue, link_out);
TAILQ_HEAD(link_route_queue, link_route);
TAILQ_HEAD(link_turns, connection);

struct link_table {
    struct copy_in *copies;
    struct link_in *links;
    struct link_out_queue wanted;          /* asked of the front */
    struct link_turns turns;               /* connections with copies for which the front can be asked now */
    struct link_destinations destinations; /* of copies that have no link yet */
    unsigned n_copies, n_idle, n_wanted, n_destinations;
};

/* A connection's part. */
struct link_ends {
    struct link_copies copies;
    unsigned n_copies;
    struct link_outs outs;
    struct link_routes routes;      /* those of them that have no link yet, by destination */
    struct link_route_queue asking; /* and for these the front can be asked now; */
    TAILQ_ENTRY(connection) turn;   /* while there are some */
};
void link_ends_init(struct link_ends *ends);

void link_table_init(struct link_table *table);
/* Ends everything; the loop must run once more to close the handles. */
void link_table_finish(struct service *service);

/* Times out what has waited too long, and asks the front again where it was busy. */
void link_tick(struct service *service, uint64_t now_ms);
/* The connection goes: its copies end, before its session does. False: the budget has ended before they have. */
bool link_drop_connection(struct connection *connection);
/* Whether a copy from or to this connection's session is under way. */
bool link_busy(const struct connection *connection);

/* In a time that tells nothing. */
bool link_ticket_equal(const uint8_t *a, const uint8_t *b);
/* A poll handle for a link's socket, with `owner` as its data; a libuv error. */
int link_watch(struct service *service, uv_poll_t *poll, int fd, void *owner);
