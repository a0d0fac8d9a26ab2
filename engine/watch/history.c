#include "engine/watch/history.h"

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
