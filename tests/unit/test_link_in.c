/* How long a link waits for the copy that it brings. */
#include "server/worker/link.h"
#include "tests/unit/service_fixture.h"

enum { TRANSFER_MS = 10000, LEASE_MS = 60000 };

/* The source's end of a link for a copy that nobody has asked for. */
static int accept_link(void) {
    const uint8_t ticket[LINK_TICKET_BYTES] = {1};
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    link_in_accept(&service, "cpu:1", "uid:0", ticket, ends[0]);
    cr_assert_eq(service.links.n_idle, 1);
    return ends[1];
}

static bool is_closed(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

Test(link_in, a_link_waits_for_a_client_that_may_reconnect_as_long_as_its_lease) {
    open_service(&(struct limits){.session_lease = LEASE_MS});
    open_connection();
    send_hello(true, false);
    receive_welcome();
    int source = accept_link();
    uint64_t now = clock_now_ms();
    link_in_tick(&service, now + 2 * TRANSFER_MS);
    cr_assert_not(is_closed(source));
    link_in_tick(&service, now + TRANSFER_MS + LEASE_MS);
    cr_assert(is_closed(source));
    cr_assert_eq(service.links.n_idle, 0);
    close(source);
    service_drain(&service);
    close_service();
}

Test(link_in, a_link_of_a_principal_without_leases_is_closed_when_its_time_is_over) {
    open_service(&(struct limits){.session_lease = LEASE_MS});
    open_client(); /* which does not ask for a lease */
    int source = accept_link();
    uint64_t now = clock_now_ms();
    link_in_tick(&service, now - 1);
    cr_assert_not(is_closed(source));
    link_in_tick(&service, now + TRANSFER_MS);
    cr_assert(is_closed(source));
    cr_assert_eq(service.links.n_idle, 0);
    close(source);
    close_service();
}
