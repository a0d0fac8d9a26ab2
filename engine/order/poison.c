#include "engine/order/poison.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct check *check_blank(const char *operation, const char *label, uint64_t sequence) {
    struct check *check = calloc(1, sizeof *check);
    if (!check)
        return NULL;
    atomic_init(&check->references, 1);
    snprintf(check->operation, sizeof check->operation, "%s", operation);
    snprintf(check->label, sizeof check->label, "%s", label ? label : "");
    check->sequence = sequence;
    return check;
}

struct check *check_create(struct reports *reports, const char *operation, const char *label, uint64_t sequence,
                           int axis) {
    struct check *check = check_blank(operation, label, sequence);
    if (!check || !(check->report = reports_take(reports))) {
        free(check);
        return NULL;
    }
    check->reports = reports;
    check->axis = axis;
    return check;
}

static struct check check_no_memory = {
    .references = 1,
    .code = STATUS_NO_HOST_MEMORY,
    .message = "the daemon is out of host memory",
};

struct check *check_failed(const struct fault *cause, const char *operation, const char *label, uint64_t sequence) {
    struct check *check = check_blank(operation, label, sequence);
    if (!check)
        return check_ref(&check_no_memory);
    check->code = cause->code;
    snprintf(check->message, sizeof check->message, "%s", cause->message);
    return check;
}

struct check *check_ref(struct check *check) {
    atomic_fetch_add_explicit(&check->references, 1, memory_order_relaxed);
    return check;
}

void check_unref(struct check *check) {
    if (!check || atomic_fetch_sub_explicit(&check->references, 1, memory_order_acq_rel) != 1)
        return;
    if (check->reports)
        reports_give(check->reports, check->report);
    free(check);
}

enum status check_code(const struct check *check) {
    if (!check->reports)
        return check->code;
    return (enum status)atomic_load_explicit(&check->report->code, memory_order_acquire);
}

void check_fault(const struct check *check, struct fault *fault) {
    const struct report *report = check->report;
    if (!check->reports)
        fault_set(fault, check->code, "%s", check->message);
    else if (check_code(check) == STATUS_LIMIT)
        fault_set(fault, STATUS_LIMIT,
                  "it was stopped after %.1f s on the device: an operation may take no longer (operation-time)",
                  (double)report->value / 1e3);
    else if (check->launch)
        fault_set(fault, check_code(check), "the device refuses the launch: %s (its error %" PRId64 ")",
                  status_text((int)check_code(check)), report->value);
    else if (check->axis < 0)
        fault_set(fault, check_code(check), "index %" PRId64 " at position %" PRId64 " is none of %" PRId64 " classes",
                  report->value, report->position, report->limit);
    else
        fault_set(fault, check_code(check),
                  "index %" PRId64 " at position %" PRId64 " is out of range for axis %d of extent %" PRId64,
                  report->value, report->position, check->axis, report->limit);
}

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
        check_unref(poison->cause);
        free(poison);
    }
}

enum poison_state poison_state(const struct poison *poison) {
    return (enum poison_state)atomic_load_explicit(&poison->state, memory_order_acquire);
}

void poison_settle(struct poison *result, struct poison *const inputs[3], struct check *check) {
    struct check *cause = NULL;
    for (int i = 0; i < 3 && !cause; i++)
        if (inputs[i] && poison_state(inputs[i]) == POISON_FAILED)
            cause = inputs[i]->cause;
    if (!cause && check && check_code(check) != STATUS_OK)
        cause = check;
    if (cause)
        result->cause = check_ref(cause);
    atomic_store_explicit(&result->state, cause ? POISON_FAILED : POISON_CLEAR, memory_order_release);
    for (int i = 0; i < 3; i++)
        poison_unref(inputs[i]);
    check_unref(check);
    poison_unref(result);
}
