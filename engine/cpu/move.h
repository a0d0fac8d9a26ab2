/* Moving bytes, as memcpy() does it for long ones and for short ones.
 *
 * From some KiB on, memcpy() of glibc takes one instruction for all bytes ("rep movsb"). AMD's processors need twelve times as long for it
 * where the target lies a few bytes behind the source, counted modulo 4096: as the rows of a matrix do that are moved by one element. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CPU_MOVE_LONG = 1 << 20 }; /* from here on memcpy() writes past the caches */

/* The target is the source itself, or the two have no byte in common. */
static inline void cpu_move(void *to, const void *from, size_t bytes) {
    typedef uint8_t line __attribute__((vector_size(64), aligned(1), may_alias));
    if (bytes < sizeof(line) || bytes >= CPU_MOVE_LONG) {
        memmove(to, from, bytes);
        return;
    }
    char *z = to;
    const char *x = from;
    const line last = *(const line *)(const void *)(x + bytes - sizeof(line));
    *(line *)(void *)z = *(const line *)(const void *)x;
    for (size_t i = -(uintptr_t)to % sizeof(line); i + sizeof(line) <= bytes; i += sizeof(line)) {
        *(line *)(void *)(z + i) = *(const line *)(const void *)(x + i);
    }
    *(line *)(void *)(z + bytes - sizeof(line)) = last;
}
