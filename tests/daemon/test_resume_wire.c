/* Sessions that outlive their connections, by hand: what is counted, who may come back, and what becomes of cut frames. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0"});
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(resume_wire, .init = start, .fini = stop, .timeout = 60);

/* What Welcome says, and what Hello presents. */
struct pass {
    uint64_t session, epoch, frames, frame_bytes;
    bool within; /* it goes on within a frame */
    uint8_t secret[16];
    size_t secret_bytes;
};

static void hello(struct wire *wire, const struct pass *pass) {
    Tensord__Hello message = TENSORD__HELLO__INIT;
    message.version_min = message.version_max = PROTOCOL_VERSION_MAX;
    message.client = "tests 1";
    message.resumable = true;
    if (pass) {
        message.resume_session = pass->session;
        message.resume_within = pass->within;
        message.resume_epoch = pass->epoch;
        message.resume_secret = (ProtobufCBinaryData){pass->secret_bytes, (uint8_t *)(uintptr_t)pass->secret};
    }
    cr_assert(wire_request(wire, FRAME_HELLO, &message));
}

static struct pass welcome(struct wire *wire) {
    struct wire_frame frame;
    struct pass pass = {0};
    cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_WELCOME, "%s", frame_type_name(frame.header.type));
    Tensord__Welcome *message = tensord__welcome__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert_not_null(message);
    cr_assert_leq(message->resume_secret.len, sizeof pass.secret);
    pass = (struct pass){.session = message->session,
                         .epoch = message->epoch,
                         .frames = message->frames,
                         .frame_bytes = message->frame_bytes,
                         .secret_bytes = message->resume_secret.len};
    if (pass.secret_bytes)
        memcpy(pass.secret, message->resume_secret.data, pass.secret_bytes);
    tensord__welcome__free_unpacked(message, NULL);
    wire_frame_finish(&frame);
    return pass;
}

static struct pass open_url(struct wire *wire, const char *url) {
    wire_connect(wire, url, DAEMON_TARGET_CPU0);
    hello(wire, NULL);
    return welcome(wire);
}

static struct pass open_new(struct wire *wire) {
    return open_url(wire, tensord.url);
}

static struct pass come_back(struct wire *wire, const struct pass *pass) {
    wire_connect(wire, tensord.url, DAEMON_TARGET_CPU0);
    hello(wire, pass);
    return welcome(wire);
}

/* The code of the Error that a presented session gets. */
static int refusal(const char *url, const struct pass *pass, char *message) {
    struct wire wire;
    wire_connect(&wire, url, DAEMON_TARGET_CPU0);
    hello(&wire, pass);
    int code = wire_until_closed(&wire, WIRE_TIMEOUT_MS, message);
    wire_close(&wire);
    return code;
}

static bool is_detached(const Tensord__Status *status, const void *session) {
    for (size_t i = 0; i < status->n_sessions; i++)
        if (status->sessions[i]->id == *(const uint64_t *)session)
            return status->sessions[i]->detached && status->sessions[i]->lease_left_s > 0;
    return false;
}

static void detach(struct wire *wire, const struct pass *pass) {
    wire_close(wire);
    status_until(tensord.url, is_detached, &pass->session, 30000);
}

Test(resume_wire, tensors_outlive_the_connection_and_frames_are_counted) {
    struct wire wire;
    float got[3] = {0};
    struct pass pass = open_new(&wire);
    cr_assert_eq(pass.secret_bytes, 16);
    cr_assert_eq(pass.frames, 0);
    cr_assert(wire_full(&wire, 1, 1, 3, 7) && wire_full(&wire, 2, 2, 3, 8) && wire_ping(&wire));
    detach(&wire, &pass);
    struct pass again = come_back(&wire, &pass);
    cr_assert_eq(again.session, pass.session);
    cr_assert_eq(again.frames, 2, "%lu", again.frames);
    cr_assert_eq(wire_fetch(&wire, 2, got, sizeof got, NULL), STATUS_OK);
    cr_assert_eq(got[2], 8);
    cr_assert(wire_full(&wire, 3, 3, 3, 9), "numbers go on");
    cr_assert_eq(wire_fetch(&wire, 3, got, sizeof got, NULL), STATUS_OK);
    wire_close(&wire);
}

