/* The frames that have left the send queue, in order: first the frames that the socket has taken, then the others. If
 * the session can be resumed, a frame stays until the library knows that the daemon has handled it, so that the library
 * can send it again over another connection; otherwise a frame goes as soon as the socket has taken it.
 *
 * It is a ring of entries, one for each frame; payloads stay in the memory of their uploads. The ring's size limits the
 * number of kept frames: if it is full, the library sends nothing more until the daemon has said what it has handled.
 *
 * Under the device's lock, all of it, but for the place of a reserved frame, which is the sender's until it commits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct frame_item;
struct upload;

enum {
    JOURNAL_BYTES = 1 << 20,
    JOURNAL_LOOK_BYTES = 128 << 10, /* the daemon's word is looked for when so much has come together */
    JOURNAL_PARTS = 48,             /* of one system call */
};

struct journal_entry {
    struct upload *upload;    /* that ends when this entry does; NULL: none */
    struct frame_item *large; /* where the frame lies, instead of behind this; NULL: behind this */
    const uint8_t *payload;
    uint64_t payload_bytes;
    uint32_t bytes; /* header and message */
    uint32_t span;  /* to the next entry */
    bool counted;   /* false: a request, or another frame that is not sent again */
    bool skip;      /* nothing is here */
};

struct journal {
    uint8_t *ring;
    /* Positions only grow; the place is the position modulo JOURNAL_BYTES. */
    uint64_t tail, cursor, head;
    size_t sent;       /* bytes of the entry at the cursor */
    bool reserved;     /* a frame is being written behind the head */
    bool keeps;        /* until it is handled */
    uint64_t frames;   /* counted ones before the head, */
    uint64_t gone;     /* before the tail, */
    uint64_t handled;  /* and handled, as far as was heard */
    size_t copies;     /* bytes of uploads' copies that entries still need, */
    size_t copies_max; /* and how many may be */
    size_t unlooked;   /* bytes, of both kinds, since the daemon's word was last looked for */
};

bool journal_init(struct journal *journal, size_t copies_max);
void journal_finish(struct journal *journal);

static inline bool journal_unsent(const struct journal *journal) {
    return journal->cursor != journal->head;
}
/* Whether a frame of `bytes` fits now. */
bool journal_room(const struct journal *journal, size_t bytes);
/* A place for a frame of at most `bytes`, for which there is room. */
uint8_t *journal_reserve(struct journal *journal, size_t bytes);
/* The frame is in its place: *entry with its `bytes` (0 of a large one) is appended; its span is found here. Returns
 * the position behind it. */
uint64_t journal_commit(struct journal *journal, const struct journal_entry *entry);

/* journal_gather() gives the bytes to send next, in at most JOURNAL_PARTS parts; journal_advance() notes that `bytes`
 * of them have been sent. */
size_t journal_gather(const struct journal *journal, struct iovec parts[JOURNAL_PARTS]);
void journal_advance(struct journal *journal, size_t bytes);

/* The oldest entry, if it is no longer needed; the caller frees the memory that it owns, then pops it. NULL: the oldest
 * entry is still needed, or there is none. */
struct journal_entry *journal_stale(struct journal *journal);
void journal_pop(struct journal *journal);
/* Whether the daemon may have handled `frames` counted frames: no more than there are, no fewer than it said. */
static inline bool journal_may_have(const struct journal *journal, uint64_t frames) {
    return frames >= journal->gone && frames <= journal->frames;
}
/* The daemon has handled `frames` counted frames; false if that is impossible. */
bool journal_handled(struct journal *journal, uint64_t frames);

/* For a new connection: begins again with the oldest entry, of which `bytes` have arrived. Drops the frames that are
 * not counted, and gives the large ones of them to `drop`. Call it after journal_handled(), and after popping the stale
 * entries. False: there is no entry, or the oldest one has fewer bytes. */
bool journal_rewind(struct journal *journal, uint64_t bytes, void (*drop)(struct frame_item *large));
/* The session is over: all entries have become stale. */
void journal_abandon(struct journal *journal);
