/* A connection from accept until it is handed on: reads the 8-byte preamble and not a byte more, waits where the device
 * is just restarting, and passes the socket to the worker or to control. It is kept until the worker has taken it: where
 * the worker dies before, the next one gets it, and the client does not notice. Front thread only. */
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
    bool held;                /* has its preamble, waits for the worker */
    struct worker_slot *slot; /* on its way to this one's process; NULL: to none */
    uint64_t handed;          /* its number among those handed to that process */
    uint64_t session;         /* number of the session it was handed over as */
    struct peer peer;
    struct lobby_entry waiting; /* until its preamble is here */
    struct roster_entry *entry; /* where it is counted; NULL: as a worker's guest, or nowhere yet */
    LIST_ENTRY(arrival) link;
};

struct arrival_list {
    LIST_HEAD(, arrival) head;
    unsigned places[PLACE_KINDS]; /* how many have one; without those on their way to a worker, whom its slot counts */
    uint64_t last_session;        /* number given last */
};

/* How many there are, without those on their way to a worker. */
unsigned arrival_count(const struct front *front);
/* A listener has accepted `fd`, which is taken; `tls`: it is one for that. `owner`: the front. */
void arrival_start(void *owner, int fd, const struct sockaddr_storage *address, bool tls);
/* Something is new about a worker: held connections may go on, or must be refused; those that it has taken are done,
 * those that a dead one has not taken are placed again. */
void arrival_retry(struct front *front);
/* Its place is wanted. */
void arrival_evict(struct lobby_entry *waiting);
/* The worker has no descriptor left for the one that was handed over as this session. `owner`: the front. */
void arrival_refused(void *owner, const struct worker_slot *slot, uint64_t session);
/* Refuses all but those on their way to a worker, which will refuse them itself. */
void arrival_refuse_all(struct front *front, const struct fault *fault);
/* Cuts what is left. The caller runs the loop until their handles are closed. */
void arrival_list_finish(struct front *front);