Test(resume_wire, session_that_nobody_asked_to_keep_ends_with_its_connection) {
    struct wire wire;
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    wire_open(&wire, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_full(&wire, 1, 1, 1 << 20, 7) && wire_ping(&wire));
    wire_close(&wire);
    cr_assert(status_settles(tensord.url, &baseline, 20000));
}

Test(resume_wire, secrets_differ_and_only_the_right_one_opens) {
    struct wire one, two, back;
    char text[256];
    struct pass first = open_new(&one), second = open_new(&two);
    cr_assert(memcmp(first.secret, second.secret, 16) != 0);
    struct pass wrong = first;
    wrong.secret[15] ^= 1;
    cr_assert_eq(refusal(tensord.url, &wrong, text), STATUS_DENIED, "%s", text);
    memcpy(wrong.secret, second.secret, 16);
    cr_assert_eq(refusal(tensord.url, &wrong, text), STATUS_DENIED, "%s", text);
    wrong = first;
    wrong.secret_bytes = 15;
    cr_assert_eq(refusal(tensord.url, &wrong, text), STATUS_DENIED, "%s", text);
    wrong.secret_bytes = 0;
    cr_assert_eq(refusal(tensord.url, &wrong, text), STATUS_DENIED, "%s", text);
    cr_assert_eq(refusal(tensord.tcp, &first, text), STATUS_DENIED, "another principal: %s", text);
    cr_assert(wire_ping(&one) && wire_ping(&two), "nobody has lost anything");
    cr_assert_eq(come_back(&back, &first).session, first.session);
    wire_close(&one), wire_close(&two), wire_close(&back);
}

Test(resume_wire, session_of_another_epoch_or_number_is_lost) {
    struct wire wire, plain;
    char text[256];
    struct pass pass = open_new(&wire), wrong = pass;
    wrong.epoch++;
    cr_assert_eq(refusal(tensord.url, &wrong, text), STATUS_DEVICE_LOST);
    cr_assert(strstr(text, "restarted"), "%s", text);
    wrong = pass;
    wrong.session += 1000;
    cr_assert_eq(refusal(tensord.url, &wrong, text), STATUS_DEVICE_LOST);
    cr_assert(strstr(text, "lease"), "%s", text);
    wire_open(&plain, tensord.url, DAEMON_TARGET_CPU0); /* the next number, without a lease */
    for (wrong = pass; wrong.session < pass.session + 20; wrong.session++)
        if (wrong.session != pass.session)
            cr_assert_eq(refusal(tensord.url, &wrong, text), STATUS_DEVICE_LOST);
    cr_assert(wire_ping(&plain) && wire_ping(&wire));
    wire_close(&plain);
    wire_close(&wire);
}

/* The daemon has not noticed the end of the first connection, or there was none. */
Test(resume_wire, later_connection_takes_over_from_the_earlier_one) {
    struct wire first, second, third;
    float got[4];
    struct pass pass = open_new(&first);
    cr_assert(wire_full(&first, 1, 1, 4, 5) && wire_ping(&first));
    cr_assert_eq(come_back(&second, &pass).frames, 1);
    cr_assert_eq(wire_until_closed(&first, WIRE_TIMEOUT_MS, NULL), STATUS_OK, "the first one was closed");
    cr_assert_eq(wire_fetch(&second, 1, got, sizeof got, NULL), STATUS_OK);
    cr_assert_eq(come_back(&third, &pass).frames, 1);
    cr_assert_eq(wire_until_closed(&second, WIRE_TIMEOUT_MS, NULL), STATUS_OK);
    cr_assert_eq(wire_fetch(&third, 1, got, sizeof got, NULL), STATUS_OK);
    cr_assert_eq(got[3], 5);
    wire_close(&first), wire_close(&second), wire_close(&third);
}

