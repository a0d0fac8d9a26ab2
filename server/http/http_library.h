/* libmicrohttpd, loaded when HTTP is asked for: with all that it stands on, it would cost every start of the front and of
 * each worker milliseconds and memory, and a daemon without HTTP runs where it is not installed. */
#pragma once

#include <microhttpd.h>

#include "proto/ops/status.h"

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

/* Once loaded it stays. STATUS_UNSUPPORTED says what is missing. */
int http_library_load(struct http_library *library, struct fault *fault);
