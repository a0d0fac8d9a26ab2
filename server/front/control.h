/* A control connection: the front itself replies to Hello, Ping, ListDevices, ListOperations, GetStatus, GetConfig,
 * Drain and KillSession, if the principal's role allows it (server/users/role.h). One reply at a time: while it leaves
 * nothing more is read, and a peer that does not take it is closed. After Hello, connections take turns (turns.h).
 * Front thread only. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#include "proto/net/transport.h"
#include "proto/wire/frame.h"
#include "server/front/arrival.h"
#include "server/front/supervisor.h"
#include "server/front/turns.h"
#include "server/process/handshake.h"

struct control {
    struct front *front;
    uv_poll_t poll;
    uv_timer_t timer; /* for Hello to come, and for a reply to leave */
    struct transport transport;
    struct handshake *handshake; /* of TLS, while a thread takes a step of it; else NULL */
    unsigned handles;
    struct peer peer;
    struct roster_entry *entry; /* where the roster counts it */
    struct lobby_entry waiting; /* until it has said Hello */
    bool reserved;              /* it has one of the places for admins (PLACE_OPERATOR) */
    struct turn turn;           /* while it waits to have a request handled */
    uint64_t used_ns;           /* when its last request came */
    struct frame_reader reader;
    bool welcomed;
    bool reading;  /* it waits for requests */
    bool stranger; /* it counts in list->strangers */
    enum { CONTROL_STRANGER, CONTROL_LOGGING_IN, CONTROL_LOGGED_IN } login;
    bool draining; /* it has asked for a drain, and waits for the drain's end */
    uint64_t drain_sequence;
    bool kill_starting;
    bool killing; /* it has asked for a session's end: nothing more is read until the reply */
    uint64_t kill_sequence;
    struct kill kill;
    uint8_t *out; /* the bytes [out_sent, out_size) are still to be sent */
    size_t out_size, out_sent;
    LIST_ENTRY(control) link;
};

struct control_list {
    LIST_HEAD(, control) head;
    unsigned count, operators, strangers; /* strangers have to log in and have not */
};

/* Takes over `fd`, whose preamble has been read, and its count in the roster. `reserved`: PLACE_OPERATOR. */
void control_start(struct front *front, int fd, const struct peer *peer, struct roster_entry *entry, bool reserved);
/* Another connection gets its place. */
void control_evict(struct lobby_entry *waiting);
/* Ends connections without a request for a while: a client opens another one when it needs it. */
void control_tick(struct front *front);
/* Ends the connections that logged in as this principal with this credential. */
void control_revoke(struct front *front, const struct principal *principal);
/* The workers have ended: replies to the clients that asked for the drain. */
void control_drained(struct front *front);
/* Whether some reply has not left yet. */
bool control_busy(const struct front *front);
void control_list_finish(struct control_list *list);
