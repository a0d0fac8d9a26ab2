/* What the files of HTTP share. */
#pragma once

#include "server/http/http.h"

/* Writes an answer and returns its code. */
typedef unsigned http_write(struct http *http, FILE *out);

/* Answers one request; the code for MHD_queue_response(), or MHD_NO to cut the connection. */
enum MHD_Result http_route_answer(struct http *http, struct MHD_Connection *connection, const char *path,
                                  const char *method);
/* Whether as many have an answer on its way as may, so that who asks for more than health is to come again. */
bool http_is_busy(const struct http *http);
/* Forgets the answers that were kept. */
void http_route_finish(struct http *http);

/* Whether a page of another site may not have sent this: a browser that was talked into taking another site's name for
 * this address (DNS rebinding) still sends that name. Addresses cannot be names of others; `hosts` are this one's. */
bool http_host_is_ours(const char *host, const char *hosts);

/* Whether the request shows a token that may read status, where such are needed (then http->admin is set): MHD_HTTP_OK, MHD_HTTP_UNAUTHORIZED, or
 * MHD_HTTP_TOO_MANY_REQUESTS after failures from the same address, and for how many seconds more. */
unsigned http_login_check(struct http *http, struct MHD_Connection *connection, unsigned *wait_s);

http_write http_write_metrics, http_write_status, http_write_healthz, http_write_readyz, http_write_history;

/* The dashboard: one page, made part of the program by embed.py. */
extern const char http_dashboard[], http_dashboard_policy[];
extern const size_t http_dashboard_bytes;
