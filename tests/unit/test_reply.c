/* The heads of replies: the largest ones fit into the room that each reply has. */
#include <criterion/criterion.h>
#include <limits.h>
#include <string.h>

#include "proto/ops/shape.h"
#include "server/worker/lease.h"
#include "server/worker/reply.h"
#include "server/worker/service.h"

static struct reply reply;

static void fill(char *text, size_t bytes) {
    memset(text, 'x', bytes - 1);
    text[bytes - 1] = 0;
}

/* No text of a failure can be longer, for each has its place in the struct. */
static struct failure largest_failure(void) {
    struct failure failure = {.code = (enum status)INT_MAX, .sequence = UINT64_MAX};
    fill(failure.message, sizeof failure.message);
    fill(failure.operation, sizeof failure.operation);
    fill(failure.label, sizeof failure.label);
    return failure;
}

/* The frame's message; what was packed is as long as the header says, and not longer than the room. */
static ProtobufCMessage *sent_message(unsigned type, const ProtobufCMessageDescriptor *descriptor) {
    struct frame_header header;
    struct fault fault = {0};
    cr_assert_leq(reply.head_bytes, REPLY_HEAD_MAX);
    cr_assert_eq(frame_header_decode(reply.head, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, &fault), STATUS_OK,
                 "%s", fault.message);
    cr_assert_eq(header.type, type);
    cr_assert_eq(FRAME_HEADER_BYTES + header.message_bytes, reply.head_bytes);
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, NULL, header.message_bytes, reply.head + FRAME_HEADER_BYTES);
    cr_assert_not_null(message, "%s", frame_type_name(type));
    return message;
}

static void expect_error(const Tensord__Error *error, const struct failure *failure) {
    cr_assert_not_null(error);
    cr_expect_eq(error->code, (uint32_t)failure->code);
    cr_expect_str_eq(error->message, failure->message);
    cr_expect_str_eq(error->operation, failure->operation);
    cr_expect_str_eq(error->label, failure->label);
    cr_expect_eq(error->sequence, failure->sequence);
}

static const struct {
    unsigned type;
    const ProtobufCMessageDescriptor *descriptor;
    size_t error; /* where the message has it; 0: the message is it */
} failing[] = {
    {FRAME_ERROR, &tensord__error__descriptor, 0},
    {FRAME_FETCH_CHUNK, &tensord__fetch_chunk__descriptor, offsetof(Tensord__FetchChunk, error)},
    {FRAME_LINK_DATA, &tensord__link_data__descriptor, offsetof(Tensord__LinkData, error)},
    {FRAME_DONE, &tensord__done__descriptor, offsetof(Tensord__Done, error)},
    {FRAME_KERNEL_COMPILED, &tensord__kernel_compiled__descriptor, offsetof(Tensord__KernelCompiled, error)},
    {FRAME_NAME_OPENED, &tensord__name_opened__descriptor, offsetof(Tensord__NameOpened, error)},
    {FRAME_TRACE_DATA, &tensord__trace_data__descriptor, offsetof(Tensord__TraceData, error)},
};

Test(reply, a_failure_with_the_longest_texts_fits_into_each_reply) {
    const struct failure failure = largest_failure();
    for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
        reply_failure(&reply, failing[i].type, UINT64_MAX, &failure);
        ProtobufCMessage *message = sent_message(failing[i].type, failing[i].descriptor);
        Tensord__Error **error = (Tensord__Error **)((char *)message + failing[i].error);
        expect_error(failing[i].error ? *error : (Tensord__Error *)message, &failure);
        protobuf_c_message_free_unpacked(message, NULL);
    }
}

Test(reply, the_largest_welcome_fits) {
    char device[sizeof((struct service *)0)->device], kind[sizeof((struct service *)0)->kind];
    uint8_t secret[LEASE_SECRET_BYTES] = {0};
    Tensord__Welcome welcome = TENSORD__WELCOME__INIT;
    fill(device, sizeof device);
    fill(kind, sizeof kind);
    welcome.version = welcome.batch_bytes_max = welcome.lease_ms = welcome.process = welcome.heartbeat_ms = UINT32_MAX;
    welcome.session = welcome.epoch = welcome.chunk_bytes_max = welcome.frames = welcome.frame_bytes = UINT64_MAX;
    welcome.server = "tensord " TENSORD_VERSION;
    welcome.device = device;
    welcome.kind = kind;
    welcome.resume_secret = (ProtobufCBinaryData){sizeof secret, secret};
    reply_message(&reply, FRAME_WELCOME, UINT64_MAX, &welcome.base);
    Tensord__Welcome *sent = (Tensord__Welcome *)sent_message(FRAME_WELCOME, &tensord__welcome__descriptor);
    cr_expect_str_eq(sent->device, device);
    cr_expect_eq(sent->frame_bytes, UINT64_MAX);
    tensord__welcome__free_unpacked(sent, NULL);
}

Test(reply, the_largest_shape_fits) {
    int64_t shape[SHAPE_RANK_MAX];
    Tensord__NameOpened opened = TENSORD__NAME_OPENED__INIT;
    for (int i = 0; i < SHAPE_RANK_MAX; i++)
        shape[i] = INT64_MAX;
    opened.dtype = UINT32_MAX;
    opened.n_shape = SHAPE_RANK_MAX;
    opened.shape = shape;
    reply_message(&reply, FRAME_NAME_OPENED, UINT64_MAX, &opened.base);
    Tensord__NameOpened *sent =
        (Tensord__NameOpened *)sent_message(FRAME_NAME_OPENED, &tensord__name_opened__descriptor);
    cr_expect_eq(sent->n_shape, SHAPE_RANK_MAX);
    cr_expect_arr_eq(sent->shape, shape, sizeof shape);
    tensord__name_opened__free_unpacked(sent, NULL);
}

Test(reply, a_refused_list_of_names_fits_with_the_longest_words) {
    const struct failure failure = largest_failure();
    Tensord__NameList list = TENSORD__NAME_LIST__INIT;
    Tensord__Error error = TENSORD__ERROR__INIT;
    error.code = (uint32_t)failure.code;
    error.message = (char *)failure.message;
    list.more = true;
    list.error = &error;
    reply_message_data(&reply, FRAME_NAME_LIST, UINT64_MAX, &list.base, NULL, 0);
    tensord__name_list__free_unpacked(
        (Tensord__NameList *)sent_message(FRAME_NAME_LIST, &tensord__name_list__descriptor), NULL);
}

/* No request leads to one. The process ends before anything is written past the room. */
Test(reply, a_message_of_one_byte_more_is_not_written, .signal = SIGABRT) {
    char text[REPLY_HEAD_MAX];
    Tensord__Error error = TENSORD__ERROR__INIT;
    size_t most = REPLY_HEAD_MAX - FRAME_HEADER_BYTES;
    fill(text, sizeof text);
    error.message = text;
    text[most - (tensord__error__get_packed_size(&error) - strlen(text))] = 0;
    reply_message(&reply, FRAME_ERROR, 1, &error.base);
    cr_assert_eq(reply.head_bytes, REPLY_HEAD_MAX);
    text[strlen(text)] = 'x';
    reply_message(&reply, FRAME_ERROR, 1, &error.base);
}
