#include "proto/ops/status.h"

#include <stdio.h>

#include "proto/ops/utf8.h"

static const struct {
    const char *name, *text;
} status_rows[STATUS_COUNT] = {
#define X(name, value, text) [value] = {#name, text},
    STATUS_TABLE(X)
#undef X
};

const char *status_text(int code) {
    return code >= 0 && code < STATUS_COUNT ? status_rows[code].text : "unknown status";
}

const char *status_name(int code) {
    return code >= 0 && code < STATUS_COUNT ? status_rows[code].name : "UNKNOWN";
}

int fault_set_list(struct fault *fault, enum status code, const char *format, va_list arguments) {
    char text[sizeof fault->message];
    if (!fault)
        return code;
    fault->code = code;
    vsnprintf(text, sizeof text, format, arguments);
    utf8_clean(fault->message, sizeof fault->message, text);
    return code;
}

int fault_set(struct fault *fault, enum status code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fault_set_list(fault, code, format, arguments);
    va_end(arguments);
    return code;
}

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
