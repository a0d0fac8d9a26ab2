#include "engine/values/tensor.h"

#include <stdlib.h>
#include <sys/random.h>

enum {
    TENSOR_TABLE_MOVES = 4
}; /* slots emptied with each insert: the old set is empty before the new one is half full */

static int tensor_slots_init(struct tensor_slots *slots, size_t capacity) {
    slots->at = calloc(capacity, sizeof *slots->at);
    slots->capacity = slots->at ? capacity : 0;
    slots->shift = 64 - (unsigned)__builtin_ctzll(capacity);
    return slots->at ? STATUS_OK : STATUS_NO_HOST_MEMORY;
}

static void tensor_slots_finish(struct tensor_slots *slots) {
    free(slots->at);
    *slots = (struct tensor_slots){0};
}

static size_t tensor_slots_home(const struct tensor_slots *slots, uint64_t scattered) {
    return (size_t)(scattered >> slots->shift);
}

int tensor_table_init(struct tensor_table *table) {
    *table = (struct tensor_table){.capacity = TENSOR_TABLE_MIN};
    if (tensor_slots_init(&table->slots, table->capacity) != STATUS_OK)
        return STATUS_NO_HOST_MEMORY;
    if (getrandom(&table->factor, sizeof table->factor, 0) != sizeof table->factor)
        table->factor = 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)table->slots.at;
    table->factor |= 1;
    return STATUS_OK;
}

void tensor_table_finish(struct tensor_table *table) {
    tensor_slots_finish(&table->slots);
    tensor_slots_finish(&table->old);
}

static void tensor_table_put(struct tensor_table *table, struct tensor *tensor) {
    struct tensor_slots *slots = &table->slots;
    size_t mask = slots->capacity - 1, slot = tensor_slots_home(slots, tensor->id * table->factor);
    while (slots->at[slot])
        slot = (slot + 1) & mask;
    slots->at[slot] = tensor;
}

/* Empties a slot, and moves back the tensors behind it that would lie nearer to their own place. */
static void tensor_table_clear(const struct tensor_table *table, struct tensor_slots *slots, size_t hole) {
    size_t mask = slots->capacity - 1;
    for (size_t i = (hole + 1) & mask; slots->at[i]; i = (i + 1) & mask) {
        size_t home = tensor_slots_home(slots, slots->at[i]->id * table->factor);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            slots->at[hole] = slots->at[i];
            hole = i;
        }
    }
    slots->at[hole] = NULL;
}

/* Clearing a slot may bring another tensor there. */
static void tensor_table_move(struct tensor_table *table) {
    for (int i = 0; i < TENSOR_TABLE_MOVES && table->moved < table->old.capacity; i++, table->moved++)
        for (struct tensor *tensor; (tensor = table->old.at[table->moved]);) {
            tensor_table_clear(table, &table->old, table->moved);
            tensor_table_put(table, tensor);
        }
    if (table->old.at && table->moved == table->old.capacity)
        tensor_slots_finish(&table->old);
}

static int tensor_table_grow(struct tensor_table *table) {
    struct tensor_slots larger;
    if (tensor_slots_init(&larger, 2 * table->capacity) != STATUS_OK)
        return STATUS_NO_HOST_MEMORY;
    table->old = table->slots;
    table->moved = 0;
    table->slots = larger;
    table->capacity = larger.capacity;
    return STATUS_OK;
}

int tensor_table_make_room(struct tensor_table *table) {
    tensor_table_move(table);
    return table->count + 1 > table->capacity / 2 ? tensor_table_grow(table) : STATUS_OK;
}

void tensor_table_insert(struct tensor_table *table, struct tensor *tensor) {
    tensor_table_put(table, tensor);
    table->count++;
}

static struct tensor **tensor_slots_seek(const struct tensor_slots *slots, uint64_t id, uint64_t factor) {
    size_t mask = slots->capacity - 1;
    if (!slots->at)
        return NULL;
    for (size_t slot = tensor_slots_home(slots, id * factor); slots->at[slot]; slot = (slot + 1) & mask)
        if (slots->at[slot]->id == id)
            return &slots->at[slot];
    return NULL;
}

struct tensor *tensor_table_seek(const struct tensor_table *table, uint64_t id) {
    struct tensor **slot = tensor_slots_seek(&table->slots, id, table->factor);
    if (!slot)
        slot = tensor_slots_seek(&table->old, id, table->factor);
    return slot ? *slot : NULL;
}

struct tensor *tensor_table_remove(struct tensor_table *table, uint64_t id) {
    struct tensor_slots *slots = &table->slots;
    struct tensor **slot = tensor_slots_seek(slots, id, table->factor);
    if (!slot)
        slot = tensor_slots_seek(slots = &table->old, id, table->factor);
    if (!slot)
        return NULL;
    struct tensor *removed = *slot;
    tensor_table_clear(table, slots, (size_t)(slot - slots->at));
    table->count--;
    return removed;
}

size_t tensor_table_slots(const struct tensor_table *table) {
    return table->slots.capacity + table->old.capacity;
}

struct tensor *tensor_table_slot(const struct tensor_table *table, size_t slot) {
    size_t capacity = table->slots.capacity;
    return slot < capacity ? table->slots.at[slot] : table->old.at[slot - capacity];
}
