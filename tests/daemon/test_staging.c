/* Little memory for copies to and from a device, and clients that want much of it: everybody gets what is theirs, and one
 * that never reads holds up nobody. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

enum { IDLE_MS = 300, CLIENTS = 4 };
static const size_t LARGE = (size_t)24 << 20; /* bytes: more than all of the staging memory */

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){
                               .devices = "late:0,late:1",
                               .flags = (const char *const[]){"--staging", "16M", "--session-out-bytes", "1G", NULL},
                           });
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(staging, .init = start, .fini = stop, .timeout = 120);

/* Sends noise and gets it back; 0 where it is the same. */
static int round_trip(td_device *device, unsigned seed) {
    uint8_t *data = malloc(LARGE), *got = malloc(LARGE);
    client_noise(data, LARGE, seed);
    td_tensor *x = td_upload(device, TD_U8, TD_SHAPE((int64_t)LARGE), data);
    int code = x ? td_fetch(x, got, LARGE) : 1;
    if (code)
        fprintf(stderr, "round trip: %s\n", td_last_error()->message);
    else
        code = memcmp(data, got, LARGE) ? 2 : 0;
    td_release(x);
    free(data);
    free(got);
    return code;
}

static int round_trips(void *argument) {
    struct client client;
    int code = 0;
    if (td_connect(tensord.url, NULL, &client.connection) ||
        td_device_open(client.connection, "late:0", &client.device))
        return 3;
    for (int i = 0; i < 3 && !code; i++)
        code = round_trip(client.device, (unsigned)(size_t)argument + (unsigned)i);
    client_close(&client);
    return code;
}

static void everybody_is_served(void) {
    pid_t pids[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++)
        pids[i] = client_fork(round_trips, (void *)(i * 10));
    for (size_t i = 0; i < CLIENTS; i++)
        cr_assert_eq(client_join(pids[i], 60000), 0, "client %zu", i);
}

static bool staging_is_within(void) {
    Tensord__Status *status = status_get(tensord.url);
    const Tensord__DeviceStatus *device = status_device(status, "late:0");
    bool within = device->staging_total == 16u << 20 && device->staging_reserved <= device->staging_total;
    status_free(status);
    return within;
}

Test(staging, clients_that_want_more_than_there_is_wait_for_one_another) {
    everybody_is_served();
    cr_assert(staging_is_within());
}

static bool somebody_waits(const Tensord__Status *status, const void *none) {
    (void)none;
    return status_device(status, "late:0")->staging_waiting > 0;
}

/* Fetches without end, and reads none of it. */
static void open_hog(struct wire *wire) {
    struct wire_buffer buffer = {0};
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    wire_open(wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_full(wire, 1, 1, (int64_t)LARGE / 4, 1));
    fetch.id = 1;
    for (uint64_t i = 0; i < 50; i++)
        wire_buffer_frame(&buffer, FRAME_FETCH, 100 + i, &fetch, NULL, 0);
    wire_write_some(wire, buffer.bytes, buffer.n, IDLE_MS);
    wire_buffer_finish(&buffer);
}

Test(staging, client_that_never_reads_holds_up_nobody) {
    struct wire hogs[2];
    struct command command;
    open_hog(&hogs[0]);
    open_hog(&hogs[1]);
    status_until(tensord.url, somebody_waits, NULL, 30000);
    everybody_is_served();
    cr_assert(staging_is_within());
    command_run(&command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "status", NULL},
                NULL, 30000);
    cr_assert(strstr(command.out, "transfers wait"), "%s", command.out);
    command_finish(&command);
    wire_close(&hogs[0]);
    wire_close(&hogs[1]);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){"late:0", 0, 0}, 20000),
              "memory was not given back");
    everybody_is_served();
}

/* Ends in the middle of a chunk, with the connection open. */
static void open_stuck_upload(struct wire *wire) {
    Tensord__Upload upload = TENSORD__UPLOAD__INIT;
    int64_t shape = 4 << 20;
    uint8_t message[256], *some = calloc(1, 1 << 20);
    struct frame_header header = {.type = FRAME_UPLOAD, .payload_bytes = 4 << 20};
    upload.id = 1;
    upload.sequence = 1;
    upload.dtype = DTYPE_U8;
    upload.n_shape = 1;
    upload.shape = &shape;
    wire_open(wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    header.message_bytes = (uint32_t)protobuf_c_message_pack(&upload.base, message);
    cr_assert(wire_header(wire, &header) && wire_write(wire, message, header.message_bytes) &&
              wire_write(wire, some, 1 << 20));
    free(some);
}

Test(staging, chunk_that_never_ends_holds_up_nobody) {
    struct wire stuck[2];
    open_stuck_upload(&stuck[0]);
    open_stuck_upload(&stuck[1]);
    everybody_is_served();
    wire_close(&stuck[0]);
    wire_close(&stuck[1]);
}

/* Both ways at once: each device sends what it has and receives what the other one sends. */
Test(staging, copies_between_devices_cross_in_little_memory) {
    enum { COPIES = 6 };
    struct client client;
    td_device *second;
    td_tensor *to[COPIES], *back[COPIES];
    uint8_t *data = malloc(LARGE), *got = malloc(LARGE);
    client_open(&client, tensord.url, "late:0");
    cr_assert(!td_device_open(client.connection, "late:1", &second), "%s", td_last_error()->message);
    client_noise(data, LARGE, 7);
    td_tensor *a = td_upload(client.device, TD_U8, TD_SHAPE((int64_t)LARGE), data);
    td_tensor *b = td_upload(second, TD_U8, TD_SHAPE((int64_t)LARGE), data);
    for (int i = 0; i < COPIES; i++) {
        to[i] = td_copy_to(a, second);
        back[i] = td_copy_to(b, client.device);
    }
    for (int i = 0; i < 2 * COPIES; i++) {
        td_tensor *tensor = i % 2 ? to[i / 2] : back[i / 2];
        cr_assert(!td_fetch(tensor, got, LARGE), "%d: %s", i, td_last_error()->message);
        cr_assert_eq(memcmp(got, data, LARGE), 0);
    }
    free(data);
    free(got);
    client_close(&client);
}
