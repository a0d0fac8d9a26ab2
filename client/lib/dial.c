/* Connecting: finds the URL, the token and the TLS files, which the program or the environment names, and makes a socket whose
 * preamble has been sent. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/control.h"
#include "proto/net/transport.h"
#include "proto/net/url.h"
#include "proto/wire/frame.h"

enum { ADDRESSES_MAX = 16 };

int64_t control_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int control_url(const char *url, char text[CONTROL_URL_MAX], struct fault *fault) {
    if (!url)
        url = getenv("TENSORD_URL");
    if (!url || !*url)
        return url_find(URL_SYSTEM, text, CONTROL_URL_MAX, fault);
    if (strlen(url) >= CONTROL_URL_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the URL has %zu bytes, at most %d are possible", strlen(url),
                         CONTROL_URL_MAX - 1);
    strcpy(text, url);
    return 0;
}

/* ---- the token ---- */

/* A token is one word of visible ASCII. `whence` says in the fault where the text came from. */
static int token_take(const char *text, size_t bytes, const char *whence, char token[TOKEN_BYTES_MAX],
                      struct fault *fault) {
    while (bytes && isspace((unsigned char)text[bytes - 1]))
        bytes--;
    while (bytes && isspace((unsigned char)*text))
        text++, bytes--;
    if (!bytes)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.160s is empty", whence);
    if (bytes >= TOKEN_BYTES_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.160s is no token: it has more than %d bytes", whence,
                         TOKEN_BYTES_MAX - 1);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.160s is no token: byte %zu is no visible character",
                             whence, i + 1);
    memcpy(token, text, bytes);
    token[bytes] = 0;
    return 0;
}

static int token_read(const char *path, char token[TOKEN_BYTES_MAX], struct fault *fault) {
    char text[4096]; /* a longer text is no token, and gets the fault that it is too long */
    size_t bytes = 0;
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && bytes < sizeof text && (n = read(fd, text + bytes, sizeof text - bytes)) > 0)
        bytes += (size_t)n;
    int error = n < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    int code =
        error ? fault_set(fault, STATUS_INVALID_ARGUMENT, "the token file %.120s: %s", path, strerrordesc_np(error))
              : token_take(text, bytes, path, token, fault);
    explicit_bzero(text, sizeof text);
    return code;
}

int token_find(const char *given, char token[TOKEN_BYTES_MAX], struct fault *fault) {
    const char *variable = getenv("TENSORD_TOKEN"), *path = getenv("TENSORD_TOKEN_FILE");
    token[0] = 0;
    if (given)
        return *given ? token_take(given, strlen(given), "the option token", token, fault) : 0;
    if (variable && *variable)
        return token_take(variable, strlen(variable), "TENSORD_TOKEN", token, fault);
    return path && *path ? token_read(path, token, fault) : 0;
}

/* ---- TLS ---- */

static const char *secure_file(const char *given, const char *variable) {
    const char *file = given ? given : getenv(variable);
    return file && *file ? file : NULL;
}

int secure_create(const char *url, const struct secure_files *files, struct tls_context **context,
                  struct fault *fault) {
    struct url parsed;
    int code = url_parse(url, &parsed, fault);
    if (code || parsed.kind != URL_TLS) {
        *context = NULL;
        return code;
    }
    struct tls_client_options options = {
        .host = parsed.host,
        .ca = secure_file(files->ca, "TENSORD_CA_FILE"),
        .certificate = secure_file(files->certificate, "TENSORD_CERT_FILE"),
        .key = secure_file(files->key, "TENSORD_KEY_FILE"),
    };
    return tls_client_create(&options, context, fault);
}

/* ---- the socket ---- */

/* 0, or an errno. */
static int wait_connected(int fd, int64_t deadline_ms) {
    for (;;) {
        int64_t left = deadline_ms - control_now_ms();
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        int n = left > 0 ? poll(&entry, 1, (int)left) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? errno : ETIMEDOUT;
        int error = 0;
        socklen_t size = sizeof error;
        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) ? errno : error;
    }
}

static bool goes_on(const struct control_dial *dial, int fd) {
    return !dial->waits || dial->waits(dial->owner, fd);
}

static void let_go(const struct control_dial *dial, int fd) {
    (void)goes_on(dial, -1);
    close(fd);
}

