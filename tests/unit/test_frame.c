#include "proto/wire/frame.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/random.h"

enum { LOG_MAX = 64, SINK_BYTES = 256 << 10 };

/* A handler that notes what comes. */
struct notes {
    struct frame_reader reader;
    struct frame_handler handler;
    unsigned messages, payloads;
    uint64_t sequences[LOG_MAX];
    uint64_t checksum; /* of message bytes */
    uint8_t *sink;
    bool drop, pause, refuse_message, refuse_payload;
    unsigned put_off; /* so many messages to come are put off */
};

static int note_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                        struct fault *fault) {
    struct notes *notes = owner;
    if (notes->put_off) {
        notes->put_off--;
        return STATUS_AGAIN;
    }
    notes->sequences[notes->messages++ % LOG_MAX] = header->sequence;
    for (uint32_t i = 0; i < header->message_bytes; i++) {
        notes->checksum = notes->checksum * 31 + message[i];
    }
    if (!notes->drop && header->payload_bytes <= SINK_BYTES) {
        *sink = notes->sink;
    }
    if (notes->pause) {
        frame_reader_pause(&notes->reader);
    }
    return notes->refuse_message ? fault_set(fault, STATUS_DENIED, "no") : STATUS_OK;
}

static int note_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct notes *notes = owner;
    (void)header;
    notes->payloads++;
    return notes->refuse_payload ? fault_set(fault, STATUS_LIMIT, "no") : STATUS_OK;
}

