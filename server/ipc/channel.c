#include "server/ipc/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "proto/files/file.h"

union channel_control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* A dead peer shows as EPIPE or ECONNRESET; callers know only the first. */
static int channel_error(void) {
    if (errno == ECONNRESET || errno == ENOTCONN)
        return -EPIPE;
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

int channel_send(int channel, const struct channel_message *message, int fd) {
    struct iovec part = {(void *)message, sizeof *message};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    union channel_control control;
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        packet.msg_control = control.bytes;
        packet.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    ssize_t sent;
    do
        sent = sendmsg(channel, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? channel_error() : 0;
}

static int channel_take_fd(struct msghdr *packet) {
    int fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(packet); c; c = CMSG_NXTHDR(packet, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
            memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

int channel_receive(int channel, struct channel_message *message, int *fd) {
    struct channel_message incoming;
    struct iovec part = {&incoming, sizeof incoming};
    union channel_control control;
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t received;
    /* ECONNRESET is said once, ahead of what the other end had sent, if that was closed with unread packets. */
    do
        received = recvmsg(channel, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (received < 0 && (errno == EINTR || errno == ECONNRESET));
    if (received < 0)
        return channel_error();
    int passed = channel_take_fd(&packet);
    /* A sequenced-packet socket reports its end as an empty packet, and nobody sends empty packets. MSG_CTRUNC is no
     * error: this process has as many descriptors as it may have, which clients can cause. */
    if (received != (ssize_t)sizeof incoming || packet.msg_flags & MSG_TRUNC) {
        if (passed >= 0)
            close(passed);
        return received == 0 ? -EPIPE : -EBADMSG;
    }
    *message = incoming;
    *fd = passed;
    return 0;
}

/* ---- credentials ---- */

enum { CREDENTIALS_CERTIFICATE, CREDENTIALS_KEY, CREDENTIALS_CLIENT_CA, CREDENTIALS_TEXTS };

/* Followed by the texts, each with its zero. Written and read by the same binary. */
struct credentials_head {
    enum tls_client_auth client_auth;
    uint32_t bytes[CREDENTIALS_TEXTS]; /* with the zeros; 0: there is no such text */
    struct tls_ticket_key tickets[TLS_TICKET_KEYS];
};

static int credentials_fill(int fd, const struct tls_server_options *options) {
    const char *texts[CREDENTIALS_TEXTS] = {options->certificate, options->key, options->client_ca};
    struct credentials_head head;
    memset(&head, 0, sizeof head);
    head.client_auth = options->client_auth;
    memcpy(head.tickets, options->tickets, sizeof head.tickets);
    for (unsigned i = 0; i < CREDENTIALS_TEXTS; i++)
        head.bytes[i] = texts[i] ? (uint32_t)strlen(texts[i]) + 1 : 0;
    bool good = whole_write(fd, &head, sizeof head);
    for (unsigned i = 0; i < CREDENTIALS_TEXTS && good; i++)
        good = whole_write(fd, texts[i], head.bytes[i]);
    good = good && !fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    int error = good ? 0 : -errno;
    explicit_bzero(&head, sizeof head);
    return error;
}

int credentials_seal(const struct tls_server_options *options, int *out, struct fault *fault) {
    int fd = memfd_create("tensord-credentials", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 ? -errno : credentials_fill(fd, options);
    if (error) {
        if (fd >= 0)
            close(fd);
        return fault_set(fault, STATUS_INTERNAL, "no memory to pass certificates on: %s", strerror(-error));
    }
    *out = fd;
    return STATUS_OK;
}

/* Reads the block. False: head and texts do not fill it exactly, or a text has no zero at its end. */
static bool credentials_parse(const char *block, size_t size, struct tls_server_options *options) {
    const char **texts[CREDENTIALS_TEXTS] = {&options->certificate, &options->key, &options->client_ca};
    struct credentials_head head;
    size_t at = sizeof head;
    if (size < sizeof head)
        return false;
    memcpy(&head, block, sizeof head);
    options->client_auth = head.client_auth;
    memcpy(options->tickets, head.tickets, sizeof head.tickets);
    explicit_bzero(&head.tickets, sizeof head.tickets);
    for (unsigned i = 0; i < CREDENTIALS_TEXTS; i++) {
        *texts[i] = head.bytes[i] ? block + at : NULL;
        if (head.bytes[i] > size - at || (head.bytes[i] && block[at + head.bytes[i] - 1]))
            return false;
        at += head.bytes[i];
    }
    return at == size && options->certificate && options->key;
}

int credentials_open(int fd, struct tls_context **context, struct fault *fault) {
    struct tls_server_options options;
    struct stat file;
    if (fstat(fd, &file) || file.st_size > 4 * (off_t)CREDENTIALS_TEXT_MAX)
        return fault_set(fault, STATUS_INTERNAL, "these are no credentials");
    size_t size = (size_t)file.st_size;
    char *block = malloc(size + 1);
    if (!block)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for certificates");
    int error = pread(fd, block, size, 0) == (ssize_t)size && credentials_parse(block, size, &options)
                    ? tls_server_create(&options, context, fault)
                    : fault_set(fault, STATUS_INTERNAL, "these are no credentials");
    explicit_bzero(block, size);
    explicit_bzero(&options, sizeof options);
    free(block);
    return error;
}
