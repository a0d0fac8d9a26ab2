#include "server/ipc/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union channel_control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* Either end may see a dead peer as EPIPE or ECONNRESET; callers know one of them. */
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
    do
        received = recvmsg(channel, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (received < 0 && errno == EINTR);
    if (received < 0)
        return channel_error();
    int passed = channel_take_fd(&packet);
    /* A sequenced-packet socket reports its end as an empty packet, and nobody sends one. MSG_CTRUNC is no reason to
     * refuse: it says that this process has as many descriptors as it may, which clients can bring about. */
    if (received != (ssize_t)sizeof incoming || packet.msg_flags & MSG_TRUNC) {
        if (passed >= 0)
            close(passed);
        return received == 0 ? -EPIPE : -EBADMSG;
    }
    *message = incoming;
    *fd = passed;
    return 0;
}
