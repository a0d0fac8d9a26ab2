/* Rows of malformed input, and what must hold after each of them.
 *
 * A row has an honest session beside it, and a connection in one of four states. After the row: its outcome is as
 * stated, the daemon answers, the honest session's data is untouched, the worker is the same one, and once the hostile
 * connection is closed its memory is back. One daemon gets all rows of a file, one after another, as it would from
 * a client that tries everything. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tests/daemon/wire.h"

/* What a hostile session has when its row begins; the next id and sequence number are HOSTILE_NEXT. */
enum {
    HOSTILE_KEPT = 1,    /* f32 [4], all 1: must be untouched wherever the session lives on */
    HOSTILE_SPARE = 2,   /* f32 [4], all 2: the row may do to it what it likes */
    HOSTILE_INDICES = 3, /* i64 [2], all 9: out of range of the others */
    HOSTILE_NEXT = 4,
    HOSTILE_FOREIGN = 1000001, /* a tensor of the honest session */
};

enum hostile_state {
    HOSTILE_CONNECTED, /* nothing sent */
    HOSTILE_PREAMBLE,  /* preamble for the device sent */
    HOSTILE_SESSION,   /* Hello done, tensors made */
    HOSTILE_CONTROL,   /* Hello done on a control connection */
};

enum hostile_outcome {
    HOSTILE_CLOSES, /* the daemon closes; with an Error of `code` if that is not 0 */
    HOSTILE_FAILS,  /* fetching `id` fails, with `code` if that is not 0; the session lives on */
    HOSTILE_LIVES,  /* the session lives on */
    HOSTILE_EITHER, /* it closes with an Error, or it lives on */
};

struct hostile_row {
    const char *name;
    enum hostile_state state;
    void (*act)(struct wire *wire);
    enum hostile_outcome outcome;
    int code;
    uint64_t id;
    const struct wire_op *op; /* for rows without `act`: sends this */
};

/* Runs the rows with one daemon, which gets these arguments besides (NULL-ended; may be NULL); asserts. */
void hostile_run(const struct hostile_row *rows, size_t n, const char *const *flags);

/* For tests that do something else to the daemon with the same claims at the end. */
struct hostile_witness {
    struct wire wire;
    const char *url;
    uint64_t epoch, live;
    unsigned sessions;
};
void hostile_witness_start(struct hostile_witness *witness, const char *url);
void hostile_witness_check(struct hostile_witness *witness, const char *name);
