/* Poison: failures that only show while kernels run, such as an index out of range.
 *
 * A launch gets a guard if it reads positions out of a tensor, or may be stopped because it takes too long. The guard has the launch's
 * report, which the kernel or the submitter fills, and the words for it. The launch's result may be poisoned, and so may all tensors
 * that are computed from it. Struct poison says whether a tensor is poisoned, and is open until that is known. After each such
 * launch the stream has a record that settles the result's poison: it has failed with the first cause among its inputs' poisons
 * and its own guard, or it is clear. So causes travel in stream order; no kernel tests for them, and operations that nobody can
 * poison pay nothing.
 *
 * The owner and the submitter or reaper may hold references, which are counted atomically. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engine/device/launch.h"
#include "proto/ops/shape.h"

struct device;

/* ---- memory for reports, to which kernels can write: the host's own memory where the device reaches it, else segments that the
 * device reserves; any thread ---- */

struct reports_segment;
union report_slot;

struct reports {
    struct device *device;
    pthread_mutex_t lock;
    union report_slot *free;
    struct reports_segment *segments;
    uint64_t used;         /* reports that are in use; under the lock */
    uint64_t reservations; /* segments that were ever taken; under the lock */
};

void reports_init(struct reports *reports, struct device *device);
/* No kernel writes to any report any more. */
void reports_finish(struct reports *reports);
/* A report with code STATUS_OK; NULL out of memory. Owner thread. */
struct report *reports_take(struct reports *reports);
/* For a device at rest: if no report is in use and there are several segments, gives all of them back to the device. True: no report
 * is in use. Owner thread. */
bool reports_rest(struct reports *reports);
uint64_t reports_reservations(struct reports *reports);
void reports_give(struct reports *reports, struct report *report);

/* ---- guards and poison ---- */

/* Indices that broadcast: the device counts a position in the shape that they broadcast to. */
struct guard_broadcast {
    int rank;
    int64_t shape[SHAPE_RANK_MAX];
    int64_t strides[SHAPE_RANK_MAX]; /* in the indices as they came, one after another; 0 where they broadcast */
};

struct guard {
    _Atomic unsigned references;
    struct reports *reports; /* where `report` came from; NULL: the operation failed outside the device, with `code` */
    struct report *report;
    struct report own; /* it is the report where the device writes to the host's memory */
    enum status code;
    char operation[OPERATION_NAME_MAX + 1];
    char label[OPERATION_LABEL_MAX + 1];
    uint64_t sequence;
    uint64_t iteration; /* of the loop that the operation was in, from 1; 0: it was in none */
    int axis;
    bool above;  /* the index is u64, of which the report's value is the bits */
    bool launch; /* a user kernel's launch was refused: the report's value is the device's own number of the error */
    bool broadcasts; /* a position counts in `broadcast` */
    bool counted;    /* owner thread: its session's figures include it */
    union {
        char message[256]; /* if there is no report */
        struct guard_broadcast broadcast;
    };
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
/* The indices have the shape `from` and broadcast to `to`. */
void guard_set_broadcast(struct guard *guard, int rank, const int64_t *from, const int64_t *to);
/* A guard of an operation that has failed outside the device. Never NULL: out of memory, a static guard takes its place. */
struct guard *guard_failed(const struct fault *cause, const char *operation, const char *label, uint64_t sequence);
struct guard *guard_ref(struct guard *guard);
void guard_unref(struct guard *guard);
/* Why the launch failed; STATUS_OK: it did not. To be called when the launch has run. */
enum status guard_code(const struct guard *guard);
/* Why the launch of a failed guard failed, in words. */
void guard_fault(const struct guard *guard, struct fault *fault);

struct poison *poison_create(void);
struct poison *poison_ref(struct poison *poison);
void poison_unref(struct poison *poison);
enum poison_state poison_state(const struct poison *poison);
/* Settles `result` from up to three settled inputs (NULL: none) and a guard (may be NULL). Takes over one reference to
 * each argument. */
void poison_settle(struct poison *result, struct poison *const inputs[3], struct guard *guard);
