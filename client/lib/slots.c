#include "client/lib/slots.h"

#include <stdlib.h>

static size_t find_place(const struct slot_place *places, size_t room, const td_device *device, uint64_t id) {
    size_t place = (size_t)((id ^ ((uintptr_t)device >> 6)) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (room - 1);
    while (places[place].device && (places[place].device != device || places[place].id != id))
        place = (place + 1) & (room - 1);
    return place;
}

bool slots_reserve(struct slots *slots, size_t more) {
    size_t room = slots->room ? slots->room : 64;
    while (room < 2 * (slots->n + more))
        room *= 2;
    if (room == slots->room)
        return true;
    struct slot_place *places = calloc(room, sizeof *places);
    if (!places)
        return false;
    for (size_t i = 0; i < slots->room; i++) {
        const struct slot_place *old = &slots->places[i];
        if (old->device)
            places[find_place(places, room, old->device, old->id)] = *old;
    }
    free(slots->places);
    slots->places = places;
    slots->room = room;
    return true;
}

uint32_t slots_take(struct slots *slots, const td_tensor *tensor) {
    struct slot_place *place = &slots->places[find_place(slots->places, slots->room, tensor->device, tensor->id)];
    if (!place->device)
        *place = (struct slot_place){tensor->device, tensor->id, (uint32_t)slots->n++};
    return place->slot;
}

bool slots_find_id(const struct slots *slots, const td_device *device, uint64_t id, uint32_t *slot) {
    if (!slots->room)
        return false;
    const struct slot_place *found = &slots->places[find_place(slots->places, slots->room, device, id)];
    *slot = found->slot;
    return found->device;
}

bool slots_find(const struct slots *slots, const td_tensor *tensor, uint32_t *slot) {
    return slots_find_id(slots, tensor->device, tensor->id, slot);
}

bool slots_renumber(const struct slots *slots, const uint32_t *numbers, size_t n, struct slots *into) {
    *into = (struct slots){.n = 0};
    if (!slots_reserve(into, n))
        return false;
    for (size_t i = 0; i < slots->room; i++) {
        const struct slot_place *old = &slots->places[i];
        if (old->device && numbers[old->slot] != UINT32_MAX)
            into->places[find_place(into->places, into->room, old->device, old->id)] =
                (struct slot_place){old->device, old->id, numbers[old->slot]};
    }
    into->n = n;
    return true;
}

void slots_finish(struct slots *slots) {
    free(slots->places);
}
