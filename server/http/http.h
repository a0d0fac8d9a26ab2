/* HTTP for operators: figures for Prometheus and programs, health for orchestrators, and a dashboard. It only reads, and
 * it asks no worker, so it answers when a device hangs. Everything it does is bounded, for whoever connects: connections,
 * their age, their memory, and the bytes of answers that have not left. Whoever comes gets a place: a connection that has
 * no answer on its way gives its own up, the oldest of the address that has most; and answers other than health's take
 * only a part of the places, so that health is told at once whatever others do. Front thread only; libmicrohttpd runs on
 * the front's loop, without threads of its own. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <sys/queue.h>
#include <uv.h>

#include "server/http/http_history.h"
#include "server/http/http_library.h"
#include "server/ipc/peer.h"

struct config;
struct front;
struct http_route;

enum { HTTP_ROUTES_MAX = 8, HTTP_CODES = 6 };

/* A connection, known from accept to close. */
struct http_peer {
    struct http *http;
    int fd;
    struct source source;
    uint64_t since_ns; /* of its present request, or of its silence */
    bool answered;     /* has had an answer before */
    bool answering;    /* one is on its way */
    bool evicted;      /* its socket is shut down, which the library is about to learn */
    LIST_ENTRY(http_peer) link;
};

/* An answer that was made a moment ago, for all who ask now. */
struct http_answer {
    struct MHD_Response *response; /* NULL: none */
    unsigned code;
    uint64_t made_ns;
};

struct http {
    struct front *front;
    struct http_library library;
    struct MHD_Daemon *daemon;
    int fd; /* listens */
    char name[64];
    uv_poll_t listen, poll; /* of `fd`, of the library's epoll set */
    uv_timer_t timer, tick; /* when the library wants to run; once a second */
    unsigned handles;
    LIST_HEAD(, http_peer) peers;
    unsigned n_peers, n_evicted; /* the first with the second */
    bool ended;
    size_t held;                                    /* bytes of answers that the library has */
    struct http_answer answers[HTTP_ROUTES_MAX][2]; /* for everybody, and for admins */
    bool admin;                                     /* asks now */
    struct http_history history;
    uint64_t requests[HTTP_CODES]; /* answered, by the first digit of the code */
};

/* Whether the configuration's address may be listened on; listens nowhere. */
int http_check(const struct config *config, struct fault *fault);
/* Listens on config->http. STATUS_DENIED where others could reach it, and that was not said to be meant. */
int http_create(struct front *front, struct http **http, struct fault *fault);
/* Cuts all connections. Freed when the loop has closed its handles. Takes NULL. */
void http_destroy(struct http *http);
