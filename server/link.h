/* Copies between devices, worker to worker. The source's CopyOut and the destination's CopyIn carry the same ticket;
 * the front makes a socket pair and gives one end to each worker. Which of the three comes first is open: each side
 * waits for what is missing, a bounded time and a bounded number. What is common to both sides is here; the destination's
 * is in link_in.h, the source's in link_out.h. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

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

/* Times out what has waited too long, and asks the front again where it was busy. */
void link_tick(struct service *service, uint64_t now_ms);
/* The connection goes: its copies end, before its session does. */
void link_drop_connection(struct connection *connection);
/* Whether a copy from or to this connection's session is under way. */
bool link_busy(const struct connection *connection);

/* In a time that tells nothing. */
bool link_ticket_equal(const uint8_t *a, const uint8_t *b);
/* A poll handle for a link's socket, with `owner` as its data; a libuv error. */
int link_watch(struct service *service, uv_poll_t *poll, int fd, void *owner);
