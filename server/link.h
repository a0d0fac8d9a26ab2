/* Copies between devices, worker to worker. The source's CopyOut and the destination's CopyIn carry the same ticket;
 * the front makes a socket pair and gives one end to each worker. Which of the three comes first is open: each side
 * waits for what is missing, a bounded time and a bounded number. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/session.h"
#include "proto/status.h"

enum {
    LINK_TICKET_BYTES = 16,
    LINK_DEVICE_MAX = 31,
    LINK_COPIES_MAX = 4096, /* copies expected by one worker */
    LINK_IDLE_MAX = 256,    /* links that wait for their CopyIn */
    LINK_WANTED_MAX = 32,   /* asked of the front at one time */
};

struct connection;
struct service;
struct link_in;
struct link_out;
struct copy_in;

struct link_table {
    struct copy_in *copies;
    struct link_in *links;
    struct link_out *outs, **outs_tail;
    unsigned n_copies, n_idle, n_wanted;
};

void link_table_init(struct link_table *table);
/* Ends everything; the loop must run once more to close the handles. */
void link_table_finish(struct service *service);

/* CopyIn: binds request->id to what a link with this ticket brings from the device `source`. Where `refused` is not
 * NULL, or nothing can be expected, the id is poisoned. */
void link_receive(struct connection *connection, const struct upload_request *request, const char *source,
                  const uint8_t ticket[LINK_TICKET_BYTES], const struct fault *refused);
/* CopyOut: sends tensor `id`, or the cause of its failure, to `device`. */
void link_send(struct connection *connection, uint64_t id, const char *device, const uint8_t ticket[LINK_TICKET_BYTES]);

/* From the front. Both take over `fd`. -1 says to link_accept that this process had no room for it, and stands for a
 * refusal with `fault` in link_granted. */
void link_accept(struct service *service, const char *device, const uint8_t ticket[LINK_TICKET_BYTES], int fd);
void link_granted(struct service *service, const uint8_t ticket[LINK_TICKET_BYTES], int fd, const struct fault *fault);

/* The worker of `device` has ended: fails what waits for a link from it. A link that has come shows that by itself. */
void link_peer_lost(struct service *service, const char *device);

/* Times out what has waited too long, and asks the front again where it was busy. */
void link_tick(struct service *service, uint64_t now_ms);
/* The connection goes: its copies end, before its session does. */
void link_drop_connection(struct connection *connection);
/* Whether a copy from or to this connection's session is under way. */
bool link_busy(const struct connection *connection);
