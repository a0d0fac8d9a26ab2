#include "client/lib/scope.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "proto/ops/utf8.h"

struct scope {
    struct scope *outer;
    struct scope_part *parts;
    bool labels_only;    /* it holds no handles */
    bool sets_free;      /* and neither does one around it hold those that are made within it */
    size_t prefix_bytes; /* of the thread's prefix, this scope's name included */
};

struct labels {
    char prefix[TD_LABEL_MAX]; /* "forward/block/", whole characters, not terminated */
    char label[TD_LABEL_MAX + 1];
    size_t label_bytes;
    char whole[TD_LABEL_MAX + 1];
};

_Thread_local struct scope_thread scope_thread;
static _Thread_local struct labels labels;

static pthread_mutex_t scopes_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static bool exit_key_made;

static void scope_part_detach(struct scope_part *part) {
    td_device *device = part->device;
    if (!device)
        return;
    struct scope_part **place = &device->parts;
    while (*place != part)
        place = &(*place)->device_next;
    *place = part->device_next;
    part->device = NULL;
}

/* Ends a scope: releases its handles, or leaves them without a scope. */
static void scope_finish(struct scope *scope, bool release) {
    pthread_mutex_lock(&scopes_lock);
    while (scope->parts) {
        struct scope_part *part = scope->parts;
        td_device *device = part->device;
        bool wake = false;
        scope->parts = part->next;
        if (device) {
            pthread_mutex_lock(&device->lock);
            tensor_drain(device); /* handles that have been released leave their part */
            while (part->tensors) {
                if (release)
                    wake |= tensor_release(part->tensors);
                else
                    scope_part_remove(part->tensors);
            }
            pthread_mutex_unlock(&device->lock);
            if (wake)
                io_wake(&device->io);
        }
        scope_part_detach(part);
        free(part);
    }
    pthread_mutex_unlock(&scopes_lock);
    free(scope);
}

/* A thread ends inside scopes: their handles live until their devices close. */
static void thread_exit(void *first) {
    (void)first;
    while (scope_thread.scope) {
        struct scope *scope = scope_thread.scope;
        scope_thread.scope = scope->outer;
        scope_finish(scope, false);
    }
}

static void exit_key_create(void) {
    exit_key_made = !pthread_key_create(&exit_key, thread_exit);
}

/* Copies as much of `text` as fits, as valid UTF-8: cut between characters, each invalid byte as '?'. No 0 at the end;
 * returns the number of bytes. */
static size_t label_clean(char *out, size_t capacity, const char *text) {
    size_t n = 0;
    for (const char *next = text; *text; text = next) {
        (void)utf8_next(&next);
        size_t bytes = (size_t)(next - text);
        if (n + bytes > capacity)
            break;
        if (bytes == 1 && (unsigned char)*text >= 0x80)
            out[n] = '?';
        else
            memcpy(out + n, text, bytes);
        n += bytes;
    }
    return n;
}

static size_t prefix_bytes(void) {
    return scope_thread.scope ? scope_thread.scope->prefix_bytes : 0;
}

static void scope_begin(const char *name, bool labels_only) {
    struct scope *scope = scope_thread.lost_scopes ? NULL : calloc(1, sizeof *scope);
    if (!scope) {
        scope_thread.lost_scopes++;
        error_set(STATUS_NO_HOST_MEMORY, "no memory for a scope");
        return;
    }
    pthread_once(&once, exit_key_create);
    if (exit_key_made)
        pthread_setspecific(exit_key, scope);
    scope->prefix_bytes = prefix_bytes();
    if (name && *name) {
        size_t n = scope->prefix_bytes;
        n += label_clean(labels.prefix + n, TD_LABEL_MAX - n, name);
        if (n < TD_LABEL_MAX)
            labels.prefix[n++] = '/';
        scope->prefix_bytes = n;
    }
    scope->labels_only = labels_only;
    scope->outer = scope_thread.scope;
    scope_thread.scope = scope;
}

void td_scope_begin(const char *name) {
    scope_begin(name, false);
}

void td_scope_begin_label(const char *name) {
    scope_begin(name, true);
}

int td_scope_begin_free(void) {
    scope_begin(NULL, true);
    if (scope_thread.lost_scopes)
        return STATUS_NO_HOST_MEMORY;
    scope_thread.scope->sets_free = true;
    return 0;
}

