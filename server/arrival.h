/* A connection from accept until it is handed on: reads the 8-byte preamble and not a byte more, waits where the device
 * is just restarting, and passes the socket to the worker or to control. Front thread only. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <uv.h>

#include "proto/frame.h"

struct front;

/* Who is at the other end. */
struct peer {
    char principal[64]; /* "uid:1000", "tcp" */
    char address[64];   /* "unix", "127.0.0.1:40212" */
    bool has_uid;
    uid_t uid;
};

struct arrival {
    struct front *front;
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;
    unsigned handles;
    uint8_t preamble[PREAMBLE_BYTES];
    size_t received;
    uint16_t target;
    bool held; /* has its preamble, waits for the worker */
    struct peer peer;
    LIST_ENTRY(arrival) link;
};

struct arrival_list {
    LIST_HEAD(, arrival) head;
    unsigned count;
    uint64_t last_session; /* number given last */
};

/* Takes `fd`. */
void arrival_start(struct front *front, int fd, const struct sockaddr_storage *address);
/* A worker's state is another one: held connections may go on, or must be refused. */
void arrival_retry(struct front *front);
/* Refuses all of them. */
void arrival_refuse_all(struct front *front, const struct fault *fault);
