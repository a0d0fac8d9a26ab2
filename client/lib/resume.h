/* Losing a connection without losing the session: the I/O thread connects again, presents the session, and sends the
 * frames again that the daemon has not handled (the protocol: "Resumption" in proto/wire/tensord.proto). Also heartbeats,
 * which find a connection that has died silently. Needs the device's lock, except for constants. */
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
    RESUME_PARTING_MS = 500, /* for the daemon to take a goodbye, and before that for a lost connection to come back */
};

/* How far the daemon had come when a connection ended. */
struct resume_point {
    uint64_t frames; /* counted ones that it has handled, */
    uint64_t bytes;  /* and bytes of the next one that it has */
};

struct resume {
    /* constant */
    const struct td_connection *connection;
    uint16_t target;
    bool on; /* the daemon keeps the session */
    uint64_t session, epoch;
    uint8_t secret[RESUME_SECRET_BYTES];
    pid_t daemon;          /* its front, where the socket leads to that itself; 0: not known */
    unsigned reconnect_ms; /* for which to try */
    unsigned silence_ms;   /* after which the daemon is taken for gone; 0: never */
    unsigned check_ms;     /* between looks, and at most between signs of life from here; 0: none */

    bool away;           /* there is no connection now */
    td_error cause;      /* why */
    int64_t deadline_ms; /* for another one */
    unsigned attempts;   /* for it; the first one of a row is made at once */
    int attempt;         /* the socket of the present one; -1: none */
    uint64_t reconnects;
    uint64_t repeated;         /* counted frames that were sent again */
    struct resume_point point; /* when the last connection began, */
    uint64_t heard_at_once;    /* and reader.heard then */

    int64_t look_ms;         /* when to look next, */
    int64_t heard_ms;        /* when something had come, as far as was seen, */
    uint64_t heard, written; /* and what was counted then */

    bool parting; /* the daemon has been told that the session is not needed */
    struct item goodbye;
    uint8_t goodbye_frame[32];
};

/* Of a session that is to be opened; resume_welcome() then takes what the daemon grants. */
void resume_init(struct resume *resume, const struct td_connection *connection, uint16_t target);
void resume_hello(const struct resume *resume, Tensord__Hello *hello);
void resume_welcome(struct resume *resume, const Tensord__Welcome *welcome, int fd);

/* The connection has ended: has the I/O thread find another one. */
void resume_begin(struct td_device *device, const td_error *cause);
/* On the I/O thread: until there is one, or the device is lost or closed. Gives up the lock meanwhile. */
void resume_run(struct td_device *device);
/* The device is about to be closed: cuts an attempt short. */
void resume_stop(struct td_device *device);
/* Tells the daemon that the session is not needed any more, behind all that is queued. */
void resume_goodbye(struct td_device *device);

/* After the I/O thread: lets the goodbye arrive, before the deadline and not for long. */
void resume_part(struct td_device *device, int64_t deadline_ms);

/* On the I/O thread: how long it may sleep for heartbeats' sake, and what they need; `now_ns` of CLOCK_MONOTONIC. */
struct timespec resume_patience(const struct resume *resume, uint64_t now_ns);
void resume_heartbeat(struct td_device *device, uint64_t now_ns);