static void upload_head(struct wire *wire, int64_t n) {
    Tensord__Upload upload = TENSORD__UPLOAD__INIT;
    uint8_t packed[128];
    upload.id = 1;
    upload.dtype = DTYPE_F32;
    upload.n_shape = 1;
    upload.shape = &n;
    upload.sequence = 1;
    upload.label = "";
    struct frame_header header = {.type = FRAME_UPLOAD,
                                  .message_bytes = (uint32_t)tensord__upload__pack(&upload, packed),
                                  .payload_bytes = (uint64_t)n * 4};
    cr_assert(wire_header(wire, &header));
    cr_assert(wire_write(wire, packed, header.message_bytes));
}

enum { CUT_FLOATS = 50000 };

Test(resume_wire, frame_that_was_cut_counts_as_not_sent) {
    struct wire wire;
    static float data[CUT_FLOATS], got[CUT_FLOATS];
    client_noise(data, sizeof data, 1);
    struct pass pass = open_new(&wire);
    for (int i = 0; i < 3; i++) {
        upload_head(&wire, CUT_FLOATS);
        cr_assert(wire_write(&wire, data, sizeof data / 3 + (unsigned)i));
        detach(&wire, &pass);
        cr_assert_eq(come_back(&wire, &pass).frames, 0);
    }
    upload_head(&wire, CUT_FLOATS);
    cr_assert(wire_write(&wire, data, sizeof data));
    cr_assert_eq(wire_fetch(&wire, 1, got, sizeof got, NULL), STATUS_OK);
    cr_assert(!memcmp(got, data, sizeof data));
    detach(&wire, &pass);
    cr_assert_eq(come_back(&wire, &pass).frames, 1);
    wire_close(&wire);
}

/* An upload of one frame, as bytes. */
static void upload_bytes(struct wire_buffer *buffer, const float *data, int64_t n) {
    Tensord__Upload upload = TENSORD__UPLOAD__INIT;
    upload.id = upload.sequence = 1;
    upload.dtype = DTYPE_F32;
    upload.n_shape = 1;
    upload.shape = &n;
    upload.label = "";
    wire_buffer_frame(buffer, FRAME_UPLOAD, 0, &upload, data, (size_t)n * sizeof *data);
}

/* Within its header, its message, its payload; from there each connection brings the next part. */
Test(resume_wire, frame_goes_on_where_it_was_cut) {
    static const size_t cuts[] = {31, 32, 40, 60, 1000, 1001, 100000, 150000};
    struct wire wire;
    struct wire_buffer buffer = {0};
    static float data[CUT_FLOATS], got[CUT_FLOATS];
    size_t sent = 0;
    client_noise(data, sizeof data, 1);
    upload_bytes(&buffer, data, CUT_FLOATS);
    struct pass pass = open_new(&wire), back;
    pass.within = true;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        cr_assert(wire_write(&wire, buffer.bytes + sent, cuts[i] - sent));
        detach(&wire, &pass);
        back = come_back(&wire, &pass);
        sent = cuts[i] < FRAME_HEADER_BYTES ? 0 : cuts[i];
        cr_assert(back.frames == 0 && back.frame_bytes == sent, "%lu bytes of %zu", back.frame_bytes, cuts[i]);
    }
    cr_assert(wire_write(&wire, buffer.bytes + sent, buffer.n - sent));
    cr_assert_eq(wire_fetch(&wire, 1, got, sizeof got, NULL), STATUS_OK);
    cr_assert(!memcmp(got, data, sizeof data));
    detach(&wire, &pass);
    back = come_back(&wire, &pass);
    cr_assert(back.frames == 1 && back.frame_bytes == 0);
    cr_assert(wire_full(&wire, 2, 2, 3, 9), "numbers go on");
    cr_assert_eq(wire_fetch(&wire, 2, got, 3 * sizeof *got, NULL), STATUS_OK);
    wire_close(&wire);
    wire_buffer_finish(&buffer);
}

