/* A control connection: Hello, Ping, ListDevices, ListOperations, GetStatus, Drain and KillSession,
 * answered by the front itself,
 * where the principal's role allows it (server/users/role.h).
 * One reply at a time: while it leaves, nothing more is read; a peer that does not take it is cut. Front thread only. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#include "proto/net/transport.h"
#include "proto/wire/frame.h"
#include "server/front/arrival.h"
#include "server/front/kill.h"
#include "server/process/handshake.h"

struct control {
    struct front *front;
    uv_poll_t poll;
    uv_timer_t timer; /* for Hello to come, and for a reply to leave */
    struct transport transport;
    struct handshake *handshake; /* of TLS, while a thread takes a step of it, and has the transport; NULL: none */
    unsigned handles;
    struct peer peer;
    struct roster_entry *entry; /* where it is counted */
    struct lobby_entry waiting; /* until it has said Hello */
    bool reserved;              /* its place is one of those for admins */
    uint64_t used_ns;           /* when it asked for something last */
    struct frame_reader reader;
    bool welcomed;
    bool reading;  /* waits for requests */
    bool stranger; /* counted as one */
    enum { CONTROL_STRANGER, CONTROL_LOGGING_IN, CONTROL_LOGGED_IN } login;
    bool draining; /* has asked for a drain, and waits for its end */
    uint64_t drain_sequence;
    bool kill_starting;
    bool killing; /* has asked for a session's end: nothing more is read until that is answered */
    uint64_t kill_sequence;
    struct kill kill;
    uint8_t *out; /* what is still to be sent is [out_sent, out_size) */
    size_t out_size, out_sent;
    LIST_ENTRY(control) link;
};

struct control_list {
    LIST_HEAD(, control) head;
    unsigned count, operators, strangers; /* strangers: those that have to log in, and have not */
};

/* Takes `fd`, whose preamble has been read, and the count for it. `reserved`: its place is one of those for admins. */
void control_start(struct front *front, int fd, const struct peer *peer, struct roster_entry *entry, bool reserved);
/* Its place is wanted. */
void control_evict(struct lobby_entry *waiting);
/* Ends those that have asked for nothing for a while: clients open theirs again when they need one. */
void control_tick(struct front *front);
/* Ends the connections of whoever was let in as this, by its credential. */
void control_revoke(struct front *front, const struct principal *principal);
/* The workers have ended: answers those who wait for that. */
void control_drained(struct front *front);
/* Some reply has not left yet. */
bool control_busy(const struct front *front);
void control_list_finish(struct control_list *list);
