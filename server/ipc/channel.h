/* The channel between the front and one worker: a SOCK_SEQPACKET socket pair; a message is one packet, with at most one
 * file descriptor beside it. Both ends are the same binary, so messages are plain structs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/net/tls.h"
#include "proto/ops/status.h"
#include "server/ipc/peer.h"
#include "server/process/state_directory.h"
#include "server/users/token.h"

/* How a worker is started, and how it ends. */
enum {
    WORKER_CHANNEL_FD = 3,   /* its end of the channel, */
    WORKER_PAGE_FD = 4,      /* and its statistics page, as open descriptors */
    WORKER_EXIT_UNSAVED = 3, /* exit status: some names are not on the disk; the log says which */
};

/* The message to a client whose connection is evicted before it has said Hello. */
#define CHANNEL_EVICTED "no Hello had come, and others want the place (max-connections)"

enum channel_type {
    /* front → worker */
    CHANNEL_START = 1,  /* first message: options */
    CHANNEL_CONNECTION, /* fd: an accepted client socket, its preamble already read */
    CHANNEL_LINK_IN,    /* fd: a link that brings a tensor for `link.ticket` */
    CHANNEL_LINK_OUT,   /* reply to CHANNEL_LINK_WANTED: fd, or no fd and `link_fault`; STATUS_LIMIT: ask again later */
    CHANNEL_PEER_LOST,  /* the epoch of `link.device` is over: links that are waited for will not come from it */
    CHANNEL_LINK_ROOM, /* both ways: the worker at one end of this channel has not taken links from `link.device`, and has
                         * read a CopyIn since. To that device's worker: `link.device` is the worker that has */
    CHANNEL_KILL,      /* end this session; the reply is CHANNEL_KILLED */
    CHANNEL_DRAIN,     /* take no new work, finish what is queued, then CHANNEL_DRAINED and exit 0 */
    CHANNEL_GRANTED,   /* reply to CHANNEL_LOGIN: the client of `login.session` is `login.principal`, */
    CHANNEL_DENIED,    /* or the login is denied: `login.fault` */
    CHANNEL_REVOKED,   /* connections that logged in as `principal` with its credential must end */
    CHANNEL_CREDENTIALS, /* fd: certificates and keys for TLS from now on (credentials_open()) */
    CHANNEL_USERS,       /* fd: the list of users (server/worker/names.h) */
    CHANNEL_LIMITS,      /* the new limits of `principal`; without a name: of all principals that are no users */
    CHANNEL_KERNELS,     /* the setting user-kernels is `kernels` */
    CHANNEL_EVICT,       /* connection.session has not said Hello, and another connection gets its place: it ends */
    CHANNEL_PLACES,      /* max-connections is now `places`, more than before */
    /* worker → front */
    CHANNEL_READY = 64,  /* the device is open, and connections may come */
    CHANNEL_FAULT,       /* the device has failed, or could not be opened; the worker exits after this */
    CHANNEL_LINK_WANTED, /* a link to device `link.device` is wanted for `link.ticket` */
    CHANNEL_REFUSED,     /* connection.session is not taken, because the worker has no descriptor or no memory for it */
    CHANNEL_TAKEN,       /* the worker has taken the first `taken` of the connections handed over; may be lost */
    CHANNEL_KILLED,      /* kill.session, and whether it was there */
    CHANNEL_DRAINED,
    CHANNEL_ENDED,   /* the connection that was handed over as connection.session has ended */
    CHANNEL_GREETED, /* connection.session has said Hello */
    CHANNEL_LOGIN, /* a client's Hello has `login.token` (or no token, although it needs one): which principal is it? */
};

struct channel_limits {
    struct limits each; /* of principals for whom the front has set no limits of their own */
    uint32_t sessions;  /* of one device */
    uint32_t hello_timeout_ms;
    uint32_t transfer_timeout_ms; /* for a copy between devices to begin */
    uint32_t drain_timeout_ms;
    uint32_t device_timeout_ms;    /* without progress a device is given up; 0: never */
    uint32_t compile_timeout_ms;   /* for a user kernel to be compiled; 0: as long as it takes */
    uint64_t compile_memory;       /* bytes that its compiler may take; 0: any */
    uint32_t heartbeat_timeout_ms; /* without a sign of life a resumable client loses its connection; 0: never */
};

/* What a worker needs to start. */
struct channel_start {
    char device[32]; /* "cpu:0" */
    char kind[16];
    uint32_t index, threads;
    uint32_t sharers;       /* number of devices that share the host's memory */
    uint64_t memory_total;  /* 0: automatic */
    uint64_t staging_total; /* 0: automatic */
    uint64_t epoch;
    int32_t log_level, log_format;
    struct channel_limits limits;
    char state_dir[STATE_PATH_MAX];           /* "": named tensors are not saved */
    char cache_dir[STATE_PATH_MAX];           /* as in code_cache_init() */
    uint64_t state_sync_ms, state_timeout_ms; /* server/process/state_directory.h */
};

struct channel_message {
    enum channel_type type;
    union {
        struct channel_start start;
        struct {
            uint64_t session; /* number for the new session */
            bool kept;        /* it has a kept place (server/front/places.h) */
            struct peer peer;
        } connection;
        struct {
            uint64_t session;
            struct peer peer; /* of CHANNEL_LOGIN: as it came with the connection */
            struct principal principal;
            char token[TOKEN_TEXT_CHARS + 2]; /* a text that is longer than a token is cut, and is no token then */
            struct fault fault;               /* of a CHANNEL_DENIED */
        } login;
        struct principal principal; /* CHANNEL_REVOKED, CHANNEL_LIMITS */
        struct {
            char device[32];
            char principal[64]; /* whose copy it is */
            uint8_t ticket[16];
        } link;
        struct {
            uint64_t session;
            char by[64];      /* principal of the operator */
            char reason[128]; /* may be "" */
            bool found;
        } kill;
        char kernels[PRINCIPAL_LIST_BYTES];
        uint64_t places;
        struct fault fault; /* CHANNEL_FAULT */
        uint64_t taken;     /* as in struct stats_page */
    };
    struct fault link_fault; /* CHANNEL_LINK_OUT without fd */
};

/* Both return 0, or a negative errno: -EAGAIN: the socket, which is non-blocking, is full or empty; -EPIPE (receive):
 * the other end is gone. `fd` -1: none. channel_send() does not close `fd`; channel_receive() gives a close-on-exec
 * descriptor to the caller. If the receiving process has no room for a descriptor it is lost, and its message comes
 * with -1. */
int channel_send(int channel, const struct channel_message *message, int fd);
int channel_receive(int channel, struct channel_message *message, int *fd);

/* Credentials: everything that a process needs to serve TLS, in one sealed memory file behind a descriptor. The front
 * reads and checks the files of certificates and sends the descriptor to the workers, so that all processes have the
 * same certificates at any time. The memory file has no name, and nobody can change it. */
enum { CREDENTIALS_TEXT_MAX = 1 << 20 }; /* bytes of one PEM text */

/* Sets *fd, close-on-exec and the caller's. */
int credentials_seal(const struct tls_server_options *options, int *fd, struct fault *fault);
/* Makes a context from the credentials. `fd` stays the caller's. */
int credentials_open(int fd, struct tls_context **context, struct fault *fault);
