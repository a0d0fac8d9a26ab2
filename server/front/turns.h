/* Turns: whose request the front handles next.
 *
 * A request on a control connection is not handled when it comes: its connection waits here. In each round of the
 * front's loop the connections that wait get TURNS_NS together, and the rest of them waits for the next round. Between
 * two rounds the loop accepts connections, takes logins, hears of its workers and serves HTTP, so these wait for one
 * round at most, however many requests others send.
 *
 * Principals take turns first: each one has one request handled before another principal has its second one. Within a
 * principal its connections take turns. Front thread only. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#include "engine/order/budget.h"

#define TURNS_NS UINT64_C(1000000) /* of a round; a request that has begun is finished */

/* What waits; embedded in a connection, all zeroes at first. */
struct turn {
    void (*take)(struct turn *turn); /* handles one request, and may free the connection or have it wait again */
    struct turn_queue *queue;        /* NULL: it does not wait */
    TAILQ_ENTRY(turn) link;
};

/* The connections of a principal that wait; embedded in what the front knows of the principal, all zeroes at first. */
struct turn_queue {
    TAILQ_HEAD(, turn) waiting; /* valid if `count` */
    unsigned count;
    TAILQ_ENTRY(turn_queue) link;
};

struct turns {
    TAILQ_HEAD(, turn_queue) queues; /* those in which somebody waits */
    struct budget budget;            /* the clock is replaced by tests */
    uv_idle_t idle;                  /* runs once in each round of the loop, while somebody waits */
};

void turns_init(struct turns *turns, uv_loop_t *loop);
/* Nobody waits. The caller then runs the loop until the handle is closed. */
void turns_finish(struct turns *turns);
/* The connection waits for a turn, behind the others of its principal; does nothing if it waits already. `queue` stays
 * valid until turns_leave() or until the turn is taken. */
void turns_wait(struct turns *turns, struct turn_queue *queue, struct turn *turn);
/* The connection does not wait any more; does nothing if it did not. */
void turns_leave(struct turns *turns, struct turn *turn);
