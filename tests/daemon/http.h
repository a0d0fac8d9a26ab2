/* Requests by HTTP, by hand: what is sent is what the test says, and what comes back is taken as it is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "tests/daemon/daemon.h"

struct http_reply {
    int code;     /* 0: the connection ended without an answer */
    char *text;   /* head and body, zero-terminated */
    char *body;   /* within `text` */
    size_t bytes; /* of the body */
};

/* The port that `--http 127.0.0.1:0` got, from the log. */
unsigned http_port(const struct daemon *daemon);
/* A connected socket. Asserts. */
int http_dial(unsigned port);
/* Sends the bytes on a connection of their own and takes all that comes until it ends. Asserts that it does. */
void http_exchange(unsigned port, const char *request, struct http_reply *reply);
/* GET; `headers` are lines that end with \r\n, or NULL: then the host is named 127.0.0.1. */
void http_get(unsigned port, const char *path, const char *headers, struct http_reply *reply);
void http_reply_finish(struct http_reply *reply);
/* The value of the sample whose line begins so: `name{device="cpu:0"}`. Asserts that there is one. */
double http_metric(unsigned port, const char *sample);
/* Looks again and again until the metric is at least this; false when the deadline came first. */
bool http_metric_reaches(unsigned port, const char *sample, double value, int milliseconds);
