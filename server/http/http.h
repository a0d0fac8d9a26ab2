/* HTTP for operators: figures for Prometheus and programs, health for orchestrators, and a dashboard. It only reads,
 * and it asks no worker, so it replies when a device hangs. Everything that a client can use is bounded: connections,
 * their age, their memory, and the bytes of responses that have not left. A new connection always finds a place: if all
 * are taken, the oldest connection without a response on its way, of the address with the most connections, is closed.
 * Only a part of the places may have responses other than health's, so that health is reported at once whatever other
 * clients do. Front thread only; libmicrohttpd runs on the front's loop, without threads of its own. */
#pragma once

#include "server/front/front.h"

/* Whether the configuration's address may be listened on; opens no socket. STATUS_DENIED: other hosts could reach it,
 * and the configuration does not allow that. */
int http_check(const struct config *config, struct fault *fault);
/* Listens on config->http, where that is set. */
extern const struct front_extension http_extension;
