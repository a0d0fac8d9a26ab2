#include "tests/load/soak/load.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/tensord.h"
#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/wire.h"

enum { JOIN_MS = 60000, UPLOAD_MAX = 6 << 20, FETCHES = 8 };

static struct load_board *board; /* in a client's process */
static unsigned seed;

/* ---- what was found wrong ---- */

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(board->words, sizeof board->words, format, arguments);
    va_end(arguments);
    _exit(LOAD_WRONG);
}

#define require(holds, ...) ((holds) ? (void)0 : wrong(__VA_ARGS__))

/* A call succeeds, or its device may be lost and is. */
static bool went_well(int code, bool may_be_lost, const char *what) {
    if (!code)
        return true;
    const td_error *error = td_last_error();
    /* TIMED_OUT: the other end of a copy was lost with its connection before it was asked for it. */
    bool lost = error->code == TD_E_DEVICE_LOST || error->code == TD_E_CONNECTION || error->code == TD_E_CANCELLED ||
                error->code == TD_E_TIMED_OUT;
    require(may_be_lost && lost, "%s: %d %s", what, error->code, error->message);
    return false;
}

/* ---- clients of the library: one round each; false: connect again ---- */

struct load {
    td_connection *connection;
    td_device *device, *other;
    uint8_t *data, *back;
};

static bool load_upload(struct load *load) {
    size_t bytes = 4 + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 64 << 10 : UPLOAD_MAX);
    client_noise(load->data, bytes < 4096 ? bytes : 4096, (unsigned)rand_r(&seed));
    td_tensor *x = td_upload(load->device, TD_U8, TD_SHAPE((int64_t)bytes), load->data);
    went_well(td_fetch(x, load->back, bytes), false, "fetch of an upload");
    require(!memcmp(load->data, load->back, bytes), "an upload of %zu bytes came back different", bytes);
    td_release(x);
    return true;
}

static bool load_chain(struct load *load) {
    float got[16];
    td_scope_begin("chain");
    td_tensor *sum = td_full(load->device, TD_F32, TD_SHAPE(16), 0),
              *one = td_full(load->device, TD_F32, TD_SHAPE(16), 1);
    for (int i = 0; i < 500; i++)
        sum = td_add(sum, one);
    went_well(td_fetch(sum, got, sizeof got), false, "fetch of a chain");
    require(got[0] == 500 && got[15] == 500, "500 ones are %g", got[0]);
    td_scope_end();
    return true;
}

static bool load_streams(struct load *load) {
    td_stream *streams[3];
    float got;
    td_scope_begin("streams");
    td_tensor *sum = td_full(load->device, TD_F32, TD_SHAPE(64, 64), 1);
    for (int i = 0; i < 3; i++) {
        went_well(td_stream_open(load->device, i, &streams[i]), false, "a stream");
        went_well(td_stream_set(load->device, streams[i]), false, "a stream's choice");
        sum = td_multiply(td_add(sum, sum), td_full(load->device, TD_F32, TD_SHAPE(64, 64), 0.5));
    }
    went_well(td_fetch(td_mean(sum, TD_ALL_AXES, 0), &got, sizeof got), false, "fetch across streams");
    require(got == 1, "across streams 1 is %g", got);
    went_well(td_stream_set(load->device, NULL), false, "the default stream");
    for (int i = 0; i < 3; i++)
        td_stream_close(streams[i]);
    td_scope_end();
    return true;
}

static bool load_copy(struct load *load) {
    size_t bytes = 4 + (size_t)rand_r(&seed) % (2 << 20);
    client_noise(load->data, 4096, (unsigned)rand_r(&seed));
    td_scope_begin("copy");
    td_tensor *x = td_upload(load->device, TD_U8, TD_SHAPE((int64_t)bytes), load->data);
    td_tensor *home = td_copy_to(td_copy_to(x, load->other), load->device);
    bool well = went_well(home ? td_fetch(home, load->back, bytes) : -1, true, "fetch of a copy");
    require(!well || !memcmp(load->data, load->back, bytes), "a copy of %zu bytes came back different", bytes);
    td_scope_end();
    return well;
}

