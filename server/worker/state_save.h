/* One save of one owner's names. Values are read through a session of the worker's own, as a client reads them, so that this
 * works on every device; the disk's thread does what a disk may keep waiting. Loop thread only. */
#pragma once

#include "engine/session/session.h"
#include "server/worker/disk.h"
#include "server/worker/state_impl.h"

struct save {
    struct disk_job job;
    struct state *state;
    struct name_owner *owner;
    struct save *next, **previous;
    enum { SAVE_PLAN, SAVE_WRITE, SAVE_COMMIT, SAVE_ABANDON } phase; /* what the disk is to do next, */
    bool ready;                                                      /* and it can */
    bool inside;                                                     /* save_advance() */
    uint64_t revision, began_ns, left;                               /* bytes still to be written */
    unsigned bound, unbound;                                         /* of the owner, that it saves */
    struct save_plan plan;
    struct fault fault;
    /* the value being read */
    struct session *session;
    size_t at;
    bool opened, came, asked, part_came;
    struct held *alias;
    struct fetch fetch;
    struct fetch_part part;
    struct failure failure;
    int64_t offset;
    /* the piece being written */
    const uint8_t *data;
    size_t bytes, unsynced;
    uint8_t *gathered; /* SAVE_GATHER_BYTES */
    size_t n_gathered, values_gathered;
};

/* Begins a save of the owner's present names. NULL without memory: it is tried again later. */
struct save *save_create(struct state *state, struct name_owner *owner);
