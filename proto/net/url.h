/* Addresses: unix:/path, tcp://host:port and tls://host:port (IPv6 hosts in brackets). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "proto/ops/status.h"

struct url {
    enum { URL_UNIX, URL_TCP, URL_TLS } kind;
    char path[108]; /* unix */
    char host[256]; /* tcp and tls, without brackets */
    uint16_t port;  /* tcp and tls; 0 lets the system choose when listening */
};

/* STATUS_INVALID_ARGUMENT says what is wrong with the text and shows the valid forms. */
int url_parse(const char *text, struct url *url, struct fault *fault);
/* The daemon's default socket as a URL: in $XDG_RUNTIME_DIR, else for root in /run/tensord. STATUS_INVALID_ARGUMENT if
 * neither is possible. */
int url_default(char *text, size_t size, struct fault *fault);
/* The URL of a client that names no daemon: the user's own default socket if it exists; else `system`, the socket's
 * path of an installed daemon (URL_SYSTEM), if it exists or if the user may not see whether it exists; else the first
 * of the two that is possible. */
#define URL_SYSTEM "/run/tensord/tensord.sock"
int url_find(const char *system, char *text, size_t size, struct fault *fault);
/* The socket addresses of a URL, at most `capacity`; *count is their number. For tcp and tls it calls getaddrinfo(), which
 * blocks. */
struct url_address {
    struct sockaddr_storage address;
    socklen_t length;
};
int url_resolve(const struct url *url, bool passive, struct url_address *addresses, size_t capacity, size_t *count,
                struct fault *fault);
bool url_is_loopback(const struct url_address *address);