static bool load_errors(struct load *load) {
    float got[4];
    td_scope_begin("errors");
    td_tensor *x = td_full(load->device, TD_F32, TD_SHAPE(4), 1);
    td_tensor *wrong_index = td_take(x, td_full_int(load->device, TD_I64, TD_SHAPE(4), 9), 0);
    int code = td_fetch(td_add(wrong_index, x), got, sizeof got);
    require(code == TD_E_OUT_OF_RANGE, "an index out of range gives %d", code);
    code = td_wait(td_full(load->device, TD_U8, TD_SHAPE(INT64_C(1) << 40), 0));
    require(code == TD_E_OUT_OF_MEMORY || code == TD_E_LIMIT, "a tensor of 1 TiB gives %d", code);
    require(!td_reshape(x, TD_SHAPE(5)), "4 elements as 5");
    went_well(td_fetch(x, got, sizeof got), false, "fetch beside failures");
    td_scope_end();
    return true;
}

static bool load_lost(struct load *load) {
    float got[16];
    td_scope_begin("lost");
    td_tensor *x = td_full(load->other, TD_F32, TD_SHAPE(16), 1);
    for (int i = 0; x && i < 50; i++)
        x = td_add(x, x);
    bool well = went_well(x ? td_fetch(x, got, sizeof got) : -1, true, "fetch from cpu:1");
    td_scope_end();
    return well;
}

static void load_connect(struct load *load, bool both) {
    for (;;) {
        went_well(td_connect(board->url, NULL, &load->connection), false, "connect");
        went_well(td_device_open(load->connection, "cpu:0", &load->device), false, "open cpu:0");
        if (!both || went_well(td_device_open(load->connection, "cpu:1", &load->other), true, "open cpu:1"))
            return;
        td_close(load->connection);
    }
}

static int load_with_library(bool (*round)(struct load *load), bool both) {
    struct load load = {.data = calloc(1, UPLOAD_MAX + 4), .back = malloc(UPLOAD_MAX + 4)};
    while (!board->end) {
        load_connect(&load, both);
        /* Sessions are short enough for their ends to be part of the load. */
        for (int i = 0; i < 50 && !board->end && round(&load); i++)
            board->rounds++;
        td_close(load.connection);
    }
    free(load.data);
    free(load.back);
    return 0;
}

/* ---- clients by hand ---- */

/* wire_open() asserts, which only the test's own process may. */
static void hand_open(struct wire *wire, uint16_t target) {
    struct wire_frame frame;
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "by hand";
    require(wire_dial(wire, board->url) && wire_preamble(wire, target), "cannot connect");
    require(wire_request(wire, FRAME_HELLO, &hello), "cannot say Hello");
    enum wire_got got = wire_receive(wire, &frame, WIRE_TIMEOUT_MS);
    require(got == WIRE_FRAME, "no answer to Hello: %s", got == WIRE_CLOSED ? "closed" : "silence");
    require(frame.header.type == FRAME_WELCOME, "Hello was answered by %s: %.*s", frame_type_name(frame.header.type),
            (int)frame.header.message_bytes, (const char *)frame.message);
    wire_frame_finish(&frame);
}

static void load_leave(void) {
    struct wire wire;
    Tensord__Upload upload = TENSORD__UPLOAD__INIT;
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    uint8_t piece[512] = {0};
    int64_t shape = 1 << 20;
    fetch.id = 1;
    hand_open(&wire, DAEMON_TARGET_CPU0);
    wire_full(&wire, 1, 1, 1 << 18, 1);
    switch (rand_r(&seed) % 3) {
    case 0: /* an upload whose data ends early */
        upload.id = 2;
        upload.dtype = DTYPE_U8;
        upload.shape = &shape;
        upload.n_shape = 1;
        upload.sequence = 2;
        wire_send(&wire, FRAME_UPLOAD, &upload, piece, sizeof piece);
        break;
    case 1: /* replies that nobody reads */
        for (int i = 0; i < FETCHES; i++)
            wire_request(&wire, FRAME_FETCH, &fetch);
        break;
    default: /* a frame that ends in its header */
        wire_write(&wire, piece, 7);
    }
    wire_close(&wire);
}

