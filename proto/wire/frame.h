/* Frames: a fixed little-endian header, a protobuf message, a raw payload. And the preamble before the first frame.
 *
 *   offset  0  u32  magic 0x31445354 ("TSD1")
 *           4  u16  type (enum frame_type)
 *           6  u16  flags (0 today; a reader refuses flags that it does not know)
 *           8  u32  message bytes
 *          12  u32  reserved, 0
 *          16  u64  payload bytes
 *          24  u64  sequence: a request's number, repeated by its reply; 0: the frame gets no reply
 *
 * The reader checks lengths against limits before it allocates anything. It does not own the socket: the caller asks
 * where the next bytes should go (frame_reader_want), reads into that place, and says how many came. So payload bytes
 * go from the socket directly into a tensor or the caller's array, and client, worker, front, tests and fuzzers use the
 * same code. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops/status.h"

enum {
    FRAME_HEADER_BYTES = 32,
    FRAME_MAGIC = 0x31445354,
    FRAME_MESSAGE_MAX = 1 << 20,       /* largest message on an authenticated connection */
    FRAME_PAYLOAD_MAX = 4 << 20,       /* largest chunk of tensor bytes */
    FRAME_CHUNK = 1 << 20,             /* the chunk that senders use */
    FRAME_BEFORE_HELLO_MAX = 16 << 10, /* message and payload together, before Hello is accepted */
    PREAMBLE_BYTES = 8,
    PROTOCOL_VERSION_MIN = 2,
    PROTOCOL_VERSION_MAX = 2,
    /* Bytes of the source of a client's kernel. */
    FRAME_SOURCE_MAX = FRAME_MESSAGE_MAX - 1024,
};

/* X(NAME, value, message type or Empty, who sends it). Values never change. */
#define FRAME_TABLE(X)                                                                                                 \
    X(HELLO, 1, Hello, "client")                                                                                       \
    X(WELCOME, 2, Welcome, "server")                                                                                   \
    X(ERROR, 3, Error, "server")                                                                                       \
    X(PING, 4, Ping, "client")                                                                                         \
    X(PONG, 5, Pong, "server")                                                                                         \
    X(BATCH, 16, Batch, "client")                                                                                      \
    X(UPLOAD, 17, Upload, "client")                                                                                    \
    X(UPLOAD_CHUNK, 18, UploadChunk, "client")                                                                         \
    X(FETCH, 19, Fetch, "client")                                                                                      \
    X(FETCH_CHUNK, 20, FetchChunk, "server")                                                                           \
    X(WAIT, 21, Wait, "client")                                                                                        \
    X(SYNC, 22, Sync, "client")                                                                                        \
    X(DONE, 23, Done, "server")                                                                                        \
    X(STREAM_OPEN, 24, StreamOpen, "client")                                                                           \
    X(STREAM_CLOSE, 25, StreamClose, "client")                                                                         \
    X(COPY_OUT, 26, CopyOut, "client")                                                                                 \
    X(COPY_IN, 27, CopyIn, "client")                                                                                   \
    X(ACK, 28, Ack, "server")                                                                                          \
    X(GOODBYE, 29, Goodbye, "client")                                                                                  \
    X(KERNEL_COMPILE, 40, KernelCompile, "client")                                                                     \
    X(KERNEL_COMPILED, 41, KernelCompiled, "server")                                                                   \
    X(KERNEL_RELEASE, 43, KernelRelease, "client")                                                                     \
    X(PROGRAM_DEFINE, 44, ProgramDefine, "client")                                                                     \
    X(PROGRAM_LOOP, 45, ProgramLoop, "client")                                                                         \
    X(PROGRAM_RELEASE, 46, ProgramRelease, "client")                                                                   \
    X(LIST_DEVICES, 48, ListDevices, "client")                                                                         \
    X(DEVICE_LIST, 49, DeviceList, "server")                                                                           \
    X(GET_STATUS, 50, GetStatus, "client")                                                                             \
    X(STATUS, 51, Status, "server")                                                                                    \
    X(DRAIN, 52, Drain, "client")                                                                                      \
    X(LIST_OPERATIONS, 53, ListOperations, "client")                                                                   \
    X(OPERATION_LIST, 54, OperationList, "server")                                                                     \
    X(KILL_SESSION, 58, KillSession, "client")                                                                         \
    X(GET_CONFIG, 59, GetConfig, "client")                                                                             \
    X(CONFIG, 60, Config, "server")                                                                                    \
    X(LINK_DATA, 64, LinkData, "worker")                                                                               \
    X(PUBLISH, 80, Publish, "client")                                                                                  \
    X(OPEN_NAME, 81, OpenName, "client")                                                                               \
    X(NAME_OPENED, 82, NameOpened, "server")                                                                           \
    X(LIST_NAMES, 83, ListNames, "client")                                                                             \
    X(NAME_LIST, 84, NameList, "server")                                                                               \
    X(REMOVE_NAME, 85, RemoveName, "client")                                                                           \
    X(MOVE_NAME, 86, MoveName, "client")                                                                               \
    X(TRACE_START, 96, TraceStart, "client")                                                                           \
    X(TRACE_DATA, 97, TraceData, "server")

