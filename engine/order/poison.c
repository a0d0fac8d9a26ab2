#include "engine/order/poison.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"

/* ---- reports ---- */

enum { REPORTS_SEGMENT_BYTES = 64 << 10 };

union report_slot {
    struct report report;
    union report_slot *next;
};

struct reports_segment {
    struct reports_segment *next;
    void *memory;
};

void reports_init(struct reports *reports, struct device *device) {
    *reports = (struct reports){.device = device};
    pthread_mutex_init(&reports->lock, NULL);
}

static void reports_release(struct reports *reports) {
    for (struct reports_segment *segment = reports->segments, *next; segment; segment = next) {
        next = segment->next;
        reports->device->vtable->host_release(reports->device, segment->memory, REPORTS_SEGMENT_BYTES);
        free(segment);
    }
    reports->segments = NULL;
    reports->free = NULL;
}

bool reports_rest(struct reports *reports) {
    pthread_mutex_lock(&reports->lock);
    bool unused = !reports->used;
    if (unused && reports->segments && reports->segments->next) /* a single segment is kept for the next session */
        reports_release(reports);
    pthread_mutex_unlock(&reports->lock);
    return unused;
}

void reports_finish(struct reports *reports) {
    reports_release(reports);
    pthread_mutex_destroy(&reports->lock);
}

static void reports_put(struct reports *reports, union report_slot *slot) {
    slot->next = reports->free;
    reports->free = slot;
}

/* Takes another segment and cuts it into slots; with the lock held. */
static void reports_grow(struct reports *reports) {
    struct reports_segment *segment = malloc(sizeof *segment);
    struct fault fault;
    if (!segment)
        return;
    if (reports->device->vtable->host_reserve(reports->device, REPORTS_SEGMENT_BYTES, &segment->memory, &fault) !=
        STATUS_OK) {
        free(segment);
        return;
    }
    segment->next = reports->segments;
    reports->segments = segment;
    reports->reservations++;
    union report_slot *slots = segment->memory;
    for (size_t i = 0; i < REPORTS_SEGMENT_BYTES / sizeof *slots; i++)
        reports_put(reports, &slots[i]);
}

struct report *reports_take(struct reports *reports) {
    union report_slot *slot;
    if (reports->device->vtable->host_reserve) {
        pthread_mutex_lock(&reports->lock);
        if (!reports->free)
            reports_grow(reports);
        slot = reports->free;
        if (slot) {
            reports->free = slot->next;
            reports->used++;
        }
        pthread_mutex_unlock(&reports->lock);
    } else {
        slot = malloc(sizeof *slot);
    }
    if (!slot)
        return NULL;
    slot->report = (struct report){0};
    return &slot->report;
}

uint64_t reports_reservations(struct reports *reports) {
    pthread_mutex_lock(&reports->lock);
    uint64_t reservations = reports->reservations;
    pthread_mutex_unlock(&reports->lock);
    return reservations;
}

void reports_give(struct reports *reports, struct report *report) {
    union report_slot *slot = (union report_slot *)(void *)report;
    if (!reports->device->vtable->host_reserve) {
        free(slot);
        return;
    }
    pthread_mutex_lock(&reports->lock);
    reports_put(reports, slot);
    reports->used--;
    pthread_mutex_unlock(&reports->lock);
}

/* ---- guards ---- */

/* Copies a text that may be longer than there is room for. Guards are made for many small operations, of which printing would be a part. */
static void guard_text(char *to, size_t bytes, const char *text) {
    size_t length = text ? strnlen(text, bytes - 1) : 0;
    memcpy(to, length ? text : "", length);
    to[length] = 0;
}

static struct guard *guard_blank(const char *operation, const char *label, uint64_t sequence) {
    struct guard *guard = malloc(sizeof *guard);
    if (!guard)
        return NULL;
    memset(guard, 0, offsetof(struct guard, message) + 1); /* texts are not read behind their ends */
    guard->broadcasts = guard->counted = false;
    atomic_init(&guard->references, 1);
    guard_text(guard->operation, sizeof guard->operation, operation);
    guard_text(guard->label, sizeof guard->label, label);
    guard->sequence = sequence;
    return guard;
}

struct guard *guard_create(struct reports *reports, const char *operation, const char *label, uint64_t sequence,
                           int axis) {
    struct guard *guard = guard_blank(operation, label, sequence);
    if (!guard)
        return NULL;
    guard->report = reports->device->vtable->host_reserve ? reports_take(reports) : &guard->own;
    if (!guard->report) {
        free(guard);
        return NULL;
    }
    guard->reports = reports;
    guard->axis = axis;
    return guard;
}

void guard_set_broadcast(struct guard *guard, int rank, const int64_t *from, const int64_t *to) {
    struct guard_broadcast *broadcast = &guard->broadcast;
    int64_t stride = 1;
    broadcast->rank = rank;
    guard->broadcasts = false;
    for (int i = rank - 1; i >= 0; i--) {
        broadcast->shape[i] = to[i];
        broadcast->strides[i] = from[i] == 1 ? 0 : stride;
        stride *= from[i];
        guard->broadcasts |= from[i] != to[i];
    }
}

