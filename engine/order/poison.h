/* Poison: failures that only show while kernels run, such as an index out of range.
 *
 * A launch that reads positions out of a tensor, or that may be stopped since it takes too long, gets a guard: its report,
 * which the kernel or the submitter fills, and the words for it. Its result may be poisoned, and so may everything that is
 * computed from it: struct poison says whether it is, and is open until that is known. Behind each such launch the stream has a
 * record that settles the result's poison: failed with the first cause among its inputs' poisons and its own guard, or clear.
 * So causes travel in stream order, without a test in any kernel and without a cost for operations that nobody can poison.
 *
 * References may be held by both threads and are counted atomically. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engine/device/launch.h"

struct device;

/* ---- memory for reports that kernels can write to: the host's own where the device reaches that, else taken from the device in
 * segments; any thread ---- */

struct reports_segment;
union report_slot;

struct reports {
    struct device *device;
    pthread_mutex_t lock;
    union report_slot *free;
    struct reports_segment *segments;
    uint64_t used;         /* reports that somebody has, */
    uint64_t reservations; /* and segments taken, ever; under the lock */
};

void reports_init(struct reports *reports, struct device *device);
/* No kernel writes to any report any more. */
void reports_finish(struct reports *reports);
/* With code STATUS_OK; NULL out of memory. Owner thread. */
struct report *reports_take(struct reports *reports);
/* At rest: more than one segment goes back to the device where none is in use. True: none is. Owner thread. */
bool reports_rest(struct reports *reports);
uint64_t reports_reservations(struct reports *reports);
void reports_give(struct reports *reports, struct report *report);

/* ---- guards and poison ---- */

struct guard {
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

struct poison {
    _Atomic unsigned references;
    _Atomic int state;   /* enum poison_state; released by the submitter after `cause` */
    struct guard *cause; /* FAILED: the guard that failed first; referenced */
};

enum poison_state { POISON_OPEN, POISON_CLEAR, POISON_FAILED };

/* NULL out of memory. */
struct guard *guard_create(struct reports *reports, const char *operation, const char *label, uint64_t sequence,
                           int axis);
/* A guard that has failed already, from outside the device. Never NULL: out of memory, a static one stands in. */
struct guard *guard_failed(const struct fault *cause, const char *operation, const char *label, uint64_t sequence);
struct guard *guard_ref(struct guard *guard);
void guard_unref(struct guard *guard);
/* STATUS_OK: no launch has complained. Once these have run. */
enum status guard_code(const struct guard *guard);
/* What a failed guard means, in words. */
void guard_fault(const struct guard *guard, struct fault *fault);

struct poison *poison_create(void);
struct poison *poison_ref(struct poison *poison);
void poison_unref(struct poison *poison);
enum poison_state poison_state(const struct poison *poison);
/* Settles `result` from up to three settled inputs (NULL: none) and a guard (may be NULL). Takes over one reference to
 * each argument. */
void poison_settle(struct poison *result, struct poison *const inputs[3], struct guard *guard);