/* A question has no part that is kept: it is asked again. */
Test(resume_wire, question_that_was_cut_is_forgotten) {
    struct wire wire;
    struct wire_buffer buffer = {0};
    float got[3];
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    struct pass pass = open_new(&wire);
    pass.within = true;
    fetch.id = 1;
    wire_buffer_frame(&buffer, FRAME_FETCH, 7, &fetch, NULL, 0);
    cr_assert(wire_full(&wire, 1, 1, 3, 7) && wire_ping(&wire));
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n - 2));
    detach(&wire, &pass);
    struct pass back = come_back(&wire, &pass);
    cr_assert(back.frames == 1 && back.frame_bytes == 0, "%lu, %lu", back.frames, back.frame_bytes);
    cr_assert_eq(wire_fetch(&wire, 1, got, sizeof got, NULL), STATUS_OK);
    wire_close(&wire);
    wire_buffer_finish(&buffer);
}

Test(resume_wire, cut_chunk_that_comes_back_with_another_size_breaks_the_protocol) {
    struct wire wire;
    static float data[CUT_FLOATS];
    char text[256];
    struct pass pass = open_new(&wire);
    upload_head(&wire, CUT_FLOATS);
    cr_assert(wire_write(&wire, data, sizeof data / 2));
    detach(&wire, &pass);
    (void)come_back(&wire, &pass);
    upload_head(&wire, CUT_FLOATS / 2);
    cr_assert_eq(wire_until_closed(&wire, WIRE_TIMEOUT_MS, text), STATUS_PROTOCOL);
    cr_assert(strstr(text, "cut"), "%s", text);
    wire_close(&wire);
}

Test(resume_wire, fetch_begins_where_it_is_asked_to) {
    struct wire wire;
    struct wire_frame frame;
    static float data[CUT_FLOATS];
    client_noise(data, sizeof data, 2);
    (void)open_new(&wire);
    upload_head(&wire, CUT_FLOATS);
    cr_assert(wire_write(&wire, data, sizeof data));
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = 1;
    fetch.offset = 1001;
    cr_assert(wire_request(&wire, FRAME_FETCH, &fetch));
    cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.payload_bytes, sizeof data - 1001);
    cr_assert(!memcmp(frame.payload, (uint8_t *)data + 1001, sizeof data - 1001));
    wire_frame_finish(&frame);
    for (uint64_t offset = sizeof data; offset >= sizeof data; offset = offset == sizeof data ? UINT64_MAX : 0) {
        fetch.offset = offset;
        cr_assert(wire_request(&wire, FRAME_FETCH, &fetch));
        cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
        Tensord__FetchChunk *chunk = tensord__fetch_chunk__unpack(NULL, frame.header.message_bytes, frame.message);
        cr_assert(chunk && chunk->error && chunk->error->code == STATUS_OUT_OF_RANGE);
        tensord__fetch_chunk__free_unpacked(chunk, NULL);
        wire_frame_finish(&frame);
    }
    wire_close(&wire);
}

Test(resume_wire, acks_tell_how_many_frames_have_been_handled) {
    enum { N = 20000 }; /* some 70 bytes each */
    struct wire wire;
    struct wire_frame frame;
    struct wire_buffer buffer = {0};
    uint64_t acked = 0;
    unsigned acks = 0;
    (void)open_new(&wire);
    for (uint64_t i = 1; i <= N; i++)
        wire_buffer_op(
            &buffer,
            &(struct wire_op){.opcode = OP_FULL, .output = i, .sequence = i, WIRE_INTS(DTYPE_F32, 0), WIRE_FLOATS(1)});
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n));
    Tensord__Ping ping = TENSORD__PING__INIT;
    cr_assert(wire_request(&wire, FRAME_PING, &ping));
    for (bool over = false; !over;) {
        cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
        over = frame.header.type == FRAME_PONG;
        Tensord__Ack *ack = over ? NULL : tensord__ack__unpack(NULL, frame.header.message_bytes, frame.message);
        if (ack) {
            cr_assert(ack->frames > acked && ack->frames <= N, "%lu after %lu", ack->frames, acked);
            acked = ack->frames;
            acks++;
            tensord__ack__free_unpacked(ack, NULL);
        }
        wire_frame_finish(&frame);
    }
    cr_assert(acks >= 3 && acks <= 16, "%u", acks);
    wire_buffer_finish(&buffer);
    wire_close(&wire);
}

static bool has_tensors(const Tensord__Status *status, const void *tensors) {
    return status->n_sessions == 1 && status->sessions[0]->tensors >= *(const uint64_t *)tensors;
}