enum frame_type {
#define X(name, value, message, sender) FRAME_##name = (value),
    FRAME_TABLE(X)
#undef X
};

/* "BATCH"; "unknown" if no type has this number. */
const char *frame_type_name(unsigned type);

struct frame_header {
    uint16_t type;
    uint16_t flags;
    uint32_t message_bytes;
    uint64_t payload_bytes;
    uint64_t sequence;
};

void frame_header_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES]);
/* Changes the sequence of a header that has been encoded. */
void frame_header_number(uint8_t encoded[FRAME_HEADER_BYTES], uint64_t sequence);
/* STATUS_PROTOCOL for a wrong magic, an unknown type, nonzero reserved bits, or lengths over the limits. */
int frame_header_decode(const uint8_t in[FRAME_HEADER_BYTES], uint32_t message_max, uint64_t payload_max,
                        struct frame_header *header, struct fault *fault);

/* The preamble is all that the front reads of a device connection: magic (u32), protocol generation (u8, 1), flags
 * (u8), target (u16). It is in the clear even if TLS follows: it only says where the connection goes, and whether the
 * client has a session already. */
enum { PREAMBLE_TARGET_CONTROL = 0xffff, PREAMBLE_TARGET_DEFAULT = 0xfffe };
enum {
    PREAMBLE_TLS = 1,     /* a flag: TLS follows in both directions, except for an Error frame that refuses it */
    PREAMBLE_RESUMES = 2, /* a flag: Hello will present a session, whose place is kept if others are refused */
};
void preamble_encode(uint16_t target, uint8_t out[PREAMBLE_BYTES]);
void preamble_set_tls(uint8_t preamble[PREAMBLE_BYTES]);
bool preamble_has_tls(const uint8_t preamble[PREAMBLE_BYTES]);
void preamble_set_resumes(uint8_t preamble[PREAMBLE_BYTES]);
bool preamble_resumes(const uint8_t preamble[PREAMBLE_BYTES]);
int preamble_decode(const uint8_t in[PREAMBLE_BYTES], uint16_t *target, struct fault *fault);

/* The incremental reader. It reads ahead into a buffer of its own, so that one read brings many small frames; a payload
 * of FRAME_DIRECT_MIN bytes and more is read directly to where the owner wants it. One thread at a time. */
enum {
    FRAME_DIRECT_MIN = 16 << 10,
    FRAME_BULK_AHEAD = 256, /* the first read behind such a payload: most likely the header of the next such frame */
};

