/* Who is at the other end of an accepted socket, as far as the socket shows it. Front thread; a worker returns the
 * source as it got it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/net/tls.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/users/principal.h"

/* The source of connections, for counting failed logins: an IPv4 address, an IPv6 network of 64 bits (one host usually
 * has one), or a uid on this host. */
struct source {
    enum { SOURCE_NONE, SOURCE_UID, SOURCE_IPV4, SOURCE_IPV6 } kind;
    uint8_t bytes[8]; /* bytes that the kind does not need are 0 */
};

/* The source of a TCP peer. */
struct sockaddr_storage;
void source_find(struct source *source, const struct sockaddr_storage *address);
bool source_same(const struct source *a, const struct source *b);
/* Writes "uid:1000", "192.0.2.1", "2001:db8:1:2::/64" or "unix" to `text`, and returns `text`. */
enum { SOURCE_TEXT_BYTES = 48 };
const char *source_text(const struct source *source, char text[SOURCE_TEXT_BYTES]);
/* For log_event_from(). */
#define PEER_SOURCE(peer) source_text(&(peer)->source, (char[SOURCE_TEXT_BYTES]){0})

struct peer {
    struct principal principal; /* before the client has shown a token */
    char address[64];           /* "unix", "127.0.0.1:40212" */
    struct source source;
    bool has_uid;
    uid_t uid;
    bool tls;                           /* the client speaks TLS after the preamble */
    char certificate[TLS_NAME_MAX + 1]; /* the name in its certificate; "": it has shown none (yet) */
};

/* Where a client runs, for the status: its process and its host. A Unix socket knows its peer's process; a client over
 * TCP can only claim it. */
enum { REMOTE_HOST_BYTES = 64 };

struct remote {
    uint32_t pid;                 /* 0: not known */
    bool claimed;                 /* only the client says so */
    char host[REMOTE_HOST_BYTES]; /* the name that the client claims; "": this host, or not known */
};

void remote_find(struct remote *remote, int fd, bool tcp, const Tensord__Hello *hello);
