/* Ids and tensors: how they are bound, how they fail, and how they go. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory/tenant.h"
#include "engine/session/host.h"
#include "engine/session/session_impl.h"

/* Charged for a tensor's poison, as if the tensor had a guard of its own. */
enum { HOST_POISON = sizeof(struct poison) + sizeof(struct guard) + sizeof(struct report) };

/* ---- requests that are put off ---- */

bool session_memory_comes(const struct session *session, int code) {
    if (code == STATUS_AGAIN)
        return true;
    if (!session->sessions->ending)
        return false;
    return code == STATUS_OUT_OF_MEMORY || (code == STATUS_LIMIT && tenant_ending(session->ledger.tenant));
}

bool session_waits_for_device(const struct session *session) {
    return session->ledger.waits;
}

bool session_put_off_failed(struct session *session, int code) {
    struct ledger *ledger = &session->ledger;
    ledger->search.on = ledger->search.on && code == STATUS_AGAIN;
    bool comes = session_memory_comes(session, code);
    if (comes)
        ledger_pardon(ledger);
    ledger_begin(ledger);
    return comes;
}

/* ---- ids that were not bound ---- */

/* Keeps runs of ids, not single ids: else a client could make this list grow beyond its limits. */
void session_refuse(struct session *session, uint64_t id, struct cause cause) {
    struct refused *last = session->n_refused ? &session->refused[session->n_refused - 1] : NULL;
    if (last && last->last + 1 == id && last->cause.failure == cause.failure) {
        uint64_t ids = id - last->first, operations = cause.sequence - last->cause.sequence;
        bool alike = last->first == last->last ? operations <= 1 : operations == (last->steps ? ids : 0);
        if (alike) {
            last->steps = operations != 0;
            last->last = id;
            failure_unref(cause.failure);
            return;
        }
    }
    if (session->n_refused == SESSION_REFUSED) { /* the first entry stands for all that are dropped */
        failure_unref(session->refused[1].cause.failure);
        memmove(&session->refused[1], &session->refused[2], (SESSION_REFUSED - 2) * sizeof *session->refused);
        session->n_refused--;
        session->refused_forgotten = true;
    }
    session->refused[session->n_refused++] = (struct refused){.first = id, .last = id, .cause = cause};
}

bool session_refused(const struct session *session, uint64_t id, struct cause *cause) {
    unsigned i = session->n_refused;
    while (i && session->refused[i - 1].first > id)
        i--;
    const struct refused *refused = i ? &session->refused[i - 1] : NULL;
    bool forgotten = i == 1 && session->refused_forgotten;
    if (!refused || id > session->last_id || (id > refused->last && !forgotten))
        return false;
    *cause = refused->cause;
    if (refused->steps && id <= refused->last)
        cause->sequence += id - refused->first;
    return true;
}

int session_unknown_id(const struct session *session, uint64_t id, struct fault *fault) {
    struct cause cause;
    if (session_refused(session, id, &cause))
        return fault_set(fault, cause.failure->code, "%s", cause.failure->message);
    return fault_set(fault, STATUS_UNKNOWN_ID, "no tensor has id %" PRIu64, id);
}

/* ---- tensors ---- */

static int session_id_check(struct session *session, uint64_t id, struct fault *fault) {
    if (id == 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "0 is not a tensor id");
    if (id <= session->last_id)
        return fault_set(fault, STATUS_DUPLICATE_ID,
                         "tensor id %" PRIu64 " is not above the highest one used, %" PRIu64, id, session->last_id);
    return STATUS_OK;
}

int session_bind(struct session *session, uint64_t id, struct tensor **result, struct fault *fault) {
    int code = session_id_check(session, id, fault);
    if (code != STATUS_OK)
        return code;
    session->last_id = id;
    if (session->tensors.count >= session->tensors_room) {
        code = host_take_tensors(session, fault);
        if (code != STATUS_OK)
            return code;
    }
    struct tensor *tensor =
        tensor_table_reserve(&session->tensors) == STATUS_OK ? session_new_tensor(session, id) : NULL;
    if (!tensor)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory for a tensor");
    tensor_table_insert(&session->tensors, tensor);
    *result = tensor;
    return STATUS_OK;
}

void tensor_poison(struct session *session, struct tensor *tensor, struct poison *poison) {
    if (tensor->poison) {
        host_give(session, HOST_POISON);
        poison_unref(tensor->poison);
    }
    if (poison)
        host_note(session, HOST_POISON);
    tensor->poison = poison;
}

