#include "tests/load/no_memory/jobs.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensord.h"
#include "tests/daemon/wire.h"

enum { LARGE = 300000 }; /* floats: more than one chunk */

static float large[LARGE], back[LARGE];

/* Keeps the first failure. */
static void note(int *code, int result) {
    if (!*code)
        *code = result;
}

static void note_tensor(int *code, const td_tensor *tensor) {
    note(code, tensor ? TD_OK : td_last_error()->code);
}

/* Batches, chunks of the queue, tables of ids and slabs of handles grow. */
static int chain(td_device *device, int length) {
    int code = TD_OK;
    float got[16];
    td_scope_begin("chain");
    td_tensor *sum = td_full(device, TD_F32, TD_SHAPE(4, 4), 0), *one = td_full(device, TD_F32, TD_SHAPE(4, 4), 1);
    for (int i = 0; i < length; i++)
        sum = td_add(sum, td_permute(one, 2, (const int64_t[]){1, 0}));
    note(&code, td_fetch(sum, got, sizeof got));
    for (int i = 0; i < 16 && !code; i++)
        cr_assert_eq(got[i], (float)length, "element %d is %g", i, got[i]);
    td_scope_end();
    return code;
}

/* What allocates in a way of its own: promotion, temporaries, results whose checks come later. */
static int kinds(td_device *device) {
    int code = TD_OK;
    double got[16];
    td_scope_begin("kinds");
    td_tensor *x = td_normal(device, TD_F64, TD_SHAPE(4, 4), 1, 0, 1), *i = td_arange(device, TD_I64, 0, 4, 1);
    td_tensor *y = td_multiply(td_softmax(x, 1), td_cast(td_transpose(x), TD_F64));
    y = td_where(td_less(y, x), td_concat((td_tensor *[]){td_slice(y, 0, 0, 2, 1), td_slice(x, 0, 2, 4, 1)}, 2, 0), y);
    y = td_add(td_take(y, i, 0), td_sum(x, TD_AXES(0), 0));
    y = td_add(y, td_one_hot(i, 4, TD_F64));
    note(&code, td_fetch(y, got, sizeof got));
    td_tensor *wrong = td_take(x, td_full_int(device, TD_I64, TD_SHAPE(1), 9), 0);
    int failed = td_wait(td_add(wrong, wrong));
    cr_assert(failed, "an index of 9 in 4");
    if (failed != TD_E_OUT_OF_RANGE)
        note(&code, failed);
    td_scope_end();
    return code;
}

static int products(td_device *device) {
    int code = TD_OK;
    float got[32 * 32];
    td_scope_begin("products");
    td_tensor *x = td_normal(device, TD_F32, TD_SHAPE(32, 32), 1, 0, 1), *b = td_sum(x, TD_AXES(0), 0);
    note(&code, td_fetch(td_linear(td_matmul(x, td_transpose(x)), x, b, TD_ACTIVATION_RELU), got, sizeof got));
    td_scope_end();
    return code;
}

/* More connections than a process has watched so far. */
static int crowd(td_connection *connection) {
    enum { MANY = 20 };
    td_device *devices[MANY];
    int opened = 0, code = TD_OK;
    while (opened < MANY && !code)
        opened += !(code = td_device_open(connection, "cpu:0", &devices[opened]));
    while (opened > 0)
        td_device_close(devices[--opened]);
    return code;
}

static int large_data(td_device *device, td_device *other) {
    int code = TD_OK;
    td_scope_begin("large");
    for (int i = 0; i < LARGE; i++)
        large[i] = (float)i;
    td_tensor *x = td_upload(device, TD_F32, TD_SHAPE(LARGE), large);
    note_tensor(&code, x);
    note(&code, td_fetch(x, back, sizeof back));
    cr_assert(code || !memcmp(large, back, sizeof large), "other data came back");
    td_tensor *there = td_copy_to(x, other), *home = td_copy_to(there, device);
    note(&code, td_wait(home));
    note(&code, td_fetch(home, back, sizeof back));
    cr_assert(code || !memcmp(large, back, sizeof large), "other data came home");
    td_scope_end();
    return code;
}

static int streams(td_device *device) {
    int code = TD_OK;
    float got;
    td_stream *all[3] = {NULL};
    td_scope_begin("streams");
    td_tensor *sum = td_full(device, TD_F32, TD_SCALAR, 1);
    for (int i = 0; i < 3; i++) {
        note(&code, td_stream_open(device, i, &all[i]));
        if (all[i])
            note(&code, td_stream_set(device, all[i]));
        for (int k = 0; k < 20; k++)
            sum = td_add(sum, sum);
    }
    note(&code, td_fetch(sum, &got, sizeof got));
    note(&code, td_stream_set(device, NULL));
    for (int i = 0; i < 3; i++)
        if (all[i])
            td_stream_close(all[i]);
    note(&code, td_sync(device));
    td_scope_end();
    return code;
}

