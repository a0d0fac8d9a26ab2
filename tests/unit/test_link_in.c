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

/* Opens a client of this principal, and sends CopyIns whose values never come until no more of them are read. Returns its
 * end of the socket. */
static int fill_copies(const char *principal) {
    snprintf(peer.principal.name, sizeof peer.principal.name, "%s", principal);
    open_client();
    for (uint64_t id = 1; !connection->hold.copies && id <= LINK_COPIES_MAX; id++) {
        uint8_t ticket[LINK_TICKET_BYTES] = {0};
        int64_t shape[] = {1};
        Tensord__CopyIn copy = TENSORD__COPY_IN__INIT;
        memcpy(ticket, &id, sizeof id);
        memcpy(ticket + sizeof id, &connection->number, sizeof id);
        copy.id = copy.sequence = id;
        copy.dtype = DTYPE_U8;
        copy.shape = shape;
        copy.n_shape = 1;
        copy.source = "null:1";
        copy.ticket = (ProtobufCBinaryData){sizeof ticket, ticket};
        send_message(FRAME_COPY_IN, 0, &copy.base);
        turn();
    }
    cr_assert(connection->hold.copies, "%s waits for %u copies", principal, connection->links.n_copies);
    return client;
}

Test(link_in, a_principal_may_wait_for_a_quarter_of_all_copies) {
    enum { CLIENTS = 5, QUARTER = LINK_COPIES_MAX / 4 };
    int clients[CLIENTS];
    open_service(&(struct limits){.session_operations = 65536});
    for (unsigned i = 0; i < CLIENTS - 1; i++)
        clients[i] = fill_copies("uid:1");
    cr_assert_eq(connection->links.n_copies, LINK_SESSION_LEAST); /* which each session has in any case */
    cr_assert_leq(connection->principal->copies, QUARTER + CLIENTS * LINK_SESSION_LEAST);
    cr_assert_geq(connection->principal->copies, QUARTER);
    clients[CLIENTS - 1] = fill_copies("uid:2");
    cr_assert_eq(connection->links.n_copies, LINK_COPIES_MAX / LINK_SESSION_PART);
    for (unsigned i = 0; i < CLIENTS; i++)
        close(clients[i]);
    client = -1;
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