bool session_unbind(struct session *session, uint64_t id) {
    struct tensor *tensor = tensor_table_remove(&session->tensors, id);
    if (tensor)
        tensor_unref(session, tensor);
    return tensor;
}

void session_take_back(struct session *session, uint64_t id, uint64_t last_id) {
    session_unbind(session, id);
    session->last_id = last_id;
}

void tensor_fail(struct session *session, struct tensor *tensor, struct cause cause) {
    failure_unref(tensor->failure);
    tensor->failure = cause.failure;
    tensor->sequence = cause.sequence;
    storage_unref(tensor->storage);
    tensor->storage = NULL;
    tensor_poison(session, tensor, NULL);
}

void session_label(struct session *session, const char *label) {
    if (!label)
        return;
    size_t length = strnlen(label, sizeof session->label - 1);
    memcpy(session->label, label, length);
    session->label[length] = 0;
}

/* Counts a new failure. */
static void session_count_failure(struct session *session, enum status code, const char *operation, const char *label,
                                  const char *message) {
    bool named = label && *label;
    if (code > 0 && code < STATUS_COUNT)
        session->failures[code]++, session->sessions->failures[code]++;
    snprintf(session->last_failure, sizeof session->last_failure, "%.32s%s%.128s: %.255s", operation, named ? " " : "",
             named ? label : "", message);
}

/* Returns an equal failure, or a new one, which later equal failures share. */
static struct failure *session_share(struct session *session, const struct fault *fault, const char *operation,
                                     const char *label, uint64_t sequence) {
    for (unsigned i = 0; i < SESSION_CAUSES; i++)
        if (session->causes[i] && failure_same(session->causes[i], fault, operation, label))
            return failure_ref(session->causes[i]);
    struct failure *failure = failure_create(fault, operation, label, sequence);
    if (failure_stands_in(failure))
        return failure;
    failure->ledger = &session->ledger;
    host_note(session, sizeof *failure);
    struct failure **place = &session->causes[session->next_cause++ % SESSION_CAUSES];
    failure_unref(*place);
    *place = failure_ref(failure);
    return failure;
}

struct cause session_cause(struct session *session, const struct fault *fault, const char *operation, const char *label,
                           uint64_t sequence) {
    session_count_failure(session, fault->code, operation, label, fault->message);
    return (struct cause){session_share(session, fault, operation, label, sequence), sequence};
}

struct failure *session_failure(struct session *session, const struct fault *fault, const char *operation,
                                const char *label, uint64_t sequence) {
    session_count_failure(session, fault->code, operation, label, fault->message);
    return failure_create(fault, operation, label, sequence);
}

void session_drop_causes(struct session *session) {
    for (unsigned i = 0; i < SESSION_CAUSES; i++)
        failure_unref(session->causes[i]);
    for (unsigned i = 0; i < session->n_refused; i++)
        failure_unref(session->refused[i].cause.failure);
}

struct failure *session_guard_failure(struct session *session, struct guard *guard) {
    struct fault fault;
    guard_fault(guard, &fault);
    struct failure *failure = failure_create(&fault, guard->operation, guard->label, guard->sequence);
    if (!guard->counted)
        session_count_failure(session, failure->code, failure->operation, failure->label, failure->message);
    guard->counted = true;
    return failure;
}

static struct cause session_guard_cause(struct session *session, struct guard *guard) {
    struct failure *failure = session_guard_failure(session, guard);
    struct fault fault = {.code = failure->code};
    memcpy(fault.message, failure->message, sizeof fault.message);
    struct cause cause = {session_share(session, &fault, failure->operation, failure->label, failure->sequence),
                          failure->sequence};
    failure_unref(failure);
    return cause;
}

bool tensor_settle_doubtful(struct session *session, struct tensor *tensor) {
    if (!tensor->poison || tensor->failure)
        return tensor->failure;
    switch (poison_state(tensor->poison)) {
    case POISON_OPEN:
        break;
    case POISON_CLEAR:
        tensor_poison(session, tensor, NULL);
        break;
    case POISON_FAILED:
        tensor_fail(session, tensor, session_guard_cause(session, tensor->poison->cause));
        break;
    }
    return tensor->failure;
}

bool session_type(const struct session *session, uint64_t id, struct tensor_type *type) {
    const struct tensor *tensor = tensor_table_find(&session->tensors, id);
    if (!tensor || tensor->type.dtype == DTYPE_INVALID)
        return false;
    *type = tensor->type;
    return true;
}
