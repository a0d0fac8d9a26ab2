#include "engine/watch/history.h"

#include "engine/engine_impl.h"

static void history_describe(const struct history_entry *entry, struct engine_operation *operation) {
    const struct op_info *info = op_info(entry->opcode);
    *operation = (struct engine_operation){.session = entry->session, .sequence = entry->sequence};
    history_copy(operation->name, sizeof operation->name, *entry->kernel ? entry->kernel : info ? info->name : "");
    history_copy(operation->label, sizeof operation->label, entry->label);
    operation->done = point_reached(entry->stream, entry->number); /* streams live as long as the engine */
}

unsigned engine_last_operations(const struct engine *engine, struct engine_operation *operations, unsigned capacity) {
    const struct history *history = &engine->history;
    uint64_t count = atomic_load_explicit(&history->count, memory_order_acquire);
    unsigned n = 0;
    while (n < capacity && n < HISTORY_MAX && n < count) {
        history_describe(&history->entries[(count - 1 - n) % HISTORY_MAX], &operations[n]);
        n++;
    }
    return n;
}
