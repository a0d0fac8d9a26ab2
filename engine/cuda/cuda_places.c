/* The devices of this host, and how a process gets at each of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cuda_device.h"
#include "engine/cuda/survey.h"

/* " with CUDA_VISIBLE_DEVICES=…" if that is set: it may be the reason why there is no device. */
static const char *places_visible(char *text, size_t size) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    text[0] = 0;
    if (visible)
        snprintf(text, size, ", with CUDA_VISIBLE_DEVICES=\"%.100s\"", visible);
    return text;
}

/* Error 35: the driver is too old, or there is none. Error 100: a driver without a device. Both mean that there is no GPU. */
static int places_none(cudaError_t error, struct fault *fault) {
    char visible[160];
    int driver = 0; /* stays 0 if there is no driver */
    if (error != cudaErrorInsufficientDriver && error != cudaErrorNoDevice && error != cudaSuccess)
        return fault_set(fault, STATUS_NO_DEVICE, "CUDA cannot tell its devices: %s", cudaGetErrorString(error));
    if (error != cudaErrorInsufficientDriver)
        return fault_set(fault, STATUS_NO_DEVICE, "%s%s", cudaGetErrorString(cudaErrorNoDevice),
                         places_visible(visible, sizeof visible));
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return fault_set(fault, STATUS_NO_DEVICE, "no NVIDIA driver is loaded");
    return fault_set(fault, STATUS_NO_DEVICE, "the driver is one for CUDA %d.%d, and too old for CUDA %d.%d",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

static bool places_count(unsigned *count, cudaError_t *error) {
    int found = 0; /* CUDA does not set it if it fails */
    *error = cudaGetDeviceCount(&found);
    *count = *error == cudaSuccess && found > 0 ? (unsigned)found : 0;
    return *count > 0;
}

int cuda_count(unsigned *count, struct fault *fault) {
    cudaError_t error;
    unsigned found;
    if (!places_count(&found, &error))
        return places_none(error, fault);
    *count = found;
    return STATUS_OK;
}

/* Of a partitioned GPU each part counts, and CUDA does not list them. */
int cuda_list(struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault) {
    char visible[160];
    cudaError_t error;
    unsigned found;
    bool some = places_count(&found, &error);
    if (!some && error != cudaErrorNoDevice && error != cudaSuccess)
        return places_none(error, fault);
    struct survey *survey = calloc(1, sizeof *survey);
    bool partitioned = survey && survey_take(survey) && survey_partitioned(survey);
    if (partitioned) {
        *count = survey_places(survey, getenv("CUDA_VISIBLE_DEVICES"), places, capacity);
    } else {
        *count = found < capacity ? found : capacity;
        for (unsigned i = 0; i < *count; i++)
            places[i] = (struct device_place){.index = i};
    }
    free(survey);
    if (*count > 0)
        return STATUS_OK;
    return partitioned ? fault_set(fault, STATUS_NO_DEVICE, "MIG is on, and no MIG device is visible%s",
                                   places_visible(visible, sizeof visible))
                       : places_none(error, fault);
}

const char *cuda_visible_part(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && strncmp(visible, "MIG-", 4) == 0 && !strchr(visible, ',') ? visible : NULL;
}
