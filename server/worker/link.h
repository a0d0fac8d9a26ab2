/* Copies between devices, from worker to worker. CopyOut at the source and CopyIn at the destination carry the same
 * ticket, and the front makes a socket pair and gives one end to each worker. Any of the three may come first: each
 * side waits for the others, for a bounded time and in bounded numbers. This file has what both sides share; link_in.h
 * has the destination's side, link_out.h the source's. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

enum {
    LINK_TICKET_BYTES = 16,
    LINK_DEVICE_MAX = 31,
    LINK_COPIES_MAX = 4096,  /* copies that one worker expects, */
    LINK_PRINCIPAL_PART = 2, /* a principal may have 1/2 of them, */
    LINK_SESSION_PART = 4,   /* and a session 1/4 */
    LINK_IDLE_MAX = 256,  /* links that wait for their CopyIn; 1/LINK_PRINCIPAL_PART of them for a principal's copies */
    LINK_WANTED_MAX = 32, /* links that the front is asked for at one time; sessions take turns */
    LINK_DROP_STEPS = 8,  /* of the budget, for a copy that ends with its connection */
    LINK_DESTINATIONS_MAX =
        64, /* destinations of which it is known whether they take links now: as many as there may be devices */
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
    struct link_out_queue wanted;          /* for which the front has been asked */
    struct link_turns turns;               /* connections with copies for which the front may be asked now */
    struct link_destinations destinations; /* of copies without a link */
    unsigned n_copies, n_idle, n_wanted, n_destinations;
};

/* The copies of a connection. */
struct link_ends {
    struct link_copies copies;
    unsigned n_copies;
    struct link_outs outs;
    struct link_routes routes;      /* those of them without a link, by destination */
    struct link_route_queue asking; /* those for which the front may be asked now; */
    TAILQ_ENTRY(connection) turn;   /* in table->turns while there are some */
};
void link_ends_init(struct link_ends *ends);

void link_table_init(struct link_table *table);
/* Ends everything; the loop must run once more to close the handles. */
void link_table_finish(struct service *service);

/* Ends copies that have waited too long, and asks the front again if it was busy. */
void link_tick(struct service *service, uint64_t now_ms);
/* Ends the connection's copies, before its session ends. False: the budget has ended before all have. */
bool link_drop_connection(struct connection *connection);
/* Whether a copy from or to the connection's session is under way. */
bool link_busy(const struct connection *connection);

/* In a time that does not depend on the tickets. */
bool link_ticket_equal(const uint8_t *a, const uint8_t *b);
/* A poll handle for a link's socket, with `owner` as its data; a libuv error. */
int link_watch(struct service *service, uv_poll_t *poll, int fd, void *owner);
