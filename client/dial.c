/* Connecting: from a URL to a socket whose preamble has been sent. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/control.h"
#include "proto/frame.h"
#include "proto/socket.h"
#include "proto/url.h"

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
        return url_default(text, CONTROL_URL_MAX, fault);
    if (strlen(url) >= CONTROL_URL_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the URL has %zu bytes, at most %d are possible", strlen(url),
                         CONTROL_URL_MAX - 1);
    strcpy(text, url);
    return 0;
}

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

static int connect_address(int fd, const struct url_address *address, int64_t deadline_ms) {
    while (connect(fd, (const struct sockaddr *)&address->address, address->length)) {
        if (errno == EINPROGRESS || errno == EINTR)
            return wait_connected(fd, deadline_ms);
        /* A Unix socket says EAGAIN while the listener's backlog is full. */
        if (errno != EAGAIN || control_now_ms() >= deadline_ms)
            return errno == EAGAIN ? ETIMEDOUT : errno;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return 0;
}

static int dial_address(const struct url_address *address, int64_t deadline_ms, int *out) {
    int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    int error = connect_address(fd, address, deadline_ms);
    if (error) {
        close(fd);
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

/* A daemon that refuses the connection itself says so in the clear: it has no handshake with those it does not take. */
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

/* Takes over `fd`. */
static int begin(int fd, const char *url, struct tls_context *tls, int64_t deadline_ms, struct transport *out,
                 struct fault *fault) {
    struct transport transport;
    struct fault cause = {0};
    int code = transport_init(&transport, fd, tls, fault);
    if (code) {
        close(fd);
        return code;
    }
    code = tls ? secure(&transport, deadline_ms, &cause) : 0;
    if (code) {
        transport_finish(&transport);
        return fault_set(fault, (enum status)code, "cannot connect to %.80s: %s", url, cause.message);
    }
    *out = transport;
    return 0;
}

int control_dial(const char *url, struct tls_context *tls, uint16_t target, int64_t deadline_ms, struct transport *out,
                 struct fault *fault) {
    struct url parsed;
    struct url_address addresses[ADDRESSES_MAX];
    size_t count = 0;
    int code = url_parse(url, &parsed, fault);
    if (!code)
        code = url_resolve(&parsed, false, addresses, ADDRESSES_MAX, &count, fault);
    if (code)
        return code;
    int fd = -1, error = ENOENT;
    for (size_t i = 0; i < count && fd < 0; i++)
        error = dial_address(&addresses[i], deadline_ms, &fd);
    if (fd < 0)
        return fault_set(fault, STATUS_CONNECTION, "cannot connect to %.160s: %s", url, reason(error));
    uint8_t preamble[PREAMBLE_BYTES];
    preamble_encode(target, preamble);
    if (tls)
        preamble_set_tls(preamble);
    /* The socket is new: eight bytes always fit its buffer. A daemon that has closed it already may have said why. */
    if (send(fd, preamble, sizeof preamble, MSG_NOSIGNAL) != sizeof preamble && errno != EPIPE && errno != ECONNRESET) {
        code = fault_set(fault, STATUS_CONNECTION, "cannot send to %.160s: %s", url, reason(errno));
        close(fd);
        return code;
    }
    return begin(fd, url, tls, deadline_ms, out, fault);
}