/* The report's position, in the indices as they came. */
static int64_t guard_position(const struct guard *guard) {
    const struct guard_broadcast *broadcast = &guard->broadcast;
    int64_t position = guard->report->position, own = 0;
    if (!guard->broadcasts)
        return position;
    for (int i = broadcast->rank - 1; i >= 0; i--) {
        own += position % broadcast->shape[i] * broadcast->strides[i];
        position /= broadcast->shape[i];
    }
    return own;
}

static struct guard guard_no_memory = {
    .references = 1,
    .code = STATUS_NO_HOST_MEMORY,
    .message = "the daemon is out of host memory",
};

struct guard *guard_failed(const struct fault *cause, const char *operation, const char *label, uint64_t sequence) {
    struct guard *guard = guard_blank(operation, label, sequence);
    if (!guard)
        return guard_ref(&guard_no_memory);
    guard->code = cause->code;
    snprintf(guard->message, sizeof guard->message, "%s", cause->message);
    return guard;
}

struct guard *guard_ref(struct guard *guard) {
    atomic_fetch_add_explicit(&guard->references, 1, memory_order_relaxed);
    return guard;
}

void guard_unref(struct guard *guard) {
    if (!guard || atomic_fetch_sub_explicit(&guard->references, 1, memory_order_acq_rel) != 1)
        return;
    if (guard->reports && guard->report != &guard->own)
        reports_give(guard->reports, guard->report);
    free(guard);
}

enum status guard_code(const struct guard *guard) {
    if (!guard->reports)
        return guard->code;
    return (enum status)atomic_load_explicit(&guard->report->code, memory_order_acquire);
}

void guard_fault(const struct guard *guard, struct fault *fault) {
    const struct report *report = guard->report;
    char index[24] = "";
    if (report)
        snprintf(index, sizeof index, guard->above ? "%" PRIu64 : "%" PRId64, report->value);
    if (!guard->reports)
        fault_set(fault, guard->code, "%s", guard->message);
    else if (guard_code(guard) == STATUS_LIMIT)
        fault_set(fault, STATUS_LIMIT,
                  "it was stopped after %.1f s on the device: an operation may take no longer (operation-time)",
                  (double)report->value / 1e3);
    else if (guard->launch)
        fault_set(fault, guard_code(guard), "the device refuses the launch: %s (its error %" PRId64 ")",
                  status_text((int)guard_code(guard)), report->value);
    else if (guard_code(guard) == STATUS_SINGULAR)
        fault_set(fault, STATUS_SINGULAR,
                  "matrix %" PRId64 " of the batch is singular, or not positive definite: row %" PRId64,
                  report->value / report->limit, report->value % report->limit);
    else if (guard->axis < 0)
        fault_set(fault, guard_code(guard), "index %s at position %" PRId64 " is none of %" PRId64 " classes", index,
                  guard_position(guard), report->limit);
    else
        fault_set(fault, guard_code(guard),
                  "index %s at position %" PRId64 " is out of range for axis %d of extent %" PRId64, index,
                  guard_position(guard), guard->axis, report->limit);
    size_t used = strlen(fault->message);
    if (guard->iteration && guard->reports)
        snprintf(fault->message + used, sizeof fault->message - used, ", in iteration %" PRIu64 " of the loop",
                 guard->iteration);
}

/* ---- poison ---- */

struct poison *poison_create(void) {
    struct poison *poison = calloc(1, sizeof *poison);
    if (!poison)
        return NULL;
    atomic_init(&poison->references, 1);
    atomic_init(&poison->state, POISON_OPEN);
    return poison;
}

struct poison *poison_ref(struct poison *poison) {
    atomic_fetch_add_explicit(&poison->references, 1, memory_order_relaxed);
    return poison;
}

void poison_unref(struct poison *poison) {
    if (poison && atomic_fetch_sub_explicit(&poison->references, 1, memory_order_acq_rel) == 1) {
        guard_unref(poison->cause);
        free(poison);
    }
}

enum poison_state poison_state(const struct poison *poison) {
    return (enum poison_state)atomic_load_explicit(&poison->state, memory_order_acquire);
}

void poison_settle(struct poison *result, struct poison *const inputs[3], struct guard *guard) {
    struct guard *cause = NULL;
    for (int i = 0; i < 3 && !cause; i++)
        if (inputs[i] && poison_state(inputs[i]) == POISON_FAILED)
            cause = inputs[i]->cause;
    if (!cause && guard && guard_code(guard) != STATUS_OK)
        cause = guard;
    if (cause)
        result->cause = guard_ref(cause);
    atomic_store_explicit(&result->state, cause ? POISON_FAILED : POISON_CLEAR, memory_order_release);
    for (int i = 0; i < 3; i++)
        poison_unref(inputs[i]);
    guard_unref(guard);
    poison_unref(result);
}
