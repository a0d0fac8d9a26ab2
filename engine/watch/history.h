/* The launches that the device was given last: what a report of a crash tells of them. Written by the submitter alone;
 * read by a signal handler, which takes no lock, so what is being written meanwhile may come out torn. */
#pragma once

#include <string.h>

#include "engine/order/stream.h"

enum { HISTORY_MAX = 32 };

struct history {
    _Atomic uint64_t count; /* of all that were noted; the last HISTORY_MAX are kept */
    struct history_entry {
        const struct stream *stream;
        uint64_t number; /* of the record in its stream */
        uint64_t session, sequence;
        uint16_t opcode;
        char kernel[46]; /* a client's kernel has a name and no opcode; "": it is an operation */
        char label[56];  /* its beginning */
    } entries[HISTORY_MAX];
};

static inline void history_copy(char *to, size_t size, const char *from) {
    size_t length = strnlen(from, size - 1);
    memcpy(to, from, length);
    to[length] = 0;
}

/* Before the stream's next record, a launch, goes to the device: a dozen stores, for that is done for every operation. */
static inline void history_note(struct history *history, const struct stream *stream, const struct record *record) {
    uint64_t count = atomic_load_explicit(&history->count, memory_order_relaxed);
    struct history_entry *entry = &history->entries[count % HISTORY_MAX];
    entry->stream = stream;
    entry->number = stream->executed + 1;
    entry->session = stream->session;
    entry->sequence = record->sequence;
    entry->kernel[0] = entry->label[0] = 0;
    if (record->kind == RECORD_LAUNCH)
        entry->opcode = record->launch.opcode;
    else
        history_copy(entry->kernel, sizeof entry->kernel, record->kernel.name);
    if (__builtin_expect(record->label != 0, 0))
        history_copy(entry->label, sizeof entry->label, (const char *)record + record->label);
    atomic_store_explicit(&history->count, count + 1, memory_order_release);
}
