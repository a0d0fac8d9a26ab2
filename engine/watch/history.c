#include "engine/watch/history.h"

#include <stdio.h>

#include "proto/ops/op.h"

static void history_describe(const struct history_entry *entry, struct history_operation *operation) {
    const struct op_info *info = op_info(entry->opcode);
    *operation = (struct history_operation){.session = entry->session, .sequence = entry->sequence};
    history_copy(operation->name, sizeof operation->name, *entry->kernel ? entry->kernel : info ? info->name : "");
    history_copy(operation->label, sizeof operation->label, entry->label);
    operation->done = atomic_load(entry->completed) >= entry->number;
}

unsigned history_last(const struct history *history, struct history_operation *operations, unsigned capacity) {
    uint64_t count = atomic_load_explicit(&history->count, memory_order_acquire);
    unsigned n = 0;
    while (n < capacity && n < HISTORY_MAX && n < count) {
        history_describe(&history->entries[(count - 1 - n) % HISTORY_MAX], &operations[n]);
        n++;
    }
    return n;
}

/* ---- user kernels ---- */

void flight_init(struct flight *flight) {
    memset(flight, 0, sizeof *flight);
    pthread_mutex_init(&flight->lock, NULL);
}

void flight_finish(struct flight *flight) {
    pthread_mutex_destroy(&flight->lock);
}

void flight_note(struct flight *flight, const _Atomic uint64_t *completed, uint64_t number, const char *name) {
    pthread_mutex_lock(&flight->lock);
    struct flight_entry *entry = &flight->entries[flight->next++ % FLIGHT_MAX];
    entry->completed = completed;
    entry->number = number;
    snprintf(entry->name, sizeof entry->name, "%s", name);
    pthread_mutex_unlock(&flight->lock);
}

static bool flight_flies(const struct flight_entry *entry) {
    return entry->completed && atomic_load(entry->completed) < entry->number;
}

/* Whether an earlier entry in flight has this name. */
static bool flight_named(const struct flight *flight, unsigned before, const char *name) {
    for (unsigned i = 0; i < before; i++) {
        const struct flight_entry *entry = &flight->entries[i];
        if (flight_flies(entry) && !strcmp(entry->name, name))
            return true;
    }
    return false;
}

void flight_blame(struct flight *flight, struct fault *fault) {
    size_t used = strlen(fault->message);
    const char *before = "; while a user kernel ran: ";
    pthread_mutex_lock(&flight->lock);
    for (unsigned i = 0; i < FLIGHT_MAX; i++) {
        const struct flight_entry *entry = &flight->entries[i];
        if (!flight_flies(entry) || flight_named(flight, i, entry->name))
            continue;
        size_t left = sizeof fault->message - used;
        int written = snprintf(fault->message + used, left, "%s%s", before, entry->name);
        if (written < 0 || (size_t)written >= left) {
            fault->message[used] = 0; /* not half a name */
            break;
        }
        used += (size_t)written;
        before = ", ";
    }
    pthread_mutex_unlock(&flight->lock);
}