static struct notes *notes_create(size_t capacity) {
    struct notes *notes = calloc(1, sizeof(*notes));
    notes->handler = (struct frame_handler){note_message, note_payload};
    notes->sink = calloc(1, SINK_BYTES);
    cr_assert_eq(frame_reader_init(&notes->reader, capacity), STATUS_OK);
    frame_reader_limits(&notes->reader, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    return notes;
}

static void notes_destroy(struct notes *notes) {
    frame_reader_finish(&notes->reader);
    free(notes->sink);
    free(notes);
}

/* Feeds bytes, at most `step` at a time. */
static int feed(struct notes *notes, const uint8_t *bytes, size_t count, size_t step, struct fault *fault) {
    while (count > 0) {
        uint8_t *place;
        size_t room;
        frame_reader_want(&notes->reader, &place, &room);
        cr_assert_gt(room, 0u);
        size_t n = count < step ? count : step;
        n = n < room ? n : room;
        memcpy(place, bytes, n);
        int status = frame_reader_advance(&notes->reader, n, &notes->handler, notes, fault);
        if (status != STATUS_OK) {
            return status;
        }
        bytes += n;
        count -= n;
    }
    return STATUS_OK;
}

/* Appends a frame of patterned bytes at `at`; returns its size. */
static size_t put_frame(uint8_t *at, uint32_t message_bytes, uint64_t payload_bytes, uint64_t sequence) {
    struct frame_header header = {FRAME_UPLOAD, 0, message_bytes, payload_bytes, sequence};
    frame_header_encode(&header, at);
    for (size_t i = 0; i < message_bytes + payload_bytes; i++) {
        at[FRAME_HEADER_BYTES + i] = (uint8_t)(i * 7 + sequence);
    }
    return FRAME_HEADER_BYTES + message_bytes + payload_bytes;
}

/* Five frames of all kinds; returns their size. */
static size_t put_stream(uint8_t *at) {
    size_t size = put_frame(at, 10, 0, 1);
    size += put_frame(at + size, 0, 0, 2);
    size += put_frame(at + size, 3000, 100, 3);
    size += put_frame(at + size, 0, 50000, 4);
    size += put_frame(at + size, 5, 1, 5);
    return size;
}

Test(frame, header_round_trip_is_little_endian) {
    const struct frame_header header = {FRAME_BATCH, 0, 0x01020304, 0x1122334455667788, 0x99aabbccddeeff00};
    struct frame_header back;
    uint8_t bytes[FRAME_HEADER_BYTES];
    frame_header_encode(&header, bytes);
    cr_assert_eq(memcmp(bytes, "TSD1\x10\0\0\0\x04\x03\x02\x01\0\0\0\0\x88\x77", 18), 0);
    cr_assert_eq(frame_header_decode(bytes, UINT32_MAX, UINT64_MAX, &back, NULL), STATUS_OK);
    cr_assert(back.type == header.type && back.flags == 0 && back.message_bytes == header.message_bytes &&
              back.payload_bytes == header.payload_bytes && back.sequence == header.sequence);
}

Test(frame, a_header_may_get_its_number_later) {
    struct frame_header header = {.type = FRAME_FETCH, .message_bytes = 7, .payload_bytes = 9, .sequence = UINT64_MAX};
    uint8_t numbered[FRAME_HEADER_BYTES], whole[FRAME_HEADER_BYTES];
    frame_header_encode(&header, numbered);
    frame_header_number(numbered, 0x0102030405060708);
    header.sequence = 0x0102030405060708;
    frame_header_encode(&header, whole);
    cr_assert_arr_eq(numbered, whole, sizeof whole);
}

Test(frame, every_type_has_a_name) {
    cr_assert_str_eq(frame_type_name(FRAME_BATCH), "BATCH");
    cr_assert_str_eq(frame_type_name(0), "unknown");
    cr_assert_str_eq(frame_type_name(6), "unknown");
    cr_assert_str_eq(frame_type_name(0xffffffff), "unknown");
}

Test(frame, bad_headers_are_refused_byte_by_byte) {
    const struct frame_header header = {FRAME_BATCH, 0, 100, 100, 1};
    uint8_t good[FRAME_HEADER_BYTES];
    struct frame_header back = {.sequence = 42};
    struct fault fault;
    frame_header_encode(&header, good);
    for (int i = 0; i < 16; i++) { /* magic, type, flags, message length (over the limit), reserved */
        uint8_t bad[FRAME_HEADER_BYTES];
        memcpy(bad, good, sizeof(bad));
        bad[i] ^= 0x80;
        cr_assert_eq(frame_header_decode(bad, 120, 120, &back, &fault), STATUS_PROTOCOL, "byte %d", i);
        cr_assert_eq(fault.code, STATUS_PROTOCOL);
        cr_assert_eq(back.sequence, 42u);
    }
}

Test(frame, absurd_lengths_are_refused_before_anything_is_allocated) {
    const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 31, UINT64_C(1) << 63, UINT64_C(1) << 40,
                                FRAME_PAYLOAD_MAX + 1};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct notes *notes = notes_create(4096);
        struct fault fault;
        uint8_t bytes[FRAME_HEADER_BYTES];
        frame_header_encode(&(struct frame_header){FRAME_UPLOAD, 0, 0, lengths[i], 0}, bytes);
        cr_assert_eq(feed(notes, bytes, sizeof(bytes), 32, &fault), STATUS_PROTOCOL);
        cr_assert_not_null(strstr(fault.message, "UPLOAD payload of"));
        cr_assert_eq(notes->reader.capacity, 4096u);
        cr_assert_eq(notes->messages, 0u);
        frame_header_encode(&(struct frame_header){FRAME_UPLOAD, 0, UINT32_MAX, 0, 0}, bytes);
        cr_assert_eq(feed(notes, bytes, sizeof(bytes), 32, &fault), STATUS_PROTOCOL, "it stays stopped");
        notes_destroy(notes);
    }
}

Test(frame, before_hello_the_limits_are_tiny) {
    struct frame_reader reader;
    struct fault fault;
    uint8_t bytes[FRAME_HEADER_BYTES], *place;
    const struct frame_header headers[] = {{FRAME_HELLO, 0, FRAME_BEFORE_HELLO_MAX + 1, 0, 1},
                                           {FRAME_HELLO, 0, 4, 1, 1}};
    for (int i = 0; i < 2; i++) {
        size_t room;
        cr_assert_eq(frame_reader_init(&reader, 64), STATUS_OK);
        frame_header_encode(&headers[i], bytes);
        frame_reader_want(&reader, &place, &room);
        memcpy(place, bytes, sizeof(bytes));
        cr_assert_eq(frame_reader_advance(&reader, sizeof(bytes), NULL, NULL, &fault), STATUS_PROTOCOL);
        frame_reader_finish(&reader);
    }
}

