#include "client/lib/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ops/dtype.h"
#include "proto/ops/shape.h"
#include "proto/ops/utf8.h"

/* One numbering, two headers. */
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a " and " #b " differ")
SAME(TD_OK, STATUS_OK);
#define X(name, value, text) SAME(TD_E_##name, STATUS_##name);
#define TD_E_OK TD_OK
STATUS_TABLE(X)
#undef TD_E_OK
#undef X
_Static_assert(TD_E_SINGULAR + 1 == STATUS_COUNT, "a status without its constant in tensord.h");
#define X(name, value, text, bytes, kind) SAME(TD_##name, DTYPE_##name);
DTYPE_TABLE(X)
#undef X
SAME(TD_RANK_MAX, SHAPE_RANK_MAX);

static _Thread_local td_error last_error = {.details = ""};
static _Thread_local bool made_null; /* a call has returned NULL for a tensor because of the last error */

/* ---- details ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t details_key; /* frees a thread's details at its end */
static bool details_key_made;

static void details_key_create(void) {
    details_key_made = !pthread_key_create(&details_key, free);
}

static void details_set(char *details) {
    if (*last_error.details) {
        free((char *)(uintptr_t)last_error.details);
        pthread_setspecific(details_key, NULL);
    }
    last_error.details = "";
    pthread_once(&once, details_key_create);
    if (details && *details && details_key_made && !pthread_setspecific(details_key, details))
        last_error.details = details;
    else
        free(details);
}

/* ---- the last error ---- */

const td_error *td_last_error(void) {
    return &last_error;
}

const char *td_strerror(int code) {
    return status_text(code);
}

int error_store_details(const td_error *error, char *details) {
    details_set(details);
    details = (char *)(uintptr_t)last_error.details;
    last_error = *error;
    last_error.details = details;
    made_null = false;
    return error->code;
}

int error_store(const td_error *error) {
    return error_store_details(error, NULL);
}

void error_keep(struct error_kept *kept) {
    *kept = (struct error_kept){.error = last_error, .made_null = made_null};
    if (*last_error.details)
        kept->details = strdup(last_error.details);
}

int error_kept_end(struct error_kept *kept, int code) {
    if (code) {
        free(kept->details);
        return code;
    }
    error_store_details(&kept->error, kept->details);
    made_null = kept->made_null;
    return 0;
}

int error_set(enum status code, const char *format, ...) {
    td_error *error = &last_error;
    va_list arguments;
    char text[sizeof error->message];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    utf8_clean(error->message, sizeof error->message, text);
    error->code = code;
    error->operation[0] = error->label[0] = 0;
    error->sequence = 0;
    made_null = false;
    details_set(NULL);
    return code;
}

/* Copies as many whole characters as fit: texts from the wire are UTF-8. */
static void copy_text(char *out, size_t size, const char *text) {
    size_t n = strnlen(text, size);
    if (n == size) {
        n--;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(out, text, n);
    out[n] = 0;
}

void error_compose(td_error *error, int code, const char *message, const char *operation, const char *label,
                   uint64_t sequence) {
    /* Room for one character more than fits, so that utf8_clean() cuts, and not snprintf(). */
    char text[sizeof error->message + 4];
    operation = operation ? operation : "";
    label = label ? label : "";
    message = message && *message ? message : status_text(code);
    if (!*operation && !*label)
        snprintf(text, sizeof text, "%s", message);
    else
        snprintf(text, sizeof text, "%s%s%s: %s", operation, *operation && *label ? " " : "", label, message);
    error->code = code;
    error->sequence = sequence;
    error->details = "";
    utf8_clean(error->message, sizeof error->message, text); /* texts of peers and labels are shown on terminals */
    copy_text(error->operation, sizeof error->operation, operation);
    copy_text(error->label, sizeof error->label, label);
}

int error_fault(const struct fault *fault, const char *operation, const char *label) {
    details_set(NULL);
    error_compose(&last_error, fault->code, fault->message, operation, label, 0);
    made_null = false;
    return fault->code;
}

int error_about(const char *format, ...) {
    td_error *error = &last_error;
    va_list arguments;
    char text[sizeof error->message + 4], message[sizeof error->message];
    size_t named = strlen(error->operation);
    bool begins = named && !strncmp(error->message, error->operation, named) && error->message[named] == ':';
    copy_text(message, sizeof message, error->message + (begins ? named + 2 : 0));
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t at = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    snprintf(text + at, sizeof text - at, ": %s", message);
    utf8_clean(error->message, sizeof error->message, text);
    return error->code;
}

void *error_null(void) {
    made_null = true;
    return NULL;
}

int error_of_null(void) {
    return made_null ? last_error.code : 0;
}

void error_from_wire(td_error *error, const Tensord__Error *wire) {
    /* A code of 0 in an error would read as success. */
    int code = wire->code > 0 && wire->code < STATUS_COUNT ? (int)wire->code : STATUS_INTERNAL;
    error_compose(error, code, wire->message, wire->operation, wire->label, wire->sequence);
}
