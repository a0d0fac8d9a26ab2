/* Memory for reports (engine/device/launch.h) that kernels can write to: the host's own where the device reaches that, else taken
 * from the device in segments. Any thread. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "engine/device/launch.h"

struct device;
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
