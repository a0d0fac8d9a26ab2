/* Frames, preambles and handshakes that are wrong by themselves. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/hostile.h"

TestSuite(malformed_frames, .timeout = 240);

static void header(struct wire *wire, unsigned type, uint32_t message_bytes, uint64_t payload_bytes) {
    wire_header(wire, &(struct frame_header){.type = (uint16_t)type,
                                             .message_bytes = message_bytes,
                                             .payload_bytes = payload_bytes,
                                             .sequence = 9});
}

/* A good Ping header with one byte changed. */
static void patched_ping(struct wire *wire, size_t offset, uint8_t value) {
    uint8_t bytes[FRAME_HEADER_BYTES];
    frame_header_encode(&(struct frame_header){.type = FRAME_PING, .sequence = 9}, bytes);
    bytes[offset] = value;
    wire_write(wire, bytes, sizeof bytes);
}

static void bytes(struct wire *wire, const char *text) {
    wire_write(wire, text, strlen(text));
}

static void payload_of_all_ones(struct wire *wire) {
    header(wire, FRAME_PING, 0, UINT64_MAX);
}
static void payload_of_one_tebibyte(struct wire *wire) {
    header(wire, FRAME_UPLOAD, 8, UINT64_C(1) << 40);
}
static void payload_just_over_the_limit(struct wire *wire) {
    header(wire, FRAME_UPLOAD_CHUNK, 8, FRAME_PAYLOAD_MAX + 1);
}
static void message_of_all_ones(struct wire *wire) {
    header(wire, FRAME_BATCH, UINT32_MAX, 0);
}
static void message_just_over_the_limit(struct wire *wire) {
    header(wire, FRAME_BATCH, FRAME_MESSAGE_MAX + 1, 0);
}
static void wrong_magic(struct wire *wire) {
    patched_ping(wire, 0, 'X');
}
static void type_zero(struct wire *wire) {
    header(wire, 0, 0, 0);
}
static void type_unknown(struct wire *wire) {
    header(wire, 9, 0, 0);
}
static void type_of_all_ones(struct wire *wire) {
    header(wire, UINT16_MAX, 0, 0);
}
static void flags_set(struct wire *wire) {
    patched_ping(wire, 6, 1);
}
static void flags_set_high(struct wire *wire) {
    patched_ping(wire, 7, 0x80);
}
static void reserved_set(struct wire *wire) {
    patched_ping(wire, 12, 1);
}
static void reserved_set_high(struct wire *wire) {
    patched_ping(wire, 15, 0x80);
}
static void message_is_no_protobuf(struct wire *wire) {
    uint8_t noise[200];
    memset(noise, 0xff, sizeof noise);
    header(wire, FRAME_BATCH, sizeof noise, 0);
    wire_write(wire, noise, sizeof noise);
}
/* A packed field that says it is 8 GB long. */
static void message_field_longer_than_message(struct wire *wire) {
    static const uint8_t message[] = {0x22, 0x80, 0xa0, 0x94, 0xa5, 0x1d, 1, 2, 3};
    header(wire, FRAME_BATCH, sizeof message, 0);
    wire_write(wire, message, sizeof message);
}
static void noise(struct wire *wire) {
    uint8_t data[65536];
    client_noise(data, sizeof data, 5);
    wire_write(wire, data, sizeof data);
}
static void ping_with_message_and_payload(struct wire *wire) {
    header(wire, FRAME_PING, 4, 4);
    bytes(wire, "\x08\x01\x10\x01pay!");
}

#define EMPTY(name, type)                                                                                              \
    static void name(struct wire *wire) {                                                                              \
        header(wire, type, 0, 0);                                                                                      \
    }
EMPTY(sends_welcome, FRAME_WELCOME)
EMPTY(sends_error, FRAME_ERROR)
EMPTY(sends_pong, FRAME_PONG)
EMPTY(sends_fetch_chunk, FRAME_FETCH_CHUNK)
EMPTY(sends_done, FRAME_DONE)
EMPTY(sends_device_list, FRAME_DEVICE_LIST)
EMPTY(sends_status, FRAME_STATUS)
EMPTY(sends_link_data, FRAME_LINK_DATA)
EMPTY(sends_list_devices, FRAME_LIST_DEVICES)
EMPTY(sends_get_status, FRAME_GET_STATUS)
EMPTY(sends_drain, FRAME_DRAIN)
EMPTY(sends_list_operations, FRAME_LIST_OPERATIONS)
EMPTY(sends_operation_list, FRAME_OPERATION_LIST)
EMPTY(sends_get_config, FRAME_GET_CONFIG)
EMPTY(sends_config, FRAME_CONFIG)
EMPTY(sends_ping, FRAME_PING)
EMPTY(sends_batch, FRAME_BATCH)
EMPTY(sends_upload, FRAME_UPLOAD)
EMPTY(sends_fetch, FRAME_FETCH)

