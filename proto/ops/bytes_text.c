#include "proto/ops/bytes_text.h"

#include <stdio.h>

char *bytes_text(char out[BYTES_TEXT_MAX], uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    double value = (double)bytes;
    for (; value >= 999.5 && unit < 6; unit++) {
        value /= 1024;
    }
    int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(out, BYTES_TEXT_MAX, "%.*f %s", digits, value, units[unit]);
    return out;
}
