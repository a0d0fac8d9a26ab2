/* Copies between devices whose other side never comes: nobody can keep others from copying with them. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "server/worker/link.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

static struct daemon tensord;

static void start(void) {
    static const char *const flags[] = {"--log-level", "debug", NULL};
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1", .flags = flags});
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(copies, .init = start, .fini = stop, .timeout = 120);

enum {
    SESSION_COPIES = LINK_COPIES_MAX / LINK_SESSION_PART,
    PRINCIPAL_COPIES = LINK_COPIES_MAX / LINK_PRINCIPAL_PART,
    MORE_COPIES = 100
};

static void copy_in(struct wire *wire, uint64_t id, uint32_t ticket) {
    uint8_t bytes[LINK_TICKET_BYTES] = {0};
    int64_t shape[] = {1};
    Tensord__CopyIn message = TENSORD__COPY_IN__INIT;
    memcpy(bytes, &ticket, sizeof ticket);
    message.id = message.sequence = id;
    message.dtype = DTYPE_F32;
    message.shape = shape;
    message.n_shape = 1;
    message.source = "cpu:0";
    message.ticket = (ProtobufCBinaryData){sizeof bytes, bytes};
    cr_assert(wire_send(wire, FRAME_COPY_IN, &message, NULL, 0));
}

static void copy_out(struct wire *wire, uint64_t id, uint32_t ticket) {
    uint8_t bytes[LINK_TICKET_BYTES] = {0};
    Tensord__CopyOut message = TENSORD__COPY_OUT__INIT;
    memcpy(bytes, &ticket, sizeof ticket);
    message.id = id;
    message.device = "cpu:1";
    message.ticket = (ProtobufCBinaryData){sizeof bytes, bytes};
    cr_assert(wire_send(wire, FRAME_COPY_OUT, &message, NULL, 0));
}

/* More than this session may wait for: the rest is not read. */
static void fill_session(struct wire *wire, unsigned number, unsigned most) {
    wire_open(wire, tensord.url, DAEMON_TARGET_CPU1);
    for (unsigned i = 1; i <= most + MORE_COPIES; i++)
        copy_in(wire, i, number << 16 | i);
}

struct reading {
    unsigned sessions;
    uint64_t copies; /* that each of them has read */
};

static bool reads(const Tensord__Status *status, const void *argument) {
    const struct reading *reading = argument;
    unsigned n = 0;
    for (size_t i = 0; i < status->n_sessions; i++)
        n += !strcmp(status->sessions[i]->device, "cpu:1") && status->sessions[i]->tensors == reading->copies;
    return n == reading->sessions;
}

static bool becomes(unsigned sessions, uint64_t copies) {
    return status_becomes(tensord.url, reads, &(struct reading){sessions, copies}, WIRE_TIMEOUT_MS);
}

static int copy_one(uint32_t ticket, float *got, char *message) {
    struct wire from, to;
    wire_open(&from, tensord.url, DAEMON_TARGET_CPU0);
    wire_open(&to, tensord.url, DAEMON_TARGET_CPU1);
    cr_assert(wire_full(&from, 1, 1, 1, 5));
    copy_in(&to, 1, ticket);
    copy_out(&from, 1, ticket);
    int code = wire_fetch(&to, 1, got, sizeof *got, message);
    wire_close(&from);
    wire_close(&to);
    return code;
}

/* A session with many copies is not read, and others are, even when the principal has as many as it may. */
Test(copies, that_never_come_hold_up_their_own_session_alone) {
    enum { SESSIONS = PRINCIPAL_COPIES / SESSION_COPIES };
    struct wire waiting[SESSIONS], late, from;
    char message[256];
    float got = 0;
    for (unsigned i = 0; i < SESSIONS; i++) {
        cr_assert_eq(copy_one(i + 1, &got, message), STATUS_OK, "%s", message);
        cr_assert_eq(got, 5);
        fill_session(&waiting[i], i + 1, SESSION_COPIES);
        cr_assert(becomes(i + 1, SESSION_COPIES));
    }
    fill_session(&late, SESSIONS + 1, LINK_SESSION_LEAST);
    cr_assert(becomes(1, LINK_SESSION_LEAST));
    cr_assert_eq(copy_one(99, &got, message), STATUS_OK, "%s", message);
    cr_assert(becomes(SESSIONS, SESSION_COPIES));
    wire_open(&from, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_full(&from, 1, 1, 1, 7));
    for (uint32_t i = 1; i <= SESSION_COPIES; i++)
        copy_out(&from, 1, 1 << 16 | i);
    cr_assert(becomes(1, SESSION_COPIES + MORE_COPIES));
    cr_assert_eq(wire_fetch(&waiting[0], SESSION_COPIES, &got, sizeof got, message), STATUS_OK, "%s", message);
    cr_assert_eq(got, 7);
    wire_close(&waiting[1]);
    cr_assert(becomes(1, LINK_SESSION_LEAST + MORE_COPIES), "there is room again");
    wire_close(&waiting[0]);
    wire_close(&late);
    wire_close(&from);
}

/* The front is asked in turns between sessions. */
Test(copies, that_nobody_wants_do_not_stand_before_others) {
    struct wire from;
    char message[256];
    float got = 0;
    wire_open(&from, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_full(&from, 1, 1, 1, 7));
    for (uint32_t i = 0; i < 3000; i++)
        copy_out(&from, 1, 100000 + i);
    for (uint32_t i = 0; i < 10; i++) {
        cr_assert_eq(copy_one(i + 1, &got, message), STATUS_OK, "%s", message);
        cr_assert_eq(got, 5);
    }
    wire_close(&from);
}

/* Nor do they fill the channel to a worker that has much to do. Here it stands still until its channel is full. */
Test(copies, that_nobody_wants_leave_room_for_connections) {
    struct wire from, to;
    char message[256];
    float got = 0;
    pid_t worker = status_worker_pid(tensord.url, "cpu:1");
    wire_open(&from, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_full(&from, 1, 1, 1, 7));
    kill(worker, SIGSTOP);
    for (uint32_t i = 0; i < 3000; i++)
        copy_out(&from, 1, 100000 + i);
    cr_assert(daemon_log_has(&tensord, "link_later", WIRE_TIMEOUT_MS));
    wire_connect(&to, tensord.url, DAEMON_TARGET_CPU1);
    status_free(status_get(tensord.url)); /* the front takes connections in their order */
    kill(worker, SIGCONT);
    wire_hello(&to);
    copy_in(&to, 1, 1);
    copy_out(&from, 1, 1);
    cr_assert_eq(wire_fetch(&to, 1, &got, sizeof got, message), STATUS_OK, "%s", message);
    cr_assert_eq(got, 7);
    wire_close(&to);
    wire_close(&from);
}
