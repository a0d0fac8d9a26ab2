/* Draft storage: addresses without memory, for launches that are planned now and run later. A plan takes and frees storage as an operation
 * that runs at once does; the draft notes when each piece was in use. Then the plan knows which launch reads or writes which piece, and can lay out
 * the pieces in real memory. No two pieces of a draft share an address, and nothing lies there. Owner thread. */
#pragma once

#include "engine/memory/pool.h"

/* How the launches of a group touch a piece. */
struct draft_mark {
    uint64_t group;
    const void *data;
    uint8_t size, place;
    bool written;
    bool uniform; /* all of them at this address and place, with elements of this size */
};

struct draft_piece {
    struct storage storage; /* the first member */
    struct draft *draft;
    uint64_t bytes;    /* that were asked for */
    uint64_t from, to; /* launches from + 1 … to may use it: values of the draft's clock when it was taken and freed */
    /* the plan's */
    bool kept; /* it keeps what the first run has written there */
    struct draft_mark mark;
    uint8_t slot; /* only one fused launch uses it, in this slot, counted from 1; 0: it needs memory */
    uint32_t base;
    uint64_t offset;
    struct part *part; /* private */
};

struct draft {
    const uint64_t *clock;       /* counts the launches so far */
    struct draft_piece **pieces; /* by ascending addresses */
    size_t count, capacity;
    uint64_t bytes; /* of all pieces */
};

/* Storage with one reference; STATUS_NO_HOST_MEMORY, or STATUS_OUT_OF_MEMORY for more bytes than there are addresses. */
int draft_storage(struct draft *draft, uint64_t bytes, struct storage **storage, struct fault *fault);
/* Private: the last reference has gone. */
void draft_free(struct storage *storage);
/* The piece in which the address lies; NULL: none. */
struct draft_piece *draft_find(const struct draft *draft, const void *address);
/* Frees what the draft has noted. Nobody may refer to its storage any more. */
void draft_finish(struct draft *draft);

/* Places pieces in one block of memory, so that pieces that are in use at the same time do not overlap: sets their offsets. Returns the
 * block's size in bytes; UINT64_MAX: there is no host memory to do it. *least: the largest sum of the sizes of pieces that are in use at one time. Reorders the list. */
uint64_t draft_place(struct draft_piece **pieces, size_t count, uint64_t *least);
