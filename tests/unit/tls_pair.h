/* Two ends of a TLS connection over a socket pair, with a certificate made for the occasion. No Criterion here: the
 * threads' program has none. Everything ends the program when it fails. */
#pragma once

#include "proto/net/transport.h"

struct tls_pair {
    struct tls_context *server_context, *client_context;
    struct transport server, client;
    char directory[32];
};

/* `buffer`: bytes of the sockets' send buffers; 0: as they are. */
void tls_pair_make(struct tls_pair *pair, int buffer);
/* One more connection of the same contexts; the old one is finished. */
void tls_pair_again(struct tls_pair *pair, int buffer);
/* Drives both handshakes to their end. */
void tls_pair_shake(struct tls_pair *pair);
void tls_pair_finish(struct tls_pair *pair);
