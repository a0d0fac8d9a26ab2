#include "proto/wire/batch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/random.h"

/* The printed form; the caller frees it. */
static char *print(unsigned type, const uint8_t *bytes, size_t size, uint64_t payload) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    const struct frame_header header = {(uint16_t)type, 0, (uint32_t)size, payload, 7};
    wire_print(out, "->", &header, bytes);
    fclose(out);
    return text;
}

static void expect(unsigned type, const ProtobufCMessage *message, uint64_t payload, const char *wanted) {
    uint8_t bytes[1024];
    char *text = print(type, bytes, protobuf_c_message_pack(message, bytes), payload);
    cr_assert_str_eq(text, wanted);
    free(text);
}

Test(wire_print, a_message_is_one_line_of_its_fields) {
    Tensord__StreamOpen open = TENSORD__STREAM_OPEN__INIT;
    open.stream = 3, open.priority = -1;
    expect(FRAME_STREAM_OPEN, &open.base, 0, "-> STREAM_OPEN (7) stream=3 priority=-1\n");
}

Test(wire_print, text_stays_on_its_line) {
    Tensord__KillSession kill = TENSORD__KILL_SESSION__INIT;
    kill.session = 4;
    kill.reason = (char *)"example\n\x1b[31m\"";
    expect(FRAME_KILL_SESSION, &kill.base, 0, "-> KILL_SESSION (7) session=4 reason=\"example\\x0a\\x1b[31m\\x22\"\n");
}

Test(wire_print, what_lets_somebody_in_is_not_shown) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    Tensord__Welcome welcome = TENSORD__WELCOME__INIT;
    uint8_t secret[16] = "0123456789abcdef", bytes[1024];
    hello.token = (char *)"tensord_0123";
    hello.resume_secret = welcome.resume_secret = (ProtobufCBinaryData){sizeof secret, secret};
    char *texts[] = {print(FRAME_HELLO, bytes, protobuf_c_message_pack(&hello.base, bytes), 0),
                     print(FRAME_WELCOME, bytes, protobuf_c_message_pack(&welcome.base, bytes), 0)};
    cr_expect(strstr(texts[0], "token=(hidden)"), "%s", texts[0]);
    for (int i = 0; i < 2; i++) {
        cr_expect(strstr(texts[i], "resume_secret=(hidden)"), "%s", texts[i]);
        cr_expect_not(strstr(texts[i], "0123"), "%s", texts[i]);
        cr_expect_not(strstr(texts[i], "3031"), "%s", texts[i]);
        free(texts[i]);
    }
}

Test(wire_print, repeated_fields_nested_messages_and_payload) {
    int64_t shape[] = {2, -1};
    Tensord__Upload upload = TENSORD__UPLOAD__INIT;
    upload.id = 9, upload.dtype = 9, upload.n_shape = 2, upload.shape = shape, upload.sequence = 3;
    expect(FRAME_UPLOAD, &upload.base, 64,
           "-> UPLOAD (7) +64 bytes id=9 dtype=9 shape=[2, -1] stream=0 label=\"\" sequence=3\n");
    Tensord__Error error = TENSORD__ERROR__INIT;
    Tensord__Done done = TENSORD__DONE__INIT;
    expect(FRAME_DONE, &done.base, 0, "-> DONE (7)\n");
    error.code = 2;
    done.error = &error;
    expect(FRAME_DONE, &done.base, 0,
           "-> DONE (7) error={ code=2 message=\"\" operation=\"\" label=\"\" sequence=0}\n");
}

Test(wire_print, a_batch_is_one_line_an_operation) {
    uint64_t heads[] = {batch_head(OP_ADD, 2, 0, 0, BATCH_FLAG_LABEL, 1), batch_head(OP_SLICE, 1, 3, 0, 0, 0),
                        batch_head(OP_FREE, 1, 0, 0, 0, 0), batch_head(OP_FULL, 0, 3, 1, 0, 0),
                        batch_head(OP_TOPK, 1, 3, 0, 0, 0) | batch_head_outputs(2), batch_head(9999, 0, 0, 0, 0, 0)};
    uint64_t inputs[] = {5, 6, 7, 6, 8};
    int64_t ints[] = {1, OP_SLICE_NONE, -2, 9, 0, 4, 3, -1, 1};
    double floats[] = {1.5};
    char *labels[] = {(char *)"forward/logits"};
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_output = 7, batch.first_sequence = 12;
    batch.n_heads = 6, batch.heads = heads, batch.n_inputs = 5, batch.inputs = inputs;
    batch.n_ints = 9, batch.ints = ints, batch.n_floats = 1, batch.floats = floats;
    batch.n_labels = 1, batch.labels = labels;
    expect(FRAME_BATCH, &batch.base, 0,
           "-> BATCH (7) stream=0 (6 operations)\n"
           "  #12 %7 = add(%5, %6) free %5  [forward/logits]\n"
           "  #13 %8 = slice(%7; ranges=[1, none, -2])\n"
           "  #14 free(%6)\n"
           "  #15 %9 = full(dtype=f32, value=1.5, shape=[4])\n"
           "  #16 %10, %11 = topk(%8; k=3, axis=-1, largest=1)\n"
           "  #17 %12 = operation 9999()\n");
    batch.n_inputs = 1;
    expect(FRAME_BATCH, &batch.base, 0,
           "-> BATCH (7) stream=0 (6 operations)\n"
           "  malformed: operation 0 of the batch owns 2 inputs, 1 are left\n");
}

Test(wire_print, what_cannot_be_read_is_said_to_be_malformed) {
    char *text = print(FRAME_HELLO, (const uint8_t *)"\xff\xff", 2, 0);
    cr_assert_str_eq(text, "-> HELLO (7) malformed message of 2 bytes\n");
    free(text);
    text = print(999, (const uint8_t *)"", 0, 0);
    cr_assert_str_eq(text, "-> unknown (7) malformed message of 0 bytes\n");
    free(text);
}

Test(wire_print, garbage_of_every_type_is_printed_without_harm) {
    uint64_t state = 11;
    for (int round = 0; round < 6000; round++) {
        uint8_t bytes[64];
        for (size_t i = 0; i < sizeof(bytes); i++) { /* small tags and lengths reach deeper than noise */
            bytes[i] = (uint8_t)(random_next(&state) % (random_next(&state) % 2 ? 256 : 64));
        }
        free(print((unsigned)(random_next(&state) % 70), bytes, random_next(&state) % sizeof(bytes), 0));
    }
}