struct frame_reader {
    uint8_t *buffer;
    size_t capacity, begin, end; /* unread bytes are [begin, end) */
    struct frame_header header;
    enum { FRAME_READER_HEADER, FRAME_READER_MESSAGE, FRAME_READER_PAYLOAD } state;
    uint64_t payload_left;
    uint32_t message_max;
    uint64_t payload_max;
    bool paused;
    bool held;     /* the handler has put the present message off */
    bool direct;   /* frame_reader_want() has named the sink */
    bool bulk;     /* the last payload had FRAME_DIRECT_MIN bytes or more */
    int stopped;   /* the code with which a handler or a malformed header has stopped the reader; 0: it runs */
    uint8_t *sink; /* where the rest of the present payload goes; NULL: the bytes are dropped */
};

/* The owner's functions for messages and payloads. They are called only from frame_reader_advance() and
 * frame_reader_resume(). If they return a code that is not 0, the reader stops for good and returns that code. They may
 * change limits and pause, but not finish the reader. */
struct frame_handler {
    /* A whole message has come; it is valid during the call, and `header->payload_bytes` will follow. If there is a
     * payload, the handler may set *sink to memory for all of it, which must stay valid until on_payload; if *sink stays
     * NULL, the payload is read and dropped. STATUS_AGAIN puts the message off: the reader pauses, and
     * frame_reader_resume() makes the same call again. */
    int (*on_message)(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                      struct fault *fault);
    /* The payload is complete in the sink (or was dropped). Not called for a frame without a payload. */
    int (*on_payload)(void *owner, const struct frame_header *header, struct fault *fault);
};

/* Begins with the limits of a connection before Hello: FRAME_BEFORE_HELLO_MAX for a message, no payload. The only
 * failure is STATUS_NO_HOST_MEMORY. The buffer grows up to the largest message that the limits allow. */
int frame_reader_init(struct frame_reader *reader, size_t capacity);
void frame_reader_finish(struct frame_reader *reader);
/* Drops the bytes of a stream that has ended; the reader then reads another stream with the same limits. */
void frame_reader_reset(struct frame_reader *reader);
/* How many bytes of the present frame have arrived: of the whole frame, and of its payload. 0: no frame has begun, or
 * its header is not complete yet. */
uint64_t frame_reader_begun(const struct frame_reader *reader);
uint64_t frame_reader_payload_begun(const struct frame_reader *reader);
/* The stream has ended, and another stream will continue the present frame: drops the bytes read behind that frame. */
void frame_reader_cut(struct frame_reader *reader);
/* Takes the bytes that `next` has read of the other stream, and pauses: frame_reader_resume() handles them.
 * STATUS_NO_HOST_MEMORY: nothing has changed. */
int frame_reader_follow(struct frame_reader *reader, struct frame_reader *next);
/* Makes a second reader for the rest of the stream; it drops the rest of the present payload. STATUS_NO_HOST_MEMORY. */
int frame_reader_copy(const struct frame_reader *reader, struct frame_reader *copy);
/* Shrinks the buffer to `capacity`, if no bytes wait in it. */
void frame_reader_shrink(struct frame_reader *reader, size_t capacity);
void frame_reader_limits(struct frame_reader *reader, uint32_t message_max, uint64_t payload_max);
/* Where the next read should put its bytes, and how many at most; 0 only for a paused reader with a full buffer. Ask before
 * each read: the place is valid until the next call. */
void frame_reader_want(struct frame_reader *reader, uint8_t **place, size_t *bytes);
/* `bytes` have been read into that place. Handles the messages and payloads that are now complete. */
int frame_reader_advance(struct frame_reader *reader, size_t bytes, const struct frame_handler *handler, void *owner,
                         struct fault *fault);
/* Ends a pause: handles the messages and payloads that are complete, without new bytes. When a handler pauses, advance returns
 * 0 early and keeps the rest. */
int frame_reader_resume(struct frame_reader *reader, const struct frame_handler *handler, void *owner,
                        struct fault *fault);
/* Called by a handler: the reader stops after this frame and its payload, and keeps the rest in its buffer until
 * frame_reader_resume(). */
void frame_reader_pause(struct frame_reader *reader);