Test(frame, any_cut_of_the_stream_gives_the_same_frames) {
    static uint8_t stream[64 << 10];
    const size_t size = put_stream(stream), steps[] = {1, 2, 3, 7, 31, 32, 33, 100, 4096, 20000, sizeof(stream)};
    uint64_t checksum = 0;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct notes *notes = notes_create(i % 2 ? 1 : 8192);
        cr_assert_eq(feed(notes, stream, size, steps[i], NULL), STATUS_OK);
        cr_assert_eq(notes->messages, 5u);
        cr_assert_eq(notes->payloads, 3u);
        for (uint64_t k = 0; k < 5; k++) {
            cr_assert_eq(notes->sequences[k], k + 1);
        }
        checksum = checksum ? checksum : notes->checksum;
        cr_assert_eq(notes->checksum, checksum, "step %zu", steps[i]);
        for (size_t k = 1; k < 50000; k++) { /* the first byte belongs to the last frame */
            cr_assert_eq(notes->sink[k], (uint8_t)(k * 7 + 4), "step %zu, byte %zu", steps[i], k);
        }
        notes_destroy(notes);
    }
}

Test(frame, a_stream_cut_short_at_any_byte_gives_only_whole_frames) {
    static uint8_t stream[64 << 10];
    const size_t size = put_frame(stream, 10, 0, 1), all = size + put_frame(stream + size, 20, 30, 2);
    for (size_t cut = 0; cut <= all; cut++) {
        struct notes *notes = notes_create(64);
        cr_assert_eq(feed(notes, stream, cut, all, NULL), STATUS_OK);
        cr_assert_eq(notes->messages, (cut >= size) + (cut >= size + FRAME_HEADER_BYTES + 20u), "cut %zu", cut);
        cr_assert_eq(notes->payloads, cut == all, "cut %zu", cut);
        notes_destroy(notes);
    }
}

Test(frame, a_large_payload_is_read_straight_into_its_sink) {
    struct notes *notes = notes_create(4096);
    static uint8_t stream[128 << 10];
    uint8_t *place;
    size_t room;
    put_frame(stream, 10, 100000, 1);
    cr_assert_eq(feed(notes, stream, FRAME_HEADER_BYTES + 10 + 5, 4096, NULL), STATUS_OK);
    frame_reader_want(&notes->reader, &place, &room);
    cr_assert_eq(place, notes->sink + 5);
    cr_assert_eq(room, 99995u, "no more than the payload, whatever follows it");
    cr_assert_eq(feed(notes, stream + FRAME_HEADER_BYTES + 15, 99995 - 100, 1 << 20, NULL), STATUS_OK);
    frame_reader_want(&notes->reader, &place, &room);
    cr_assert_neq(place, notes->sink + 99900, "the small rest goes through the buffer");
    cr_assert_eq(feed(notes, stream + FRAME_HEADER_BYTES + 99910, 100, 100, NULL), STATUS_OK);
    cr_assert_eq(notes->payloads, 1u);
    cr_assert_eq(memcmp(notes->sink, stream + FRAME_HEADER_BYTES + 10, 100000), 0);
    notes_destroy(notes);
}

Test(frame, a_payload_without_a_sink_is_dropped_and_reading_goes_on) {
    struct notes *notes = notes_create(4096);
    static uint8_t stream[64 << 10];
    notes->drop = true;
    cr_assert_eq(feed(notes, stream, put_stream(stream), 5000, NULL), STATUS_OK);
    cr_assert_eq(notes->messages, 5u);
    cr_assert_eq(notes->payloads, 3u);
    cr_assert_eq(notes->sink[0], 0);
    notes_destroy(notes);
}

