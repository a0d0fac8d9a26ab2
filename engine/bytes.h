/* Sizes for people: three digits and a unit, as tensorctl writes them. */
#pragma once

#include <stdint.h>
#include <stdio.h>

enum { BYTES_TEXT_MAX = 24 };

static inline const char *bytes_text(char out[BYTES_TEXT_MAX], uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1000 && unit < 6; unit++) /* 1000 KiB are 0.98 MiB, in three digits */
        value /= 1024;
    snprintf(out, BYTES_TEXT_MAX, "%.*f %s",
             unit == 0 || value >= 99.95 ? 0
             : value >= 9.995            ? 1
                                         : 2,
             value, units[unit]);
    return out;
}
