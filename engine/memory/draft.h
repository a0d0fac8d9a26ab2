/* Draft storage: addresses without memory, for launches that are planned now and run later. A plan takes and frees storage as an operation
 * that runs at once does; the draft notes when each piece was in use. Then the plan knows which launch reads or writes which piece, and can lay out
 * the pieces in real memory. No two pieces of a draft share an address, and nothing lies there. Owner thread. */
#pragma once

#include "engine/memory/pool.h"
#include "engine/order/budget.h"

/* How the launches of a group touch a piece. */
struct draft_mark {
    uint64_t group;
    const void *data;
    uint8_t size, place;
    bool written;
    bool ends;    /* a launch reads it when the others have run on all elements; */
    bool made;    /* what it reads is written within the group */
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
    /* What launch early_from writes there is in a slot of its own, until launch early_to writes something else. `renamed`: this is so in one fused launch. */
    bool renamed;
    uint8_t early_slot;
    size_t early_from, early_to;
    uint32_t base;
    uint64_t offset;
    struct part *part; /* private */
};

struct draft {
    const uint64_t *clock;       /* counts the launches so far */
    struct draft_piece **pieces; /* by ascending addresses */
    size_t count, capacity;
    uint64_t bytes; /* of all pieces */
    uint32_t base;  /* of pieces to come: the plan's */
};

/* Storage with one reference; STATUS_NO_HOST_MEMORY, or STATUS_OUT_OF_MEMORY for more bytes than there are addresses. */
int draft_storage(struct draft *draft, uint64_t bytes, struct storage **storage, struct fault *fault);
/* Private: the last reference has gone. */
void draft_free(struct storage *storage);
/* The piece in which the address lies; NULL: none. */
struct draft_piece *draft_find(const struct draft *draft, const void *address);
/* Frees what the draft has noted. Nobody may refer to its storage any more. False: the budget has ended first. */
bool draft_finish(struct draft *draft, struct budget *budget);
/* Bytes of host memory that the draft takes. */
uint64_t draft_host_bytes(const struct draft *draft);

/* Places pieces in one block of memory, so that pieces that are in use at the same time do not overlap. Zeroed, but for the list and its length. */
struct draft_placing {
    struct draft_piece **pieces; /* the caller's; is reordered */
    size_t n;
    /* Afterwards: the block's size, and the largest sum of the sizes of pieces that are in use at one time. */
    uint64_t bytes, least;
    /* private */
    uint8_t stage;
    size_t at, count, ended;
    uint64_t latest, now;
    uint32_t *begins,
        *ends; /* how many pieces begin and end at each time; then where the next one's place in its order is */
    struct draft_piece **beginning, **ending;
    struct parts *parts;
};
/* Sets the pieces' offsets. STATUS_AGAIN: the budget has ended, to be called again. STATUS_NO_HOST_MEMORY. */
int draft_place(struct draft_placing *placing, struct budget *budget);
/* How much host memory that takes at most, for `n` pieces that are in use within so many launches. */
uint64_t draft_place_bytes(size_t n, uint64_t launches);
/* Frees what placing has taken, whether it has come to its end or not. */
void draft_place_end(struct draft_placing *placing);
