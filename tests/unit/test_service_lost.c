/* What becomes of frames that had come before a client's socket ended, where the session stays for a while. */
#include "tests/unit/service_fixture.h"

enum { FRAMES = 300 };

static void open_leased(void) {
    open_resumable(&(struct limits){.session_lease = 60000});
}

/* Frames that count for a lease and have no reply, at once. */
static void send_counted(void) {
    static uint8_t frames[FRAMES * 64];
    Tensord__StreamClose message = TENSORD__STREAM_CLOSE__INIT;
    message.stream = 5; /* which there is not */
    uint32_t message_bytes = (uint32_t)tensord__stream_close__get_packed_size(&message);
    struct frame_header header = {.type = FRAME_STREAM_CLOSE, .message_bytes = message_bytes};
    uint8_t *at = frames;
    for (unsigned i = 0; i < FRAMES; i++) {
        frame_header_encode(&header, at);
        tensord__stream_close__pack(&message, at + FRAME_HEADER_BYTES);
        at += FRAME_HEADER_BYTES + message_bytes;
    }
    cr_assert_eq(send(client, frames, (size_t)(at - frames), MSG_NOSIGNAL), at - frames);
}

static void send_goodbye(void) {
    const struct frame_header header = {.type = FRAME_GOODBYE};
    uint8_t frame[FRAME_HEADER_BYTES];
    frame_header_encode(&header, frame);
    cr_assert_eq(send(client, frame, sizeof frame, MSG_NOSIGNAL), sizeof frame);
}

/* A socket that is closed while it holds a reply that nobody has read is reset, as the host of a dead client resets it. */
static void leave_a_reply(void) {
    Tensord__Ping ping = TENSORD__PING__INIT;
    uint8_t byte;
    send_message(FRAME_PING, 2, &ping.base);
    for (unsigned turns = 0; recv(client, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1 && turns < TURNS_MAX; turns++)
        turn();
}

static void client_ends(void) {
    close(client);
    client = -1;
}

/* The session has no socket any more, and all of the frames have been handled. */
static void expect_all_handled(void) {
    TURNS_UNTIL(!connection->socket.poll);
    cr_expect_eq(connection->lease.frames, FRAMES, "%lu of %d were handled", connection->lease.frames, FRAMES);
    cr_expect_not_null(connection->session);
    service_drain(&service); /* its lease is long */
    close_service();
}

Test(service_lost, frames_that_came_before_a_reset_are_handled) {
    open_leased();
    leave_a_reply();
    send_counted();
    client_ends();
    expect_all_handled();
}

Test(service_lost, frames_that_came_before_the_end_are_handled) {
    open_leased();
    send_counted();
    client_ends();
    expect_all_handled();
}

/* Writing finds the end before reading does. */
Test(service_lost, frames_that_came_before_a_reply_could_not_be_written_are_handled) {
    open_leased();
    send_counted();
    client_ends();
    lease_ack(connection);
    connection_flush(connection);
    expect_all_handled();
}

Test(service_lost, a_session_whose_client_said_goodbye_before_the_reset_ends) {
    open_leased();
    leave_a_reply();
    send_counted();
    send_goodbye();
    client_ends();
    TURNS_UNTIL(!service.connections);
    close_service();
}

/* A client that comes back meanwhile is told how many have been handled, and sends the others again. */
Test(service_lost, a_client_may_come_back_while_its_frames_are_handled) {
    open_leased();
    struct connection *session = connection;
    leave_a_reply();
    send_counted();
    client_ends();
    look_ns = SERVICE_TURN_NS; /* a frame or two in a turn */
    for (unsigned turns = 0; session->lease.frames == 0 && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_lt(session->lease.frames, FRAMES);
    cr_assert_not_null(session->socket.poll);
    open_connection();
    send_hello(true, true);
    receive_welcome();
    look_ns = 1000;
    uint64_t handled = session->lease.frames;
    cr_expect_lt(handled, FRAMES);
    send_counted();
    TURNS_UNTIL(session->lease.frames == handled + FRAMES);
    client_ends();
    TURNS_UNTIL(!session->socket.poll);
    service_drain(&service);
    close_service();
}