Test(frame, the_buffer_grows_to_a_message_but_not_beyond_its_limit) {
    struct notes *notes = notes_create(64);
    static uint8_t stream[128 << 10];
    frame_reader_limits(&notes->reader, 100000, 0);
    cr_assert_eq(feed(notes, stream, put_frame(stream, 100000, 0, 1), 100, NULL), STATUS_OK);
    cr_assert_eq(notes->messages, 1u);
    cr_assert_eq(notes->reader.capacity, 100000u);
    cr_assert_eq(feed(notes, stream, put_frame(stream, 100001, 0, 1), 100, NULL), STATUS_PROTOCOL);
    notes_destroy(notes);
}

Test(frame, a_grown_buffer_is_given_back_where_nothing_waits_in_it) {
    struct notes *notes = notes_create(64);
    static uint8_t stream[8 << 10];
    size_t size = put_frame(stream, 5000, 0, 1), room;
    uint8_t *place;
    cr_assert_eq(feed(notes, stream, size - 1, 64, NULL), STATUS_OK);
    frame_reader_shrink(&notes->reader, 64);
    cr_assert_eq(notes->reader.capacity, 5000, "within a message");
    cr_assert_eq(feed(notes, stream + size - 1, 1, 64, NULL), STATUS_OK);
    frame_reader_shrink(&notes->reader, 64);
    frame_reader_want(&notes->reader, &place, &room);
    cr_assert_eq(room, 64);
    cr_assert_eq(feed(notes, stream, size, 64, NULL), STATUS_OK);
    cr_assert_eq(notes->messages, 2);
    notes_destroy(notes);
}

Test(frame, a_paused_reader_keeps_what_follows) {
    struct notes *notes = notes_create(8192);
    static uint8_t stream[8192];
    size_t size = put_frame(stream, 10, 50, 1);
    size += put_frame(stream + size, 10, 0, 2);
    size += put_frame(stream + size, 10, 0, 3);
    notes->pause = true;
    cr_assert_eq(feed(notes, stream, size, size, NULL), STATUS_OK);
    cr_assert_eq(notes->messages, 1u);
    cr_assert_eq(notes->payloads, 1u, "the payload is part of the frame");
    cr_assert_eq(frame_reader_resume(&notes->reader, &notes->handler, notes, NULL), STATUS_OK);
    cr_assert_eq(notes->messages, 2u);
    notes->pause = false;
    cr_assert_eq(frame_reader_resume(&notes->reader, &notes->handler, notes, NULL), STATUS_OK);
    cr_assert_eq(notes->messages, 3u);
    cr_assert_eq(feed(notes, stream, size, 1, NULL), STATUS_OK);
    cr_assert_eq(notes->messages, 6u);
    notes_destroy(notes);
}

Test(frame, a_message_that_is_put_off_comes_again_with_its_payload) {
    static uint8_t stream[8192];
    size_t size = put_frame(stream, 10, 50, 1);
    size += put_frame(stream + size, 10, 0, 2);
    for (size_t step = 1; step <= size; step += size - 1) {
        struct notes *notes = notes_create(8192);
        notes->put_off = 2;
        cr_assert_eq(feed(notes, stream, size, step, NULL), STATUS_OK);
        cr_assert(notes->reader.paused && notes->messages == 0 && notes->payloads == 0);
        cr_assert_eq(frame_reader_resume(&notes->reader, &notes->handler, notes, NULL), STATUS_OK);
        cr_assert(notes->reader.paused && notes->messages == 0 && notes->payloads == 0);
        cr_assert_eq(frame_reader_resume(&notes->reader, &notes->handler, notes, NULL), STATUS_OK);
        cr_assert(!notes->reader.paused && notes->messages == 2 && notes->payloads == 1);
        cr_assert(notes->sequences[0] == 1 && notes->sequences[1] == 2);
        notes_destroy(notes);
    }
}

