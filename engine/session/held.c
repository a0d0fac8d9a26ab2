#include "engine/session/held.h"

#include <stddef.h>
#include <stdlib.h>

#include "engine/session/waiting.h"
#include "engine/values/view.h"
#include "proto/ops/status.h"

struct held {
    unsigned references;
    struct tensor_type type;
    int64_t offset;          /* elements */
    struct storage *storage; /* NULL: it has no elements */
    struct payer *before;    /* while held_charge() may have to take its move back; NULL: it has not moved anything */
};

/* ---- from a session's tensor ---- */

/* Where the value of a tensor will be, contiguous, and the point at which it is there. */
struct hold_source {
    struct stream *stream; /* NULL: from the start */
    uint64_t number;
};

static bool hold_shares(const struct tensor *tensor) {
    size_t bytes = pool_rounded((uint64_t)type_bytes(&tensor->type));
    return tensor->contiguous && bytes >= tensor->storage->charged / 2;
}

static int hold_prepare(struct session *session, struct tensor *tensor, struct held *held, struct hold_source *source,
                        struct fault *fault) {
    held->type = tensor->type;
    *source = (struct hold_source){tensor->ready, tensor->ready_number};
    if (!tensor->storage)
        return STATUS_OK;
    if (hold_shares(tensor)) {
        held->storage = storage_ref(tensor->storage);
        held->offset = tensor->offset;
        return STATUS_OK;
    }
    struct stream *copier = session_has_stream(session, tensor->ready) ? tensor->ready : session->stream;
    int code = view_materialise(&session->ledger, copier, tensor, &held->storage, fault);
    *source = (struct hold_source){copier, copier->enqueued};
    return code;
}

static void hold_answer(struct hold *hold, const struct failure *failure) {
    if (failure)
        hold_cancel(hold);
    hold->done(hold, failure);
}

static void hold_refuse(struct hold *hold, struct failure *failure) {
    hold_answer(hold, failure);
    failure_unref(failure);
}

static void hold_waited(struct wait *wait, const struct failure *failure) {
    hold_answer((struct hold *)((char *)wait - offsetof(struct hold, wait)), failure);
}

int session_hold(struct session *session, uint64_t id, struct hold *hold) {
    struct tensor *tensor = NULL;
    struct hold_source source;
    struct fault fault;
    ledger_begin(&session->ledger);
    *hold = (struct hold){.done = hold->done, .session = session, .wait.done = hold_waited};
    struct failure *failure = waiting_refusal(session, "publish", id, &tensor);
    if (failure) {
        hold_refuse(hold, failure);
        return STATUS_OK;
    }
    hold->held = calloc(1, sizeof *hold->held);
    int code = hold->held ? STATUS_OK : fault_set(&fault, STATUS_NO_HOST_MEMORY, "no host memory for a name's value");
    if (code == STATUS_OK) {
        hold->held->references = 1;
        code = hold_prepare(session, tensor, hold->held, &source, &fault);
    }
    if (session_put_off(session, code)) {
        held_unref(hold->held);
        *hold = (struct hold){.done = hold->done};
        return STATUS_AGAIN;
    }
    if (code != STATUS_OK) {
        hold_refuse(hold, session_failure(session, &fault, "publish", NULL, 0));
        return STATUS_OK;
    }
    wait_at(session, source.stream, source.number, tensor->poison, &hold->wait);
    return STATUS_OK;
}

void hold_cancel(struct hold *hold) {
    wait_cancel(&hold->wait);
    held_unref(hold->held);
    hold->held = NULL;
}

/* ---- life ---- */

void held_ref(struct held *held) {
    held->references++;
}

void held_unref(struct held *held) {
    if (!held || --held->references)
        return;
    storage_unref(held->storage);
    free(held);
}

const struct tensor_type *held_type(const struct held *held) {
    return &held->type;
}