void td_scope_end(void) {
    if (scope_thread.lost_scopes) {
        scope_thread.lost_scopes--;
        return;
    }
    struct scope *scope = scope_thread.scope;
    if (!scope)
        return;
    scope_thread.scope = scope->outer;
    scope_finish(scope, true);
}

static int scope_find_part(struct scope *scope, td_device *device, struct scope_part **out) {
    for (struct scope_part *part = scope->parts; part; part = part->next) {
        if (atomic_load_explicit(&part->device, memory_order_relaxed) == device) {
            *out = part;
            return 0;
        }
    }
    struct scope_part *part = calloc(1, sizeof *part);
    if (!part)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a scope");
    part->next = scope->parts;
    scope->parts = part;
    pthread_mutex_lock(&scopes_lock);
    part->device = device;
    part->device_next = device->parts;
    device->parts = part;
    pthread_mutex_unlock(&scopes_lock);
    *out = part;
    return 0;
}

/* This scope or the next one around it that holds handles; NULL: there is none. */
static struct scope *scope_holding(struct scope *scope) {
    while (scope && scope->labels_only && !scope->sets_free)
        scope = scope->outer;
    return scope && scope->sets_free ? NULL : scope;
}

int scope_part(td_device *device, struct scope_part **part) {
    struct scope *scope = scope_holding(scope_thread.scope);
    *part = NULL;
    return scope ? scope_find_part(scope, device, part) : 0;
}

void scope_part_add(struct scope_part *part, td_tensor *tensor) {
    tensor->part = part;
    tensor->previous = NULL;
    tensor->next = part->tensors;
    if (part->tensors)
        part->tensors->previous = tensor;
    part->tensors = tensor;
}

void scope_part_remove(td_tensor *tensor) {
    struct scope_part *part = tensor->part;
    *(tensor->previous ? &tensor->previous->next : &part->tensors) = tensor->next;
    if (tensor->next)
        tensor->next->previous = tensor->previous;
    tensor->part = NULL;
    tensor->next = tensor->previous = NULL;
}

void scope_forget_device(td_device *device) {
    pthread_mutex_lock(&scopes_lock);
    while (device->parts) {
        device->parts->tensors = NULL; /* the device frees their memory */
        scope_part_detach(device->parts);
    }
    pthread_mutex_unlock(&scopes_lock);
}

/* Under the device's lock. */
static bool holds(const struct scope *scope, const td_tensor *tensor) {
    for (const struct scope_part *part = scope->parts; part; part = part->next)
        if (tensor->part == part)
            return true;
    return false;
}

bool scope_holds(td_tensor *tensor) {
    const struct scope *inner = scope_holding(scope_thread.scope);
    if (!inner)
        return false;
    pthread_mutex_lock(&tensor->device->lock);
    bool held = holds(inner, tensor);
    pthread_mutex_unlock(&tensor->device->lock);
    return held;
}

td_tensor *td_keep(td_tensor *tensor) {
    struct scope *inner = scope_holding(scope_thread.scope);
    if (!tensor || !inner)
        return tensor;
    struct scope *around = scope_holding(inner->outer);
    struct scope_part *outer = NULL;
    if (around && scope_find_part(around, tensor->device, &outer))
        return tensor; /* out of memory: it stays where it is */
    pthread_mutex_lock(&tensor->device->lock);
    if (holds(inner, tensor)) {
        scope_part_remove(tensor);
        if (outer)
            scope_part_add(outer, tensor);
    }
    pthread_mutex_unlock(&tensor->device->lock);
    return tensor;
}

void td_label(const char *label) {
    scope_thread.labelled = label && *label;
    labels.label_bytes = scope_thread.labelled ? label_clean(labels.label, TD_LABEL_MAX, label) : 0;
}

const char *label_current(size_t *bytes) {
    size_t n = prefix_bytes();
    *bytes = 0;
    if (!scope_thread.labelled && !n)
        return NULL;
    memcpy(labels.whole, labels.prefix, n);
    if (scope_thread.labelled) {
        labels.label[labels.label_bytes] = 0;
        n += label_clean(labels.whole + n, TD_LABEL_MAX - n, labels.label);
    } else if (labels.whole[n - 1] == '/') {
        n--; /* the scope's name alone */
    }
    labels.whole[n] = 0;
    *bytes = n;
    return labels.whole;
}

void label_clear(void) {
    scope_thread.labelled = false;
}