static void load_slow(void) {
    enum { BITE = 64 << 10, BITES = 30 };
    static uint8_t bite[BITE];
    struct wire wire;
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = 1;
    hand_open(&wire, DAEMON_TARGET_CPU0);
    wire_full(&wire, 1, 1, 1 << 20, 1);
    for (int i = 0; i < FETCHES; i++)
        wire_request(&wire, FRAME_FETCH, &fetch);
    for (int i = 0; i < BITES && !board->end; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* it is slow, it waits for nothing */
        require(deadline_poll(wire.fd, POLLIN, deadline_in(WIRE_TIMEOUT_MS)), "a slow reader gets nothing");
        require(read(wire.fd, bite, BITE) > 0, "a slow reader was cut off");
    }
    wire_close(&wire);
}

static void load_garbage(void) {
    uint8_t garbage[256];
    struct wire wire;
    client_noise(garbage, sizeof garbage, (unsigned)rand_r(&seed));
    hand_open(&wire, rand_r(&seed) % 2 ? DAEMON_TARGET_CPU0 : PREAMBLE_TARGET_CONTROL);
    wire_write(&wire, garbage, sizeof garbage);
    require(wire_until_closed(&wire, WIRE_TIMEOUT_MS, NULL) >= 0, "a connection with garbage stays open");
    wire_close(&wire);
}

static void load_status(void) {
    struct wire wire;
    struct wire_frame frame;
    Tensord__GetStatus request = TENSORD__GET_STATUS__INIT;
    hand_open(&wire, PREAMBLE_TARGET_CONTROL);
    for (int i = 0; i < 20; i++) {
        require(wire_request(&wire, FRAME_GET_STATUS, &request) &&
                    wire_receive(&wire, &frame, WIRE_TIMEOUT_MS) == WIRE_FRAME && frame.header.type == FRAME_STATUS,
                "no status");
        wire_frame_finish(&frame);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* as a program that watches does */
    }
    wire_close(&wire);
}

static int load_by_hand(void (*round)(void)) {
    while (!board->end) {
        round();
        board->rounds++;
    }
    return 0;
}

/* ---- processes ---- */

static int load_run(enum load_kind kind) {
    switch (kind) {
    case LOAD_UPLOAD:
        return load_with_library(load_upload, false);
    case LOAD_CHAIN:
        return load_with_library(load_chain, false);
    case LOAD_STREAMS:
        return load_with_library(load_streams, false);
    case LOAD_COPY:
        return load_with_library(load_copy, true);
    case LOAD_ERRORS:
        return load_with_library(load_errors, false);
    case LOAD_LOST:
        return load_with_library(load_lost, true);
    case LOAD_LEAVE:
        return load_by_hand(load_leave);
    case LOAD_SLOW:
        return load_by_hand(load_slow);
    case LOAD_GARBAGE:
        return load_by_hand(load_garbage);
    case LOAD_STATUS:
        return load_by_hand(load_status);
    case LOAD_KINDS:
        break;
    }
    return LOAD_WRONG;
}

struct load_board *load_board_make(const char *url) {
    struct load_board *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(made != MAP_FAILED);
    snprintf(made->url, sizeof made->url, "%s", url);
    return made;
}

static int load_body(void *kind) {
    seed = (unsigned)getpid();
    return load_run((enum load_kind)(intptr_t)kind);
}

pid_t load_start(struct load_board *shared, enum load_kind kind) {
    board = shared;
    return client_fork(load_body, (void *)(intptr_t)kind);
}

bool load_join(pid_t pid, bool kill_first) {
    if (kill_first)
        kill(pid, SIGKILL);
    int code = client_join(pid, JOIN_MS);
    return code == 0 || (kill_first && code == 128 + SIGKILL);
}