/* Whether it reads is the client's choice, and must not decide how much is kept for it. */
Test(resume_wire, client_that_does_not_read_has_one_ack_on_its_way) {
    enum { N = 20000, LARGE = 2 << 20 };
    struct wire wire;
    struct wire_frame frame;
    struct wire_buffer buffer = {0};
    uint64_t all = N + 1;
    unsigned acks = 0;
    (void)open_new(&wire);
    cr_assert(wire_full(&wire, 1, 1, LARGE, 1));
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = 1;
    cr_assert(wire_request(&wire, FRAME_FETCH, &fetch)); /* more than a socket holds */
    struct pollfd readable = {.fd = wire.fd, .events = POLLIN};
    cr_assert_eq(poll(&readable, 1, WIRE_TIMEOUT_MS), 1);
    for (uint64_t i = 2; i <= N + 1; i++)
        wire_buffer_op(
            &buffer,
            &(struct wire_op){.opcode = OP_FULL, .output = i, .sequence = i, WIRE_INTS(DTYPE_F32, 0), WIRE_FLOATS(1)});
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n));
    status_until(tensord.url, has_tensors, &all, 30000);
    Tensord__Ping ping = TENSORD__PING__INIT;
    cr_assert(wire_request(&wire, FRAME_PING, &ping));
    for (bool over = false; !over;) {
        cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
        over = frame.header.type == FRAME_PONG;
        acks += frame.header.type == FRAME_ACK;
        wire_frame_finish(&frame);
    }
    cr_assert(acks >= 1 && acks <= 2, "%u", acks);
    wire_buffer_finish(&buffer);
    wire_close(&wire);
}

Test(resume_wire, goodbye_ends_the_session_with_its_connection) {
    struct wire wire;
    char text[256];
    Tensord__Goodbye goodbye = TENSORD__GOODBYE__INIT;
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    const char *urls[] = {tensord.url, tensord.tcp};
    for (int i = 0; i < 2; i++) {
        struct pass pass = open_url(&wire, urls[i]);
        cr_assert(wire_full(&wire, 1, 1, 1 << 20, 7) && wire_ping(&wire));
        cr_assert(wire_send(&wire, FRAME_GOODBYE, &goodbye, NULL, 0));
        wire_close(&wire);
        cr_assert(status_settles(tensord.url, &baseline, 20000));
        cr_assert_eq(refusal(urls[i], &pass, text), STATUS_DEVICE_LOST);
    }
}

/* The daemon has stopped reading long before it, because the session has as much in flight as it may. */
Test(resume_wire, goodbye_behind_a_flood_that_is_not_read_is_found) {
    enum { N = 1200 }; /* some 10 ms each */
    struct wire wire;
    struct wire_buffer buffer = {0};
    Tensord__Goodbye goodbye = TENSORD__GOODBYE__INIT;
    stop();
    daemon_start(&tensord,
                 &(struct daemon_options){.flags = (const char *const[]){"--session-operations", "50", NULL}});
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    (void)open_new(&wire);
    wire_buffer_op(
        &buffer, &(struct wire_op){
                     .opcode = OP_FULL, .output = 1, .sequence = 1, WIRE_INTS(DTYPE_F32, 0, 512, 512), WIRE_FLOATS(0)});
    for (uint64_t i = 2; i <= N; i++)
        wire_buffer_op(&buffer, &(struct wire_op){.opcode = OP_MATMUL, .output = i, .sequence = i, WIRE_INPUTS(1, 1)});
    wire_buffer_frame(&buffer, FRAME_GOODBYE, 0, &goodbye, NULL, 0);
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n), "the socket takes all of it");
    wire_close(&wire);
    cr_assert(status_settles(tensord.url, &baseline, 20000), "the goodbye was not found");
    wire_buffer_finish(&buffer);
}

static uint64_t principal_bytes(void) {
    Tensord__Status *status = status_get(tensord.url);
    uint64_t bytes = 0;
    for (size_t i = 0; i < status->n_principals; i++)
        for (size_t k = 0; k < status->principals[i]->n_devices; k++)
            bytes += status->principals[i]->devices[k]->bytes;
    status_free(status);
    return bytes;
}

