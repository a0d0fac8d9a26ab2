#include "tests/daemon/hostile.h"

#include <criterion/criterion.h>

#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

enum { HONEST_VALUE = 7, SETTLE_MS = 30000 };

void hostile_witness_start(struct hostile_witness *witness, const char *url) {
    float got[4];
    *witness = (struct hostile_witness){.url = url};
    wire_open(&witness->wire, url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_full(&witness->wire, HOSTILE_FOREIGN, 1, 4, HONEST_VALUE));
    cr_assert_eq(wire_fetch(&witness->wire, HOSTILE_FOREIGN, got, sizeof got, NULL), STATUS_OK);
    witness->epoch = status_epoch(url, "cpu:0");
    witness->live = 4 * sizeof(float);
    witness->sessions = 1;
}

void hostile_witness_check(struct hostile_witness *witness, const char *name) {
    struct wire control;
    float got[4] = {0};
    wire_open(&control, witness->url, PREAMBLE_TARGET_CONTROL);
    cr_assert(wire_ping(&control), "%s: the front does not answer", name);
    wire_close(&control);
    int code = wire_fetch(&witness->wire, HOSTILE_FOREIGN, got, sizeof got, NULL);
    cr_assert_eq(code, STATUS_OK, "%s: the other session's fetch gives %s", name, status_name(code));
    for (int i = 0; i < 4; i++)
        cr_assert_eq(got[i], HONEST_VALUE, "%s: the other session's data changed", name);
    cr_assert_eq(status_epoch(witness->url, "cpu:0"), witness->epoch, "%s: the worker died", name);
    /* The pool rounds sizes up, so the account is compared with what one small tensor may cost. */
    struct status_baseline quiet = {"cpu:0", witness->live + 4096, witness->sessions};
    if (!status_settles(witness->url, &quiet, SETTLE_MS)) {
        char text[STATUS_TEXT_MAX];
        status_text_of(witness->url, text);
        cr_assert_fail("%s: memory was not given back: %s", name, text);
    }
    wire_close(&witness->wire);
}

static void hostile_tensors(struct wire *wire) {
    cr_assert(wire_full(wire, HOSTILE_KEPT, 1, 4, 1));
    cr_assert(wire_full(wire, HOSTILE_SPARE, 2, 4, 2));
    cr_assert(wire_op(
        wire,
        &(struct wire_op){
            .opcode = OP_FULL, .output = HOSTILE_INDICES, .sequence = 3, WIRE_INTS(DTYPE_I64, 9, 2), WIRE_FLOATS(9)}));
}

static void hostile_begin(struct wire *wire, const char *url, enum hostile_state state) {
    cr_assert(wire_dial(wire, url));
    if (state == HOSTILE_CONNECTED)
        return;
    cr_assert(wire_preamble(wire, state == HOSTILE_CONTROL ? PREAMBLE_TARGET_CONTROL : PREAMBLE_TARGET_DEFAULT));
    if (state == HOSTILE_PREAMBLE)
        return;
    wire_hello(wire);
    if (state == HOSTILE_SESSION)
        hostile_tensors(wire);
}

static void check_closes(struct wire *wire, const struct hostile_row *row) {
    char message[256] = "";
    int code = wire_until_closed(wire, WIRE_TIMEOUT_MS, message);
    cr_assert_geq(code, 0, "%s: the connection was not closed", row->name);
    if (row->code) {
        cr_assert_eq(code, row->code, "%s: closed with %s (%s), not %s", row->name, status_name(code), message,
                     status_name(row->code));
        cr_assert(*message, "%s: no words in the Error frame", row->name);
    }
}

static void check_lives(struct wire *wire, const struct hostile_row *row) {
    float got[4] = {0};
    cr_assert(wire_ping(wire), "%s: the connection does not answer", row->name);
    if (row->state != HOSTILE_SESSION)
        return;
    int code = wire_fetch(wire, HOSTILE_KEPT, got, sizeof got, NULL);
    cr_assert_eq(code, STATUS_OK, "%s: the session's other tensor is lost: %s", row->name, status_name(code));
    for (int i = 0; i < 4; i++)
        cr_assert_eq(got[i], 1, "%s: the session's other tensor changed", row->name);
}

static void check_fails(struct wire *wire, const struct hostile_row *row) {
    char message[256] = "";
    uint8_t data[64];
    int code = wire_fetch(wire, row->id, data, sizeof data, message);
    cr_assert_neq(code, STATUS_CONNECTION, "%s: the connection ended", row->name);
    cr_assert_neq(code, STATUS_OK, "%s: it succeeded", row->name);
    cr_assert_neq(code, STATUS_TIMED_OUT, "%s: no answer", row->name);
    cr_assert(*message, "%s: no words with %s", row->name, status_name(code));
    if (row->code)
        cr_assert_eq(code, row->code, "%s: %s (%s), not %s", row->name, status_name(code), message,
                     status_name(row->code));
    check_lives(wire, row);
}

static void check_either(struct wire *wire, const struct hostile_row *row) {
    Tensord__Ping ping = TENSORD__PING__INIT;
    struct wire_frame frame;
    for (wire_request(wire, FRAME_PING, &ping);;) {
        enum wire_got got = wire_receive(wire, &frame, WIRE_TIMEOUT_MS);
        cr_assert_neq(got, WIRE_SILENT, "%s: neither answered nor closed", row->name);
        if (got == WIRE_CLOSED)
            return;
        unsigned type = frame.header.type;
        wire_frame_finish(&frame);
        if (type == FRAME_PONG)
            break;
    }
    check_lives(wire, row);
}

static void hostile_run_row(const char *url, const struct hostile_row *row) {
    static void (*const checks[])(struct wire *, const struct hostile_row *) = {
        [HOSTILE_CLOSES] = check_closes,
        [HOSTILE_FAILS] = check_fails,
        [HOSTILE_LIVES] = check_lives,
        [HOSTILE_EITHER] = check_either,
    };
    struct hostile_witness witness;
    struct wire wire;
    hostile_witness_start(&witness, url);
    hostile_begin(&wire, url, row->state);
    if (row->act)
        row->act(&wire);
    else
        wire_op(&wire, row->op);
    checks[row->outcome](&wire, row);
    wire_close(&wire);
    hostile_witness_check(&witness, row->name);
}

void hostile_run(const struct hostile_row *rows, size_t n, const char *const *flags) {
    struct daemon tensord;
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1", .flags = flags});
    for (size_t i = 0; i < n; i++)
        hostile_run_row(tensord.url, &rows[i]);
    daemon_stop(&tensord);
}
