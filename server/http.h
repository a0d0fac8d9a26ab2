/* HTTP for operators: figures for Prometheus and programs, health for orchestrators, and a dashboard. It only reads, and
 * it asks no worker, so it answers when a device hangs. Everything it does is bounded, for whoever connects: connections,
 * their age, their memory, and the bytes of answers that have not left. Front thread only; libmicrohttpd runs on the
 * front's loop, without threads of its own. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <sys/queue.h>
#include <uv.h>

#include "server/http_history.h"
#include "server/http_library.h"

struct front;
struct http_route;

enum { HTTP_ROUTES_MAX = 8, HTTP_CODES = 6 };

/* A connection, known from accept to close. */
struct http_peer {
    struct http *http;
    int fd;
    uint64_t since_ns; /* of its present request, or of its silence */
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
    unsigned n_peers;
    bool ended;
    size_t held; /* bytes of answers that the library has */
    struct http_answer answers[HTTP_ROUTES_MAX];
    struct http_history history;
    uint64_t requests[HTTP_CODES]; /* answered, by the first digit of the code */
};

/* Listens on config->http. STATUS_DENIED where others could reach it, and that was not said to be meant. */
int http_create(struct front *front, struct http **http, struct fault *fault);
/* Cuts all connections. Freed when the loop has closed its handles. Takes NULL. */
void http_destroy(struct http *http);
