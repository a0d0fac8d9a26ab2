/* A blocking control connection to the daemon's front: one request frame out, one reply frame back.
 *
 * Threads: one at a time. Errors are STATUS_ codes with `fault` (may be NULL) filled; an Error frame of the daemon
 * becomes the fault that it carries. After a failed call close the connection and open a new one, unless the reply was
 * an error of that request alone. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/net/transport.h"
#include "proto/ops/status.h"
#include "proto/wire/tensord.pb-c.h"

struct control;
struct resume;

enum { CONTROL_TIMEOUT_MS = 10000, CONTROL_URL_MAX = 512, TOKEN_BYTES_MAX = 256 };

/* Connects, sends the preamble and Hello, and waits for Welcome. `url` NULL: $TENSORD_URL, else the default socket.
 * `tls` comes from secure_create() and stays the caller's; NULL unless the URL is tls://. `timeout_ms` bounds this call
 * and each later one; 0: CONTROL_TIMEOUT_MS. `client_name` NULL: the program's name. `token` is the argument `given` of
 * token_find(). */
int control_open(const char *url, struct tls_context *tls, unsigned timeout_ms, const char *client_name,
                 const char *token, struct control **control, struct fault *fault);
/* Takes NULL. */
void control_close(struct control *control);

/* Sends `request` as a frame of `request_type` (FRAME_…) and waits for the reply, which must be of `reply_type`. The
 * caller frees *reply with protobuf_c_message_free_unpacked(). */
int control_call(struct control *control, unsigned request_type, const ProtobufCMessage *request, unsigned reply_type,
                 ProtobufCMessage **reply, struct fault *fault);

/* The daemon's status, which the caller frees; with the sessions and programs of one principal alone; and the end of a
 * session. */
int control_status(struct control *control, Tensord__Status **status, struct fault *fault);
int control_status_of(struct control *control, const char *principal, Tensord__Status **status, struct fault *fault);
int control_kill(struct control *control, uint64_t session, const char *reason, struct fault *fault);

/* The TLS context of the connection, for more connections to the same daemon; NULL: it has no TLS. */
struct tls_context *control_tls(const struct control *control);

/* STATUS_NO_DEVICE: no device has this name; the message lists the devices. */
int control_no_device(const char *name, Tensord__Device *const *devices, size_t n, struct fault *fault);
/* The same for the first of these names that no device has; 0: each name is a device. */
int control_check_names(const char *const names[], int n_names, Tensord__Device *const *devices, size_t n,
                        struct fault *fault);

/* The daemon's version, from Welcome: "tensord 0.1.0". */
const char *control_server(const struct control *control);

/* ---- the pieces, which the connection to a device shares: dial.c ---- */

/* Copies `url` to `text`; for NULL the URL of $TENSORD_URL, or of the default socket. */
int control_url(const char *url, char text[CONTROL_URL_MAX], struct fault *fault);

/* The token: `given`, else $TENSORD_TOKEN, else the text of the file that $TENSORD_TOKEN_FILE names, else "". `given` ""
 * means none. No fault has the token in its message. The caller wipes the token. */
int token_find(const char *given, char token[TOKEN_BYTES_MAX], struct fault *fault);

/* PEM files. If one is NULL, $TENSORD_CA_FILE, $TENSORD_CERT_FILE or $TENSORD_KEY_FILE names it. */
struct secure_files {
    const char *ca, *certificate, *key;
};
/* The TLS context that connections to this URL share; NULL for a URL without TLS. The caller releases it. */
int secure_create(const char *url, const struct secure_files *files, struct tls_context **context, struct fault *fault);

struct control_dial {
    const char *url;
    struct tls_context *tls; /* NULL unless the URL is tls:// */
    uint16_t target;
    bool resumes;        /* Hello will present a session */
    int64_t deadline_ms; /* of control_now_ms() */
    /* Called with each socket as soon as it exists, again while the call waits for it, and with -1 before the socket is
     * closed. If it returns false, the socket is closed and the call fails with STATUS_CANCELLED. Another thread that shuts
     * the socket down ends the wait. May be NULL. */
    bool (*waits)(void *owner, int fd);
    void *owner;
};
/* Makes a connected, close-on-exec, non-blocking socket, sends the preamble for the target, and does the handshake if there
 * is TLS. The message of STATUS_CONNECTION names the URL and the reason. */
int control_dial(const struct control_dial *dial, struct transport *transport, struct fault *fault);
/* Milliseconds of CLOCK_MONOTONIC. */
int64_t control_now_ms(void);

/* ---- the pieces: control.c ---- */

/* The fault that an Error carries. */
int control_fault(const Tensord__Error *error, struct fault *fault);
/* Waits for the socket: 0, STATUS_TIMED_OUT, STATUS_CONNECTION. */
int control_wait(int fd, short events, int64_t deadline_ms, struct fault *fault);
/* Receives the Error frame with which the daemon refuses a connection in the clear; returns the code of that error. */
int control_refusal(int fd, int64_t deadline_ms, struct fault *fault);
/* Sends one frame and receives the next one, before the deadline, on a connection with nothing else in flight: for Hello
 * and control requests. Reads no byte after the reply. The caller frees *reply. */
int control_exchange(struct transport *transport, unsigned type, const ProtobufCMessage *request, uint64_t sequence,
                     int64_t deadline_ms, unsigned reply_type, ProtobufCMessage **reply, struct fault *fault);
/* Sends Hello and receives Welcome. `token` "": none. `resume` NULL: the session, if there is one, ends with the connection. */
int control_hello(struct transport *transport, const char *client_name, const char *token, bool allow_tf32,
                  const struct resume *resume, int64_t deadline_ms, Tensord__Welcome **welcome, struct fault *fault);
