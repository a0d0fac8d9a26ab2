/* A proxy between clients and a daemon that loses connections: each one is cut after a random number of bytes, in the
 * middle of whatever is on its way. It runs on a thread of its own. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/net/url.h"

enum { PROXY_PAIRS_MAX = 64 };

struct proxy_pair {
    int client, server; /* -1: closed */
    bool control;       /* carries a control connection: never cut */
    int64_t left;       /* bytes until it is cut; negative: it is not */
    struct proxy_flow {
        uint8_t bytes[64 << 10];
        unsigned begin, end;
        bool over; /* its source has ended */
    } up, down;
    bool met; /* the preamble has been seen */
};

struct proxy {
    char url[108];
    /* settings; may change at any time */
    atomic_uint cuts_max;  /* so many are made, */
    atomic_uint cuts;      /* and have been made */
    atomic_uint every;     /* bytes after which each connection is cut; 0: some number of them */
    atomic_uint taken;     /* connections that it has let in */
    atomic_ulong carried;  /* bytes, both ways */
    atomic_bool frozen;    /* nothing is passed on, and nothing is closed */
    atomic_bool shut;      /* new connections are closed at once */
    atomic_bool one_sided; /* a cut is told to the client alone; the server still believes in it */
    atomic_bool cut_now;   /* cuts all that there are, once */
    /* private */
    char directory[64]; /* "": it listens on TCP */
    struct url_address to;
    unsigned seed;
    int listener, wake[2];
    pthread_t thread;
    atomic_bool stop;
    struct proxy_pair *pairs[PROXY_PAIRS_MAX];
    int kept[1024]; /* one-sided */
    unsigned n_kept;
};

/* To a daemon's Unix socket, or to its port of 127.0.0.1 for TCP or TLS, which is passed on as it is: the proxy's URL is
 * of the same kind. With cuts_max 0 nothing is cut. */
void proxy_start(struct proxy *proxy, const char *to_url, unsigned seed);
void proxy_stop(struct proxy *proxy);
/* Cuts what connections there are and returns when that has been done. */
void proxy_cut(struct proxy *proxy);
