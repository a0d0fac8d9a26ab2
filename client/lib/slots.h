/* Numbers for tensors: a table, with open addressing, that gives each tensor the next number when it comes first. It belongs to one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/tensor.h"

struct slot_place {
    const td_device *device; /* NULL: an empty place */
    uint64_t id;
    uint32_t slot;
};

struct slots {
    struct slot_place *places; /* a power of two, at most half of them taken */
    size_t n, room;
};

/* Makes room for so many tensors more; false out of memory. */
bool slots_reserve(struct slots *slots, size_t more);
/* The tensor's slot, which it gets if it has none. There is room. */
uint32_t slots_take(struct slots *slots, const td_tensor *tensor);
/* False: the tensor has no slot. */
bool slots_find_id(const struct slots *slots, const td_device *device, uint64_t id, uint32_t *slot);
bool slots_find(const struct slots *slots, const td_tensor *tensor, uint32_t *slot);
/* The table in which the tensor with slot i has slot numbers[i], and those with UINT32_MAX have none; n: how many have one. False out of memory. */
bool slots_renumber(const struct slots *slots, const uint32_t *numbers, size_t n, struct slots *into);
void slots_finish(struct slots *slots);
