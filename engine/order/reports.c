#include "engine/order/reports.h"

#include <stdlib.h>

#include "engine/device/device_impl.h"

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
    if (unused && reports->segments && reports->segments->next) /* a single one is kept for the next session */
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

/* Another segment, cut into slots; with the lock held. */
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
