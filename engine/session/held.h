/* Values that no session owns: the values of names. A held value is computed, immutable and contiguous. Its memory is charged to a
 * payer of the holder until the last tensor that shares it has gone. The payer belongs to a tenant, so a client cannot get around a
 * limit by giving values away. Owner thread only. */
#pragma once

#include "engine/memory/pool.h"
#include "engine/session/session.h"

struct held;
/* A tensor's value on its way to being held. Embedded in the caller's object; it must stay put until done or cancelled. */
struct hold {
    /* Called once, possibly before session_hold() returns. failure (borrowed) is NULL on success, and then hold->held is
     * the value with one reference, the caller's to take out; it is still charged to the session. */
    void (*done)(struct hold *hold, const struct failure *failure);
    struct held *held;
    /* private to the engine */
    struct session *session;
    struct wait wait;
};
/* Waits until the tensor's value is there. A view that shows only a part of its storage, or shows it in another order, is
 * copied: a name keeps no memory that it does not show. STATUS_AGAIN as by session_submit(), without a call of `done`. */
int session_hold(struct session *session, uint64_t id, struct hold *hold);
/* Before the hold is done; or after it is done, if the caller has not taken hold->held. The session still exists. */
void hold_cancel(struct hold *hold);

void held_ref(struct held *held);
/* Takes NULL. */
void held_unref(struct held *held);
const struct tensor_type *held_type(const struct held *held);
/* Bytes that are charged for it. Values that share a storage are charged once. */
uint64_t held_bytes(const struct held *held);
/* Bytes that the payer gets back when the last reference goes; 0 while others use the storage. */
uint64_t held_free_bytes(const struct held *held);

/* Moves the charge for values from the sessions that made them to the payer: all of them, or none with STATUS_LIMIT.
 * `spare`: bytes that the payer is about to get back. */
int held_charge(struct held *const values[], unsigned n, struct payer *payer, uint64_t spare, struct fault *fault);

/* Where a value lies: which storage (NULL: it has no elements), and from which byte of that to which. Values that share a
 * storage, and they alone, have the same one. It does not change; any thread may ask while a reference is held. */
struct held_place {
    const void *storage;
    int64_t begin, end;
};
struct held_place held_place(const struct held *held);
/* Another value in the storage of this one: the elements of `type` from byte `begin` of the storage on, which lie within
 * it. The caller has its one reference. */
int held_alias(const struct held *held, const struct tensor_type *type, int64_t begin, struct held **result,
               struct fault *fault);

/* Moves the charge for a value from one payer to another, beyond any limit. Does nothing if another payer pays. */
void held_transfer(struct held *held, struct payer *from, struct payer *to);

/* Binds an id to the value. On failure the id is not bound. */
int session_bind_held(struct session *session, uint64_t id, struct held *held, struct fault *fault);
