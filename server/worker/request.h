/* The one place where a client's messages become engine calls. What breaks the protocol is returned as a STATUS_ with
 * its words, and ends the connection; what is merely wrong with an operation becomes that operation's failure. Loop
 * thread only. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/ops/status.h"
#include "proto/wire/frame.h"

struct answer;
struct connection;
struct request_upload;

/* Where a Batch goes on whose operations were more than its turn had time for. */
struct request_batch {
    bool begun;
    uint64_t first; /* sequence of its first operation, */
    size_t heads;   /* and how many it has */
    size_t op, input, integer, floating, label, wide;
    uint64_t sequence, output; /* of the next operation */
};

/* Requests of a connection that are not finished. */
struct request_progress {
    struct request_upload *uploads, *receiving; /* begun; the one whose chunk is coming in now */
    struct request_upload *again; /* the frame of its chunk was put off, or was cut, and comes again; else NULL */
    unsigned n_uploads;
    struct request_batch batch; /* the rest of a batch that was put off, or was cut */
    /* The message of a frame that was put off, as it was parsed into the service's arena; NULL: none. It is still there
     * while the arena has been reset so many times. */
    ProtobufCMessage *message;
    uint64_t message_at;
    struct answer *publishing; /* to a Publish that was put off; else NULL */
};

/* One frame's message. Where tensor bytes follow, *sink is set to where they belong. */
int request_handle(struct connection *connection, const struct frame_header *header, const uint8_t *message,
                   uint8_t **sink, struct fault *fault);
/* The payload of the frame handled last has come. */
int request_payload(struct connection *connection, const struct frame_header *header, struct fault *fault);
/* The connection ended, and the session goes on: a chunk that was on its way will come again. */
void request_cut(struct connection *connection);
/* Whether frames of this type count where a session may be resumed: they change something and have no reply. */
bool request_counted(unsigned type);
/* The answer to the Hello of a client that speaks up to `version`, for a session that there is. */
int request_welcome(struct connection *connection, uint32_t version, uint64_t sequence);
/* Ends the uploads that are under way, before the session does. False: the budget has ended before they have. */
bool request_drop_uploads(struct connection *connection);