/* What is looked through for a goodbye has been taken from the network, and is the principal's like all of that. */
Test(resume_wire, bytes_behind_a_flood_that_is_not_read_are_charged) {
    enum { BYTES = 128 << 10 };
    struct wire wire;
    struct wire_buffer buffer = {0};
    stop();
    daemon_start(&tensord, &(struct daemon_options){
                               .flags = (const char *const[]){"--session-operations", "8", "--threads", "1", NULL}});
    struct pass pass = open_new(&wire);
    wire_buffer_op(
        &buffer,
        &(struct wire_op){
            .opcode = OP_FULL, .output = 1, .sequence = 1, WIRE_INTS(DTYPE_F32, 0, 1024, 1024), WIRE_FLOATS(0)});
    for (uint64_t i = 2; buffer.n < BYTES; i++)
        wire_buffer_op(&buffer, &(struct wire_op){.opcode = OP_MATMUL, .output = i, .sequence = i, WIRE_INPUTS(1, 1)});
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n), "the socket takes all of it");
    detach(&wire, &pass);
    int64_t deadline = deadline_in(5000);
    while (principal_bytes() < buffer.n && deadline_pause(deadline))
        continue;
    cr_assert_geq(principal_bytes(), buffer.n);
    wire_buffer_finish(&buffer);
}

Test(resume_wire, error_ends_a_session_that_could_be_resumed) {
    struct wire wire;
    char text[256];
    struct pass pass = open_new(&wire);
    cr_assert(wire_full(&wire, 1, 5, 1, 1)); /* number 5 where 1 is due */
    cr_assert_eq(wire_until_closed(&wire, WIRE_TIMEOUT_MS, text), STATUS_PROTOCOL);
    wire_close(&wire);
    cr_assert_eq(refusal(tensord.url, &pass, text), STATUS_DEVICE_LOST);
}

/* Batches that take many turns are cut within, too: what has been done of them is not done again. */
Test(resume_wire, batch_that_was_cut_within_its_operations_goes_on) {
    enum { MANY = 6000 }; /* many turns, and fewer bytes than bring an Ack */
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    struct wire wire;
    float got = 0;
    uint64_t *heads = malloc(MANY * sizeof *heads);
    int64_t *ints = malloc(3 * MANY * sizeof *ints);
    double *floats = malloc(MANY * sizeof *floats);
    for (int i = 0; i < MANY; i++) {
        heads[i] = batch_head(OP_FULL, 0, 3, 1, 0, 0);
        ints[3 * i] = DTYPE_F32, ints[3 * i + 1] = 0, ints[3 * i + 2] = 1;
        floats[i] = i + 1;
    }
    batch.first_output = batch.first_sequence = 1;
    batch.n_heads = batch.n_floats = MANY;
    batch.n_ints = 3 * MANY;
    batch.heads = heads, batch.ints = ints, batch.floats = floats;
    struct pass pass = open_new(&wire);
    cr_assert(wire_send(&wire, FRAME_BATCH, &batch, NULL, 0));
    detach(&wire, &pass);
    pass = come_back(&wire, &pass);
    if (pass.frames == 0)
        cr_assert(wire_send(&wire, FRAME_BATCH, &batch, NULL, 0));
    cr_assert(wire_full(&wire, MANY + 1, MANY + 1, 1, 7));
    char why[256] = "";
    cr_assert_eq(wire_fetch(&wire, MANY + 1, &got, sizeof got, why), STATUS_OK, "%s", why);
    cr_assert_eq(got, 7);
    for (uint64_t id = 1; id <= MANY; id += MANY / 64) {
        cr_assert_eq(wire_fetch(&wire, id, &got, sizeof got, NULL), STATUS_OK);
        cr_assert_eq(got, (float)id);
    }
    Tensord__Status *status = status_get(tensord.url);
    cr_assert_eq(status_device(status, "cpu:0")->n_failures, 0);
    status_free(status);
    wire_close(&wire);
    free(heads), free(ints), free(floats);
}
