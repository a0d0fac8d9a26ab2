/* What the files of HTTP share. Front thread only. */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/queue.h>
#include <uv.h>

#include "server/http/http.h"
#include "server/http/http_history.h"
#include "server/ipc/peer.h"

/* libmicrohttpd, loaded when HTTP is asked for: with all that it stands on, it would cost every start of the front and of
 * each worker milliseconds and memory, and a daemon without HTTP runs where it is not installed. */
/* X(name): the function MHD_name. */
#define HTTP_LIBRARY_TABLE(X)                                                                                          \
    X(start_daemon)                                                                                                    \
    X(stop_daemon)                                                                                                     \
    X(run)                                                                                                             \
    X(get_timeout)                                                                                                     \
    X(get_daemon_info)                                                                                                 \
    X(add_connection)                                                                                                  \
    X(get_connection_info)                                                                                             \
    X(lookup_connection_value)                                                                                         \
    X(queue_response)                                                                                                  \
    X(create_response_from_buffer)                                                                                     \
    X(create_response_from_buffer_with_free_callback_cls)                                                              \
    X(add_response_header)                                                                                             \
    X(destroy_response)

struct http_library {
#define X(name) __typeof__(&MHD_##name) name;
    HTTP_LIBRARY_TABLE(X)
#undef X
};

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

/* Writes an answer and returns its code. */
typedef unsigned http_write(struct http *http, FILE *out);

/* Answers one request; the code for MHD_queue_response(), or MHD_NO to cut the connection. */
enum MHD_Result http_route_answer(struct http *http, struct MHD_Connection *connection, const char *path,
                                  const char *method);
/* Whether as many have an answer on its way as may, so that who asks for more than health is to come again. */
bool http_is_busy(const struct http *http);
/* Forgets the answers that were kept. */
void http_route_finish(struct http *http);

http_write http_write_metrics;

/* The dashboard: one page, made part of the program by embed.py. */
extern const char http_dashboard[], http_dashboard_policy[];
extern const size_t http_dashboard_bytes;
