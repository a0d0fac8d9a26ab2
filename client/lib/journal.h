/* The frames that have left the send queue, in order: first the frames that the socket has taken, then the others. If
 * the session can be resumed, a frame stays until the library knows that the daemon has handled it, so that the library
 * can send it again over another connection; otherwise a frame goes as soon as the socket has taken it.
 *
 * It is a ring of entries, one for each frame; payloads stay in the memory of their uploads. The ring's size limits the
 * number of kept frames: if it is full, the library sends nothing more until the daemon has said what it has handled.
 *
 * Everything is under the device's lock, except the place of a reserved frame: only the sender uses it until it commits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct frame_item;
struct upload;

enum {
    JOURNAL_BYTES = 1 << 20,
    JOURNAL_LOOK_BYTES = 128 << 10, /* after so many bytes the library looks for an Ack of the daemon */
    JOURNAL_PARTS = 48,             /* parts of one system call */
};

struct journal_entry {
    struct upload *upload;    /* the upload that ends with this entry; NULL: none */
    struct frame_item *large; /* where a large frame lies; NULL: the frame lies behind this entry */
    const uint8_t *payload;
    uint64_t payload_bytes;
    uint32_t bytes; /* header and message */
    uint32_t span;  /* to the next entry */
    bool counted;   /* false: a request, or another frame that is not sent again */
    bool skip;      /* this entry is empty */
};

struct journal {
    uint8_t *ring;
    /* Positions only grow; the place in the ring is the position modulo JOURNAL_BYTES. */
    uint64_t tail, cursor, head;
    size_t sent;       /* bytes of the entry at the cursor */
    bool reserved;     /* a frame is being written behind the head */
    bool keeps;        /* a counted frame stays until the daemon has handled it */
    uint64_t frames;   /* counted frames before the head, */
    uint64_t gone;     /* counted frames before the tail, */
    uint64_t handled;  /* and counted frames that the daemon has handled, as far as the library knows */
    size_t copies;     /* bytes of copied upload data that entries still need, */
    size_t copies_max; /* and their limit */
    size_t unlooked;   /* bytes of frames and copies since the library last looked for an Ack */
};

bool journal_init(struct journal *journal, size_t copies_max);
void journal_finish(struct journal *journal);

static inline bool journal_unsent(const struct journal *journal) {
    return journal->cursor != journal->head;
}
/* Whether a frame of `bytes` fits now. */
bool journal_room(const struct journal *journal, size_t bytes);
/* Reserves a place for a frame of at most `bytes`. Call it only if journal_room() is true. */
uint8_t *journal_reserve(struct journal *journal, size_t bytes);
/* The frame has been written to its place: appends *entry, whose `bytes` are set (0 for a large frame) and whose span is
 * computed here. Returns the position behind the entry. */
uint64_t journal_commit(struct journal *journal, const struct journal_entry *entry);

/* journal_gather() gives the bytes to send next, in at most JOURNAL_PARTS parts; journal_advance() notes that `bytes`
 * of them have been sent. */
size_t journal_gather(const struct journal *journal, struct iovec parts[JOURNAL_PARTS]);
void journal_advance(struct journal *journal, size_t bytes);

/* The oldest entry, if it is no longer needed; the caller frees the memory that it owns, then pops it. NULL: the oldest
 * entry is still needed, or there is none. */
struct journal_entry *journal_stale(struct journal *journal);
void journal_pop(struct journal *journal);
/* Whether the daemon can have handled `frames` counted frames: not more than there are, not fewer than are gone. */
static inline bool journal_may_have(const struct journal *journal, uint64_t frames) {
    return frames >= journal->gone && frames <= journal->frames;
}
/* The daemon has handled `frames` counted frames; false if that is impossible. */
bool journal_handled(struct journal *journal, uint64_t frames);

/* For a new connection: begins again with the oldest entry, of which `bytes` have arrived. Drops the frames that are
 * not counted; calls `drop` for each large frame among them. Call it after journal_handled(), and after popping the stale
 * entries. False: there is no entry, or the oldest one has fewer bytes. */
bool journal_rewind(struct journal *journal, uint64_t bytes, void (*drop)(struct frame_item *large));
/* The session is over: all entries have become stale. */
void journal_abandon(struct journal *journal);
