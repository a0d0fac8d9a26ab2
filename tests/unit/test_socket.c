/* What is set on sockets of each kind, and what is known of their other ends. */
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/net/transport.h"

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    cr_assert(!getsockopt(fd, level, name, &value, &length));
    return value;
}

/* The two ends of a connection from an address of this host to another one. */
static void connect_pair(int family, const struct sockaddr *from, const struct sockaddr *to, socklen_t bytes,
                         int ends[2]) {
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(!bind(listener, to, bytes) && !listen(listener, 1));
    cr_assert(!getsockname(listener, (struct sockaddr *)&at, &length));
    ends[0] = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(!bind(ends[0], from, bytes) && !connect(ends[0], (struct sockaddr *)&at, length));
    ends[1] = accept(listener, NULL, NULL);
    cr_assert(ends[1] >= 0);
    close(listener);
}

static struct sockaddr_in ipv4(uint32_t address) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
}

static void connect_ipv4(uint32_t from, uint32_t to, int ends[2]) {
    struct sockaddr_in here = ipv4(from), there = ipv4(to);
    connect_pair(AF_INET, (struct sockaddr *)&here, (struct sockaddr *)&there, sizeof here, ends);
}

/* Also of one that has not been waited for. */
Test(socket, end_of_a_process_is_seen) {
    int pipes[2], status;
    cr_assert(!pipe(pipes));
    pid_t process = fork();
    if (!process) {
        char byte;
        close(pipes[1]);
        (void)!read(pipes[0], &byte, 1);
        _exit(0);
    }
    struct pollfd end = {.fd = socket_watch_process(process), .events = POLLIN};
    cr_assert_geq(end.fd, 0, "%s", strerror(errno));
    cr_assert_eq(poll(&end, 1, 0), 0);
    close(pipes[1]);
    cr_assert_eq(poll(&end, 1, -1), 1);
    cr_assert_eq(waitpid(process, &status, 0), process);
    cr_assert_lt(socket_watch_process(process), 0);
    cr_assert_eq(errno, ESRCH);
    close(end.fd);
}

Test(socket, tcp_within_a_host_keeps_little_under_way) {
    int ends[2];
    connect_ipv4(INADDR_LOOPBACK, INADDR_LOOPBACK, ends);
    if (option(ends[0], SOL_SOCKET, SO_SNDBUF) <= 512 << 10)
        cr_skip_test("TCP begins with little by itself here");
    for (int i = 0; i < 2; i++) {
        cr_assert(socket_is_tcp(ends[i]) && socket_is_local(ends[i]));
        socket_tune(ends[i]);
        cr_assert_eq(option(ends[i], IPPROTO_TCP, TCP_NODELAY), 1);
        cr_assert_eq(option(ends[i], SOL_SOCKET, SO_KEEPALIVE), 1);
        cr_assert_eq(option(ends[i], IPPROTO_TCP, TCP_KEEPIDLE), 15);
        cr_assert_leq(option(ends[i], SOL_SOCKET, SO_SNDBUF), 512 << 10); /* the system doubles what it is told */
        close(ends[i]);
    }
}

/* As far as the addresses tell, which is what there is to go by. */
Test(socket, tcp_between_two_addresses_is_left_to_the_system) {
    int ends[2];
    connect_ipv4(INADDR_LOOPBACK + 1, INADDR_LOOPBACK, ends);
    int before = option(ends[0], SOL_SOCKET, SO_SNDBUF);
    cr_assert(!socket_is_local(ends[0]) && !socket_is_local(ends[1]));
    socket_tune(ends[0]);
    cr_assert_eq(option(ends[0], SOL_SOCKET, SO_SNDBUF), before);
    cr_assert_eq(option(ends[0], IPPROTO_TCP, TCP_NODELAY), 1);
    close(ends[0]);
    close(ends[1]);
}

Test(socket, unix_sockets_get_large_buffers) {
    int ends[2];
    cr_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    int before = option(ends[0], SOL_SOCKET, SO_SNDBUF);
    socket_tune(ends[0]);
    cr_assert(!socket_is_tcp(ends[0]) && socket_is_local(ends[0]));
    cr_assert_geq(option(ends[0], SOL_SOCKET, SO_SNDBUF), before);
    close(ends[0]);
    close(ends[1]);
}

Test(socket, other_descriptors_are_left_alone) {
    int ends[2];
    cr_assert(!pipe(ends));
    cr_assert(!socket_is_tcp(ends[0]) && !socket_is_local(ends[0]));
    socket_tune(ends[0]);
    close(ends[0]);
    close(ends[1]);
}
