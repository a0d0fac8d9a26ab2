/* The GPUs of this host and their MIG devices, as NVML sees them, whatever CUDA_VISIBLE_DEVICES says.
 *
 * CUDA shows a process one MIG device at most, and then no whole GPU; of a partitioned GPU it shows the first part. So if a GPU is
 * partitioned, a process must be told its device by CUDA_VISIBLE_DEVICES in its environment. */
#pragma once

#include <stdbool.h>

#include "engine/cuda/nvml.h"
#include "engine/device/device.h"

enum { SURVEY_GPUS_MAX = 64, SURVEY_PARTS_MAX = 256 };

struct survey {
    unsigned n_gpus, n_parts;
    struct survey_gpu {
        char uuid[NVML_UUID_MAX]; /* "" if this process may not know it */
        bool partitioned;         /* MIG is on, though there may be no part yet */
        unsigned first, count;    /* its parts */
    } gpus[SURVEY_GPUS_MAX];      /* by PCI address */
    char parts[SURVEY_PARTS_MAX][NVML_UUID_MAX];
};

/* False: there is no NVML, or it has not answered within SURVEY_MS. */
bool survey_take(struct survey *survey);
enum { SURVEY_MS = 5000 };
bool survey_partitioned(const struct survey *survey);

/* The devices that a process with this CUDA_VISIBLE_DEVICES sees (NULL: it is not set), each part as a device. The variable is a list of
 * numbers and beginnings of UUIDs; it ends at the first that means no device. A partitioned GPU means all of its parts. Returns the
 * number of places, `capacity` at most. */
unsigned survey_places(const struct survey *survey, const char *visible, struct device_place *places,
                       unsigned capacity);
