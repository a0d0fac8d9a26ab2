/* A daemon for tests of the client: it speaks the protocol, computes nothing, and remembers what it was sent.
 *
 * Device connections are logged as text, one line a frame or operation: "add(1,2)=3 free 1 [label]", "upload 4 12/12",
 * "chunk 4 at 1048576", "fetch 3". A fetch of an upload gives its bytes back; of anything else, bytes of the id's low
 * eight bits. Fetching a tensor whose label is "poison" reports a failure. Of a control connection: "kill 3". */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One frame of an answer as a broken daemon may give it. */
struct fake_frame {
    unsigned type;                       /* 0: the answer ends here */
    int64_t sequence;                    /* added to the question's number */
    uint64_t offset, total;              /* in a FETCH_CHUNK */
    uint64_t payload;                    /* bytes that follow */
    uint64_t more_payload, more_message; /* announced besides, but not sent */
    uint32_t error;                      /* an Error with this code, where there may be one; FAKE_CODE_0: with code 0 */
    uint32_t magic;                      /* instead of the right one */
    bool garbage;                        /* the message is no protobuf */
    int version;                         /* in a WELCOME: added to the right one */
    uint64_t chunk;                      /* in a WELCOME: largest chunk */
    const char *device;                  /* in a WELCOME and a DEVICE_LIST (of one); NULL: "cpu:0" */
    uint32_t target;                     /* in a DEVICE_LIST */
    uint32_t dtype;                      /* in a NAME_OPENED, and of the names in a NAME_LIST; of one axis of */
    int64_t extent;                      /* this extent */
    const char *names[2];                /* in a NAME_LIST: its payload is made of them */
    bool more;                           /* in a NAME_LIST */
};
enum { FAKE_FRAMES_MAX = 4, FAKE_SESSIONS_MAX = 64, FAKE_CODE_0 = UINT32_MAX };

struct fake_daemon {
    char url[128];
    /* settings; may change at any time */
    atomic_bool hold;    /* stop reading device connections */
    atomic_bool mute;    /* read, but answer nothing after Hello */
    atomic_bool quiet;   /* log nothing and remember nothing: only drain */
    atomic_bool refuse;  /* answer the next frame with an Error frame and close */
    atomic_bool hang_up; /* close device connections at the next frame */
    atomic_bool silent;  /* do not even answer Hello */
    atomic_long budget;  /* bytes of replies until every connection is closed; negative: no end */
    /* "alice" has so many sessions, numbered from 1 on, and a Status has room for so many of them. As a daemon's figures do,
     * it shows sessions that have ended once more. */
    atomic_uint sessions, room;
    /* [FAKE_FRAMES_MAX] each: the answer to the next Hello; to the next ListDevices; to the next fetch, wait, sync or request about names */
    const struct fake_frame *_Atomic greeting, *_Atomic listing, *_Atomic script;
    atomic_uint_fast64_t released; /* ids, by operations of any session so far */
    /* private */
    int listener;
    pthread_t thread;
    atomic_bool stop;
    atomic_int connections;
    atomic_uchar
        ended[FAKE_SESSIONS_MAX + 1]; /* of each session: 1: it has ended, 2: and a Status has shown it since */
    atomic_uint_fast64_t operations;
    pthread_mutex_t lock;
    char *log;
    size_t log_bytes, log_capacity;
};

/* Listens on a Unix socket of its own; devices are cpu:0 and cpu:1. Ends the test's process where it cannot. */
void fake_daemon_start(struct fake_daemon *fake);
void fake_daemon_stop(struct fake_daemon *fake);
/* Whether the log holds `text`, wherever batches begin; waits up to half a minute for it. */
bool fake_daemon_saw(struct fake_daemon *fake, const char *text);
/* A copy of the log, to be freed. */
char *fake_daemon_log(struct fake_daemon *fake);
