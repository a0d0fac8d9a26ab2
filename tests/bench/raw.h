/* The protocol by hand, for what the client library does not do. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"

/* A connection to a target of "unix:…" or "tcp://127.0.0.1:…" that has said Hello; -1: the daemon has closed it. Exits with a message where nobody
 * listens. */
int bench_raw_open(const char *url, uint16_t target);
/* False: the daemon has closed the connection. */
bool bench_raw_send(int fd, unsigned type, uint64_t sequence, const ProtobufCMessage *message);
/* The next frame; its message goes to `message`, as far as there is room, and its payload nowhere. */
bool bench_raw_receive(int fd, struct frame_header *header, uint8_t *message, size_t room);
