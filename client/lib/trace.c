#include "client/lib/trace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/batch.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool enabled;

/* The variable is a comma-separated list, so that more words can come. */
static void trace_init(void) {
    const char *word = getenv("TENSORD_DEBUG");
    while (word && *word) {
        size_t n = strcspn(word, ",");
        if (n == 4 && !memcmp(word, "wire", 4))
            enabled = true;
        word += n + (word[n] == ',');
    }
}

bool trace_enabled(void) {
    pthread_once(&once, trace_init);
    return enabled;
}

void trace_frame(const char *arrow, const struct frame_header *header, const uint8_t *message) {
    if (!trace_enabled())
        return;
    flockfile(stderr);
    wire_print(stderr, arrow, header, message);
    funlockfile(stderr);
}

void trace_frames(const char *arrow, const uint8_t *frames, size_t bytes) {
    if (!trace_enabled())
        return;
    while (bytes >= FRAME_HEADER_BYTES) {
        struct frame_header header;
        if (frame_header_decode(frames, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, &header, NULL))
            return;
        trace_frame(arrow, &header, frames + FRAME_HEADER_BYTES);
        size_t whole = FRAME_HEADER_BYTES + (size_t)header.message_bytes;
        if (whole > bytes)
            return;
        frames += whole;
        bytes -= whole;
    }
}
