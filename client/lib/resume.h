/* Losing a connection without losing the session: the I/O thread connects again, presents the session, and sends the
 * frames again that the daemon has not handled (the protocol: "Resumption" in proto/wire/tensord.proto). Also heartbeats,
 * which find a connection that has died silently. Under the device's lock, except for constants. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "client/lib/queue.h"
#include "client/tensord.h"
#include "proto/wire/tensord.pb-c.h"

struct td_connection;
struct td_device;

enum {
    RESUME_SECRET_BYTES = 16,
    RESUME_HEARTBEAT_MS = 10000,
    RESUME_PARTING_MS = 500, /* closing waits so long for the daemon to take the Goodbye, and for a lost connection */
};

/* How far the daemon had come when a connection ended. */
struct resume_point {
    uint64_t frames; /* counted frames that it has handled, */
    uint64_t bytes;  /* and bytes of the next frame that have arrived */
};

struct resume {
    /* constant */
    const struct td_connection *connection;
    uint16_t target;
    bool on; /* the daemon keeps the session */
    uint64_t session, epoch;
    uint8_t secret[RESUME_SECRET_BYTES];
    pid_t daemon;          /* the process of the front, if it is the peer of the Unix socket; 0: not known */
    unsigned reconnect_ms; /* how long to try */
    unsigned silence_ms;   /* a daemon that sends nothing for this time counts as gone; 0: never */
    unsigned check_ms;     /* between two looks, which send a Ping if nothing was heard or sent since; 0: none */

    bool away;           /* there is no connection now */
    td_error cause;      /* why there is none */
    int64_t deadline_ms; /* until when to try */
    unsigned attempts;   /* attempts in a row; the first one is made at once */
    int attempt;         /* the socket of the present attempt; -1: none */
    uint64_t reconnects;
    uint64_t repeated;         /* counted frames that were sent again */
    struct resume_point point; /* when the last connection began, */
    uint64_t heard_at_once;    /* and reader.heard then */

    int64_t look_ms;         /* when to look next, */
    int64_t heard_ms;        /* when the last look found that data had come, */
    uint64_t heard, written; /* and the counters at the last look: reader.heard, journal.head */

    bool parting; /* the daemon has been told that the session is not needed */
    struct item goodbye;
    uint8_t goodbye_frame[32];
};

/* For a session that will be opened: resume_hello() fills Hello, resume_welcome() takes what the daemon grants. */
void resume_init(struct resume *resume, const struct td_connection *connection, uint16_t target);
void resume_hello(const struct resume *resume, Tensord__Hello *hello);
void resume_welcome(struct resume *resume, const Tensord__Welcome *welcome, int fd);

/* The connection has ended: the I/O thread shall make another one. */
void resume_begin(struct td_device *device, const td_error *cause);
/* On the I/O thread: tries until there is a connection, or the device is lost or closed. Gives up the lock meanwhile. */
void resume_run(struct td_device *device);
/* The device will be closed: ends the present attempt. */
void resume_stop(struct td_device *device);
/* Queues Goodbye, behind everything else: the daemon may end the session. */
void resume_goodbye(struct td_device *device);

/* After the end of the I/O thread: waits, for a short time and not beyond the deadline, until Goodbye has arrived. */
void resume_part(struct td_device *device, int64_t deadline_ms);

/* On the I/O thread: how long it may sleep until the next look for heartbeats, and that look; `now_ns` of CLOCK_MONOTONIC. */
struct timespec resume_patience(const struct resume *resume, uint64_t now_ns);
void resume_heartbeat(struct td_device *device, uint64_t now_ns);
