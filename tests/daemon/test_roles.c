/* Every message with every role, on both kinds of connection. The messages are those of the frame table, so a new one is
 * tried as soon as it is there; what role it takes is server/users/role.c's word, which tests/unit/test_role.c checks. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "server/users/role.h"
#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/users.h"

enum { END_MS = 20000 };

static const unsigned types[] = {
#define X(name, value, message, sender) value,
    FRAME_TABLE(X)
#undef X
};
enum { TYPES = sizeof types / sizeof *types };

static struct users_file file;
static struct daemon tensord;
static char tokens[ROLE_ADMIN + 1][USERS_TOKEN_BYTES];

static void start(void) {
    users_file_make(&file);
    for (enum role role = ROLE_OBSERVE; role <= ROLE_ADMIN; role++)
        users_file_add(&file, role_name(role), role_name(role), tokens[role]);
    daemon_start(&tensord, &(struct daemon_options){
                               .tcp = "tcp://127.0.0.1:0",
                               .flags = (const char *const[]){"--users", file.path, "--user-kernels", "all", NULL}});
}
static void stop(void) {
    daemon_kill(&tensord);
    users_file_remove(&file);
}
TestSuite(roles, .init = start, .fini = stop, .timeout = 120);

static uint16_t target(enum role_place place) {
    return place == ROLE_ON_CONTROL ? PREAMBLE_TARGET_CONTROL : PREAMBLE_TARGET_DEFAULT;
}

/* The code of a frame that says no, with its words; STATUS_OK for any other. */
static int refusal(const struct wire_frame *frame, char *message) {
    int code = STATUS_OK;
    if (frame->header.type == FRAME_ERROR) {
        Tensord__Error *error = tensord__error__unpack(NULL, frame->header.message_bytes, frame->message);
        code = (int)error->code;
        snprintf(message, 256, "%s", error->message);
        tensord__error__free_unpacked(error, NULL);
    } else if (frame->header.type == FRAME_DONE) {
        Tensord__Done *done = tensord__done__unpack(NULL, frame->header.message_bytes, frame->message);
        code = done->error ? (int)done->error->code : STATUS_OK;
        snprintf(message, 256, "%s", done->error ? done->error->message : "");
        tensord__done__free_unpacked(done, NULL);
    }
    return code;
}

/* What comes of one frame with an empty message, and whether the connection answers afterwards. */
struct outcome {
    int code;
    char message[256];
    bool lives;
};

static void send_and_see(struct wire *wire, unsigned type, struct outcome *outcome) {
    struct frame_header header = {.type = (uint16_t)type, .sequence = ++wire->sequence};
    Tensord__Ping ping = TENSORD__PING__INIT;
    struct wire_frame frame;
    *outcome = (struct outcome){.code = STATUS_OK};
    /* A connection that is closed on the first takes the second no more. */
    if (wire_header(wire, &header))
        wire_request(wire, FRAME_PING, &ping);
    while (!outcome->lives) {
        enum wire_got got = wire_receive(wire, &frame, WIRE_TIMEOUT_MS);
        cr_assert_neq(got, WIRE_SILENT, "%s: neither answered nor closed", frame_type_name(type));
        if (got == WIRE_CLOSED)
            return;
        int code = refusal(&frame, outcome->message);
        if (code)
            outcome->code = code;
        outcome->lives = frame.header.type == FRAME_PONG && frame.header.sequence == wire->sequence;
        wire_frame_finish(&frame);
    }
}