/* Whatever the one connection brought behind the frame in hand comes again; the next one begins within that frame. */
Test(frame, a_reader_goes_on_within_a_frame_on_another_stream) {
    static uint8_t stream[64 << 10];
    size_t size = put_frame(stream, 3000, 20000, 1), all = size + put_frame(stream + size, 10, 0, 2);
    for (size_t cut = 0; cut < size; cut += cut < 40 || cut > 3000 + 25 ? 7 : 501) {
        struct notes *notes = notes_create(8192);
        struct frame_reader next;
        uint8_t *place;
        size_t room;
        cr_assert_eq(feed(notes, stream, cut, 8192, NULL), STATUS_OK);
        size_t begun = frame_reader_begun(&notes->reader);
        cr_assert_eq(begun, cut < FRAME_HEADER_BYTES ? 0 : cut);
        cr_assert_eq(frame_reader_payload_begun(&notes->reader), cut > 3032 ? cut - 3032 : 0);
        frame_reader_cut(&notes->reader);
        cr_assert_eq(frame_reader_init(&next, 8192), STATUS_OK);
        frame_reader_want(&next, &place, &room);
        next.end = all - begun < 8000 ? all - begun : 8000; /* read ahead by who has not looked at it yet */
        memcpy(place, stream + begun, next.end);
        begun += next.end;
        cr_assert_eq(frame_reader_follow(&notes->reader, &next), STATUS_OK);
        frame_reader_finish(&next);
        cr_assert_eq(frame_reader_resume(&notes->reader, &notes->handler, notes, NULL), STATUS_OK);
        cr_assert_eq(feed(notes, stream + begun, all - begun, 8192, NULL), STATUS_OK);
        cr_assert(notes->messages == 2 && notes->payloads == 1, "cut %zu: %u, %u", cut, notes->messages,
                  notes->payloads);
        cr_assert_eq(memcmp(notes->sink, stream + FRAME_HEADER_BYTES + 3000, 20000), 0, "cut %zu", cut);
        notes_destroy(notes);
    }
}

Test(frame, what_lies_behind_the_frame_in_hand_is_cut_off) {
    static uint8_t stream[8192];
    size_t size = put_frame(stream, 10, 50, 1), all = size + put_frame(stream + size, 10, 0, 2);
    struct notes *notes = notes_create(8192);
    notes->put_off = 1;
    cr_assert_eq(feed(notes, stream, all, all, NULL), STATUS_OK);
    cr_assert_eq(frame_reader_begun(&notes->reader), size);
    frame_reader_cut(&notes->reader);
    cr_assert_eq(frame_reader_resume(&notes->reader, &notes->handler, notes, NULL), STATUS_OK);
    cr_assert(notes->messages == 1 && notes->payloads == 1);
    cr_assert_eq(feed(notes, stream + size, all - size, all, NULL), STATUS_OK);
    cr_assert(notes->messages == 2 && notes->payloads == 1);
    notes_destroy(notes);
}

Test(frame, a_copy_reads_on_and_leaves_the_reader_as_it_is) {
    static uint8_t stream[8192];
    size_t size = put_frame(stream, 10, 2000, 1), all = size + put_frame(stream + size, 10, 0, 2);
    struct notes *notes = notes_create(8192), *copied = notes_create(8192);
    cr_assert_eq(feed(notes, stream, 1000, 1000, NULL), STATUS_OK);
    frame_reader_finish(&copied->reader);
    cr_assert_eq(frame_reader_copy(&notes->reader, &copied->reader), STATUS_OK);
    cr_assert_eq(feed(copied, stream + 1000, all - 1000, all, NULL), STATUS_OK);
    cr_assert(copied->messages == 1 && copied->payloads == 1 && copied->sequences[0] == 2);
    cr_assert_eq(notes->sink[1500], 0, "the copy drops the payload");
    cr_assert_eq(feed(notes, stream + 1000, all - 1000, all, NULL), STATUS_OK);
    cr_assert(notes->messages == 2 && notes->payloads == 1);
    cr_assert_eq(memcmp(notes->sink, stream + FRAME_HEADER_BYTES + 10, 2000), 0);
    notes_destroy(notes);
    notes_destroy(copied);
}

