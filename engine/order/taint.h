/* Taints: failures that only show while kernels run, such as an index out of range.
 *
 * A launch that reads positions out of a tensor, or that may be stopped since it takes too long, gets a check: its report,
 * which the kernel or the submitter fills, and the words for it.
 * Its result is tainted, and so is everything computed from a tainted tensor while that taint is open. Behind each such
 * launch the stream has a record that settles the result's taint: failed with the first cause among its inputs' taints
 * and its own check, or clear. So causes travel in stream order, without a test in any kernel and without a cost for
 * operations that nobody can taint.
 *
 * References may be held by both threads and are counted atomically. */
#pragma once

#include <stdatomic.h>

#include "engine/device/launch.h"
#include "engine/order/reports.h"

struct check {
    _Atomic unsigned references;
    struct reports *reports; /* where `report` came from; NULL: it failed outside the device, with `code` */
    struct report *report;
    enum status code;
    char operation[OPERATION_NAME_MAX + 1];
    char label[OPERATION_LABEL_MAX + 1];
    uint64_t sequence;
    int axis;
    bool launch; /* it is about a user kernel's launch, of which the report's value is the device's own number for it */
    char message[256]; /* where there is no report */
    bool counted;      /* owner thread: it stands in its session's figures */
};

struct taint {
    _Atomic unsigned references;
    _Atomic int state;   /* enum taint_state; released by the submitter after `cause` */
    struct check *cause; /* FAILED: the check that failed first; referenced */
};

enum taint_state { TAINT_OPEN, TAINT_CLEAR, TAINT_FAILED };

/* NULL out of memory. */
struct check *check_create(struct reports *reports, const char *operation, const char *label, uint64_t sequence,
                           int axis);
/* A check that has failed already, from outside the device. Never NULL: out of memory, a static one stands in. */
struct check *check_failed(const struct fault *cause, const char *operation, const char *label, uint64_t sequence);
struct check *check_ref(struct check *check);
void check_unref(struct check *check);
/* STATUS_OK: no launch has complained. Once these have run. */
enum status check_code(const struct check *check);
/* What a failed check means, in words. */
void check_fault(const struct check *check, struct fault *fault);

struct taint *taint_create(void);
struct taint *taint_ref(struct taint *taint);
void taint_unref(struct taint *taint);
enum taint_state taint_state(const struct taint *taint);
/* Settles `result` from up to three settled inputs (NULL: none) and a check (may be NULL). Takes over one reference to
 * each argument. */
void taint_settle(struct taint *result, struct taint *const inputs[3], struct check *check);