static int connect_address(const struct control_dial *dial, int fd, const struct url_address *address) {
    while (goes_on(dial, fd)) {
        if (!connect(fd, (const struct sockaddr *)&address->address, address->length))
            return 0;
        if (errno == EINPROGRESS || errno == EINTR) {
            int error = wait_connected(fd, dial->deadline_ms);
            return goes_on(dial, fd) ? error : ECANCELED;
        }
        /* A Unix socket says EAGAIN while the listener's backlog is full. */
        if (errno != EAGAIN || control_now_ms() >= dial->deadline_ms)
            return errno == EAGAIN ? ETIMEDOUT : errno;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return ECANCELED;
}

static int dial_address(const struct control_dial *dial, const struct url_address *address, int *out) {
    int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    int error = connect_address(dial, fd, address);
    if (error) {
        let_go(dial, fd);
        return error;
    }
    socket_tune(fd);
    *out = fd;
    return 0;
}

static const char *reason(int error) {
    switch (error) {
    case ENOENT:
        return "no such socket; is tensord running?";
    case ECONNREFUSED:
        return "connection refused; is tensord running?";
    case ETIMEDOUT:
        return "timed out";
    default:
        return strerrordesc_np(error) ? strerrordesc_np(error) : "unknown error";
    }
}

/* The group that may use this socket; NULL: not known. */
static const char *socket_group(const struct url *url, char *buffer, size_t size) {
    struct stat status;
    struct group group, *found = NULL;
    if (stat(url->path, &status)) /* this user may not look at it either */
        return strcmp(url->path, URL_SYSTEM) != 0 ? NULL : "tensord";
    if (!status.st_gid || !(status.st_mode & S_IWGRP) || getgrgid_r(status.st_gid, &group, buffer, size, &found) ||
        !found)
        return NULL;
    return found->gr_name;
}

static int refused(const struct control_dial *dial, const struct url *url, int error, struct fault *fault) {
    char buffer[1024];
    const char *group = error == EACCES && url->kind == URL_UNIX ? socket_group(url, buffer, sizeof buffer) : NULL;
    if (group)
        return fault_set(fault, STATUS_CONNECTION,
                         "cannot connect to %.160s: permission denied; ask to be added to the group %.32s", dial->url,
                         group);
    return fault_set(fault, STATUS_CONNECTION, "cannot connect to %.160s: %s", dial->url, reason(error));
}

/* A daemon that refuses a connection sends an Error frame in the clear, because it does no handshake with a client that it does
 * not accept. */
static bool refused_in_clear(int fd) {
    uint8_t first;
    return recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first == (FRAME_MAGIC & 0xff);
}

static int secure(struct transport *transport, int64_t deadline_ms, struct fault *fault) {
    int error;
    while ((error = transport_handshake(transport)) == EAGAIN) {
        short events = transport_unsent(transport) ? POLLIN | POLLOUT : POLLIN;
        int code = control_wait(transport->fd, events, deadline_ms, fault);
        if (code)
            return code;
    }
    if (error && refused_in_clear(transport->fd))
        return control_refusal(transport->fd, deadline_ms, fault);
    if (error)
        transport_reason(transport, error, fault);
    if (error && !fault->code)
        return fault_set(fault, STATUS_CONNECTION, "%s", reason(error));
    return (int)fault->code;
}

/* Takes over `fd`, and does the TLS handshake if there is one. */
static int begin(const struct control_dial *dial, int fd, struct transport *out, struct fault *fault) {
    struct transport transport;
    struct fault cause = {0};
    int code = transport_init(&transport, fd, dial->tls, fault);
    if (code) {
        let_go(dial, fd);
        return code;
    }
    code = dial->tls ? secure(&transport, dial->deadline_ms, &cause) : 0;
    if (code) {
        (void)goes_on(dial, -1);
        transport_finish(&transport);
        return fault_set(fault, (enum status)code, "cannot connect to %.80s: %s", dial->url, cause.message);
    }
    *out = transport;
    return 0;
}

/* Sends the preamble. The socket is new, so eight bytes always fit its buffer. If the daemon has closed the connection already,
 * it may have said why, and the caller will read that. */
static int send_preamble(const struct control_dial *dial, int fd) {
    uint8_t preamble[PREAMBLE_BYTES];
    preamble_encode(dial->target, preamble);
    if (dial->tls)
        preamble_set_tls(preamble);
    if (dial->resumes)
        preamble_set_resumes(preamble);
    bool sent = send(fd, preamble, sizeof preamble, MSG_NOSIGNAL) == sizeof preamble;
    return sent || errno == EPIPE || errno == ECONNRESET ? 0 : errno;
}

int control_dial(const struct control_dial *dial, struct transport *out, struct fault *fault) {
    struct url parsed;
    struct url_address addresses[ADDRESSES_MAX];
    size_t count = 0;
    int code = url_parse(dial->url, &parsed, fault);
    if (!code)
        code = url_resolve(&parsed, false, addresses, ADDRESSES_MAX, &count, fault);
    if (code)
        return code;
    int fd = -1, error = ENOENT;
    for (size_t i = 0; i < count && fd < 0 && error != ECANCELED; i++)
        error = dial_address(dial, &addresses[i], &fd);
    if (error == ECANCELED)
        return fault_set(fault, STATUS_CANCELLED, "connecting to %.160s was given up", dial->url);
    if (fd < 0)
        return refused(dial, &parsed, error, fault);
    error = send_preamble(dial, fd);
    if (error) {
        let_go(dial, fd);
        return fault_set(fault, STATUS_CONNECTION, "cannot send to %.160s: %s", dial->url, reason(error));
    }
    return begin(dial, fd, out, fault);
}
