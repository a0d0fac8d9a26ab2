#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "client/lib/control.h"
#include "client/tensord.h"

struct td_connection {
    char url[CONTROL_URL_MAX]; /* the URL and the options are constant */
    char *client_name;
    struct tls_context *tls; /* NULL: the URL asks for none */
    unsigned timeout_ms;
    size_t queue_bytes;
    bool allow_tf32;
    unsigned reconnect_ms, heartbeat_ms; /* as in td_options */
    char token[TOKEN_BYTES_MAX];         /* "": none */
    pthread_mutex_t lock;                /* for `control` */
    struct control *control;             /* NULL: the next request opens it again */
    /* Under the lock of the list of open connections (connection.c). */
    td_device *devices;
    td_connection *next;
};

/* Whether both are connections to the same daemon. */
bool connection_same_daemon(const td_connection *a, const td_connection *b);
