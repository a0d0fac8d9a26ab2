/* The one place where a client's messages become engine calls. What breaks the protocol is returned as a STATUS_ with
 * its words, and ends the connection; what is merely wrong with an operation becomes that operation's failure. Loop
 * thread only. */
#pragma once

#include <stdint.h>

#include "proto/frame.h"
#include "proto/status.h"

struct connection;

/* One frame's message. Where tensor bytes follow, *sink is set to where they belong. */
int request_handle(struct connection *connection, const struct frame_header *header, const uint8_t *message,
                   uint8_t **sink, struct fault *fault);
/* The payload of the frame handled last has come. */
int request_payload(struct connection *connection, const struct frame_header *header, struct fault *fault);
/* Ends the uploads that are under way, before the session does. */
void request_drop_uploads(struct connection *connection);
