/* Reading from a connection: frames are read and handled while the session has room and the turn has time; otherwise
 * the rest waits in the socket. Loop thread only. */
#pragma once

#include <stdbool.h>

#include "proto/wire/frame.h"

struct connection;

enum {
    CONNECTION_READ_BYTES = 1 << 20, /* read in one turn */
    CONNECTION_FRAME_STEPS = 16,     /* of the budget, for each frame, */
    CONNECTION_STEP_BYTES = 1024,    /* and one for so many bytes */
    CONNECTION_BUFFER_BYTES = 64 << 10,
    CONNECTION_LARGE_MS = 1000, /* after the last message that needed more, the buffer is as small again */
};

struct connection_input {
    struct frame_reader reader;
    bool unread;       /* there is something to read, and the turn had no time for it */
    bool draining;     /* what has come is handled, and nothing more is read */
    bool heard;        /* since the last tick the client has sent something other than a Ping */
    uint64_t large_ms; /* when a message last came that needed a larger buffer */
};

/* Reads this turn's share. False: the connection is gone. */
bool connection_read(struct connection *connection);
/* Continues with the frames that the reader holds, and with what is unread. The connection may be gone afterwards. */
void connection_resume(struct connection *connection);
/* Marks the connection for the next turn if the transport holds data that TLS has already read: poll() does not report
 * it. */
void connection_read_on(struct connection *connection);
/* Takes what has been received until now and reads no more. */
void connection_drain(struct connection *connection);