Test(frame, a_handler_stops_the_reader_for_good) {
    static uint8_t stream[8192];
    size_t size = put_frame(stream, 10, 50, 1);
    size += put_frame(stream + size, 10, 0, 2);
    for (int i = 0; i < 2; i++) {
        struct notes *notes = notes_create(8192);
        struct fault fault;
        int status = i ? STATUS_LIMIT : STATUS_DENIED;
        notes->refuse_message = i == 0;
        notes->refuse_payload = i == 1;
        cr_assert_eq(feed(notes, stream, size, size, &fault), status);
        cr_assert_str_eq(fault.message, "no");
        notes->refuse_message = notes->refuse_payload = false;
        cr_assert_eq(feed(notes, stream, size, size, &fault), status);
        cr_assert_eq(frame_reader_resume(&notes->reader, &notes->handler, notes, &fault), status);
        cr_assert_eq(notes->messages, 1u);
        notes_destroy(notes);
    }
}

Test(frame, limits_raised_by_a_handler_hold_for_the_next_frame) {
    struct notes *notes = notes_create(64);
    static uint8_t stream[64 << 10];
    frame_reader_limits(&notes->reader, 16, 0);
    size_t size = put_frame(stream, 10, 0, 1);
    cr_assert_eq(feed(notes, stream, size, size, NULL), STATUS_OK);
    frame_reader_limits(&notes->reader, 20000, 0);
    cr_assert_eq(feed(notes, stream, put_frame(stream, 20000, 0, 2), 999, NULL), STATUS_OK);
    cr_assert_eq(notes->messages, 2u);
    notes_destroy(notes);
}

Test(frame, garbage_and_damaged_streams_end_in_a_protocol_error_or_wait) {
    static uint8_t stream[64 << 10];
    uint64_t state = 3;
    for (int round = 0; round < 2000; round++) {
        struct notes *notes = notes_create(random_next(&state) % 5000);
        size_t size = put_stream(stream);
        size = size < 8000 ? size : 8000;
        for (uint64_t damage = random_next(&state) % 20; damage > 0; damage--) {
            stream[random_next(&state) % size] = (uint8_t)random_next(&state);
        }
        int status = feed(notes, stream, size, 1 + random_next(&state) % 3000, NULL);
        cr_assert(status == STATUS_OK || status == STATUS_PROTOCOL);
        cr_assert_leq(notes->reader.capacity, (size_t)FRAME_MESSAGE_MAX);
        notes_destroy(notes);
    }
}

Test(frame, preamble_round_trip) {
    uint8_t bytes[PREAMBLE_BYTES];
    uint16_t target = 0;
    preamble_encode(PREAMBLE_TARGET_DEFAULT, bytes);
    cr_assert_eq(memcmp(bytes, "TSD1\1\0\xfe\xff", 8), 0);
    cr_assert_eq(preamble_decode(bytes, &target, NULL), STATUS_OK);
    cr_assert_eq(target, PREAMBLE_TARGET_DEFAULT);
}

Test(frame, preamble_says_that_tls_follows) {
    uint8_t bytes[PREAMBLE_BYTES];
    uint16_t target = 0;
    preamble_encode(3, bytes);
    cr_assert(!preamble_has_tls(bytes));
    preamble_set_tls(bytes);
    cr_assert(preamble_has_tls(bytes));
    cr_assert_eq(preamble_decode(bytes, &target, NULL), STATUS_OK);
    cr_assert_eq(target, 3);
}

Test(frame, preamble_says_that_a_session_is_there) {
    uint8_t bytes[PREAMBLE_BYTES];
    uint16_t target = 0;
    preamble_encode(3, bytes);
    preamble_set_tls(bytes);
    cr_assert(!preamble_resumes(bytes));
    preamble_set_resumes(bytes);
    cr_assert(preamble_resumes(bytes) && preamble_has_tls(bytes));
    cr_assert_eq(preamble_decode(bytes, &target, NULL), STATUS_OK);
    cr_assert_eq(target, 3);
}

Test(frame, bad_preambles_are_refused) {
    for (int i = 0; i < 6; i++) {
        uint8_t bytes[PREAMBLE_BYTES];
        uint16_t target = 7;
        struct fault fault;
        preamble_encode(1, bytes);
        bytes[i] ^= 0x40;
        cr_assert_eq(preamble_decode(bytes, &target, &fault), i == 4 ? STATUS_VERSION : STATUS_PROTOCOL, "byte %d", i);
        cr_assert_eq(target, 7);
    }
}