uint64_t held_bytes(const struct held *held) {
    return held->storage ? held->storage->charged : 0;
}

uint64_t held_free_bytes(const struct held *held) {
    bool last = held->references == 1 && held->storage && held->storage->references == 1;
    return last ? held->storage->charged : 0;
}

struct held_place held_place(const struct held *held) {
    int64_t begin = held->offset * (int64_t)dtype_size(held->type.dtype);
    if (!held->storage)
        return (struct held_place){.storage = NULL};
    return (struct held_place){held->storage, begin, begin + type_bytes(&held->type)};
}

int held_alias(const struct held *held, const struct tensor_type *type, int64_t begin, struct held **result,
               struct fault *fault) {
    int64_t size = (int64_t)dtype_size(type->dtype), end;
    if (!held->storage || begin < 0 || begin % size || __builtin_add_overflow(begin, type_bytes(type), &end) ||
        (uint64_t)end > held->storage->charged)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%lld bytes from byte %lld on do not lie in the value",
                         (long long)type_bytes(type), (long long)begin);
    struct held *alias = calloc(1, sizeof *alias);
    if (!alias)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a name's value");
    *alias =
        (struct held){.references = 1, .type = *type, .offset = begin / size, .storage = storage_ref(held->storage)};
    *result = alias;
    return STATUS_OK;
}

/* ---- who pays ---- */

static void held_move(struct held *held, struct payer *payer) {
    struct storage *storage = held->storage;
    held->before = storage && !storage->held ? storage->payer : NULL;
    if (!held->before) /* it is held already, for this one: a session can open no other's */
        return;
    payer_discharge(held->before, storage->charged);
    storage->payer = payer;
    storage->held = true;
    payer_charge(payer, storage->charged);
}

static void held_move_back(struct held *held) {
    struct storage *storage = held->storage;
    if (!held->before)
        return;
    payer_discharge(storage->payer, storage->charged);
    storage->payer = held->before;
    storage->held = false;
    payer_charge(storage->payer, storage->charged);
}

int held_charge(struct held *const values[], unsigned n, struct payer *payer, uint64_t spare, struct fault *fault) {
    uint64_t before = payer->bytes;
    for (unsigned i = 0; i < n; i++)
        held_move(values[i], payer);
    uint64_t asked = payer->bytes - before;
    bool fits = !payer->limit || !asked || payer->bytes - spare <= payer->limit;
    for (unsigned i = 0; i < n; i++) {
        if (!fits)
            held_move_back(values[i]);
        values[i]->before = NULL;
    }
    if (fits)
        return STATUS_OK;
    char most[BYTES_TEXT_MAX], more[BYTES_TEXT_MAX], named[BYTES_TEXT_MAX];
    return fault_set(fault, STATUS_LIMIT, "the limit of %s in named tensors is reached: %s asked, %s named",
                     bytes_text(most, payer->limit), bytes_text(more, asked), bytes_text(named, before - spare));
}

void held_transfer(struct held *held, struct payer *from, struct payer *to) {
    struct storage *storage = held->storage;
    if (!storage || storage->payer != from)
        return;
    payer_discharge(from, storage->charged);
    storage->payer = to;
    payer_charge(to, storage->charged);
}

/* ---- to a session's tensor ---- */

int session_bind_held(struct session *session, uint64_t id, struct held *held, struct fault *fault) {
    struct tensor *tensor = NULL;
    uint64_t last_id = session->last_id;
    ledger_begin(&session->ledger);
    int code = session_bind(session, id, &tensor, fault);
    if (session_put_off(session, code)) {
        session->last_id = last_id;
        return STATUS_AGAIN;
    }
    if (code != STATUS_OK)
        return code;
    tensor->type = held->type;
    layout_contiguous(held->type.rank, held->type.shape, tensor->strides);
    tensor->offset = held->offset;
    tensor->storage = held->storage ? storage_ref(held->storage) : NULL;
    return STATUS_OK;
}
