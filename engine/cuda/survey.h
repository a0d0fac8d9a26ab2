/* The GPUs of this host as NVML sees them, whatever CUDA_VISIBLE_DEVICES says, and their MIG devices.
 *
 * CUDA shows a process one MIG device at most, and then no whole GPU beside it; a GPU that is partitioned is shown as the
 * first of its parts. So where one is partitioned, a process that is to get at a device must be told which, by
 * CUDA_VISIBLE_DEVICES in its environment. */
#pragma once

#include <stdbool.h>

#include "engine/cuda/nvml.h"
#include "engine/device/device.h"

enum { SURVEY_GPUS_MAX = 64, SURVEY_PARTS_MAX = 256 };

struct survey {
    unsigned n_gpus, n_parts;
    struct survey_gpu {
        char uuid[NVML_UUID_MAX]; /* "" where this process may not know */
        bool partitioned;         /* MIG is on, though there may be no part yet */
        unsigned first, count;    /* of its parts */
    } gpus[SURVEY_GPUS_MAX];      /* by PCI address */
    char parts[SURVEY_PARTS_MAX][NVML_UUID_MAX];
};

/* False where there is no NVML, or it has not answered within SURVEY_MS. */
bool survey_take(struct survey *survey);
enum { SURVEY_MS = 5000 };
bool survey_partitioned(const struct survey *survey);

/* What a process sees that has this CUDA_VISIBLE_DEVICES (NULL: it is not set), each part by itself: a list of numbers,
 * and beginnings of UUIDs, up to the first that means no device. A GPU that is partitioned stands for all of its parts.
 * Returns how many places, at most `capacity`. */
unsigned survey_places(const struct survey *survey, const char *visible, struct device_place *places,
                       unsigned capacity);