static void hello(struct wire *wire, uint32_t min, uint32_t max, char *client) {
    Tensord__Hello message = TENSORD__HELLO__INIT;
    message.version_min = min;
    message.version_max = max;
    message.client = client;
    wire_request(wire, FRAME_HELLO, &message);
}
static void hello_again(struct wire *wire) {
    hello(wire, PROTOCOL_VERSION_MIN, PROTOCOL_VERSION_MAX, "again");
}
static void hello_from_the_future(struct wire *wire) {
    hello(wire, 1000, 2000, "future");
}
static void hello_with_no_version(struct wire *wire) {
    hello(wire, 0, 0, "none");
}
static void hello_with_versions_reversed(struct wire *wire) {
    hello(wire, 9, 1, "reversed");
}
static void hello_with_a_long_name(struct wire *wire) {
    char name[8000];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    hello(wire, 1, 1, name);
}
static void hello_with_control_characters(struct wire *wire) {
    hello(wire, 1, 1, "a\x1b[2J\nevent=fake level=error \"\xff");
}
static void hello_of_17_KiB(struct wire *wire) {
    header(wire, FRAME_HELLO, 17 << 10, 0);
}
static void hello_with_17_KiB_of_payload(struct wire *wire) {
    header(wire, FRAME_HELLO, 0, 17 << 10);
}
static void hello_split_over_the_limit(struct wire *wire) {
    header(wire, FRAME_HELLO, 9 << 10, 9 << 10);
}

static void preamble(struct wire *wire, size_t offset, uint8_t value) {
    uint8_t text[PREAMBLE_BYTES];
    preamble_encode(PREAMBLE_TARGET_DEFAULT, text);
    text[offset] = value;
    wire_write(wire, text, sizeof text);
}
static void preamble_wrong_magic(struct wire *wire) {
    preamble(wire, 0, 0);
}
static void preamble_wrong_generation(struct wire *wire) {
    preamble(wire, 4, 2);
}
static void preamble_flags(struct wire *wire) {
    preamble(wire, 5, 1);
}
static void preamble_unknown_target(struct wire *wire) {
    wire_preamble(wire, 77);
}
static void preamble_is_http(struct wire *wire) {
    bytes(wire, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
}
static void preamble_is_tls(struct wire *wire) {
    static const uint8_t client_hello[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0};
    wire_write(wire, client_hello, sizeof client_hello);
}

#define ROW(state, act, outcome, code)                                                                                 \
    { #act, HOSTILE_##state, act, HOSTILE_##outcome, code, 0, NULL }
static const struct hostile_row rows[] = {
    ROW(SESSION, payload_of_all_ones, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, payload_of_one_tebibyte, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, payload_just_over_the_limit, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, message_of_all_ones, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, message_just_over_the_limit, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, wrong_magic, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, type_zero, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, type_unknown, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, type_of_all_ones, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, flags_set, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, flags_set_high, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, reserved_set, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, reserved_set_high, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, message_is_no_protobuf, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, message_field_longer_than_message, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, noise, CLOSES, 0),
    ROW(SESSION, ping_with_message_and_payload, EITHER, 0),
    ROW(SESSION, hello_again, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_welcome, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_error, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_pong, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_fetch_chunk, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_done, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_device_list, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_status, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_link_data, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_list_devices, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_get_status, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_drain, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_list_operations, CLOSES, STATUS_PROTOCOL),
    ROW(SESSION, sends_get_config, CLOSES, STATUS_PROTOCOL),
    ROW(PREAMBLE, sends_ping, CLOSES, STATUS_PROTOCOL),
    ROW(PREAMBLE, sends_batch, CLOSES, STATUS_PROTOCOL),
    ROW(PREAMBLE, sends_upload, CLOSES, STATUS_PROTOCOL),
    ROW(PREAMBLE, sends_welcome, CLOSES, STATUS_PROTOCOL),
    ROW(PREAMBLE, noise, CLOSES, 0),
    ROW(PREAMBLE, payload_of_all_ones, CLOSES, STATUS_PROTOCOL),
    ROW(PREAMBLE, hello_from_the_future, CLOSES, STATUS_VERSION),
    ROW(PREAMBLE, hello_with_no_version, CLOSES, 0),
    ROW(PREAMBLE, hello_with_versions_reversed, CLOSES, 0),
    ROW(PREAMBLE, hello_with_a_long_name, EITHER, 0),
    ROW(PREAMBLE, hello_with_control_characters, EITHER, 0),
    ROW(PREAMBLE, hello_of_17_KiB, CLOSES, STATUS_PROTOCOL),
    ROW(PREAMBLE, hello_with_17_KiB_of_payload, CLOSES, STATUS_PROTOCOL),
    ROW(PREAMBLE, hello_split_over_the_limit, CLOSES, STATUS_PROTOCOL),
    ROW(CONNECTED, preamble_wrong_magic, CLOSES, 0),
    ROW(CONNECTED, preamble_wrong_generation, CLOSES, 0),
    ROW(CONNECTED, preamble_flags, CLOSES, 0),
    ROW(CONNECTED, preamble_unknown_target, CLOSES, STATUS_NO_DEVICE),
    ROW(CONNECTED, preamble_is_http, CLOSES, 0),
    ROW(CONNECTED, preamble_is_tls, CLOSES, 0),
    ROW(CONNECTED, noise, CLOSES, 0),
    ROW(CONTROL, payload_of_all_ones, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, message_of_all_ones, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, wrong_magic, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, noise, CLOSES, 0),
    ROW(CONTROL, hello_again, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, sends_batch, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, sends_upload, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, sends_fetch, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, sends_status, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, sends_operation_list, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, sends_config, CLOSES, STATUS_PROTOCOL),
    ROW(CONTROL, sends_link_data, CLOSES, STATUS_PROTOCOL),
};

Test(malformed_frames, every_row) {
    hostile_run(rows, sizeof rows / sizeof *rows, NULL);
}
