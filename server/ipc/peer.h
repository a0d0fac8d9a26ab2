/* Who is at the other end of an accepted socket, as far as the socket tells. Front thread; a worker hands the source back
 * as it got it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/net/tls.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/users/principal.h"

/* What failed logins are counted for: an IPv4 address, an IPv6 network of 64 bits, which is what one host has as a rule,
 * or a uid on this host. */
struct source {
    enum { SOURCE_NONE, SOURCE_UID, SOURCE_IPV4, SOURCE_IPV6 } kind;
    uint8_t bytes[8]; /* zeros after what the kind needs */
};

/* Of a TCP peer. */
struct sockaddr_storage;
void source_find(struct source *source, const struct sockaddr_storage *address);
bool source_same(const struct source *a, const struct source *b);
/* "uid:1000", "192.0.2.1", "2001:db8:1:2::/64", "unix"; in `text`, which is returned. */
enum { SOURCE_TEXT_BYTES = 48 };
const char *source_text(const struct source *source, char text[SOURCE_TEXT_BYTES]);
/* For log_event_from(). */
#define PEER_SOURCE(peer) source_text(&(peer)->source, (char[SOURCE_TEXT_BYTES]){0})

struct peer {
    struct principal principal; /* before a token has been shown */
    char address[64];           /* "unix", "127.0.0.1:40212" */
    struct source source;
    bool has_uid;
    uid_t uid;
    bool tls;                           /* speaks TLS from the preamble on */
    char certificate[TLS_NAME_MAX + 1]; /* the name in the one that it showed; "" before, and where it showed none */
};

/* Where a client runs: its process and its host, for whoever looks at a status. A Unix socket knows its peer's process; what
 * comes over TCP can only say what it is. */
enum { REMOTE_HOST_BYTES = 64 };

struct remote {
    uint32_t pid;                 /* 0: not known */
    bool claimed;                 /* by the client alone */
    char host[REMOTE_HOST_BYTES]; /* as the client calls it; "": this one, or not known */
};

void remote_find(struct remote *remote, int fd, bool tcp, const Tensord__Hello *hello);
