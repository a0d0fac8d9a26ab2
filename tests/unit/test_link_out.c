/* In which order the source of copies asks the front for links, where some workers take none; and what it says where it has no
 * memory. */
#include <stdlib.h>

#include "server/worker/link.h"
#include "tests/unit/service_fixture.h"

enum { ASKED_MAX = 1024 };

static struct {
    char device[LINK_DEVICE_MAX + 1];
    uint8_t ticket[LINK_TICKET_BYTES];
} asked[ASKED_MAX];
static unsigned n_asked, n_answered;

static bool starved; /* calloc() has no memory */

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes) {
    return starved ? NULL : __real_calloc(count, bytes);
}

static int ask(void *owner, const char *to, const char *principal, const uint8_t ticket[LINK_TICKET_BYTES]) {
    (void)owner, (void)principal;
    cr_assert_lt(n_asked, ASKED_MAX);
    snprintf(asked[n_asked].device, sizeof asked[n_asked].device, "%s", to);
    memcpy(asked[n_asked++].ticket, ticket, LINK_TICKET_BYTES);
    return 0;
}

static void open_source(void) {
    want_link = ask;
    open_service(&(struct limits){0});
    open_client();
    make_tensors(1);
}

static void copy(const char *to, uint8_t number) {
    cr_assert_eq(link_out_send(connection, 1, to, (uint8_t[LINK_TICKET_BYTES]){number}), STATUS_OK);
}

/* The front's answer to the oldest question that has none: no link. */
static void refuse(enum status status) {
    struct fault fault;
    fault_set(&fault, status, "no");
    link_out_granted(&service, asked[n_answered++].ticket, -1, &fault);
}

static void expect_asked(unsigned place, const char *to, uint8_t number) {
    cr_assert_lt(place, n_asked, "%u have been asked for", n_asked);
    cr_assert_str_eq(asked[place].device, to);
    cr_assert_eq(asked[place].ticket[0], number);
}

static void tick(void) {
    link_out_tick(&service, clock_now_ms());
}

Test(link_out, a_worker_that_takes_no_link_does_not_hold_up_links_to_others) {
    open_source();
    copy("cpu:1", 1);
    refuse(STATUS_LIMIT);
    copy("cpu:2", 2);
    copy("cpu:1", 3);
    copy("cpu:2", 4);
    cr_assert_eq(n_asked, 3);
    expect_asked(1, "cpu:2", 2);
    expect_asked(2, "cpu:2", 4);
    tick();
    cr_assert_eq(n_asked, 5);
    expect_asked(3, "cpu:1", 1);
    expect_asked(4, "cpu:1", 3);
    close_service();
}

Test(link_out, a_worker_that_takes_no_link_is_asked_once_a_tick) {
    open_source();
    for (uint8_t i = 0; i < 40; i++)
        copy("cpu:1", i);
    cr_assert_eq(n_asked, LINK_WANTED_MAX);
    while (n_answered < n_asked)
        refuse(STATUS_LIMIT);
    cr_assert_eq(n_asked, LINK_WANTED_MAX, "what was asked before the first answer");
    tick();
    cr_assert_eq(n_asked, 2 * LINK_WANTED_MAX);
    close_service();
}

