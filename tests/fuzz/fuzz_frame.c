/* The frame reader under arbitrary bytes, arriving in arbitrary pieces.
 *
 * Input: a count k (4 bits), k bytes of schedule, the stream. The schedule says how many bytes come in each piece and
 * where the handler pauses. What must hold: lengths stay below the limits, the reader always wants something, no byte
 * is handled that has not come, and the pieces do not matter: the events and the verdict are those of the same bytes
 * arriving at once. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/frame.h"

enum { MESSAGE_MAX = 4096, PAYLOAD_MAX = 64 << 10, CAPACITY = 8 << 10, SCHEDULE_MAX = 15 };

struct schedule {
    uint8_t steps[SCHEDULE_MAX];
    size_t n, next;
};

struct run {
    struct frame_reader reader;
    struct schedule schedule; /* n 0: everything at once, no pauses */
    uint64_t digest;          /* of all events */
    uint64_t handled;         /* bytes of complete frames */
    uint8_t *sink;
    int verdict;
};

/* An assertion that no build leaves out. */
#define require(holds)                                                                                                 \
    ((holds) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds), abort()))

static uint8_t schedule_next(struct schedule *schedule) {
    return schedule->n ? schedule->steps[schedule->next++ % schedule->n] : 0;
}

static void digest_add(struct run *run, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        run->digest = (run->digest ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
}

static void digest_header(struct run *run, const struct frame_header *header) {
    uint8_t encoded[FRAME_HEADER_BYTES];
    frame_header_encode(header, encoded);
    digest_add(run, encoded, sizeof encoded);
}

static int on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                      struct fault *fault) {
    struct run *run = owner;
    (void)fault;
    require(header->message_bytes <= MESSAGE_MAX && header->payload_bytes <= PAYLOAD_MAX && header->flags == 0);
    require(!run->sink);
    digest_header(run, header);
    digest_add(run, message, header->message_bytes);
    run->handled += FRAME_HEADER_BYTES + header->message_bytes;
    if (header->payload_bytes && header->sequence % 2 == 0) {
        run->sink = malloc(header->payload_bytes);
        *sink = run->sink;
    }
    if (schedule_next(&run->schedule) & 1)
        frame_reader_pause(&run->reader);
    return header->type == FRAME_ERROR ? STATUS_CANCELLED : STATUS_OK;
}

static int on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct run *run = owner;
    (void)fault;
    require(header->payload_bytes > 0);
    if (run->sink)
        digest_add(run, run->sink, header->payload_bytes);
    digest_header(run, header);
    run->handled += header->payload_bytes;
    free(run->sink);
    run->sink = NULL;
    return header->type == FRAME_DONE ? STATUS_CANCELLED : STATUS_OK;
}

static const struct frame_handler handler = {on_message, on_payload};

/* Goes on after pauses until the reader wants bytes again. */
static void run_resume(struct run *run) {
    struct fault fault;
    while (!run->verdict && run->reader.paused)
        run->verdict = frame_reader_resume(&run->reader, &handler, run, &fault);
}

static void run_stream(struct run *run, const uint8_t *data, size_t size) {
    size_t done = 0;
    while (done < size && !run->verdict) {
        struct fault fault = {0};
        uint8_t *place = NULL;
        size_t want = 0;
        frame_reader_want(&run->reader, &place, &want);
        require(want > 0 && place);
        size_t step = schedule_next(&run->schedule), n = size - done;
        if (n > want)
            n = want;
        if (step && n > step)
            n = step;
        memcpy(place, data + done, n);
        done += n;
        run->verdict = frame_reader_advance(&run->reader, n, &handler, run, &fault);
        run_resume(run);
        require(run->handled <= done);
    }
}

static void run_all(struct run *run, const uint8_t *data, size_t size) {
    require(!frame_reader_init(&run->reader, CAPACITY));
    frame_reader_limits(&run->reader, MESSAGE_MAX, PAYLOAD_MAX);
    run_stream(run, data, size);
    frame_reader_finish(&run->reader);
    free(run->sink);
    run->sink = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct run whole = {0}, pieces = {0};
    if (!size)
        return 0;
    size_t n = data[0] & SCHEDULE_MAX;
    if (size < 1 + n)
        return 0;
    memcpy(pieces.schedule.steps, data + 1, n);
    pieces.schedule.n = n;
    run_all(&pieces, data + 1 + n, size - 1 - n);
    run_all(&whole, data + 1 + n, size - 1 - n);
    require(pieces.verdict == whole.verdict);
    require(pieces.digest == whole.digest && pieces.handled == whole.handled);
    return 0;
}