static void check(enum role_place place, unsigned type, enum role role) {
    char label[80];
    struct outcome outcome;
    struct wire wire;
    struct fault fault;
    int want = role_check(place, type, role, role_name(role), &fault);
    snprintf(label, sizeof label, "%s as %s on %s", frame_type_name(type), role_name(role),
             place == ROLE_ON_CONTROL ? "control" : "a device");
    int hello = users_open(&wire, tensord.tcp, target(place), tokens[role], outcome.message);
    if (role < role_least(place, FRAME_HELLO)) {
        cr_expect_eq(hello, STATUS_DENIED, "%s: Hello is taken", label);
        cr_expect(strstr(outcome.message, role_name(role)), "%s: %s", label, outcome.message);
        return;
    }
    cr_assert_eq(hello, STATUS_OK, "%s: %s", label, outcome.message);
    send_and_see(&wire, type, &outcome);
    bool misplaced = outcome.code == STATUS_PROTOCOL &&
                     (strstr(outcome.message, "not for a client") || strstr(outcome.message, "does not belong"));
    if (want == STATUS_OK)
        cr_expect(outcome.code != STATUS_DENIED && !misplaced, "%s: %s", label, outcome.message);
    else if (want == STATUS_DENIED)
        cr_expect(outcome.code == STATUS_DENIED && outcome.lives == (place == ROLE_ON_CONTROL) &&
                      !strcmp(outcome.message, fault.message),
                  "%s: %s (%s)", label, status_name(outcome.code), outcome.message);
    else
        cr_expect(misplaced && !outcome.lives, "%s: %s (%s)", label, status_name(outcome.code), outcome.message);
    wire_close(&wire);
}

Test(roles, every_message_with_every_role_does_what_the_table_says) {
    for (enum role role = ROLE_OBSERVE; role <= ROLE_ADMIN; role++)
        for (enum role_place place = ROLE_ON_CONTROL; place <= ROLE_ON_DEVICE; place++)
            for (unsigned i = 0; i < TYPES; i++)
                if (types[i] != FRAME_DRAIN || place != ROLE_ON_CONTROL || role != ROLE_ADMIN)
                    check(place, types[i], role);
}

Test(roles, a_message_before_hello_is_never_answered) {
    struct outcome outcome;
    struct wire wire;
    for (enum role_place place = ROLE_ON_CONTROL; place <= ROLE_ON_DEVICE; place++)
        for (unsigned i = 0; i < TYPES; i++) {
            wire_connect(&wire, tensord.tcp, target(place));
            send_and_see(&wire, types[i], &outcome);
            cr_expect(!outcome.lives, "%s is followed by an answer", frame_type_name(types[i]));
            cr_expect_eq(outcome.code, types[i] == FRAME_HELLO ? STATUS_VERSION : STATUS_PROTOCOL, "%s: %s",
                         frame_type_name(types[i]), outcome.message);
            wire_close(&wire);
        }
}

Test(roles, only_an_admin_drains) {
    Tensord__Drain drain = TENSORD__DRAIN__INIT;
    struct outcome outcome;
    struct wire wire;
    for (enum role role = ROLE_OBSERVE; role < ROLE_ADMIN; role++) {
        cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, tokens[role], NULL), STATUS_OK);
        send_and_see(&wire, FRAME_DRAIN, &outcome);
        cr_assert(outcome.code == STATUS_DENIED && outcome.lives);
        wire_close(&wire);
    }
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, tokens[ROLE_ADMIN], NULL), STATUS_OK);
    cr_assert(wire_request(&wire, FRAME_DRAIN, &drain));
    cr_assert_eq(daemon_wait(&tensord, END_MS), 0);
    wire_close(&wire);
    daemon_gone(&tensord);
}

Test(roles, the_library_and_tensorctl_tell_who_lacks_what) {
    td_connection *connection;
    td_device *device;
    size_t count;
    td_options options = {.token = tokens[ROLE_OBSERVE]};
    cr_assert_eq(td_connect(tensord.tcp, &options, &connection), 0, "%s", td_last_error()->message);
    cr_assert_eq(td_devices(connection, NULL, 0, &count), 0);
    cr_assert_eq(td_device_open(connection, NULL, &device), TD_E_DENIED);
    cr_assert_str_eq(td_last_error()->message, "a session on a device needs the role run; observe has observe");
    td_close(connection);
}
