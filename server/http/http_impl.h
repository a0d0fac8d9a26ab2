/* What the files of HTTP share. Front thread only. */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/queue.h>
#include <uv.h>

#include "server/http/http.h"
#include "server/ipc/peer.h"

/* libmicrohttpd is loaded only if HTTP is configured: with its own libraries it would cost milliseconds and memory at
 * each start of the front and of a worker. So a daemon without HTTP also runs on a host where it is not installed.
 * X(name): the function MHD_name. */
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

/* A connection, from accept to close. */
struct http_peer {
    struct http *http;
    int fd;
    struct source source;
    uint64_t since_ns; /* the beginning of its present request, or of its silence */
    bool responded;    /* it has had a response before */
    bool responding;   /* a response is on its way */
    bool evicted;      /* its socket is shut down, and the library does not know it yet */
    LIST_ENTRY(http_peer) link;
};

/* A response that was made a moment ago, for all clients that ask now. */
struct http_response {
    struct MHD_Response *response; /* NULL: none */
    unsigned code;
    uint64_t made_ns;
};

enum { HTTP_HISTORY_STEP_MS = 1000, HTTP_HISTORY_SAMPLES = 300 };

/* The last minutes of each device, so that a dashboard that has just been opened has something to show. */
struct http_history {
    struct http_sample *samples; /* for each device, one after the other, a ring of HTTP_HISTORY_SAMPLES */
    unsigned n_devices, count, next;
};

struct http {
    struct front *front;
    struct http_library library;
    struct MHD_Daemon *daemon;
    int fd; /* the listening socket */
    char name[64];
    uv_poll_t listen, poll; /* of `fd`, and of the library's epoll set */
    uv_timer_t timer, tick; /* when the library wants to run; and once a second */
    unsigned handles;
    LIST_HEAD(, http_peer) peers;
    unsigned n_peers, n_evicted; /* all connections, and evicted ones */
    bool ended;
    size_t body_bytes;                                  /* bytes of all responses that the library has */
    struct http_response responses[HTTP_ROUTES_MAX][2]; /* for everybody, and for admins */
    bool admin;                                         /* the present request is an admin's */
    struct http_history history;
    uint64_t requests[HTTP_CODES]; /* by the first digit of the response's code */
};

/* Writes the body of a response and returns its code. */
typedef unsigned http_write(struct http *http, FILE *out);

/* Responds to one request: the result of MHD_queue_response(), or MHD_NO to close the connection. */
enum MHD_Result http_route_respond(struct http *http, struct MHD_Connection *connection, const char *path,
                                   const char *method);
/* Whether so many responses are on their way that only requests for health are served. */
bool http_is_busy(const struct http *http);
/* Drops the responses that were kept. */
void http_route_finish(struct http *http);

int http_history_init(struct http_history *history, unsigned n_devices, struct fault *fault);
void http_history_finish(struct http_history *history);
/* Call it every HTTP_HISTORY_STEP_MS: takes the present figures of all devices. */
void http_history_sample(struct http_history *history, const struct supervisor *supervisor);

http_write http_write_metrics;

/* The dashboard: one page, made part of the program by embed.py. */
extern const char http_dashboard[], http_dashboard_policy[];
extern const size_t http_dashboard_bytes;
