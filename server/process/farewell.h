/* The end of a connection that the front refuses or closes: sends the Error frame, and then reads and drops what the
 * peer still sends, for a moment. Closing at once would reset the connection, and the peer might never read the error.
 * Front thread only. */
#pragma once

#include <sys/queue.h>
#include <uv.h>

#include "proto/net/transport.h"
#include "proto/ops/status.h"

struct farewell {
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;
    unsigned handles;
    size_t dropped; /* bytes */
    struct farewell_list *list;
    LIST_ENTRY(farewell) link;
};

struct farewell_list {
    LIST_HEAD(, farewell) head;
    unsigned count;
    uv_loop_t *loop;
};

void farewell_list_init(struct farewell_list *list, uv_loop_t *loop);
/* Closes all farewells; the caller runs the loop until their handles are closed. */
void farewell_list_finish(struct farewell_list *list);

/* Takes over `fd`, a non-blocking socket that no handle watches any more. `fault` NULL: there is no Error frame. */
void farewell_say(struct farewell_list *list, int fd, const struct fault *fault);
/* The same over a connection's transport, which may be TLS; finishes the transport. */
void farewell_say_over(struct farewell_list *list, struct transport *transport, const struct fault *fault);
/* Sends only the Error frame, as far as the socket takes it without waiting; does not close the socket. */
void farewell_send(int fd, const struct fault *fault);
