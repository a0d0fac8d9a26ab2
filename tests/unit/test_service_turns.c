/* What a client may have the service do is done in turns of bounded time, by a clock that the test moves. */
#include "tests/unit/service_fixture.h"

static unsigned publishes_read;

ProtobufCMessage *__real_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data);

ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data) {
    publishes_read += descriptor == &tensord__publish__descriptor;
    return __real_protobuf_c_message_unpack(descriptor, allocator, bytes, data);
}

/* Names "n0", "n1" and so on for the tensors 1, 2 and so on. */
static void send_publish(uint64_t sequence, unsigned n) {
    Tensord__Publish publish = TENSORD__PUBLISH__INIT;
    uint64_t *ids = malloc(n * sizeof *ids);
    char **names = malloc(n * sizeof *names), (*texts)[16] = malloc(n * sizeof *texts);
    for (unsigned i = 0; i < n; i++) {
        ids[i] = i + 1;
        names[i] = texts[i];
        snprintf(texts[i], sizeof texts[i], "n%u", i);
    }
    publish.n_ids = publish.n_names = n;
    publish.ids = ids;
    publish.names = names;
    send_message(FRAME_PUBLISH, sequence, &publish.base);
    free(ids);
    free(names);
    free(texts);
}

Test(service_turns, a_publish_that_takes_many_turns_is_read_once) {
    enum { MANY = 2000 };
    unsigned turns = 0;
    char words[256];
    open_service(&(struct limits){.named_tensors = MANY, .session_tensors = MANY});
    open_client();
    make_tensors(MANY);
    look_ns = SERVICE_SHARE_NS / 2;
    send_publish(2, MANY);
    while (!publishes_read)
        turn();
    for (; connection->publishing && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_gt(turns, 10, "%u turns", turns);
    cr_assert_eq(publishes_read, 1, "%u times in %u turns", publishes_read, turns);
    cr_assert_eq(receive_done(2, words), STATUS_OK, "%s", words);
    cr_assert_eq(names_owner(&service.names, "uid:0")->count, MANY);
    close_service();
}

Test(service_turns, a_publish_of_more_names_than_may_be_is_refused_at_once) {
    char words[256];
    open_service(&(struct limits){.named_tensors = 3});
    open_client();
    send_publish(2, 4); /* of tensors that are not there */
    cr_assert_eq(receive_done(2, words), STATUS_LIMIT, "%s", words);
    cr_assert_str_eq(words, "the limit of 3 named tensors is reached: 4 came in one Publish");
    close_service();
}