/* Each name stands for what it did before, or for this. */
static int names(td_device *device) {
    td_name_info infos[4];
    size_t count;
    float got;
    int code = TD_OK;
    td_scope_begin("names");
    td_tensor *x = td_full(device, TD_F32, TD_SCALAR, 7), *y = td_add(x, x);
    note(&code, td_publish(x, "x"));
    note(&code, td_publish_all(2, (td_tensor *[]){x, y}, (const char *[]){"y", "z"}, false));
    td_tensor *opened = td_open(device, "x");
    note_tensor(&code, opened);
    note(&code, td_fetch(opened, &got, sizeof got));
    cr_assert(code || got == 7, "the name's value is %g", got);
    note(&code, td_names(device, infos, 4, &count));
    for (const char *const *name = (const char *const[]){"x", "y", "z", NULL}; *name; name++)
        note(&code, td_unpublish(device, *name));
    td_scope_end();
    return code;
}

static int denied_kernel(td_device *device) {
    td_kernel *kernel;
    int code = td_kernel_compile(device, "extern \"C\" void f() {}", "f", &kernel);
    cr_assert(code, "a kernel without permission");
    return code == TD_E_DENIED ? TD_OK : code;
}

static int session(td_connection *connection, bool first) {
    td_device *device, *other;
    int code = td_device_open(connection, "cpu:0", &device);
    if (!code)
        code = td_device_open(connection, "cpu:1", &other);
    if (code)
        return code;
    note(&code, chain(device, first ? 4 : 70));
    note(&code, kinds(device));
    note(&code, streams(device));
    if (!first)
        note(&code, products(device));
    note(&code, large_data(device, other));
    note(&code, names(device));
    note(&code, denied_kernel(device));
    if (first)
        note(&code, crowd(connection));
    return code;
}

static int on_a_connection(const char *url, bool first) {
    td_connection *connection;
    int code = td_connect(url, NULL, &connection);
    if (code)
        return code;
    code = session(connection, first);
    td_close(connection);
    return code;
}

int jobs_device(const char *url) {
    return on_a_connection(url, false);
}

int jobs_first(const char *url) {
    return on_a_connection(url, true);
}

int jobs_short(const char *url) {
    td_connection *connection;
    td_device *device;
    int code = td_connect(url, NULL, &connection);
    if (code)
        return code;
    code = td_device_open(connection, "cpu:0", &device);
    if (!code)
        code = chain(device, 4);
    td_close(connection);
    return code;
}

/* ---- the front ---- */

/* A request by hand: answered as asked, or by why not. */
static int ask(struct wire *wire, unsigned request, unsigned reply, const void *message) {
    struct wire_frame frame;
    int code = TD_E_CONNECTION;
    wire_request(wire, request, message);
    if (wire_receive(wire, &frame, WIRE_TIMEOUT_MS) != WIRE_FRAME)
        return code;
    if (frame.header.type == reply) {
        code = TD_OK;
    } else if (frame.header.type == FRAME_ERROR) {
        Tensord__Error *error = tensord__error__unpack(NULL, frame.header.message_bytes, frame.message);
        cr_assert_not_null(error);
        code = (int)error->code;
        tensord__error__free_unpacked(error, NULL);
    }
    wire_frame_finish(&frame);
    return code;
}

static int questions(const char *url) {
    static const struct {
        unsigned request, reply;
    } ASKED[] = {
        {FRAME_PING, FRAME_PONG},         {FRAME_LIST_DEVICES, FRAME_DEVICE_LIST},
        {FRAME_GET_STATUS, FRAME_STATUS}, {FRAME_LIST_OPERATIONS, FRAME_OPERATION_LIST},
        {FRAME_GET_CONFIG, FRAME_CONFIG},
        {FRAME_KILL_SESSION, FRAME_DONE}, /* of session 0, which there is not */
    };
    struct wire wire;
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    Tensord__Ping empty = TENSORD__PING__INIT; /* all of these requests are */
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "questions";
    if (!wire_dial(&wire, url))
        return TD_E_CONNECTION;
    wire_preamble(&wire, PREAMBLE_TARGET_CONTROL);
    int code = ask(&wire, FRAME_HELLO, FRAME_WELCOME, &hello);
    for (size_t i = 0; i < sizeof ASKED / sizeof *ASKED && !code; i++)
        code = ask(&wire, ASKED[i].request, ASKED[i].reply, &empty);
    wire_close(&wire);
    return code;
}

static int devices(const char *url) {
    td_connection *connection;
    td_device *device;
    td_device_info infos[4];
    size_t count;
    float got;
    int code = td_connect(url, NULL, &connection);
    if (code)
        return code;
    code = td_devices(connection, infos, 4, &count);
    if (!code)
        code = td_device_open(connection, "cpu:1", &device);
    if (!code)
        code = td_fetch(td_full(device, TD_F32, TD_SCALAR, 1), &got, sizeof got);
    td_close(connection);
    return code;
}

int jobs_control(const char *url) {
    int code = devices(url);
    return code ? code : questions(url);
}
