#include "client/lib/journal.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/queue.h"

/* Entries begin at multiples of this, so that there is always room for one before the ring's end. */
enum { ENTRY_BYTES = 64 };
_Static_assert(sizeof(struct journal_entry) <= ENTRY_BYTES, "an entry's place holds it");
_Static_assert(JOURNAL_BYTES % ENTRY_BYTES == 0, "no entry's place is split by the ring's end");

bool journal_init(struct journal *journal, size_t copies_max) {
    *journal = (struct journal){.copies_max = copies_max};
    journal->ring = aligned_alloc(ENTRY_BYTES, JOURNAL_BYTES);
    return journal->ring;
}

void journal_finish(struct journal *journal) {
    free(journal->ring);
}

static struct journal_entry *entry_at(const struct journal *journal, uint64_t position) {
    return (struct journal_entry *)(void *)(journal->ring + position % JOURNAL_BYTES);
}

/* The same position, or the next one whose entry is not empty. */
static uint64_t entry_next(const struct journal *journal, uint64_t position) {
    while (position != journal->head && entry_at(journal, position)->skip)
        position += entry_at(journal, position)->span;
    return position;
}

static uint64_t span_of(size_t bytes) {
    return (ENTRY_BYTES + bytes + ENTRY_BYTES - 1) / ENTRY_BYTES * ENTRY_BYTES;
}

/* ---- appending ---- */

/* The bytes before the ring's end, if they are too few for the frame; else 0. */
static uint64_t journal_gap(const struct journal *journal, size_t bytes) {
    uint64_t left = JOURNAL_BYTES - journal->head % JOURNAL_BYTES;
    return left < span_of(bytes) ? left : 0;
}

bool journal_room(const struct journal *journal, size_t bytes) {
    uint64_t used = journal->head - journal->tail;
    return used + journal_gap(journal, bytes) + span_of(bytes) <= JOURNAL_BYTES &&
           journal->copies <= journal->copies_max;
}

uint8_t *journal_reserve(struct journal *journal, size_t bytes) {
    uint64_t gap = journal_gap(journal, bytes);
    if (gap) {
        *entry_at(journal, journal->head) = (struct journal_entry){.span = (uint32_t)gap, .skip = true};
        if (journal->cursor == journal->head)
            journal->cursor += gap;
        journal->head += gap;
    }
    journal->reserved = true;
    return (uint8_t *)entry_at(journal, journal->head) + ENTRY_BYTES;
}

uint64_t journal_commit(struct journal *journal, const struct journal_entry *entry) {
    struct journal_entry *to = entry_at(journal, journal->head);
    *to = *entry;
    to->span = (uint32_t)span_of(entry->bytes);
    journal->frames += entry->counted;
    journal->head += to->span;
    journal->unlooked += to->span;
    journal->reserved = false;
    return journal->head;
}

/* ---- sending ---- */

static const uint8_t *entry_frame(const struct journal_entry *entry) {
    const struct frame_item *large = entry->large;
    return large ? large->item.frame : (const uint8_t *)entry + ENTRY_BYTES;
}

static size_t entry_frame_bytes(const struct journal_entry *entry) {
    return entry->large ? entry->large->item.frame_bytes : entry->bytes;
}

static size_t entry_whole(const struct journal_entry *entry) {
    return entry_frame_bytes(entry) + entry->payload_bytes;
}

static struct iovec part(const uint8_t *data, size_t bytes) {
    return (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
}

size_t journal_gather(const struct journal *journal, struct iovec parts[JOURNAL_PARTS]) {
    size_t n = 0, skip = journal->sent;
    uint64_t position = entry_next(journal, journal->cursor);
    while (position != journal->head && n + 2 <= JOURNAL_PARTS) {
        const struct journal_entry *entry = entry_at(journal, position);
        size_t bytes = entry_frame_bytes(entry), in_frame = skip < bytes ? skip : bytes;
        if (in_frame < bytes)
            parts[n++] = part(entry_frame(entry) + in_frame, bytes - in_frame);
        if (entry->payload_bytes > skip - in_frame)
            parts[n++] = part(entry->payload + (skip - in_frame), entry->payload_bytes - (skip - in_frame));
        skip = 0;
        position = entry_next(journal, position + entry->span);
    }
    return n;
}

void journal_advance(struct journal *journal, size_t bytes) {
    journal->cursor = entry_next(journal, journal->cursor);
    journal->sent += bytes;
    while (journal->cursor != journal->head) {
        const struct journal_entry *entry = entry_at(journal, journal->cursor);
        if (journal->sent < entry_whole(entry))
            return;
        journal->sent -= entry_whole(entry);
        journal->cursor = entry_next(journal, journal->cursor + entry->span);
    }
}

/* ---- the other end ---- */

struct journal_entry *journal_stale(struct journal *journal) {
    for (;;) {
        struct journal_entry *entry = entry_at(journal, journal->tail);
        if (journal->tail == journal->cursor)
            return NULL;
        if (!entry->skip)
            return !entry->counted || !journal->keeps || journal->gone < journal->handled ? entry : NULL;
        journal->tail += entry->span;
    }
}

void journal_pop(struct journal *journal) {
    const struct journal_entry *entry = entry_at(journal, journal->tail);
    journal->gone += entry->counted;
    journal->tail += entry->span;
    if (journal->tail == journal->head &&
        !journal->reserved) { /* empty: the beginning of the ring is what caches hold */
        uint64_t rest = journal->head % JOURNAL_BYTES;
        journal->head += rest ? JOURNAL_BYTES - rest : 0;
        journal->tail = journal->cursor = journal->head;
    }
}

bool journal_handled(struct journal *journal, uint64_t frames) {
    if (frames > journal->frames)
        return false;
    if (frames > journal->handled)
        journal->handled = frames;
    return true;
}

bool journal_rewind(struct journal *journal, uint64_t bytes, void (*drop)(struct frame_item *large)) {
    for (uint64_t at = journal->tail; at != journal->head; at += entry_at(journal, at)->span) {
        struct journal_entry *entry = entry_at(journal, at);
        if (entry->skip || entry->counted)
            continue;
        if (entry->large)
            drop(entry->large);
        entry->skip = true;
    }
    journal->cursor = entry_next(journal, journal->tail);
    journal->sent = 0;
    if (bytes == 0)
        return true;
    if (!journal_unsent(journal) || bytes > entry_whole(entry_at(journal, journal->cursor)))
        return false;
    journal_advance(journal, (size_t)bytes);
    return true;
}

void journal_abandon(struct journal *journal) {
    journal->cursor = journal->head;
    journal->sent = 0;
    journal->keeps = false;
}
