/* Large tensors over each kind of socket. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"

enum { LARGE = 64 << 20 };

static struct daemon tensord;

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(transport, .fini = stop, .timeout = 120);

static void round_trip(const char *url) {
    struct client client;
    uint8_t *sent = malloc(LARGE), *got = calloc(LARGE, 1);
    client_noise(sent, LARGE, 7);
    client_open(&client, url, "cpu:0");
    td_tensor *tensor = td_upload(client.device, TD_U8, TD_SHAPE(LARGE), sent);
    cr_assert_not_null(tensor, "%s", td_last_error()->message);
    cr_assert(!td_fetch(td_copy(tensor), got, LARGE), "%s", td_last_error()->message);
    cr_assert(!memcmp(sent, got, LARGE), "the bytes changed on the way");
    client_close(&client);
    free(sent);
    free(got);
}

static bool have_ipv6(void) {
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool have = fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address);
    if (fd >= 0)
        close(fd);
    return have;
}

Test(transport, large_tensor_over_a_unix_socket) {
    daemon_start(&tensord, NULL);
    round_trip(tensord.url);
}

Test(transport, large_tensor_over_tcp_ipv4) {
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0"});
    round_trip(tensord.tcp);
}

Test(transport, large_tensor_over_tcp_ipv6) {
    if (!have_ipv6())
        cr_skip_test("no IPv6 loopback here");
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://[::1]:0"});
    round_trip(tensord.tcp);
}

Test(transport, localhost_is_accepted_as_loopback) {
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://localhost:0"});
    round_trip(tensord.tcp);
}
