/* The only place where a client's messages become engine calls. An error of the protocol is returned as a STATUS_ with
 * `fault`, and ends the connection; an error of one operation becomes that operation's failure. Loop thread only. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/program/recorded.h"
#include "proto/ops/status.h"
#include "proto/wire/batch.h"
#include "proto/wire/frame.h"

struct pending_reply;
struct connection;
struct request_upload;

/* Where a Batch continues, which had more operations than its turn had time for. */
struct request_batch {
    bool begun;
    uint64_t first; /* sequence of its first operation, */
    size_t heads;   /* and how many it has */
    struct batch_cursor cursor;
    uint64_t sequence, output; /* of the next operation */
};

/* Where a ProgramDefine continues, likewise. */
struct request_definition {
    bool begun;
    bool measured; /* how much its operations have; now the engine gets them */
    struct recorded_size size;
    struct batch_cursor cursor;
};

/* Requests of a connection that are not finished. */
struct request_progress {
    struct request_upload *uploads, *receiving; /* uploads that have begun; the one whose chunk is coming in now */
    struct request_upload *again; /* the frame with its chunk was put off, or cut, and comes again; else NULL */
    void *uploads_by_id;          /* tsearch()'s tree of the newest upload of each id */
    unsigned n_uploads;
    struct request_batch batch; /* the rest of a batch that was put off, or was cut */
    struct request_definition definition;
    /* The message of a frame that was put off, parsed into the service's arena; NULL: none. It is still there if the
     * arena has been reset so many times. */
    ProtobufCMessage *message;
    uint64_t message_at;
    struct pending_reply *publishing; /* the reply to a Publish that was put off; else NULL */
};

/* A frame has been handled in part, and comes again in a later turn. */
static inline bool request_is_put_off(const struct request_progress *progress) {
    return progress->batch.begun || progress->definition.begun;
}

/* Handles the message of a frame. If tensor bytes follow, *sink is set to the place for them. */
int request_handle(struct connection *connection, const struct frame_header *header, const uint8_t *message,
                   uint8_t **sink, struct fault *fault);
/* The payload of the last frame has come. */
int request_payload(struct connection *connection, const struct frame_header *header, struct fault *fault);
/* The socket is lost, and the session stays: a chunk that was coming in will come again, and so will a definition. */
void request_cut(struct connection *connection);
/* Whether frames of this type are counted for a lease: they change something and have no reply. */
bool request_counted(unsigned type);
/* Sends Welcome, the reply to Hello, to a client that speaks up to `version`; the session exists. */
int request_welcome(struct connection *connection, uint32_t version, uint64_t sequence);
/* Ends the uploads in progress, before the session ends. False: the budget has ended before all have. */
bool request_drop_uploads(struct connection *connection);
