#include "engine/tensor.h"

#include <stdlib.h>
#include <sys/random.h>

enum { TENSOR_TABLE_MIN = 64 };

int tensor_table_init(struct tensor_table *table) {
    table->slots = calloc(TENSOR_TABLE_MIN, sizeof *table->slots);
    if (!table->slots)
        return STATUS_NO_HOST_MEMORY;
    table->capacity = TENSOR_TABLE_MIN;
    table->count = 0;
    if (getrandom(&table->factor, sizeof table->factor, 0) != sizeof table->factor)
        table->factor = 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)table->slots;
    table->factor |= 1;
    return STATUS_OK;
}

void tensor_table_finish(struct tensor_table *table) {
    free(table->slots);
    table->slots = NULL;
}

static size_t tensor_table_slot(const struct tensor_table *table, uint64_t id) {
    uint64_t scattered = id * table->factor;
    return (size_t)(scattered >> (64 - __builtin_ctzll(table->capacity)));
}

static int tensor_table_grow(struct tensor_table *table) {
    struct tensor_table larger = *table;
    larger.capacity = table->capacity * 2;
    larger.slots = calloc(larger.capacity, sizeof *larger.slots);
    if (!larger.slots)
        return STATUS_NO_HOST_MEMORY;
    larger.count = 0;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i])
            tensor_table_insert(&larger, table->slots[i]);
    free(table->slots);
    *table = larger;
    return STATUS_OK;
}

int tensor_table_reserve(struct tensor_table *table) {
    return table->count + 1 > table->capacity / 2 ? tensor_table_grow(table) : STATUS_OK;
}

void tensor_table_insert(struct tensor_table *table, struct tensor *tensor) {
    size_t mask = table->capacity - 1;
    size_t slot = tensor_table_slot(table, tensor->id);
    while (table->slots[slot])
        slot = (slot + 1) & mask;
    table->slots[slot] = tensor;
    table->count++;
}

static bool tensor_table_seek(const struct tensor_table *table, uint64_t id, size_t *slot) {
    size_t mask = table->capacity - 1;
    for (*slot = tensor_table_slot(table, id); table->slots[*slot]; *slot = (*slot + 1) & mask)
        if (table->slots[*slot]->id == id)
            return true;
    return false;
}

struct tensor *tensor_table_find(const struct tensor_table *table, uint64_t id) {
    size_t slot;
    return tensor_table_seek(table, id, &slot) ? table->slots[slot] : NULL;
}

/* Closes the gap by moving back whatever could not sit at its own place because of it. */
struct tensor *tensor_table_remove(struct tensor_table *table, uint64_t id) {
    size_t hole, mask = table->capacity - 1;
    if (!tensor_table_seek(table, id, &hole))
        return NULL;
    struct tensor *removed = table->slots[hole];
    for (size_t i = (hole + 1) & mask; table->slots[i]; i = (i + 1) & mask) {
        size_t home = tensor_table_slot(table, table->slots[i]->id);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            table->slots[hole] = table->slots[i];
            hole = i;
        }
    }
    table->slots[hole] = NULL;
    table->count--;
    return removed;
}
