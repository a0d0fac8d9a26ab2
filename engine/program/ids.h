/* Tables of what a session's ids name: entries that begin with an id, in ascending order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Where the id is among `count` entries of so many bytes, or would be. */
static inline unsigned ids_seek(const void *entries, unsigned count, size_t entry_bytes, uint64_t id) {
    unsigned first = 0, end = count;
    while (first < end) {
        unsigned middle = (first + end) / 2;
        if (*(const uint64_t *)(const void *)((const char *)entries + middle * entry_bytes) < id)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}