Test(link_out, links_of_two_sessions_to_many_devices_take_turns) {
    struct connection *first;
    int first_client;
    open_source();
    for (uint8_t i = 0; i < LINK_WANTED_MAX + 2; i++)
        copy("cpu:1", i);
    copy("cpu:2", 100);
    first = connection, first_client = client;
    open_client();
    make_tensors(1);
    copy("cpu:1", 101);
    for (unsigned i = 0; i < 3; i++)
        refuse(STATUS_NO_DEVICE);
    expect_asked(LINK_WANTED_MAX, "cpu:1", LINK_WANTED_MAX);
    expect_asked(LINK_WANTED_MAX + 1, "cpu:1", 101);
    expect_asked(LINK_WANTED_MAX + 2, "cpu:2", 100);
    connection_destroy(first, "");
    close(first_client);
    for (unsigned turns = 0; service.links.n_wanted > 1 && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_eq(service.links.n_wanted, 1, "the other session's");
    close_service();
}

Test(link_out, devices_that_there_are_not_take_no_room) {
    char name[LINK_DEVICE_MAX + 1];
    open_source();
    for (uint8_t i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "no:%u", i);
        copy(name, i);
    }
    cr_assert_leq(service.links.n_destinations, LINK_DESTINATIONS_MAX + 1);
    while (n_answered < n_asked)
        refuse(n_answered % 2 ? STATUS_LIMIT : STATUS_NO_DEVICE);
    tick();
    while (n_answered < n_asked)
        refuse(STATUS_NO_DEVICE);
    for (unsigned ticks = 0; service.links.n_destinations && ticks < 10; ticks++) {
        tick();
        while (n_answered < n_asked)
            refuse(STATUS_NO_DEVICE);
    }
    cr_assert_eq(service.links.n_destinations, 0);
    cr_assert_not(link_busy(&connection->links));
    close_service();
}

/* ---- without memory ---- */

static int copy_starved(uint8_t number) {
    starved = true;
    int code = link_out_send(connection, 1, "cpu:1", (uint8_t[LINK_TICKET_BYTES]){number});
    starved = false;
    return code;
}

/* The front's answer to the oldest question that has none: a link. What the destination reads from it is a failure. */
static void expect_excuse(void) {
    static uint8_t bytes[4096];
    struct frame_header header;
    struct fault fault = {0};
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    link_out_granted(&service, asked[n_answered++].ticket, fds[0], &fault);
    ssize_t got = recv(fds[1], bytes, sizeof bytes, MSG_DONTWAIT);
    cr_assert_gt(got, FRAME_HEADER_BYTES);
    cr_assert_eq(frame_header_decode(bytes, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, &fault), STATUS_OK);
    cr_assert_eq(header.type, FRAME_LINK_DATA);
    Tensord__LinkData *data = tensord__link_data__unpack(NULL, header.message_bytes, bytes + FRAME_HEADER_BYTES);
    cr_assert(data && data->error);
    cr_expect_eq(data->error->code, STATUS_NO_HOST_MEMORY);
    cr_expect(strstr(data->error->message, "no memory"), "%s", data->error->message);
    tensord__link_data__free_unpacked(data, NULL);
    cr_expect_eq(recv(fds[1], bytes, sizeof bytes, MSG_DONTWAIT), 0, "the link has ended");
    close(fds[1]);
}

Test(link_out, a_copy_that_there_is_no_memory_for_fails_at_its_destination) {
    open_source();
    cr_assert_eq(copy_starved(7), STATUS_OK);
    cr_assert_eq(n_asked, 1, "its link is asked for");
    expect_asked(0, "cpu:1", 7);
    refuse(STATUS_LIMIT);
    cr_assert_eq(n_asked, 1);
    tick();
    expect_asked(1, "cpu:1", 7);
    expect_excuse();
    tick();
    cr_assert_eq(n_asked, 2, "nothing more is owed");
    close_service();
}

Test(link_out, many_copies_that_there_is_no_memory_for_wait_for_one_another) {
    open_source();
    for (uint8_t i = 0; i < LINK_UNNOTED_MAX; i++)
        cr_assert_eq(copy_starved(i), STATUS_OK);
    cr_assert_eq(copy_starved(100), STATUS_AGAIN);
    expect_excuse();
    cr_assert_eq(copy_starved(100), STATUS_OK);
    cr_assert_eq(link_out_send(connection, 1, "cpu:1", (uint8_t[LINK_TICKET_BYTES]){101}), STATUS_OK, "memory again");
    while (n_answered < n_asked - 1)
        expect_excuse();
    expect_asked(n_asked - 1, "cpu:1", 101);
    refuse(STATUS_NO_DEVICE);
    close_service();
}
