/* A connection from accept() until it is handed over. The front reads exactly the 8-byte preamble, waits if the
 * device's worker is just restarting, and passes the socket to the worker, or keeps it as a control connection. The
 * front keeps its copy of the socket until the worker has taken it: if the worker dies before, the next worker gets the
 * socket, and the client does not notice. Front thread only. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <uv.h>

#include "proto/wire/frame.h"
#include "server/front/places.h"
#include "server/front/roster.h"
#include "server/ipc/peer.h"

struct front;
struct roster_entry;
struct worker_slot;

struct arrival {
    struct front *front;
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;
    unsigned handles;
    uint8_t preamble[PREAMBLE_BYTES];
    size_t received;
    uint16_t target;
    enum place place;
    bool parked;              /* its preamble is here, and it waits for the worker */
    struct worker_slot *slot; /* its process has been sent the socket and has not taken it yet; else NULL */
    uint64_t handed;          /* its number among the connections handed to that process */
    uint64_t session;         /* the session number under which it was handed over */
    struct peer peer;
    struct lobby_entry waiting; /* until its preamble is here */
    struct roster_entry *entry; /* where the roster counts it; NULL: as a worker's guest, or not yet */
    TAILQ_ENTRY(arrival) link;
};

struct arrival_list {
    TAILQ_HEAD(, arrival) head; /* the oldest first */
    /* Arrivals by kind of place, without arrivals on their way to a worker: its slot counts these. */
    unsigned places[PLACE_KINDS];
    uint64_t last_session; /* the last session number that was given out */
};

/* The number of arrivals that are not on their way to a worker. */
unsigned arrival_count(const struct front *front);
/* A listener has accepted `fd`, which this takes over; `tls`: the listener is one for TLS. `owner`: the front. */
void arrival_start(void *owner, int fd, const struct sockaddr_storage *address, bool tls);
/* A worker's state has changed: connections that wait for it are handed over or refused, connections that it has taken
 * are done, and connections that a dead worker has not taken are placed again. */
void arrival_retry(struct front *front);
/* Another connection gets its place. */
void arrival_evict(struct lobby_entry *waiting);
/* The worker had no descriptor for the connection of this session number. `owner`: the front. */
void arrival_refused(void *owner, const struct worker_slot *slot, uint64_t session);
/* Refuses all arrivals except those on their way to a worker, which refuses them itself. */
void arrival_refuse_all(struct front *front, const struct fault *fault);
/* Closes all that are left. The caller runs the loop until the handles are closed. */
void arrival_list_finish(struct front *front);
