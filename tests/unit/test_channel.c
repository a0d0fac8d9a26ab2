/* The channel between front and worker: packets, and descriptors beside them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/ipc/channel.h"

static int ends[2];

static void open_channel(void) {
    cr_assert(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends));
}

TestSuite(channel, .init = open_channel);

static struct channel_message message_of(enum channel_type type) {
    struct channel_message message;
    memset(&message, 0, sizeof message);
    message.type = type;
    return message;
}

Test(channel, a_message_comes_as_it_was_sent) {
    struct channel_message sent = message_of(CHANNEL_START), got;
    int fd = 99;
    strcpy(sent.start.device, "cpu:1");
    sent.start.epoch = 7;
    cr_assert(channel_send(ends[0], &sent, -1) == 0);
    cr_assert(channel_receive(ends[1], &got, &fd) == 0);
    cr_assert(fd == -1);
    cr_assert(!memcmp(&sent, &got, sizeof sent));
}

Test(channel, a_descriptor_comes_beside_its_own_message) {
    struct channel_message plain = message_of(CHANNEL_DRAIN), with = message_of(CHANNEL_CONNECTION), got;
    int pipe_ends[2], fd = 99;
    char byte = 'x';
    cr_assert(!pipe(pipe_ends));
    cr_assert(channel_send(ends[0], &plain, -1) == 0);
    cr_assert(channel_send(ends[0], &with, pipe_ends[1]) == 0);
    close(pipe_ends[1]); /* sending does not: it is still the sender's */
    cr_assert(channel_receive(ends[1], &got, &fd) == 0);
    cr_assert(got.type == CHANNEL_DRAIN && fd == -1);
    cr_assert(channel_receive(ends[1], &got, &fd) == 0);
    cr_assert(got.type == CHANNEL_CONNECTION && fd >= 0);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert(write(fd, &byte, 1) == 1 && read(pipe_ends[0], &byte, 1) == 1);
}

Test(channel, an_empty_channel_says_again) {
    struct channel_message got;
    int fd;
    cr_assert(channel_receive(ends[1], &got, &fd) == -EAGAIN);
}

Test(channel, a_full_channel_says_again_and_loses_nothing) {
    struct channel_message message = message_of(CHANNEL_LINK_IN), got;
    int sent = 0, received = 0, fd, error;
    while ((error = channel_send(ends[0], &message, -1)) == 0 && sent < 100000)
        sent++;
    cr_assert(error == -EAGAIN);
    while (channel_receive(ends[1], &got, &fd) == 0)
        received++;
    cr_assert(sent == received && sent > 8);
    cr_assert(channel_send(ends[0], &message, -1) == 0);
}

Test(channel, the_other_end_gone_is_a_broken_pipe) {
    struct channel_message message = message_of(CHANNEL_READY), got;
    int fd;
    cr_assert(channel_send(ends[1], &message, -1) == 0);
    close(ends[1]);
    cr_assert(channel_receive(ends[0], &got, &fd) == 0 && got.type == CHANNEL_READY);
    cr_assert(channel_receive(ends[0], &got, &fd) == -EPIPE);
    cr_assert(channel_send(ends[0], &message, -1) == -EPIPE);
}

Test(channel, a_packet_of_another_size_is_refused_and_its_descriptor_closed) {
    struct channel_message got;
    int fd = 99;
    memset(&got, 0x55, sizeof got);
    cr_assert(send(ends[0], "short", 5, 0) == 5);
    cr_assert(channel_receive(ends[1], &got, &fd) == -EBADMSG);
    cr_assert(fd == 99 && (int)got.type == 0x55555555);
}
